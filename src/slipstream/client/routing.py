"""Subscriptions and inboxes of a connection: who gets which subscription id, and which answer.

This is the low door of the client: JetStream, key-value and services open sinks and reply subjects
here. `Connection` adds what people use.
"""

import random
from typing import Any

from slipstream.client.errors import (
    ConnectionClosedError,
    InvalidSubjectError,
    PermissionsError,
)
from slipstream.client.events import ErrorEvent, Events
from slipstream.client.inbox import Inbox, Request
from slipstream.client.outbox import Outbox
from slipstream.client.payload import subject_bytes
from slipstream.client.route import ForeignSink, Route, Sink
from slipstream.client.sink_subscription import SinkSubscription
from slipstream.client.subscription import Subscription
from slipstream.wire.nuid import Nuid


class Routing:
    """The routes of a connection, by subscription id, and its inbox for answers."""

    events_hub: Events

    def __init__(self, outbox: Outbox, inbox_prefix: str) -> None:
        self.outbox = outbox
        self.routes: dict[int, Route] = {}
        self._next_sid = 1
        self._nuid = Nuid(random.SystemRandom())
        self._inbox_prefix = inbox_prefix
        self._inbox = Inbox(outbox, f"{inbox_prefix}.{self._nuid.next()}.")
        self._inbox_open = False
        self._closed = False
        self._draining = False

    @property
    def is_connected(self) -> bool:
        """Whether a server listens now."""
        return self.outbox.transport is not None

    # -- subscriptions -------------------------------------------------------------------------

    def open_sink(self, subject: str, sink: Any, queue: str = "") -> SinkSubscription:
        """Call ``sink.deliver(message)`` inside the read for each message: no task, no queue.

        `sink` is a `Sink` or any object with `deliver` and, if it likes, `failed`, `on_disconnect`
        and `on_reconnect`.
        """
        self._check_not_draining(f"subscribe to {subject!r}")
        inner = sink if isinstance(sink, Sink) else ForeignSink(sink)
        return SinkSubscription(self, self.open_route(subject, queue, inner))

    def open_route(self, subject: str, queue: str, sink: Sink) -> Route:
        """Subscribe; end it with `drop_route`."""
        return self.add_route(Route(subject, queue, sink))

    def add_route(self, route: Route) -> Route:
        """Subscribe, with a new subscription id."""
        self._check_open(f"subscribe to {route.subject!r}")
        subject_bytes(route.subject)
        if any(c in route.queue for c in " \t\r\n\f"):
            raise InvalidSubjectError(
                f"queue group {route.queue!r} has a blank or line break in it"
            )
        route.sid = self._next_sid
        self._next_sid += 1
        self.routes[route.sid] = route
        if self.is_connected:
            route.position = self.outbox.put_line(route.subscribe_lines())
        return route

    def drop_line(self, route: Route) -> None:
        """Ask the server for no more; what has left it still arrives."""
        if route.sid not in self.routes:
            return
        # A SUB that waits in the buffer goes out on the next connection.
        if self.is_connected or route.position > self.outbox.handed:
            self.outbox.put_line(route.unsubscribe_line())

    def drop_route(self, route: Route) -> None:
        """Unsubscribe, now."""
        self.drop_line(route)
        self.routes.pop(route.sid, None)

    def limit_route(self, route: Route, max_messages: int) -> None:
        """Unsubscribe once `max_messages` have been delivered in all."""
        route.max_messages = max_messages
        if self.is_connected:
            self.outbox.put_line(route.limit_line())

    def route_ended(self, route: Route) -> None:
        """The server has sent all that a route asked for, and has forgotten it.

        Unless it counts from a reconnect: a limit that was said before may have come behind it.
        """
        if route.base:
            self.drop_line(route)
        self.routes.pop(route.sid, None)
        if isinstance(route.sink, Subscription):
            route.sink.finish()

    # -- answers -------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A name that nobody else uses (a NUID)."""
        return self._nuid.next()

    def new_inbox(self) -> str:
        """A subject that nobody else uses, for answers."""
        return f"{self._inbox_prefix}.{self.new_id()}"

    def open_reply(self, request: Request) -> str:
        """A reply subject whose answers go to `request`; end it with `close_reply`."""
        if self._closed:  # before anything waits for an answer
            raise ConnectionClosedError(
                f"request to {request.subject!r}: the connection is closed. Open another one"
            )
        if not self._inbox_open:
            self.open_route(self._inbox.subject, "", self._inbox)
            self._inbox_open = True
        return self._inbox.open(request)

    def close_reply(self, request: Request) -> None:
        """Await no more answers."""
        self._inbox.close(request)

    @property
    def requests_pending(self) -> int:
        """How many requests await an answer."""
        return len(self._inbox.requests)

    # -- complaints ----------------------------------------------------------------------------

    def forbid(self, error: PermissionsError) -> None:
        """The server refused a publish or a subscription: tell whoever asked for it."""
        if error.operation == "publish":
            if not self._inbox.forbid(error.subject, error):
                self.events_hub.tell(ErrorEvent(error))
            return
        refused = [
            route
            for route in self.routes.values()
            if route.subject == error.subject and route.queue == error.queue
        ]
        for route in refused:
            self.routes.pop(route.sid, None)
            if route.sink is self._inbox:
                self._inbox_open = False
            self.fail_sink(route, error)
        self.events_hub.tell(ErrorEvent(error))

    def fail_sink(self, route: Route, error: Exception) -> None:
        """Tell a sink that no message will come any more; what it raises is an event."""
        try:
            route.sink.failed(error)
        except Exception as raised:
            self.events_hub.tell(ErrorEvent(raised))

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ConnectionClosedError(f"{call}: the connection is closed. Open another one")

    def _check_not_draining(self, call: str) -> None:
        if self._draining:
            raise ConnectionClosedError(f"{call}: the connection is draining. Open another one")
