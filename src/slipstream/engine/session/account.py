"""An account: a subject space of its own, and who listens in it.

Finding out who gets a subject costs a walk through the trie of patterns; the answer, a `Route`, is
kept, for all subjects at once that it holds for (`wire.prefix_cache`). A change of interest forgets
what it can have changed.

Servers at the other end of a link (`engine.leaf`) are told of each change. Their own interest
stands among the subscriptions; where one of them has several that match, the route has it once.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import (
    Route,
    Service,
    Shared,
    SharedGroup,
    Subscription,
)
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.prefix_cache import PrefixCache
from slipstream.wire.subjects import has_wildcard

_int = int  # the name `int` in a compiled module's annotations is a C type

ROUTES_KEPT_MAX: _int = 16_384
_NOBODY = Route((), (), ())


class Account:
    """Subscriptions, services and routes of one account; `limits` are its msgspec options."""

    def __init__(self, name: str, engine: Any, random: Random, limits: Any = None) -> None:
        self.name = name
        self.engine = engine
        self.random = random
        self.limits = limits
        self.jetstream: Any = None
        self.mappings: Any = None  # subject mappings, where configured
        self.imports: Any = None  # streams of other accounts, where configured (`engine.sharing`)
        self.service_imports: Any = None  # and services
        self.replies: Any = None  # to other accounts' requests, once there was one
        self.sessions: dict[int, Any] = {}
        self.links: dict[int, Any] = {}  # to other servers, each a LeafSession
        self.loop_subject = b""  # what comes back only if links form a loop
        self.generation = 0  # changes whenever a route may have: at each of
        self.inserts = 0  # ... these
        self.removes = 0  # ... and these
        self.lookups = 0  # of routes, for monitoring
        self.misses = 0  # ... that the trie had to be asked for
        self.trie = PatternTrie()
        self._routes = PrefixCache(ROUTES_KEPT_MAX)
        self._watchers: dict[bytes, dict[Callable[[], None], None]] = {}
        self._watched = PatternTrie()  # the subjects of these, by themselves
        # For acknowledgements: one for all streams, so that it stays in the processor's caches.
        self._text = OutBuffer()
        self._own: Inbound | None = Inbound()  # None while it is on its way

    # -- interest ------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Add a client's subscription."""
        self._insert(subscription.subject, subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take it away again; harmless if it is gone already."""
        subscription.closed = True
        self._remove(subscription.subject, subscription)

    def add_service(self, pattern: bytes, service: Service) -> None:
        """Have the engine's own `service` handle what is published to `pattern`."""
        self._insert(pattern, service)

    def remove_service(self, pattern: bytes, service: Service) -> None:
        """Take it away again."""
        self._remove(pattern, service)

    def _insert(self, pattern: bytes, member: Any) -> None:
        self.place(pattern, member)
        if self.imports is not None:
            self.imports.added(pattern, member)

    def _remove(self, pattern: bytes, member: Any) -> None:
        if self.displace(pattern, member) and self.imports is not None:
            self.imports.removed(pattern, member)

    def place(self, pattern: bytes, member: Any) -> None:
        """Add a member that takes nothing of what this account imports."""
        self.trie.insert(pattern, member)
        self.inserts += 1
        self._changed(pattern)
        if self.links:
            self.tell_links(pattern, member, 1)

    def displace(self, pattern: bytes, member: Any) -> bool:
        """Take it away again; False if it was not there."""
        if not self.trie.remove(pattern, member):
            return False
        self.removes += 1
        self._changed(pattern)
        if self.links:
            self.tell_links(pattern, member, -1)
        return True

    def tell_links(self, pattern: bytes, member: Any, change: _int) -> None:
        """Have other servers know that `pattern` has so many more members, or fewer."""
        for link in list(self.links.values()):
            link.interest.changed(pattern, member, change)

    def _changed(self, pattern: bytes) -> None:
        """Forget the routes that interest in `pattern` can have changed, and tell who watches."""
        self.generation += 1
        self._routes.forget(pattern)
        if self._watchers:
            self._tell_watchers(pattern)

    def _tell_watchers(self, pattern: bytes) -> None:
        """Watched subjects are literal: most patterns are, too, and then it is one lookup."""
        if has_wildcard(pattern):
            watched = self._watched.overlapping(pattern)
        else:
            watched = [pattern] if pattern in self._watchers else []
        for subject in watched:
            for callback in list(self._watchers.get(subject, ())):
                callback()

    def reweigh(self, subscription: Subscription, weight: _int) -> None:
        """A queue group has another number of members on another server."""
        change = weight - subscription.weight
        subscription.weight = weight
        for link in list(self.links.values()):
            link.interest.reweighed(subscription, change)
        if self.imports is not None:
            self.imports.reweighed(subscription, weight)

    def watch_interest(self, subject: bytes, callback: Callable[[], None]) -> None:
        """Call `callback` whenever interest in the literal `subject` may have changed."""
        watchers = self._watchers.get(subject)
        if watchers is None:
            watchers = self._watchers[subject] = {}
            self._watched.insert(subject, subject)
        watchers[callback] = None

    def unwatch_interest(self, subject: bytes, callback: Callable[[], None]) -> None:
        """Call `callback` no more."""
        watchers = self._watchers.get(subject)
        if watchers is None or callback not in watchers:
            return
        del watchers[callback]
        if not watchers:
            del self._watchers[subject]
            [known] = self._watched.match(subject)
            self._watched.remove(subject, known)

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Whether a client would get a message on `subject` (with `queue`: as a member of it)."""
        if self.replies is not None and subject.startswith(b"_R_."):
            answered: bool = self.replies.has_interest(subject)
            return answered
        route = self.route(subject)
        if not queue:
            return bool(route.plain or route.queues or route.services or route.shared is not None)
        if route.shared is not None and any(g.queue == queue for g in route.shared.groups):
            return True
        return any(group[0].queue == queue for group in route.queues)

    def listeners(self, subject: bytes) -> list[Subscription]:
        """The clients' and links' subscriptions that a message on `subject` reaches, also where
        they are in another account."""
        found = self.route(subject).listeners()
        if self.replies is not None and subject.startswith(b"_R_."):
            found += self.replies.listeners(subject)
        return found

    # -- routes --------------------------------------------------------------------------------

    def route(self, subject: bytes) -> Route:
        """Everyone whom a message on `subject` reaches."""
        self.lookups += 1
        found = self._routes.get(subject)
        return self._find(subject) if found is None else found

    def _find(self, subject: bytes) -> Route:
        """Ask the trie, and cache the answer for all subjects of which it is true."""
        self.misses += 1
        members = self.trie.match(subject)
        if not members:
            found = _NOBODY
        elif len(members) > 1 or not isinstance(members[0], Service):
            found = _sorted_out(members)
        else:  # that of each consumer is one of these
            found = Route((), (), tuple(members))
        self._routes.put(subject, found, self.trie)
        return found

    def kept_routes(self) -> list[Route]:
        """The answers of the trie that are kept, for monitoring."""
        return self._routes.values()

    # -- messages ------------------------------------------------------------------------------

    def publish(self, message: Inbound) -> _int:
        """Give `message` to everyone interested in its subject; how many that were."""
        return self.dispatch(self.route(message.subject), message)

    def deliver(self, destination: bytes, message: Inbound) -> _int:
        """Give `message` to those interested in `destination`; they see its own subject."""
        return self.dispatch(self.route(destination), message)

    def hand_on(self, destination: bytes, message: Inbound) -> _int:
        """Give a message that comes from another account to those interested in `destination`. They
        see its own subject, but a stream stores it under the one that it comes to."""
        route = self.route(destination)
        if message.subject != destination and route.stores():
            message.subject = destination
        return self.dispatch(route, message)

    def send(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> _int:
        """Publish a message of the engine's own; how many got it."""
        return self.publish(Inbound(subject, reply, header, body))

    def acknowledge(self, reply: bytes, head: bytes, seq: _int, end: bytes) -> None:
        """Publish a stream's acknowledgement to `reply`: `end`, behind `head` and the sequence if
        there is one."""
        out = self._text
        if head:
            out.put(head)
            out.put_int(seq)
        out.put(end)
        message, self._own = self._own, None
        if message is None:  # somebody who hears of an acknowledgement has another one sent
            message = Inbound()
        message.subject = reply
        message.data = out.take()
        message.end = len(message.data)
        try:
            self.dispatch(self.route(reply), message)
        finally:
            self._own = message

    def dispatch(self, route: Route, message: Inbound) -> _int:
        """Give `message` to everyone on `route`."""
        count = 0
        for subscription in route.plain:
            receiver = subscription.receiver
            if receiver.deliver(subscription, message.subject, message):
                count += 1
        for group in route.queues:
            count += self._one_of(group, message)
        for service in route.services:
            count += service.handle(message)
        if route.shared is not None:
            count += self.share_out(route.shared, message, None)
        return count

    def dispatch_chosen(self, route: Route, message: Inbound, queues: Any) -> _int:
        """Give a message of another server to everyone on `route`, but to no other queue groups
        than those of `queues`, for which that server has chosen this one."""
        count = 0
        for subscription in route.plain:
            if subscription.receiver.deliver(subscription, message.subject, message):
                count += 1
        if queues:
            for group in route.queues:
                if group[0].queue in queues:
                    count += self._one_of(group, message)
        for service in route.services:
            count += service.handle(message)
        if route.shared is not None:
            count += self.share_out(route.shared, message, queues or ())
        return count

    def share_out(self, shared: Shared, message: Inbound, queues: Any) -> _int:
        """Serve groups with members on other servers, only those of `queues` if that is not None.
        A member that is here comes first; a server is sent the message once."""
        count = 0
        chosen: dict[Any, list[bytes]] = {}
        for subscription in shared.plain:
            if subscription.receiver.can_forward(message):
                chosen[subscription.receiver] = []
        for group in shared.groups:
            if queues is not None and group.queue not in queues:
                continue
            if group.local and self._one_of(group.local, message):
                count += 1
                continue
            able = [s for s in group.distant if s.receiver.can_forward(message)]
            if able:
                weights = [s.weight for s in able]
                picked = self.random.choices(able, weights)[0]
                chosen.setdefault(picked.receiver, []).append(group.queue)
        for receiver, names in chosen.items():
            count += bool(receiver.forward(message, names))
        return count

    def _one_of(self, group: list[Subscription], message: Inbound) -> _int:
        """One member of a queue group, by chance; the next one if it cannot take the message."""
        n = len(group)
        start = int(self.random.random() * n) if n > 1 else 0
        i = 0
        while i < n:
            subscription = group[(start + i) % n]
            if subscription.receiver.deliver(subscription, message.subject, message):
                return 1
            i += 1
        return 0


def _sorted_out(members: list[Service | Subscription]) -> Route:
    """A route to all that a subject has been found to match."""
    plain: list[Subscription] = []
    services: list[Service] = []
    queues: dict[bytes, list[Subscription]] = {}
    distant: list[Subscription] = []
    for member in members:
        if isinstance(member, Service):
            services.append(member)
            continue
        subscription = member
        if subscription.weight:
            distant.append(subscription)
        elif subscription.queue:
            queues.setdefault(subscription.queue, []).append(subscription)
        else:
            plain.append(subscription)
    if distant:
        return _with_distant(plain, queues, services, distant)
    return Route(tuple(plain), tuple(queues.values()), tuple(services))


def _with_distant(
    plain: list[Subscription],
    queues: dict[bytes, list[Subscription]],
    services: list[Service],
    distant: list[Subscription],
) -> Route:
    """A route to other servers, too: each of them stands in it once for all that it wants outside
    of queue groups."""
    groups: dict[bytes, SharedGroup] = {}
    for subscription in distant:
        queue = subscription.queue
        if queue:
            if queue not in groups:
                groups[queue] = SharedGroup(queue)
                groups[queue].local = queues.pop(queue, [])
            groups[queue].distant.append(subscription)
    sharing = {s.receiver for group in groups.values() for s in group.distant}
    seen = set()
    shared_plain: list[Subscription] = []
    for subscription in distant:
        receiver = subscription.receiver
        if subscription.queue or receiver in seen:
            continue
        seen.add(receiver)
        (shared_plain if receiver in sharing else plain).append(subscription)
    shared = Shared(list(groups.values()), shared_plain) if groups else None
    return Route(tuple(plain), tuple(queues.values()), tuple(services), shared)
