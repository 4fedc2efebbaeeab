"""Leases: a leader that a majority has answered a moment ago knows that nobody else leads.

A member that hears the leader promises not to be sealed for `Settings.promise` by its own clock.
The leader counts a shorter time, from before it asked: the promise divided by how much faster the
member's clock may run than its own. Clocks are never compared, and none of them tells the date: a
driver hands in a clock that only goes forward (CLOCK_MONOTONIC). A member that starts may have
promised something before, and lets as much time pass before it can be sealed.
"""

import msgspec

from slipstream.group.membership import Membership
from slipstream.model.durations import MILLISECOND


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """How long things take, in ns, and how much goes into a message."""

    heartbeat: int = 80 * MILLISECOND  # from one to the next
    promise: int = 1200 * MILLISECOND  # for which a member will not be sealed
    rate_max: float = 2.0  # how much faster or slower than true time a clock may run
    retry: int = 100 * MILLISECOND  # after which what was not answered is sent again
    attempt: int = 1500 * MILLISECOND  # after which a candidate begins anew
    # Without an answer of the other one, after which one of two servers would go on alone. Leaders
    # are the first to try: clients notice less of it.
    alone_leader: int = 600 * MILLISECOND
    alone_candidate: int = 1000 * MILLISECOND
    alone_full: int = 2000 * MILLISECOND  # ... while the other one is there and its disk is full
    entries_max: int = 64  # in one message
    bytes_max: int = 1024 * 1024  # of bodies in one message, unless one body alone is longer
    unanswered_max: int = 4 * 1024 * 1024  # of bodies on their way to one follower

    @property
    def lease(self) -> int:
        """For which a leader holds a promise, by its own clock, from when it asked for it."""
        return int(self.promise / self.rate_max**2)


class SealPromise:
    """A member's promise to the leader that it follows: not to be sealed until then."""

    def __init__(self, until: int) -> None:
        self._epoch = 0
        self.until = until  # when the member may be sealed

    def renew(self, epoch: int, until: int) -> None:
        """The leader of `epoch` was heard."""
        self._epoch = epoch
        self.until = max(self.until, until)

    def release(self, epoch: int) -> None:
        """The leader of `epoch` does not need it any more."""
        if epoch == self._epoch:
            self.until = 0

    def is_over(self, now: int) -> bool:
        """Whether the member may be sealed."""
        return now >= self.until


class Lease:
    """What a leader holds: when it asked the question that each member answered last. Servers that
    are no members may be asked, too, and count for nothing."""

    def __init__(self, membership: Membership, settings: Settings, now: int) -> None:
        self._membership = membership
        self._settings = settings
        self._lease = settings.lease
        self._heard = dict.fromkeys(membership.everyone, now - self._lease)
        self.since = membership.reached(self._heard)  # when a quorum was asked that has answered
        self.until = self.since + self._lease  # nobody else can lead before; read on any thread

    @property
    def membership(self) -> Membership:
        """Whose promises count."""
        return self._membership

    @membership.setter
    def membership(self, membership: Membership) -> None:
        self._membership = membership
        self._look()

    def ask(self, member: str, now: int) -> None:
        """A server is asked from now on, which counts for nothing yet."""
        self._heard[member] = now - self._lease

    def forget(self, member: str) -> None:
        """A server is asked no more, which counts for nothing."""
        del self._heard[member]

    def heard(self, member: str, sent_at: int) -> None:
        """A member has promised, and was asked at `sent_at`."""
        self._heard[member] = max(self._heard[member], sent_at)
        self._look()

    def _look(self) -> None:
        self.since = self._membership.reached(self._heard)
        self.until = self.since + self._lease

    def heard_at(self, member: str) -> int:
        """When a member was asked that has answered."""
        return self._heard[member]

    def is_held(self, now: int) -> bool:
        """Whether nobody else can lead now."""
        return now < self.until

    def is_lost(self, now: int) -> bool:
        """Whether no majority has answered for so long that others should try."""
        return now >= self.since + self._settings.promise
