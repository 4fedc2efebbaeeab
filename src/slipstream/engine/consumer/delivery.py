"""What a consumer asks of its way of delivering: pull (`pull`) or push (`push`)."""

from typing import Any

from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.model.header_fields import NATS_LAST_CONSUMER, NATS_LAST_STREAM

_int = int  # the name `int` in a compiled module's annotations is a C type

# The header block of a heartbeat without its empty line, for the sequences of the last delivery.
IDLE_HEARTBEAT = b"NATS/1.0 100 Idle Heartbeat\r\n%b: %%d\r\n%b: %%d\r\n" % (
    NATS_LAST_CONSUMER,
    NATS_LAST_STREAM,
)


class Delivery(Service):
    """To whom the next message may go; as a service it takes what clients send to that end."""

    def begin(self) -> None:
        """Take requests, or watch interest."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Deliver no more, and answer those who wait."""
        raise NotImplementedError

    def dismiss(self) -> None:
        """Send those who wait away: the server is about to stop."""

    def is_ready(self) -> bool:
        """Whether somebody can take a message now."""
        raise NotImplementedError

    def holds_back(self) -> bool:
        """Whether somebody waits for messages who is not to have any as things are."""
        return False

    def send(self, message: Inbound) -> bool:
        """Give the message to whose turn it is; False if that one could not take it."""
        raise NotImplementedError

    def nothing_left(self, is_full: bool) -> None:
        """No message can be delivered now; `is_full`: for too many are out already."""

    @property
    def num_waiting(self) -> _int:
        """How many requests are being served."""
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


def is_denied(account: Account, subject: bytes) -> bool:
    """Whether somebody listens on `subject` who did not take a message: then his permissions forbid
    him to see it. As in nats-server it counts as delivered."""
    for subscription in account.listeners(subject):
        session: Any = subscription.receiver
        if not subscription.closed and not session.closed:
            return True
    return False
