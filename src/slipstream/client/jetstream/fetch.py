"""One pull request and its answer: `fetch`, `fetch_bytes`, `fetch_no_wait`, `next`.

Each has an inbox of its own, and gives it up when it is done, out of time or cancelled: then the
server drops the request, and what it sent for it in the meantime reaches nobody. Messages that a
cancelled fetch has already received are handed back (-NAK), so that somebody else gets them at
once. An empty batch is an answer, not an error.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from slipstream.client.errors import OutboundBufferFullError
from slipstream.client.jetstream.delivery import Batch
from slipstream.client.jetstream.errors import (
    ConsumeError,
    JetStreamError,
    LeadershipChangedError,
    NoHeartbeatError,
    ServerShutdownError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.pull_options import GroupOptions, request_body
from slipstream.client.jetstream.source import LOOKS_PER_HEARTBEAT, LOOKS_SILENT_MAX
from slipstream.client.jetstream.status import Verdict, judge
from slipstream.client.message import Message
from slipstream.client.reply_future import ReplyFuture
from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

# The server's word that the time is over should come before our own clock says so.
EARLIER_PART = 0.1
EARLIER_MAX = 0.1
NOT_BACK_YET = 0.25  # seconds between attempts while a restarted server finds its consumers


class MessageBatch(list[JetStreamMessage]):
    """The messages of a fetch, perhaps none; `error` is the trouble that cut it short, if any."""

    error: Exception | None = None


class Fetch:
    """One fetch; `run` does it."""

    def __init__(
        self,
        connection: "Connection",
        *,
        subject: str,
        who: str,
        context: Any,
        kind: Any,
        count: int,
        timeout: float,
        max_bytes: int = 0,
        heartbeat: float = 0.0,
        no_wait: bool = False,
        group: GroupOptions | None = None,
        pin_id: str = "",
    ) -> None:
        self._connection = connection
        self._loop = connection.loop
        self._subject = subject
        self._who = who
        self._timeout = timeout
        self._deadline = self._loop.time() + timeout
        self._max_bytes = max_bytes
        self._heartbeat = heartbeat
        self._no_wait = no_wait
        self._group = group
        self._pin_id = pin_id
        self._inbox = connection.new_inbox()
        self._batch = Batch(self, context, kind, count)
        self._error: Exception | None = None
        self._position = 0
        self._moved = False
        self._silent = 0
        self._watch: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None

    async def run(self) -> MessageBatch:
        """The messages; raises if trouble came before any message did."""
        write_buffer = self._connection.write_buffer
        if write_buffer.pending > write_buffer.bytes_max:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._deadline):
                    await write_buffer.room()
        try:
            await self._receive()
        except asyncio.CancelledError:
            # only now that the inbox is gone: before, they might come again to it
            hand_back(self._batch.messages)
            raise
        if self._error is not None and not self._batch.messages:
            raise self._error
        found = MessageBatch(self._batch.messages)
        found.error = self._error
        return found

    async def _receive(self) -> None:
        """Fill the batch; at the end the server forgets the request, with its inbox."""
        route = self._connection.subscriptions.open(self._inbox, "", self._batch)
        timer = self._loop.call_at(self._deadline, self._batch.finish)
        try:
            self._ask()
            if self._heartbeat:
                self._look_later()
            await self._batch.wait(ReplyFuture(self._connection.write_buffer))
        finally:
            for pending in (timer, self._watch, self._again):
                if pending is not None:
                    pending.cancel()
            self._connection.subscriptions.drop(route)

    def _ask(self) -> None:
        """Ask for what is still missing, in the time that is left."""
        left = max(self._deadline - self._loop.time(), 0.001)
        expires = 0.0 if self._no_wait else left - min(left * EARLIER_PART, EARLIER_MAX)
        body = request_body(
            self._batch.wanted - len(self._batch.messages),
            expires=expires,
            max_bytes=max(self._max_bytes - self._batch.bytes, 1) if self._max_bytes else 0,
            heartbeat=self._heartbeat if self._heartbeat <= expires / 2 else 0.0,
            no_wait=self._no_wait,
            group=self._group,
            pin_id=self._pin_id,
        )
        self._position = self._connection.publish_nowait(self._subject, body, reply=self._inbox)

    def _stop(self, error: Exception | None) -> None:
        self._error = error
        self._batch.finish()

    def _look_later(self) -> None:
        self._watch = self._loop.call_later(self._heartbeat / LOOKS_PER_HEARTBEAT, self._look)

    def _look(self) -> None:
        if self._batch.heard or not self._connection.is_connected:
            self._silent = 0
        self._silent += 1
        self._batch.heard = False
        if self._silent >= LOOKS_SILENT_MAX:
            self._stop(
                NoHeartbeatError(
                    f"{self._who}: the server sent nothing for twice the heartbeat of "
                    f"{self._heartbeat} s. Fetch again"
                )
            )
            return
        self._look_later()

    # -- what the batch calls ------------------------------------------------------------------

    def on_status(self, message: Message) -> None:
        """A heartbeat, or the end of the request."""
        verdict, error = judge(message, self._who)
        if verdict is Verdict.ALIVE:
            return
        if isinstance(error, LeadershipChangedError | ServerShutdownError):
            self._moved = True  # to another server, or this one comes back
        if self._moved and verdict is Verdict.LOST:
            self._again = self._loop.call_later(NOT_BACK_YET, self._ask_again)
            return
        self._stop(None if verdict is Verdict.DONE else error)

    def _ask_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._batch.is_done or not self._connection.is_connected:
            return
        try:
            self._ask()
        except OutboundBufferFullError:
            self._again = self._loop.call_later(NOT_BACK_YET, self._ask_again)

    def on_disconnect(self, handed: int) -> None:
        """The request is lost, unless it was still to be sent; `on_reconnect` asks again."""
        if self._position <= handed:
            self._moved = True

    def on_reconnect(self) -> None:
        """Ask again for what is missing."""
        self._batch.heard = True
        if self._moved:
            self._ask_again()

    def on_failure(self, error: Exception) -> None:
        """The subscription was refused, or the connection closed."""
        self._stop(error)

    def replenish(self) -> None:
        """A fetch asks once."""

    def on_mark(self, message: Message) -> None:
        """A fetch sets no marks."""

    def on_overflow(self) -> None:
        """A fetch holds what it asked for."""

    def on_enough(self) -> None:
        """The batch knows itself."""

    def on_gap(self, message: JetStreamMessage) -> None:
        """Order is looked at by whoever fetches."""


def hand_back(messages: list[JetStreamMessage]) -> None:
    """Give messages that nobody will look at back to their consumer, to deliver them again now."""
    for message in messages:
        if message.is_acknowledged:
            continue
        try:
            message.nak()
        except (ConsumeError, JetStreamError, Error):
            return  # the connection is gone: their ack_wait brings them back
