"""Messages between the socket and the task that takes them: the per-message half of consuming.

Two sinks and an iterator. A `Batch` gathers the messages of one fetch. A `Delivery` is a queue
that never ends: it counts what was asked for and what is held, calls its `source` when it is time
to ask for more, and, for an ordered consumer, when a message is missing. Neither makes a task or a
timer per message; what is seldom (statuses, heartbeats, reconnecting) is the source's business.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from slipstream.client.jetstream.message import JetStreamMessage, Metadata, delivered
from slipstream.client.message import Compiled, Message, message_of
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.subscriptions import Sink
from slipstream.client.value_types import Typed, Value_co
from slipstream.model.ack_subject import is_ack_subject
from slipstream.model.header_names import NATS_PIN_ID

if TYPE_CHECKING:
    from slipstream.client.jetstream.pull import Pin
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

# A taker that never waits lets others run this often; requests and acknowledgements leave then.
MESSAGES_PER_TURN = 128

_int = int  # the name `int` in a compiled module's annotations is a C type


class Source(Protocol):
    """Who fills a `Delivery` or a `Batch`."""

    def replenish(self) -> None:
        """Less is held and asked for than the threshold."""

    def on_status(self, message: Message) -> None:
        """The server says something about the request in place of a message."""

    def on_control(self, message: Message) -> None:
        """All messages before a control message (`Delivery.put_control`) have been taken."""

    def on_overflow(self) -> None:
        """A message was dropped, since as many are held as may be."""

    def on_enough(self) -> None:
        """The last message that is wanted was taken."""

    def on_gap(self, message: JetStreamMessage) -> None:
        """An ordered consumer's message is not the next one."""

    def on_disconnect(self, handed: int) -> None:
        """The connection broke."""

    def on_reconnect(self) -> None:
        """The connection is back."""

    def on_failure(self, error: Exception) -> None:
        """No further message comes."""


