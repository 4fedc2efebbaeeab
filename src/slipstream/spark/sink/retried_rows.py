"""Rows that nobody listens to for a while, though their subject is one of the stream's.

A stream that changes its leader, or whose server starts again, listens to nothing for a moment, and
the server answers `503 No Responders`. There is nothing wrong with such a row, and it is not
stored: it is sent again until `retry_timeout` is over. In a bucket the last value of a key has
to win, so all rows after it are sent again as well, also those that are stored.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slipstream.client.arrow.row_block import SENT, STORED, TO_SEND, RowBlock
from slipstream.client.arrow.row_publisher import UNHEARD_WAIT_SECONDS, RowPublisher
from slipstream.errors import Error
from slipstream.wire.subjects import overlaps

if TYPE_CHECKING:
    from slipstream.client import Connection


class UnheardError(Error):
    """The stream has not listened on its own subject for as long as is waited for it."""


class RetryingPublisher(RowPublisher):
    """A `RowPublisher` that waits up to `retry_timeout` s until one of `subjects` is listened to.

    With `keeps_order` rows are stored in their order, some of them perhaps more than once.
    """

    def __init__(
        self,
        connection: "Connection",
        lines: bytes,
        label: bytes,
        *,
        in_flight_max: int,
        quiet: float,
        subjects: Iterable[str],
        retry_timeout: float,
        keeps_order: bool,
    ) -> None:
        super().__init__(connection, lines, label, in_flight_max=in_flight_max, quiet=quiet)
        self._subjects = [subject.encode() for subject in subjects]
        self._retry_timeout = retry_timeout
        self._keeps_order = keeps_order
        self.has_resent = False  # rows have sequences in another order than the blocks

    async def settle(self, block: RowBlock) -> list[tuple[int, bytes]]:
        """As `RowPublisher.settle`. Raises `UnheardError`."""
        deadline = time.monotonic() + self._retry_timeout
        before = block.count + 1
        while await self._is_answered(block):
            unheard = self._unheard(block)
            if not unheard:
                break
            if len(unheard) < before:
                before = len(unheard)
                deadline = time.monotonic() + self._retry_timeout
            elif time.monotonic() > deadline:
                subject = block.subject(unheard[0]).decode("utf-8", "replace")
                raise UnheardError(
                    f"nobody has listened on {subject!r} for {self._retry_timeout:g} s, which was "
                    "a subject of the stream when the write began: is the stream still there, with "
                    "this subject and a leader? The option retryTimeout sets the wait"
                )
            self.has_resent = True
            await asyncio.sleep(UNHEARD_WAIT_SECONDS)
            await self._send_again(block)
        if any(held is block for held, _ in self._acks.unheard):
            self.has_resent = True  # on other subjects, which are tried again for a moment
        return await super().settle(block)

    async def _is_answered(self, block: RowBlock) -> bool:
        """Wait for all answers on a block; False if the connection is no good any more."""
        acks = self._acks
        while block.in_flight and acks.error is None:
            await acks.wait(acks.in_flight - block.in_flight, self._quiet)
        return acks.error is None

    def _unheard(self, block: RowBlock) -> list[int]:
        """Rows of a block on subjects of the stream that nobody has listened to."""
        rows = (row for held, row in self._acks.unheard if held is block)
        return [row for row in rows if self._is_own(block.subject(row))]

    def _is_own(self, subject: bytes) -> bool:
        return any(overlaps(subject, own) for own in self._subjects)

    async def _send_again(self, block: RowBlock) -> None:
        acks = self._acks
        blocks = [block]
        if self._keeps_order:
            await acks.wait(0, self._quiet)
            if acks.error is not None:
                return
            blocks = list(acks.blocks)
            send_all_after_a_missing_one(blocks)
        acks.unheard = [entry for entry in acks.unheard if entry[0] not in blocks]
        for one in blocks:
            one.rewind()
            await self.send(one)


def send_all_after_a_missing_one(blocks: Iterable[RowBlock]) -> None:
    """Mark the rows after the first one that is to be sent, those that are stored included."""
    is_after = False
    for block in blocks:
        for row, state in enumerate(block.states):
            if state == TO_SEND:
                is_after = True
            elif is_after and state == STORED:
                block.states[row] = TO_SEND


def is_settled(block: RowBlock) -> bool:
    """Whether no row of a block waits; `left` does not count rows that were stored before."""
    return TO_SEND not in block.states and SENT not in block.states
