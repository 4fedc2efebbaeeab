"""Acknowledgements wait in order, on either build."""

import sys
from random import Random
from types import ModuleType

import pytest

from slipstream.engine.stream import promises
from tests.plain_twin import plain_twin

BUILDS = [promises, plain_twin("slipstream.engine.stream.promises")]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("seed", range(4))
def test_what_was_promised_is_taken_in_order_once_it_is_durable(
    build: ModuleType, seed: int
) -> None:
    random = Random(seed)
    waiting = build.Promises()
    given: list[tuple[int, int, bytes, bytes]] = []
    last = 0
    for _ in range(2_000):
        last += random.randrange(3)
        for _ in range(random.choice((0, 1, 1, 2, 150))):
            one = (last, random.randrange(1, 2**63), b"inbox.%d" % last, b"}")
            given.append(one)
            waiting.add(*one)
        durable = max(last - random.randrange(4), 0)
        while waiting.take(durable):
            expected = given.pop(0)
            assert expected[0] <= durable
            assert (waiting.seq, waiting.reply, waiting.end) == expected[1:]
        assert not given or given[0][0] > durable
        assert len(waiting) == len(given)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("taken", [0, 3, 10])
def test_nothing_is_kept_of_what_was_taken_or_has_gone(build: ModuleType, taken: int) -> None:
    reply = b"inbox." + b"x" * 20
    before = sys.getrefcount(reply)
    waiting = build.Promises()
    for n in range(10):
        waiting.add(1, n + 1, reply, b"}")
    for _ in range(taken):
        assert waiting.take(1)
    assert sys.getrefcount(reply) == before + 10 - taken + (taken > 0)  # and that of the last one
    del waiting
    assert sys.getrefcount(reply) == before
