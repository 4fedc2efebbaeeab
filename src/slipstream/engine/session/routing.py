"""Who gets a message: subscriptions of clients and services of the engine itself."""

from typing import Any

from slipstream.engine.session.message import Inbound


class Receiver:
    """Where a subscription's messages go: a client's session, or a test's recorder."""

    def deliver(self, subscription: "Subscription", subject: bytes, message: Inbound) -> bool:
        """Take `message`, to be shown under `subject`; False if it cannot be taken any more."""
        raise NotImplementedError

    def can_forward(self, message: Inbound) -> bool:
        """Whether `message` may go to this receiver, which is another server."""
        raise NotImplementedError

    def forward(self, message: Inbound, queues: list[bytes]) -> bool:
        """Send `message` to another server, which gives it to a member of each of `queues` and to
        all who are in no group there; False if it cannot be taken any more."""
        raise NotImplementedError


class Subscription:
    """A client's interest in a subject, possibly as a member of a queue group.

    Another server's interest is one of these as well, with a `weight`: how many members the queue
    group has there (1 where there is no group). Its receiver is the session of the link.
    """

    def __init__(self, receiver: Receiver, subject: bytes, queue: bytes, sid: bytes) -> None:
        self.receiver = receiver
        self.subject = subject
        self.queue = queue  # b"" when it is not a member of a queue group
        self.sid = sid
        self.delivered = 0
        self.max_messages = 0  # auto-unsubscribe after so many deliveries; 0 is never
        self.closed = False
        self.weight = 0  # of another server's interest


class Imported(Subscription):
    """A subscription of another account, as it stands in the account that exports the subject."""

    def __init__(
        self, original: Subscription, receiver: Receiver, subject: bytes, via: Any
    ) -> None:
        super().__init__(receiver, subject, original.queue, original.sid)
        self.original = original
        self.via = via  # the StreamImport
        self.weight = original.weight


class Service:
    """The engine's own subscriber: a stream that stores, a consumer's request subject, the API."""

    takes_imports = False  # also what its account imports, not only what is published there

    def handle(self, message: Inbound) -> int:
        """Process `message`, which is valid only during the call.

        1 if the publisher may take it as heard, 0 if it was nobody's (then it may hear `503`).
        """
        raise NotImplementedError


class Follower(Service):
    """A service that takes what a push consumer delivers, and is shown the subjects that messages
    have in their stream, as clients are."""

    takes_imports = True


class SharedGroup:
    """A queue group with members on other servers."""

    def __init__(self, queue: bytes) -> None:
        self.queue = queue
        self.local: list[Subscription] = []
        self.distant: list[Subscription] = []


class Shared:
    """The part of a route where one frame to a server stands for several subscriptions: queue
    groups with members there, and those servers' interest without a group."""

    def __init__(self, groups: list[SharedGroup], plain: list[Subscription]) -> None:
        self.groups = groups
        self.plain = plain


class Route:
    """Everyone whom a subject reaches; immutable, shared by all messages on that subject."""

    def __init__(
        self,
        plain: tuple[Subscription, ...],
        queues: tuple[list[Subscription], ...],
        services: tuple[Service, ...],
        shared: Shared | None = None,
    ) -> None:
        self.plain = plain
        self.queues = queues  # one list of members for each queue group
        self.services = services
        self.shared = shared  # None where no other server has members of a queue group

    def listeners(self) -> list[Subscription]:
        """Every subscription on the route, those of other accounts as they stand there."""
        members = [*self.plain, *(member for group in self.queues for member in group)]
        if self.shared is not None:
            members += self.shared.plain
            for shared in self.shared.groups:
                members += [*shared.local, *shared.distant]
        return [m.original if isinstance(m, Imported) else m for m in members]

    def stores(self) -> bool:
        """Whether a service takes messages under the subject that they come to, as a stream."""
        return any(not isinstance(service, Follower) for service in self.services)
