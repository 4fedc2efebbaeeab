"""Publishing blocks of rows: as many in flight as may be, every row accounted for.

`send` puts a block's rows on their way, `settle` waits until each of them has an answer. Neither
raises for a row: what came of it is in the block's states, what is odd in `problems`. When the
connection breaks, or a server falls silent, both return early with `error` set; rows that are still
`SENT` are then in doubt, and only the caller knows how to publish them again.
"""

import asyncio
from typing import TYPE_CHECKING

from slipstream.client.arrow.row_acks import RowAcks
from slipstream.client.arrow.row_block import RowBlock

if TYPE_CHECKING:
    from slipstream.client import Connection

CHUNK_BYTES = 128 * 1024
UNHEARD_RETRIES = 2
UNHEARD_WAIT_SECONDS = 0.25
NOBODY_LISTENS = b""
"""In the place of an answer: no stream listens on the row's subject."""


class RowPublisher:
    """Publishes over one connection. `lines` and `label` are those of `RowBlock.frames`.

    At most `in_flight_max` rows wait for an acknowledgement; when none comes for `quiet` seconds
    the server counts as gone.
    """

    def __init__(
        self,
        connection: "Connection",
        lines: bytes,
        label: bytes,
        *,
        in_flight_max: int,
        quiet: float,
    ) -> None:
        self._connection = connection
        self._write_buffer = connection.write_buffer
        self._lines = lines
        self._label = label
        self._in_flight_max = in_flight_max
        self._quiet = quiet
        inbox = f"{connection.new_inbox()}."
        self._inbox = inbox.encode()
        self._acks = RowAcks(self._inbox)
        self._token = 0
        self._route = connection.subscriptions.open(f"{inbox}*", "", self._acks)

    @property
    def error(self) -> Exception | None:
        """Why no further answer is to be expected; None as long as all is well."""
        return self._acks.error

    async def send(self, block: RowBlock) -> None:
        """Put all rows that are to be sent on their way."""
        acks = self._acks
        if block not in acks.blocks:
            block.first_token = self._token
            self._token += block.count
            acks.blocks.append(block)
        half = self._in_flight_max // 2
        while block.next_row < block.count and acks.error is None:
            room = self._in_flight_max - acks.in_flight
            if room <= half and acks.in_flight > half:
                await acks.wait(half, self._quiet)
                continue
            before, payload = block.in_flight, block.payload
            frames = block.frames(
                self._inbox, self._lines, self._label, self._connection.max_payload, room,
                CHUNK_BYTES,
            )  # fmt: skip
            rows = block.in_flight - before
            if rows:
                acks.in_flight += rows
                self._write_buffer.messages += rows
                self._write_buffer.payload_bytes += block.payload - payload
                self._write_buffer.put_line(frames)
            if self._write_buffer.crowded:
                await self._write_buffer.room()

    async def settle(self, block: RowBlock) -> list[tuple[int, bytes]]:
        """Wait for the answers on a block that was sent; its problems.

        A problem is a row and the answer that was no acknowledgement: `NOBODY_LISTENS` if there
        was none. Rows that are `REFUSED` without a problem were never sent.
        """
        acks = self._acks
        for attempt in range(UNHEARD_RETRIES + 1):
            while block.in_flight and acks.error is None:
                await acks.wait(acks.in_flight - block.in_flight, self._quiet)
            unheard = [row for held, row in acks.unheard if held is block]
            acks.unheard = [entry for entry in acks.unheard if entry[0] is not block]
            if not unheard or acks.error is not None:
                break
            block.rewind()
            if attempt == UNHEARD_RETRIES:
                for row in unheard:
                    block.refuse(row)
                    acks.problems.append((block, row, NOBODY_LISTENS))
                break
            await asyncio.sleep(UNHEARD_WAIT_SECONDS)  # perhaps it is about to come up
            await self.send(block)
        found = [(row, answer) for held, row, answer in acks.problems if held is block]
        acks.problems = [entry for entry in acks.problems if entry[0] is not block]
        if block.in_flight == 0:
            acks.blocks.remove(block)
        return found

    def close(self) -> None:
        """Listen no more."""
        self._connection.subscriptions.drop(self._route)
