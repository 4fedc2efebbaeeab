"""Publishing blocks of rows: as many in flight as may be, every row accounted for.

`send` puts a block's rows on their way, `settle` waits until each of them has an answer. Neither
raises for a row: what came of it is in the block's states, what is odd in `problems`. When the
connection breaks, or a server does not answer, both return early with `error` set; rows that are
still `SENT` are then in doubt, and only the caller knows how to publish them again.

`RowAcks` takes the acknowledgements: each is found by its number and noted, without becoming an
object. Of an acknowledgement that a stream writes only the sequence is read. Any other answer (an
error, a status, another service's answer) is kept in `problems` with the row it is about.
"""

import asyncio
from typing import TYPE_CHECKING

import slipstream.wire.ascii as char
from slipstream.client.arrow.row_block import RowBlock
from slipstream.client.message import message_of
from slipstream.client.subscriptions import Sink

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


class RowAcks(Sink):
    """The sink of one publisher's acknowledgements; the reply subjects begin with `prefix`.

    `blocks` are those that wait, `in_flight` counts their rows that do; `unheard` are rows that
    nobody listened to, which may be sent again; `error` is set when nothing more will come.
    """

    def __init__(self, prefix: bytes) -> None:
        self.blocks: list[RowBlock] = []
        self.in_flight = 0
        self.acknowledged = 0
        self.problems: list[tuple[RowBlock, int, bytes]] = []
        self.unheard: list[tuple[RowBlock, int]] = []
        self.error: Exception | None = None
        self._prefix_size = len(prefix)
        self._wake_at = 0
        self._waiter: asyncio.Future[None] | None = None

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """An answer about a row."""
        subject = frames.subject
        view = subject
        token = 0
        for i in range(self._prefix_size, len(subject)):
            token = token * 10 + (view[i] - char.ZERO)
        row = -1
        for block in self.blocks:
            row = token - block.first_token
            if 0 <= row < block.count:
                break
        else:
            return
        sequence = 0
        if frames.header_start == frames.body_start:
            sequence = _sequence(frames.data, frames.body_start, frames.end)
        if sequence > 0:
            if not block.settle(row, 2, sequence):
                return
        elif not self._odd(block, row, frames, write_buffer):
            return
        self.in_flight -= 1
        self.acknowledged += 1
        if self.in_flight <= self._wake_at:
            self._wake()

    def _odd(
        self, block: RowBlock, row: _int, frames: "ServerFrames", write_buffer: "WriteBuffer"
    ) -> _int:
        """An answer that is no plain acknowledgement; whether the row waited for it."""
        if frames.header_start < frames.body_start:
            if message_of(frames, write_buffer).status == 503:
                if not block.settle(row, 0):
                    return 0
                self.unheard.append((block, row))
                return 1
        if not block.settle(row, 4):
            return 0
        self.problems.append((block, row, frames.data[frames.body_start : frames.end]))
        return 1

    def failed(self, error: Exception) -> None:
        """The connection is closed, or the inbox is forbidden."""
        self.error = error
        self._wake()

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke."""
        self.error = ConnectionError("the connection broke")
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, level: _int, quiet: float) -> None:
        """Return when at most `level` rows are in flight; sets `error` if that cannot be.

        It cannot if the connection breaks, or no answer comes for `quiet` seconds.
        """
        loop = asyncio.get_running_loop()
        while self.in_flight > level and self.error is None:
            before = self.acknowledged
            self._wake_at = level
            self._waiter = loop.create_future()
            try:
                async with asyncio.timeout(quiet):
                    await self._waiter
            except TimeoutError:
                if self.acknowledged == before:
                    self.error = TimeoutError(f"no acknowledgement came for {quiet:g} s")
            finally:
                self._waiter = None
                self._wake_at = 0


def _sequence(data: bytes, start: _int, end: _int) -> _int:
    """The sequence in a stream's plain acknowledgement, ``{"stream":...,"seq":5...}``; else 0."""
    view = data
    if end - start < 12 or data[start : start + 10] != b'{"stream":':
        return 0
    i = start + 10
    while i + 6 < end:
        if view[i] == char.QUOTE and data.startswith(b'"seq":', i):
            i += 6
            while i < end and view[i] == char.SPACE:
                i += 1
            value = 0
            while i < end and char.ZERO <= view[i] <= char.NINE:
                value = value * 10 + (view[i] - char.ZERO)
                i += 1
            return value
        i += 1
    return 0


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
        in_flight_max: _int,
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
        self.is_ordered = True  # rows have sequences in the order of the blocks
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

    async def settle(self, block: RowBlock) -> list[tuple[_int, bytes]]:
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
            self.is_ordered = False
            if attempt == UNHEARD_RETRIES:
                for row in unheard:
                    block.refuse(row)
                    acks.problems.append((block, row, NOBODY_LISTENS))
                break
            await asyncio.sleep(UNHEARD_WAIT_SECONDS)  # perhaps it is about to come up
            await self.send(block)
        if acks.in_flight == 0:
            self.is_ordered = True
        found = [(row, answer) for held, row, answer in acks.problems if held is block]
        acks.problems = [entry for entry in acks.problems if entry[0] is not block]
        if block.in_flight == 0:
            acks.blocks.remove(block)
        return found

    def close(self) -> None:
        """Stop listening."""
        self._connection.subscriptions.drop(self._route)
