"""Stream imports: what is published in one account reaches subscribers and streams of another.

Each subscription of the importing account that touches an import stands in the exporting account as
well, under the exporter's name of the subject. So a message finds all who want it by one
lookup in one account, members of a queue group are one group across accounts, and a push
consumer or a link that asks the exporting account for interest sees that of others.

An import that is imported again by a third account brings that one nothing, as in nats-server.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import (
    Follower,
    Imported,
    Receiver,
    Service,
    Subscription,
)
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subject_pair import SubjectPair

_LOOP_PREFIX = b"$LDS."  # of subjects that show whether links form a loop


class StreamImport:
    """One stream import of `account`. `source` is the exporting account."""

    def __init__(
        self, account: Account, source: Account, theirs: str, ours: str, allow_trace: bool
    ) -> None:
        self.account = account
        self.source = source
        self.allow_trace = allow_trace
        self.pair = SubjectPair(theirs, ours)
        self._placed: dict[tuple[bytes, int], list[tuple[bytes, Any]]] = {}
        self._receivers: dict[Receiver | None, list[Any]] = {}  # each with how many use it

    def place(self, pattern: bytes, member: Any) -> None:
        """Have `member`, who listens to `pattern` in the importing account, stand in the other."""
        subject = self.pair.interest(pattern)
        if not subject:
            return
        stand_in: Any
        if isinstance(member, Subscription):
            stand_in = Imported(member, self._receiver(member), subject, self)
        elif isinstance(member, Follower):
            stand_in = _ImportedFollower(member, self)
        else:
            stand_in = ImportedService(member, self)
        self._placed.setdefault((pattern, id(member)), []).append((subject, stand_in))
        self.source.place(subject, stand_in)

    def displace(self, pattern: bytes, member: Any) -> None:
        """`member` does not listen to `pattern` any more."""
        placed = self._placed.get((pattern, id(member)))
        if placed is None:
            return
        subject, stand_in = placed.pop()
        if not placed:
            del self._placed[(pattern, id(member))]
        self._withdraw(subject, stand_in)

    def reweigh(self, subscription: Subscription, weight: int) -> None:
        """A queue group on another server has another number of members."""
        for _, stand_in in self._placed.get((subscription.subject, id(subscription)), ()):
            self.source.reweigh(stand_in, weight)

    def stop(self) -> None:
        """Carry nothing any more."""
        placed, self._placed = self._placed, {}
        for placed_here in placed.values():
            for subject, stand_in in placed_here:
                self._withdraw(subject, stand_in)

    def _withdraw(self, subject: bytes, stand_in: Any) -> None:
        if isinstance(stand_in, Imported):
            stand_in.closed = True
            self._release(stand_in.original)
        self.source.displace(subject, stand_in)

    def _receiver(self, member: Subscription) -> Receiver:
        """One for all clients; one for each link, which is sent a message once."""
        link = member.receiver if member.weight else None
        known = self._receivers.setdefault(link, [_Renaming(self.pair, link), 0])
        known[1] += 1
        receiver: Receiver = known[0]
        return receiver

    def _release(self, member: Subscription) -> None:
        link = member.receiver if member.weight else None
        known = self._receivers[link]
        known[1] -= 1
        if not known[1]:
            del self._receivers[link]


class StreamImports:
    """All stream imports of `account`, as `account.imports`."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._imports: dict[tuple[Any, ...], StreamImport] = {}
        self._by_subject = PatternTrie()

    def replace(self, wanted: Iterable[tuple[Account, str, str, bool]]) -> None:
        """From now on there are these imports: (exporting account, its subject, the subject here,
        whether traces go on here). One that was there before goes on without a gap."""
        keyed = {(id(each[0]), *each[1:]): each for each in wanted}
        for key in [key for key in self._imports if key not in keyed]:
            gone = self._imports.pop(key)
            self._by_subject.remove(gone.pair.ours, gone)
            gone.stop()
        fresh = PatternTrie()
        for key, each in keyed.items():
            if key not in self._imports:
                new = StreamImport(self._account, *each)
                self._imports[key] = new
                self._by_subject.insert(new.pair.ours, new)
                fresh.insert(new.pair.ours, new)
        if fresh.size:
            for pattern, member in self._account.trie.items():
                if _takes_part(pattern, member):
                    for each_new in fresh.overlapping(pattern):
                        each_new.place(pattern, member)

    def added(self, pattern: bytes, member: Any) -> None:
        """Somebody listens to `pattern` in the account."""
        if _takes_part(pattern, member):
            for each in self._by_subject.overlapping(pattern):
                each.place(pattern, member)

    def removed(self, pattern: bytes, member: Any) -> None:
        """Somebody does not any more."""
        if _takes_part(pattern, member):
            for each in self._by_subject.overlapping(pattern):
                each.displace(pattern, member)

    def reweighed(self, subscription: Subscription, weight: int) -> None:
        """A queue group on another server has another number of members."""
        for each in self._by_subject.overlapping(subscription.subject):
            each.reweigh(subscription, weight)


def import_streams(account: Account, wanted: Sequence[tuple[Account, str, str, bool]]) -> None:
    """Have `account` import these streams, and no others; see `StreamImports.replace`."""
    if account.imports is None and wanted:
        account.imports = StreamImports(account)
    if account.imports is not None:
        account.imports.replace(wanted)
        if not wanted:
            account.imports = None


def _takes_part(pattern: bytes, member: Any) -> bool:
    """Whether a member of an account is one of its own who takes messages, not requests."""
    if isinstance(member, Subscription):
        return not isinstance(member, Imported) and not pattern.startswith(_LOOP_PREFIX)
    return bool(member.takes_imports)


def _renamed(pair: SubjectPair, message: Inbound) -> Inbound:
    """The message as the importing account sees it. What a consumer delivers keeps the subject that
    it has in its stream."""
    goes_to = message.to or message.subject
    name = pair.to_ours(goes_to)
    shown = name if message.subject == goes_to else message.subject
    renamed = message.under(shown, message.reply)
    if message.to:
        renamed.to = name
    return renamed


class _Renaming(Receiver):
    """Gives messages to the original subscriptions; `link` is the session of another server where
    these are its interest."""

    def __init__(self, pair: SubjectPair, link: Any) -> None:
        self._pair = pair
        self._link = link
        self.is_spoke = link is not None and link.is_spoke
        self.cluster = link.cluster if link is not None else ""

    def deliver(self, subscription: Subscription, subject: bytes, message: Inbound) -> bool:
        if subscription.closed:
            return False
        imported: Any = subscription
        original = imported.original
        renamed = _renamed(self._pair, message)
        taken: bool = original.receiver.deliver(original, renamed.subject, renamed)
        return taken

    def can_forward(self, message: Inbound) -> bool:
        return bool(self._link.can_forward(_renamed(self._pair, message)))

    def forward(self, message: Inbound, queues: list[bytes]) -> bool:
        return bool(self._link.forward(_renamed(self._pair, message), queues))


class ImportedService(Service):
    """A stream of the importing account."""

    def __init__(self, original: Service, via: StreamImport) -> None:
        self.original = original
        self.via = via

    def renamed(self, message: Inbound) -> Inbound:
        """The message as the stream is to see it."""
        return _renamed(self.via.pair, message)

    def handle(self, message: Inbound) -> int:
        return self.original.handle(self.renamed(message))


class _ImportedFollower(Follower):
    """A mirror or a source of the importing account."""

    def __init__(self, original: Follower, via: StreamImport) -> None:
        self._original = original
        self._pair = via.pair

    def handle(self, message: Inbound) -> int:
        return self._original.handle(_renamed(self._pair, message))
