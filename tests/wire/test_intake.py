"""Reads land where they are looked at, on raw memory as in the plain twin."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.intake import READ_BYTES, Intake
from tests.plain_twin import plain_twin

BUILDS = pytest.mark.parametrize(
    "kind", [Intake, plain_twin("slipstream.wire.intake").Intake], ids=["this build", "plain"]
)


def read(intake: Any, data: bytes) -> bytes:
    """One read that brings `data`; what is to be looked at then."""
    intake.room()[: len(data)] = data
    taken: bytes = intake.take(len(data))
    return taken


@BUILDS
def test_small_reads_are_looked_at_one_by_one(kind: Any) -> None:
    intake = kind()
    first = read(intake, b"first")
    assert (first, read(intake, b"other"), first) == (b"first", b"other", b"first")
    assert len(intake.room()) == READ_BYTES


@BUILDS
@given(st.binary(max_size=50), st.lists(st.binary(min_size=1, max_size=50), min_size=1))
def test_a_frame_that_is_awaited_is_looked_at_when_it_is_whole(
    kind: Any, start: bytes, reads: list[bytes]
) -> None:
    intake = kind()
    whole = start + b"".join(reads)
    intake.expect(start, len(whole))
    taken = [read(intake, data) for data in reads]
    assert taken == [b""] * (len(reads) - 1) + [whole]
    assert read(intake, b"next") == b"next"


@BUILDS
def test_a_read_brings_no_more_than_there_was_room_for(kind: Any) -> None:
    intake = kind()
    for wrong in (-1, READ_BYTES + 1):
        with pytest.raises(IndexError):
            intake.take(wrong)
    intake.expect(b"ab", 5)
    assert len(intake.room()) == 3
    for wrong in (-1, 4):
        with pytest.raises(IndexError):
            intake.take(wrong)
    with pytest.raises(ValueError):
        intake.expect(b"abc", 3)


@BUILDS
def test_where_a_read_landed_outlives_the_frame(kind: Any) -> None:
    intake = kind()
    intake.expect(b"a", 3)
    room = intake.room()
    room[:] = b"bc"
    whole = intake.take(2)
    del intake
    assert (bytes(room), whole) == (b"bc", b"abc")
