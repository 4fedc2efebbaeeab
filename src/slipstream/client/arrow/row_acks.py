"""The acknowledgements of rows: each is found by its number and noted, without becoming an object.

Of an acknowledgement that a stream writes only the sequence is read. Whatever looks otherwise (an
error, a status, another service's answer) is kept in `problems` with the row it is about.
"""

import asyncio
from typing import TYPE_CHECKING

from slipstream.client.arrow.row_block import RowBlock
from slipstream.client.message import message_of
from slipstream.client.subscriptions import Sink

if TYPE_CHECKING:
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


class RowAcks(Sink):
    """The sink of one publisher's acknowledgements; the reply subjects begin with `prefix`.

    `blocks` are those that wait, `in_flight` counts their rows that do; `unheard` are rows that
    nobody listened to, which may be sent again; `error` tells that nothing more will come.
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
            token = token * 10 + (view[i] - 48)
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
        """Return when at most `level` rows are in flight; sets `error` if that can not be.

        It can not if the connection breaks, or no answer comes for `quiet` seconds.
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
        if (
            view[i] == 34 and view[i + 1] == 115 and view[i + 2] == 101 and view[i + 3] == 113
            and view[i + 4] == 34 and view[i + 5] == 58
        ):  # fmt: skip
            i += 6
            while i < end and view[i] == 32:
                i += 1
            value = 0
            while i < end and 48 <= view[i] <= 57:
                value = value * 10 + (view[i] - 48)
                i += 1
            return value
        i += 1
    return 0
