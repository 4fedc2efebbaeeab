"""Reads land where they are looked at, on raw memory as in the plain twin."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.read_buffer import READ_BYTES, ReadBuffer
from tests.plain_twin import plain_twin

BUILDS = pytest.mark.parametrize(
    "kind",
    [ReadBuffer, plain_twin("slipstream.wire.read_buffer").ReadBuffer],
    ids=["this build", "plain"],
)


def read(buffer: Any, data: bytes) -> bytes:
    """One read that brings `data`; what is to be looked at then."""
    buffer.room()[: len(data)] = data
    taken: bytes = buffer.take(len(data))
    return taken


@BUILDS
def test_small_reads_are_looked_at_one_by_one(kind: Any) -> None:
    buffer = kind()
    first = read(buffer, b"first")
    assert (first, read(buffer, b"other"), first) == (b"first", b"other", b"first")
    assert len(buffer.room()) == READ_BYTES


@BUILDS
@given(st.binary(max_size=50), st.lists(st.binary(min_size=1, max_size=50), min_size=1))
def test_a_frame_that_is_awaited_is_looked_at_when_it_is_whole(
    kind: Any, start: bytes, reads: list[bytes]
) -> None:
    buffer = kind()
    whole = start + b"".join(reads)
    buffer.expect(start, len(whole))
    taken = [read(buffer, data) for data in reads]
    assert taken == [b""] * (len(reads) - 1) + [whole]
    assert read(buffer, b"next") == b"next"


@BUILDS
def test_a_read_brings_no_more_than_there_was_room_for(kind: Any) -> None:
    buffer = kind()
    for wrong in (-1, READ_BYTES + 1):
        with pytest.raises(IndexError):
            buffer.take(wrong)
    buffer.expect(b"ab", 5)
    assert len(buffer.room()) == 3
    for wrong in (-1, 4):
        with pytest.raises(IndexError):
            buffer.take(wrong)
    with pytest.raises(ValueError):
        buffer.expect(b"abc", 3)


@BUILDS
def test_where_a_read_landed_outlives_the_frame(kind: Any) -> None:
    buffer = kind()
    buffer.expect(b"a", 3)
    room = buffer.room()
    room[:] = b"bc"
    whole = buffer.take(2)
    del buffer
    assert (bytes(room), whole) == (b"bc", b"abc")
