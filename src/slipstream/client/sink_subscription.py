"""The handle of a subscription whose messages go to a sink."""

from typing import TYPE_CHECKING

from slipstream.client.route import Route

if TYPE_CHECKING:
    from slipstream.client.routing import Routing


class SinkSubscription:
    """What `Routing.open_sink` gives."""

    def __init__(self, connection: "Routing", route: Route) -> None:
        self._connection = connection
        self.route = route

    @property
    def subject(self) -> str:
        """What it subscribes to."""
        return self.route.subject

    @property
    def delivered(self) -> int:
        """How many messages the server has sent."""
        return self.route.delivered

    def close(self) -> None:
        """Unsubscribe, now."""
        self._connection.drop_route(self.route)

    async def unsubscribe(self, max_messages: int = 0) -> None:
        """Unsubscribe, now or once `max_messages` have been delivered in all."""
        if max_messages > self.route.delivered:
            self._connection.limit_route(self.route, max_messages)
        else:
            self.close()
