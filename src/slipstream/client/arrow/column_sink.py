"""The sink that appends the answers of one read to columns, and says when the read has ended.

A read is one request for a batch: a batched direct get, or a pull request on a consumer. Its
answers come to an inbox of its own, and each is appended to the columns inside the socket's read,
without becoming an object. Whatever is not a message ends the read: the server's end marker, a gap,
the last wanted message; `outcome` says which, and the waiting reader is woken.
"""

import asyncio
from typing import TYPE_CHECKING

from slipstream.client.arrow.columns import MessageColumns
from slipstream.client.message import Message, message_of
from slipstream.client.subscriptions import Sink

if TYPE_CHECKING:
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type

BYTES_UNBOUNDED = 2**62

WAITING = -2  # still reading
FULL = 1  # as many rows as were asked for
BEYOND = 2  # the next message is after the wanted end
GAP = 3  # a message is missing
MALFORMED = -1  # not an answer to the request
STATUS = 0  # the server has spoken: see `status`
BROKEN = 4  # the connection broke, or was closed: see `error`


class ColumnSink(Sink):
    """Appends to `columns` until `rows_wanted` are there or something ends the read.

    A pull request also ends, without a status, when it has brought exactly `bytes_wanted` (0: no
    bound) as servers count them.
    """

    def __init__(
        self, columns: MessageColumns, rows_wanted: _int, bytes_wanted: _int, is_direct: bool
    ) -> None:
        self.columns = columns
        self.rows_wanted = rows_wanted
        self.bytes_left = bytes_wanted or BYTES_UNBOUNDED
        self.is_direct = is_direct
        self.outcome = WAITING
        self.status: Message | None = None
        self.error: Exception | None = None
        self.heartbeats = 0
        self._waiter: asyncio.Future[None] | None = None

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """Append a message, or note what ended the read."""
        columns = self.columns
        if self.outcome != WAITING:
            return
        if self.is_direct:
            result = columns.add_direct(
                frames.data, frames.header_start, frames.body_start, frames.end
            )
        else:
            result = columns.add_delivered(
                frames.subject,
                frames.reply,
                frames.data,
                frames.header_start,
                frames.body_start,
                frames.end,
            )
        if result == 1:
            if columns.sequence >= columns.last_wanted:
                self.end(FULL)
            elif self.is_direct:
                if columns.pending < 0:  # a server that knows no batches answers with one message
                    self.end(FULL)
            else:
                self.bytes_left -= len(frames.subject) + len(frames.reply)
                self.bytes_left -= frames.end - frames.header_start
                if (
                    columns.rows >= self.rows_wanted
                    or self.bytes_left <= 0
                    or (columns.ordered and columns.pending == 0)
                ):
                    self.end(FULL)
        elif result == 0:
            self._take_status(message_of(frames, write_buffer))
        else:
            self.end(result)

    def _take_status(self, message: Message) -> None:
        if message.status == 100:
            self.heartbeats += 1
            return
        self.status = message
        self.end(STATUS)

    def end(self, outcome: _int) -> None:
        """The read is over; wakes who waits for it."""
        self.outcome = outcome
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def failed(self, error: Exception) -> None:
        """The connection is closed for good, or the inbox is forbidden."""
        self.error = error
        if self.outcome == WAITING:
            self.end(BROKEN)

    def on_disconnect(self, handed: _int) -> None:
        """The rest of the answer went down with the connection."""
        if self.outcome == WAITING:
            self.end(BROKEN)

    async def wait(self, quiet: float) -> None:
        """Return when the read has ended, or when nothing has come for `quiet` seconds."""
        loop = asyncio.get_running_loop()
        while self.outcome == WAITING:
            before = self.columns.rows + self.heartbeats
            self._waiter = loop.create_future()
            try:
                async with asyncio.timeout(quiet):
                    await self._waiter
            except TimeoutError:
                if self.columns.rows + self.heartbeats == before:
                    return
            finally:
                self._waiter = None
