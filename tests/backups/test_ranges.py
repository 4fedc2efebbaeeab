"""Stretches of sequences, beside sets that say the same."""

from hypothesis import given
from hypothesis import strategies as st

from slipstream.backups.parts import Inside, Ranges, common, merged, ranges_of, without

SETS = st.sets(st.integers(0, 60))


def spelled(ranges: Ranges) -> set[int]:
    """The sequences in them."""
    return {seq for first, last in ranges for seq in range(first, last + 1)}


@given(SETS, SETS, st.integers(0, 60), st.integers(0, 60))
def test_ranges_are_what_sets_are(some: set[int], others: set[int], at: int, end: int) -> None:
    one, other = ranges_of(sorted(some)), ranges_of(sorted(others))
    assert spelled(one) == some
    assert merged([*one, *other]) == ranges_of(sorted(some | others))
    assert common(one, other) == len(some & others)
    assert spelled(without((at, end), one)) == set(range(at, end + 1)) - some
    inside = Inside(one)
    assert [seq for seq in range(61) if seq in inside] == sorted(some)
