"""What a consumer asks of its way of delivering: pull (`pull`) or push (`push`)."""

from typing import Any

from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Route, Service, Subscription

_int = int  # the name `int` in a compiled module's annotations is a C type


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

    def nothing_left(self, is_full: bool) -> _int:
        """No message can be delivered now; `is_full`: for too many are out already."""
        return 0

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


def members_of(route: Route) -> list[Subscription]:
    """Every subscription on `route`."""
    members = [*route.plain, *(member for group in route.queues for member in group)]
    if route.shared is not None:
        members += route.shared.plain
        for shared in route.shared.groups:
            members += [*shared.local, *shared.distant]
    return members


def is_denied(route: Route) -> bool:
    """Whether somebody on `route` listens who did not take a message: then his permissions forbid
    him to see it. As in nats-server it counts as delivered."""
    for subscription in members_of(route):
        session: Any = subscription.receiver
        if not subscription.closed and not session.closed:
            return True
    return False
