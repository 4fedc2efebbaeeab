"""Who gets the messages of a subscription id.

The low door of the client is a `Sink`: its `deliver` is called inside the read, without a task or a
queue. A sink that wants no `Message` objects at all overrides `receive` and cuts what it needs out
of the read itself. Iterators, handlers, the inbox of requests and everything of JetStream are
sinks; a `Route` is what the connection knows of each.
"""

from typing import TYPE_CHECKING, Any

from slipstream.client.message import Message, message_of

if TYPE_CHECKING:
    from slipstream.client.outbox import Outbox
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


class Sink:
    """Takes messages as they are read. Whatever it raises is reported as an `ErrorEvent`."""

    def receive(self, frames: "ServerFrames", outbox: "Outbox") -> None:
        """The message that `frames` stands at; what `frames` says ends with this call."""
        self.deliver(message_of(frames, outbox))

    def deliver(self, message: Message) -> None:
        """A message."""

    def failed(self, error: Exception) -> None:
        """No message will come any more: forbidden, or the connection was closed."""

    async def drain(self) -> None:
        """The connection will be closed: return when what has come is dealt with."""

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke; what was published at a position over `handed` was not sent."""

    def on_reconnect(self) -> None:
        """A connection stands again and the subscription with it."""


class ForeignSink(Sink):
    """Any object with a `deliver` method, as a sink."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def deliver(self, message: Message) -> None:
        """Pass it on."""
        self._target.deliver(message)

    def failed(self, error: Exception) -> None:
        """Tell it, if it wants to know."""
        self._tell("failed", error)

    def on_disconnect(self, handed: _int) -> None:
        """Tell it, if it wants to know."""
        self._tell("on_disconnect", handed)

    def on_reconnect(self) -> None:
        """Tell it, if it wants to know."""
        self._tell("on_reconnect")

    def _tell(self, name: str, *arguments: Any) -> None:
        hook = getattr(self._target, name, None)
        if hook is not None:
            hook(*arguments)


class Route:
    """A subscription as the connection keeps it: id, subject, queue group, sink and count."""

    def __init__(self, subject: str, queue: str, sink: Sink) -> None:
        self.sid = 0  # until it is subscribed
        self.subject = subject
        self.queue = queue
        self.sink = sink
        self.delivered = 0
        self.max_messages = 0  # 0: no end
        self.position = 0  # of the SUB in the outbox
        self.base = 0  # `delivered` when the current connection began: the server counts from there

    def subscribe_lines(self) -> bytes:
        """SUB, and what is left of `max_messages` for a connection that begins to count."""
        queue = f" {self.queue}" if self.queue else ""
        line = f"SUB {self.subject}{queue} {self.sid}\r\n".encode()
        self.base = self.delivered
        return line + self.limit_line() if self.max_messages else line

    def limit_line(self) -> bytes:
        """UNSUB once `max_messages` have been delivered."""
        return b"UNSUB %d %d\r\n" % (self.sid, self.max_messages - self.base)

    def unsubscribe_line(self) -> bytes:
        """UNSUB, at once."""
        return b"UNSUB %d\r\n" % self.sid
