"""An object that is read whole lies in one piece, on raw memory as in the plain twin."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.client.object_store.object_bytes import ObjectBytes
from tests.plain_twin import plain_twin

HUGE = 33 * 1024 * 1024


BUILDS = pytest.mark.parametrize(
    "kind",
    [ObjectBytes, plain_twin("slipstream.client.object_store.object_bytes").ObjectBytes],
    ids=["this build", "plain"],
)


@BUILDS
@given(st.lists(st.binary(max_size=50)))
def test_what_is_put_can_be_read_at_once_and_taken_in_one_piece(
    kind: Any, chunks: list[bytes]
) -> None:
    whole = kind(sum(map(len, chunks)))
    places = [whole.put(memoryview(chunk)) for chunk in chunks]
    assert [bytes(place) for place in places] == chunks
    assert whole.take() == b"".join(chunks)


@BUILDS
def test_places_are_read_only_and_outlive_the_whole(kind: Any) -> None:
    whole = kind(6)
    first = whole.put(b"abc")
    whole.put(bytearray(b"def"))
    del whole
    assert first.readonly
    assert bytes(first) == b"abc"


@BUILDS
def test_more_than_there_is_room_for_is_refused(kind: Any) -> None:
    whole = kind(5)
    whole.put(b"abc")
    with pytest.raises(ValueError, match="more than there is room"):
        whole.put(b"def")
    whole.put(b"de")
    assert whole.take() == b"abcde"


@BUILDS
def test_nothing_is_taken_that_was_never_put(kind: Any) -> None:
    whole = kind(5)
    whole.put(b"abc")
    with pytest.raises(ValueError, match="missing"):
        whole.take()


@BUILDS
def test_an_object_in_huge_pages_has_the_same_bytes(kind: Any) -> None:
    whole = kind(HUGE)
    piece = bytes(range(256)) * 4096
    for _ in range(HUGE // len(piece)):
        whole.put(piece)
    assert whole.take() == piece * (HUGE // len(piece))
