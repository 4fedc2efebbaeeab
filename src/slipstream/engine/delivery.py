"""What a consumer asks of its way of delivering: pull (`pull`) or push (`push`)."""

from slipstream.engine.message import Inbound
from slipstream.engine.routing import Service

_int = int  # the name `int` in a compiled module's annotations is a C type

BACKLOG_BYTES_MAX: _int = 8 * 1024 * 1024  # unsent bytes of one client, above which we wait for it


class Delivery(Service):
    """To whom the next message may go; as a service it takes what clients send to that end."""

    def begin(self) -> None:
        """Take requests, or watch interest."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Deliver no more, and tell those who wait."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether somebody can take a message now."""
        raise NotImplementedError

    def send(self, message: Inbound) -> bool:
        """Give the message to whose turn it is; False if that one could not take it."""
        raise NotImplementedError

    def nothing_left(self, is_full: bool) -> _int:
        """No message can be delivered now; `is_full`: for too many are out already."""
        return 0

    def is_live(self) -> bool:
        """Whether the consumer is in use, as far as inactivity goes."""
        raise NotImplementedError

    def configured(self) -> None:
        """The consumer's configuration has changed."""

    def on_time(self, now: _int) -> _int:
        """Expire requests and send heartbeats; when to look again (ns), 0 for never."""
        raise NotImplementedError

    def request(self, reply: bytes, body: bytes) -> None:
        """Somebody asks for messages at `reply`."""
        raise NotImplementedError
