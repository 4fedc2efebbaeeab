"""What the server at the other end of a link is told of an account's interest.

A subject is announced when the first subscription to it appears and taken back with the last; a
queue group is announced with the number of its members, each time that changes. A stream that
stores subjects and a consumer that waits for requests are interest like a client's subscription.

Interest that came over a link goes on to others, but never back, and a leaf does not tell one of
its hubs what another one wants. So messages do not go in circles, unless the links themselves do,
which the loop subject shows.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.leaf.rights import LOOP_PREFIX
from slipstream.engine.session.routing import Subscription
from slipstream.model.own_subjects import OWN

if TYPE_CHECKING:
    from slipstream.engine.leaf.session import LeafSession

_OWN_SERVICES = (b"$SYS.", OWN.encode())  # each server answers these itself


class Interest:
    """The interest of `session.account`, as its link's other end knows it."""

    def __init__(self, session: "LeafSession") -> None:
        self._session = session
        self._members: dict[bytes, int] = {}  # of each announced subject, or subject and group
        self._has_begun = False

    def begin(self) -> None:
        """Announce all that is there, and from now on each change."""
        self._has_begun = True
        account = self._session.account
        for pattern, member in account.trie.items():
            self._add(pattern, member, 1)
        mappings = account.mappings.sources() if account.mappings is not None else []
        for subject in [*mappings, account.loop_subject]:
            if self._session.rights.take.may_match(subject):
                self._members[subject] = self._members.get(subject, 0) + 1
        lines = [self._line(key, count) for key, count in self._members.items()]
        self._session.put_line(b"".join(lines))

    def changed(self, pattern: bytes, member: Any, change: int) -> None:
        """`member` was added to those who listen to `pattern` (1), or removed (-1)."""
        if not self._has_begun:
            return
        key = self._add(pattern, member, change)
        if key:
            self._tell(key, change)

    def reweighed(self, subscription: Subscription, change: int) -> None:
        """A queue group has so many more members on the server that `subscription` stands for."""
        if self._has_begun and self._concerns(subscription.subject, subscription):
            key = subscription.subject + b" " + subscription.queue
            self._members[key] = self._members.get(key, 0) + change
            self._tell(key, change)

    def _add(self, pattern: bytes, member: Any, change: int) -> bytes:
        """Count a member; the key that it counts under, b"" if the other server is not told."""
        if not self._concerns(pattern, member):
            return b""
        key = pattern
        if isinstance(member, Subscription) and member.queue:
            key = pattern + b" " + member.queue
            change *= member.weight or 1
        self._members[key] = self._members.get(key, 0) + change
        return key

    def _tell(self, key: bytes, change: int) -> None:
        """Send what is new about `key`, if anything is."""
        count = self._members[key]
        if count <= 0:
            del self._members[key]
        if b" " in key or count <= 0 or (change > 0 and count == 1):
            self._session.put_line(self._line(key, count))

    def _line(self, key: bytes, count: int) -> bytes:
        if count <= 0:
            return b"LS- %b\r\n" % key
        return b"LS+ %b %d\r\n" % (key, count) if b" " in key else b"LS+ %b\r\n" % key

    def _concerns(self, pattern: bytes, member: Any) -> bool:
        """Whether the other server is to know of `member`."""
        session = self._session
        if isinstance(member, Subscription):
            if member.weight and not self._goes_on(pattern, member.receiver):
                return False
        elif pattern.startswith(_OWN_SERVICES) and session.account is not session.system_account:
            return False
        return session.rights.take.may_match(pattern)

    def _goes_on(self, pattern: bytes, origin: Any) -> bool:
        """Whether interest that came over the link `origin` is passed on over this one."""
        session = self._session
        if origin is session or (origin.is_spoke and session.is_spoke):
            return False
        if pattern.startswith(LOOP_PREFIX):
            return True
        return not session.cluster or origin.cluster != session.cluster