class Batch(Sink):
    """The messages of one fetch: done when `wanted` are there, or when the source says so."""

    def __init__(self, source: Source, context: Any, kind: Any, wanted: _int) -> None:
        self.messages: list[JetStreamMessage] = []
        self.wanted = wanted
        self.bytes = 0
        self.heard = True  # something came since the last look
        self._source = source
        self._context = context
        self._kind = kind
        self._waiter: ReplyFuture | None = None
        self._is_done = False

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """A message, or a status."""
        self.heard = True
        if not is_ack_subject(frames.reply):
            self._source.on_status(message_of(frames, write_buffer))
            return
        message = delivered(frames, write_buffer, self._context, self._kind)
        self.messages.append(message)
        self.bytes += frames.end - frames.header_start + len(frames.subject) + len(frames.reply)
        if len(self.messages) >= self.wanted:
            self.finish()

    def finish(self) -> None:
        """Nothing more is awaited."""
        self._is_done = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    @property
    def is_done(self) -> bool:
        """Whether nothing more is awaited."""
        return bool(self._is_done)

    def wait(self, answer: ReplyFuture) -> ReplyFuture:
        """`answer`, which is set when the batch is done."""
        self._waiter = answer
        if self._is_done:
            answer.set_result(None)
        return answer

    def failed(self, error: Exception) -> None:
        """The subscription was refused, or the connection closed."""
        self._source.on_failure(error)

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke."""
        self._source.on_disconnect(handed)

    def on_reconnect(self) -> None:
        """The connection is back."""
        self._source.on_reconnect()


class Delivery(Sink):
    """A queue of messages with its accounts.

    `requested` counts messages that were asked for and have not come, `held` those that have come
    and were not taken; the source is asked to replenish when both together are under `low` (or the
    bytes under `low_bytes`, if that is not 0). With `ordered`, `expected` is the consumer sequence
    that comes next and `last_sequence` the stream sequence that came last. `limit` bounds what is
    held where the server is not asked for each message (0: no bound); `stop_after` ends it after so
    many messages (0: never). `pin` learns the id that messages of a pinned group bring.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Any, kind: Any) -> None:
        self.loop = loop
        self.source: Source | None = None
        self.requested = 0
        self.requested_bytes = 0
        self.held_bytes = 0
        self.low = 0
        self.low_bytes = 0
        self.missed = 0  # looks in a row that found nothing new
        self.ordered = False
        self.expected = 1
        self.last_sequence = 0
        self.arrived = 0
        self.taken = 0
        self.limit = 0
        self.stop_after = 0
        self.pin: Pin | None = None
        self.is_ended = False
        self.drainer: Callable[[], Awaitable[None]] | None = None
        self._error: Exception | None = None
        self._notices: deque[Exception] = deque()
        self._context = context
        self._kind = kind
        self._ready: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def held(self) -> _int:
        """How many messages wait to be taken."""
        return len(self._ready)

    # -- in ------------------------------------------------------------------------------------

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """A message, or a status."""
        self.missed = 0
        if self.is_ended:
            return
        if not is_ack_subject(frames.reply):
            if self.source is not None:
                self.source.on_status(message_of(frames, write_buffer))
            return
        message = delivered(frames, write_buffer, self._context, self._kind)
        if self.ordered and not self._in_order(message):
            return
        if self.limit > 0 and len(self._ready) >= self.limit:
            if self.source is not None:
                self.source.on_overflow()
            return
        if self.pin is not None:
            self.pin.id = message.header(NATS_PIN_ID) or self.pin.id
        size = frames.end - frames.header_start + len(frames.subject) + len(frames.reply)
        self._ready.append(message)
        self.arrived += 1
        self.held_bytes += size
        if self.requested > 0:
            self.requested -= 1
        self.requested_bytes -= size
        if self._waiter is not None:
            self._wake()

    def _in_order(self, message: JetStreamMessage) -> bool:
        metadata = Metadata(message._reply)
        if metadata.consumer_sequence != self.expected:
            if self.source is not None:
                self.source.on_gap(message)
            return False
        message._metadata = metadata
        self.expected += 1
        self.last_sequence = metadata.stream_sequence
        return True

    def put_control(self, control: Message) -> None:
        """Hand `control` to the source (`on_control`) when all before it has been taken."""
        self._ready.append(control)
        if self._waiter is not None:
            self._wake()

    def forget_requests(self) -> None:
        """What was asked for will not come: the connection or the consumer's leader changed."""
        self.requested = 0
        self.requested_bytes = 0

    # -- out -----------------------------------------------------------------------------------

    def take(self) -> JetStreamMessage | None:
        """The next message; None if there is none at the moment."""
        while self._ready:
            item = self._ready.popleft()
            if type(item) is not JetStreamMessage:
                if self.source is not None:
                    self.source.on_control(item)
                continue
            message = item
            size = message.size
            self.held_bytes -= size
            self.taken += 1
            if self.stop_after > 0 and self.taken >= self.stop_after:
                if self.source is not None:
                    self.source.on_enough()
            elif self.requested + len(self._ready) < self.low or (
                self.low_bytes > 0 and self.requested_bytes + self.held_bytes < self.low_bytes
            ):
                if self.source is not None:
                    self.source.replenish()
            return message
        return None

    def give_up(self) -> list[JetStreamMessage]:
        """Take everything that waits at once, without asking for more."""
        given = [item for item in self._ready if type(item) is JetStreamMessage]
        self._ready.clear()
        self.held_bytes = 0
        return given

    def notify(self, error: Exception) -> None:
        """Raise `error` once where messages are taken, after those that came before it."""
        self._notices.append(error)
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """No further message comes; those that wait can still be taken."""
        if not self.is_ended:
            self.is_ended = True
            self._error = error
        self._wake()

    def outcome(self) -> bool:
        """With nothing left to take: True if it has ended well; raises if it has ended badly."""
        if self._notices:
            raise self._notices.popleft()
        if self.is_ended and self._error is not None:
            raise self._error
        return bool(self.is_ended)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def arrival(self) -> None:
        """Wait until there is something to take, or it has ended."""
        while not self._ready and not self.is_ended and not self._notices:
            if self._waiter is None:
                self._waiter = self.loop.create_future()
            # Several may wait for the one future; none of them may cancel it for the others.
            await asyncio.shield(self._waiter)

    async def drain(self) -> None:
        """The connection will be closed: a handler sees what has come; an iterator ends."""
        if self.drainer is not None:
            await self.drainer()

    # -- what the connection says ---------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """The subscription was refused, or the connection closed."""
        if self.source is not None:
            self.source.on_failure(error)

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke."""
        if self.source is not None:
            self.source.on_disconnect(handed)

    def on_reconnect(self) -> None:
        """The connection is back."""
        if self.source is not None:
            self.source.on_reconnect()


class Iteration(Compiled, Typed[Value_co]):
    """``async for`` over a `Delivery`, whose messages' values are of the type it was given."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._rest_at = MESSAGES_PER_TURN

    def __aiter__(self) -> "Iteration[Value_co]":
        return self

    async def __anext__(self) -> JetStreamMessage[Value_co]:
        if self._delivery.taken >= self._rest_at:
            # Before a message is taken: a cancellation here loses none.
            self._rest_at = self._delivery.taken + MESSAGES_PER_TURN
            await asyncio.sleep(0)
        while True:
            message = self._delivery.take()
            if message is not None:
                return message
            if self._delivery.outcome():
                raise StopAsyncIteration
            await self._delivery.arrival()
