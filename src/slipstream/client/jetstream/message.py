"""A message that a consumer delivered: what a stream stored, and the means to acknowledge it.

Its reply subject says where it comes from (docs/protocol/consumers.md#acknowledgement-subjects),
which is read when `metadata` is first asked for. An acknowledgement is a small publish to that
subject. It is put into the connection's buffer by the call itself and leaves with everything else
of the loop's turn, so that acknowledging a whole batch costs one write. Awaiting it waits only
while the buffer is full:

    await message.ack()      # in the buffer; waits if that is full
    await message.ack_sync() # the server has taken it
"""

from collections.abc import Awaitable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from slipstream.client.jetstream.errors import (
    AlreadyAcknowledgedError,
    NotJetStreamMessageError,
)
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike, Payload
from slipstream.client.value_types import Typed, Value_co
from slipstream.model.ack_subject import AckSubject
from slipstream.model.durations import to_nanoseconds
from slipstream.model.times import Timestamp

if TYPE_CHECKING:
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type
_str = str
T = TypeVar("T")


class Metadata(AckSubject):
    """The position of a delivered message in its stream and its consumer.

    `stream_sequence` and `consumer_sequence` are its numbers there, `num_delivered` counts its
    deliveries (1 for the first), `num_pending` what matches and is still to come, `timestamp_ns` is
    when it was stored.
    """

    def __init__(self, reply: bytes) -> None:
        if not self.read(reply):
            raise NotJetStreamMessageError(
                f"the reply subject {reply.decode('utf-8', 'replace')!r} is not one of JetStream's "
                "acknowledgement subjects: the message was not delivered by a consumer"
            )
        self._reply = reply

    def _token(self, index: _int) -> _str:
        return self._reply.split(b".", index + 1)[index].decode("utf-8", "surrogateescape")

    @property
    def stream(self) -> _str:
        """The stream's name."""
        return self._token(4 if self.has_domain else 2)

    @property
    def consumer(self) -> _str:
        """The consumer's name."""
        return self._token(5 if self.has_domain else 3)

    @property
    def domain(self) -> _str:
        """The JetStream domain; "" if there is none, or the server does not say."""
        if not self.has_domain:
            return ""
        domain = self._token(2)
        return "" if domain == "_" else domain

    @property
    def account_hash(self) -> _str:
        """The server's short name of the account; "" if it does not say."""
        return self._token(3) if self.has_domain else ""

    @property
    def timestamp(self) -> Timestamp:
        """When the message was stored, in UTC."""
        return Timestamp.from_ns(self.timestamp_ns)

    def __repr__(self) -> _str:
        return (
            f"Metadata(stream={self.stream!r}, consumer={self.consumer!r}, "
            f"stream_sequence={self.stream_sequence}, consumer_sequence={self.consumer_sequence}, "
            f"num_delivered={self.num_delivered}, num_pending={self.num_pending}, "
            f"timestamp={self.timestamp.isoformat()!r})"
        )


class Sent:
    """What acknowledgements return: done already; awaiting it waits while the buffer is full."""

    def __init__(self, write_buffer: "WriteBuffer") -> None:
        self._write_buffer = write_buffer

    def __await__(self) -> Generator[Any, None, None]:
        write_buffer = self._write_buffer
        if write_buffer.crowded:
            return write_buffer.room().__await__()
        return iter(())  # type: ignore[return-value]


