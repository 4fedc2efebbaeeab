"""When a leader has another server lead because its own disk is full, or slow."""

import pytest

from slipstream.group import DiskHealth
from slipstream.group.disk_watch import (
    AGAIN,
    AVOIDED_FOR,
    FULL_FOR,
    LED_MIN,
    SLOW_FOR,
    SLOW_MIN,
    SLOW_RATIO,
    DiskWatch,
    Wish,
)
from slipstream.group.membership import Membership
from slipstream.model.durations import MILLISECOND, SECOND

STEP = SECOND // 4
FULL = DiskHealth(is_full=True)
SLOW = DiskHealth(sync_ns=200 * MILLISECOND)
QUICK = DiskHealth(sync_ns=MILLISECOND)
TO_N2 = Wish("n2", is_full=False)


class Watched:
    """n1, which leads, and two others or more."""

    def __init__(
        self, own: DiskHealth, n2: DiskHealth = QUICK, n3: DiskHealth = QUICK, *more: DiskHealth
    ) -> None:
        self.now = SECOND
        self.own = own
        self.others = {f"n{number}": one for number, one in enumerate((n2, n3, *more), 2)}
        self.ready = list(self.others)
        self.members = Membership(("n1", *self.others))
        self.watch = DiskWatch(self.now)

    def lead_anew(self, *slow: str) -> None:
        self.watch = DiskWatch(self.now, slow)

    def during(self, time: int) -> list[Wish]:
        """What it wishes for so long."""
        found = []
        for _ in range(time // STEP):
            self.now += STEP
            self.watch.own(self.now, self.own)
            for name, health in self.others.items():
                self.watch.heard(name, health)
            wish = self.watch.wish(self.now, self.ready, self.members.is_quorum)
            found += [wish] if wish else []
        return found


def test_a_full_disk_has_a_server_lead_that_has_space() -> None:
    watched = Watched(FULL, FULL, QUICK, QUICK, QUICK)
    assert watched.during(FULL_FOR + 2 * STEP) == [Wish("n3", is_full=True)]


def test_where_those_with_space_are_no_majority_nobody_takes_over() -> None:
    """Who has no space for entries has none for a new leader's, and does not seal itself either:
    nobody would lead any more, and nothing could be read."""
    assert Watched(FULL, n2=FULL).during(60 * SECOND) == []


def test_where_all_disks_are_full_nobody_takes_over() -> None:
    assert Watched(FULL, FULL, FULL).during(60 * SECOND) == []


def test_a_disk_that_is_full_for_a_moment_changes_nothing() -> None:
    watched = Watched(FULL)
    for _ in range(20):
        watched.own = FULL
        assert watched.during(FULL_FOR - STEP) == []
        watched.own = QUICK
        assert watched.during(STEP) == []


def test_a_full_disk_leaves_the_lead_where_the_others_are_behind() -> None:
    watched = Watched(FULL)
    watched.ready = []
    assert watched.during(60 * SECOND) == []
    watched.ready = ["n3", "n2"]
    assert watched.during(STEP) == [Wish("n3", is_full=True)]


def test_a_wish_that_came_to_nothing_comes_again_later() -> None:
    watched = Watched(FULL)
    assert len(watched.during(FULL_FOR + STEP + 3 * AGAIN)) == 4


def test_a_disk_that_stays_slow_has_a_quick_one_lead() -> None:
    watched = Watched(QUICK)
    assert watched.during(LED_MIN) == []
    watched.own = SLOW
    assert watched.during(SLOW_FOR) == []
    assert watched.during(2 * STEP) == [TO_N2]


def test_the_quickest_of_several_is_to_lead() -> None:
    watched = Watched(SLOW, n2=DiskHealth(sync_ns=5 * MILLISECOND))
    assert watched.during(LED_MIN + STEP) == [Wish("n3", is_full=False)]


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (DiskHealth(sync_ns=SLOW_MIN - 1), QUICK),  # not slow
        (SLOW, DiskHealth(sync_ns=SLOW.sync_ns // SLOW_RATIO + 1)),  # not much slower
        (SLOW, DiskHealth()),  # the others have synced nothing lately
        (SLOW, DiskHealth(is_full=True, sync_ns=MILLISECOND)),
        (DiskHealth(), DiskHealth()),
    ],
)
def test_a_disk_that_is_hardly_worse_keeps_the_lead(own: DiskHealth, other: DiskHealth) -> None:
    assert Watched(own, other, other).during(120 * SECOND) == []


def test_a_leader_that_has_just_begun_waits() -> None:
    assert Watched(SLOW).during(LED_MIN - STEP) == []


def test_a_disk_that_is_slow_now_and_then_keeps_the_lead() -> None:
    watched = Watched(SLOW)
    for _ in range(20):
        watched.own = SLOW
        assert watched.during(SLOW_FOR - STEP) == []
        watched.own = QUICK
        assert watched.during(STEP) == []


def test_a_slow_disk_keeps_the_lead_where_the_others_are_behind() -> None:
    watched = Watched(SLOW)
    watched.ready = []
    assert watched.during(LED_MIN + SLOW_FOR) == []
    watched.ready = ["n2"]
    assert watched.during(STEP) == [TO_N2]


def test_nobody_hands_back_to_who_was_slow() -> None:
    watched = Watched(SLOW)
    watched.lead_anew("n2", "n3")
    assert watched.during(AVOIDED_FOR - STEP) == []
    assert watched.watch.avoided(watched.now) == ("n2", "n3")
    assert watched.during(2 * STEP) == [TO_N2]
    assert watched.watch.avoided(watched.now) == ()


def test_a_full_disk_does_not_ask_who_was_slow() -> None:
    watched = Watched(FULL)
    watched.lead_anew("n2", "n3")
    assert watched.during(FULL_FOR + 2 * STEP) == [Wish("n2", is_full=True)]


def test_who_is_no_member_any_more_does_not_take_over() -> None:
    watched = Watched(SLOW)
    watched.during(LED_MIN - STEP)
    watched.watch.forget("n2")
    del watched.others["n2"]
    assert watched.during(SLOW_FOR) == [Wish("n3", is_full=False)]
