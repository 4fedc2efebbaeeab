"""Whether a leader's disk is worse than another server's, so that this one should lead: it is full,
or syncs take much longer.

Each server says with its answers to heartbeats how its disk is; a leader watches these and its own.
It wishes to hand over to a server that has what it has, and

* has space, if its own disk was full for `FULL_FOR`, and the others that have space are enough
  without this one: else no leader could have anything committed, nor could one be found, whose
  servers seal themselves behind the entries that wait for space;
* syncs within a `SLOW_RATIO`th of the time, if its own syncs took `SLOW_MIN` and more for all of
  `SLOW_FOR`. Who has begun to lead waits `LED_MIN` first. Who has handed over for that is handed
  nothing back for that within `AVOIDED_FOR`, nor by those who lead after it: the lead does not go
  in turns between two slow disks.

A wish that was not fulfilled comes again after `AGAIN`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from slipstream.group.messages import DiskHealth
from slipstream.model.durations import MILLISECOND, MINUTE, SECOND

FULL_FOR = SECOND // 2
SLOW_FOR = 10 * SECOND
SLOW_MIN = 20 * MILLISECOND  # what a sync takes on a disk that is slow
SLOW_RATIO = 4
LED_MIN = 30 * SECOND
AVOIDED_FOR = 10 * MINUTE
AGAIN = 10 * SECOND


class Wish(NamedTuple):
    """Who should lead in place of this server."""

    successor: str
    is_full: bool  # because the disk here is full; else it is slow


class DiskWatch:
    """See the module's text. `avoided` have handed over because they are slow."""

    def __init__(self, now: int, avoided: Sequence[str] = ()) -> None:
        self._own = DiskHealth()
        self._others: dict[str, DiskHealth] = {}
        self._led_since = now
        self._full_since: int | None = None
        self._slow_since: dict[str, int] = {}  # since when this server is slower than that one
        self._not_before = now
        self._avoided = tuple(avoided)

    def own(self, now: int, health: DiskHealth) -> None:
        """How the disk of this server is now."""
        self._own = health
        if not health.is_full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now

    def heard(self, name: str, health: DiskHealth) -> None:
        """How that of another one is."""
        self._others[name] = health

    def is_full(self, name: str) -> bool:
        """Whether a server has said that its disk is full."""
        return name in self._others and self._others[name].is_full

    def forget(self, name: str) -> None:
        """A server is no member any more."""
        self._others.pop(name, None)
        self._slow_since.pop(name, None)

    def avoided(self, now: int) -> tuple[str, ...]:
        """Who has handed over because it is slow, not long ago."""
        return self._avoided if now < self._led_since + AVOIDED_FOR else ()

    def wish(
        self, now: int, ready: Sequence[str], is_enough: Callable[[Sequence[str]], bool]
    ) -> Wish | None:
        """Who should lead, of those who are there and have what this server has, the best of them
        first; `is_enough` says of servers whether they are a quorum. To be asked several times in
        each `FULL_FOR`."""
        roomy = [one for one in ready if one in self._others and not self._others[one].is_full]
        quicker = self._find_quicker(now, roomy)
        if now < self._not_before:
            return None
        wish = None
        if self._full_since is not None:
            if roomy and is_enough(roomy) and now >= self._full_since + FULL_FOR:
                wish = Wish(roomy[0], is_full=True)
        elif quicker and now >= self._led_since + LED_MIN:
            wish = Wish(quicker, is_full=False)
        if wish is not None:
            self._not_before = now + AGAIN
        return wish

    def _find_quicker(self, now: int, ready: Sequence[str]) -> str:
        """The server that has been much quicker than this one for long enough; "" for none."""
        own = self._own.sync_ns
        for name, health in self._others.items():
            is_slower = own >= SLOW_MIN and own >= SLOW_RATIO * health.sync_ns
            if not (is_slower and health.sync_ns):  # 0: it has synced nothing lately
                self._slow_since.pop(name, None)
            else:
                self._slow_since.setdefault(name, now)
        avoided = self.avoided(now)
        found = [
            name
            for name in ready
            if name not in avoided and now >= self._slow_since.get(name, now) + SLOW_FOR
        ]
        return min(found, key=lambda name: self._others[name].sync_ns, default="")
