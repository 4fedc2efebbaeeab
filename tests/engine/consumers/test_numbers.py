"""Rows of numbers, of which both builds say the same."""

import pytest

from slipstream.engine.consumer.numbers import Numbers


def test_numbers_begin_with_those_they_take_and_the_others_are_0() -> None:
    numbers = Numbers(3)
    numbers.take((7).to_bytes(8, "little") + (-1).to_bytes(8, "little", signed=True))
    assert numbers.pack() == b"\7" + bytes(7) + b"\xff" * 8 + bytes(8)
    assert Numbers(0).pack() == b""


def test_more_numbers_than_there_is_room_for_are_refused() -> None:
    numbers = Numbers(1)
    with pytest.raises(ValueError, match="room"):
        numbers.take(bytes(16))
    assert numbers.pack() == bytes(8)