class JetStreamMessage(Message, Typed[Value_co]):
    """A message from a consumer: `subject`, `data`, `headers`, `metadata`, and acknowledgements.

    `ack`, `nak` and `term` are final: a second one raises `AlreadyAcknowledgedError`.
    """

    def __init__(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> None:
        super().__init__(subject, data, reply=reply, headers=headers)
        self._context: Any = None
        self._metadata: Metadata | None = None
        self._acknowledged = False

    @property
    def value(self) -> Value_co:
        """The payload as the type that was given where it was asked for; see `Message`."""
        value: Value_co = self._value()
        return value

    @property
    def metadata(self) -> Metadata:
        """The position of the message.

        Raises `NotJetStreamMessageError` if no consumer delivered it.
        """
        if self._metadata is None:
            self._metadata = Metadata(self._reply)
        return self._metadata

    @property
    def sequence(self) -> _int:
        """The message's sequence in its stream."""
        return self.metadata.stream_sequence

    @property
    def is_acknowledged(self) -> bool:
        """Whether a final acknowledgement was given."""
        return bool(self._acknowledged)

    def ack(self) -> Awaitable[None]:
        """Done: the consumer need not deliver it again."""
        return self._finish(b"+ACK")

    def nak(self, delay: "float | timedelta | None" = None) -> Awaitable[None]:
        """Not done: deliver it again, after `delay` seconds if given, else at once."""
        return self._finish(_nak(delay))

    def term(self, reason: _str = "") -> Awaitable[None]:
        """Never deliver it again, though it is not done; `reason` goes into the advisory."""
        return self._finish(_term(reason))

    def in_progress(self) -> Awaitable[None]:
        """Still at work: the consumer's `ack_wait` starts again. May be called repeatedly."""
        write_buffer = self._way_back()
        write_buffer.put_message(self._reply, b"", b"", b"+WPI")
        return Sent(write_buffer)

    async def ack_sync(self, timeout: "float | timedelta | None" = None) -> None:
        """Done, and the server has confirmed it (a double ack): it will not come again.

        Waits `timeout` seconds (the context's default if None). Raises `TimeoutError` if the server
        does not confirm; the message may be delivered again then.
        """
        await self._confirm(b"+ACK", timeout)

    async def nak_sync(
        self,
        delay: "float | timedelta | None" = None,
        *,
        timeout: "float | timedelta | None" = None,
    ) -> None:
        """As `nak`, and the server has confirmed it; see `ack_sync`."""
        await self._confirm(_nak(delay), timeout)

    async def term_sync(
        self, reason: _str = "", *, timeout: "float | timedelta | None" = None
    ) -> None:
        """As `term`, and the server has confirmed it; see `ack_sync`."""
        await self._confirm(_term(reason), timeout)

    async def in_progress_sync(self, *, timeout: "float | timedelta | None" = None) -> None:
        """As `in_progress`, and the server has confirmed it; see `ack_sync`."""
        self._way_back()
        await self._context.request_ack(self, b"+WPI", timeout)

    async def _confirm(self, word: bytes, timeout: "float | timedelta | None") -> None:
        self._way_back()
        if self._acknowledged:
            raise self._twice()
        await self._context.request_ack(self, word, timeout)
        self._acknowledged = True

    def _finish(self, word: bytes) -> "Sent":
        """Put a final acknowledgement into the buffer."""
        write_buffer = self._write_buffer
        if write_buffer is None or not self._reply:
            write_buffer = self._way_back()
        if self._acknowledged:
            raise self._twice()
        write_buffer.put_message(self._reply, b"", b"", word)
        self._acknowledged = True
        return Sent(write_buffer)

    def _way_back(self) -> "WriteBuffer":
        if self._write_buffer is None or not self._reply:
            raise NotJetStreamMessageError(
                f"acknowledge a message on {self.subject!r}: it has no acknowledgement subject, so "
                "it was not delivered by a consumer"
            )
        return self._write_buffer

    def _twice(self) -> AlreadyAcknowledgedError:
        return AlreadyAcknowledgedError(
            f"message {self.metadata.stream_sequence} of stream {self.metadata.stream!r} has had "
            "its final acknowledgement; only the first one counts"
        )


def _nak(delay: "float | timedelta | None") -> bytes:
    if delay is None:
        return b"-NAK"
    return b'-NAK {"delay": %d}' % to_nanoseconds(delay, "delay")


def _term(reason: _str) -> bytes:
    return b"+TERM " + reason.encode() if reason else b"+TERM"


def delivered(
    frames: "ServerFrames", write_buffer: "WriteBuffer", context: Any, kind: Any
) -> JetStreamMessage:
    """The message that `frames` stands at."""
    message = JetStreamMessage.__new__(JetStreamMessage)
    message.fill(frames, write_buffer)
    message._context = context
    message._kind = kind
    message._metadata = None
    message._acknowledged = False
    return message
