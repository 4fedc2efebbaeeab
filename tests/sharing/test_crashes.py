"""Mirrors and sources of another account, across power failures, restarts, and imports that go and
come: they have what their upstream was acknowledged, each message once and in order."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from slipstream.engine.session.account import Account
from slipstream.engine.sharing.service_imports import ServiceTerms, import_services
from slipstream.engine.sharing.stream_imports import import_streams
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from tests.engine.sourcing.conftest import SEGMENT_BYTES, World
from tests.engine.sourcing.test_crashes import Plan

SEEDS = range(25)
TERMS = ServiceTerms(is_single=False, response_threshold=120 * SECOND)
UPSTREAM = {"name": "U", "external": {"api": "other.API", "deliver": "deliver.here"}}


class TwoAccounts(World):
    """The upstreams are in the default account, followers in `FAR`, which imports what they need.

    `World`'s calls are about the default account, but for those between `far`.
    """

    far_client: Client

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.driver.stop()
        self._start()

    def _start(self) -> None:
        now = self.driver.clock.now + SECOND
        self.driver = Driver(self.disk, now=now, segment_bytes=SEGMENT_BYTES)
        self.driver.engine.add_account("FAR")
        self.share(True)
        self.driver.start()
        self.driver.engine.on_problem = self.problems.append
        self.client = self.driver.client()
        self.far_client = self.driver.client(self.account)

    def settle(self, seconds: float = 5) -> None:
        super().settle(seconds)
        self.far_client.take()  # answers whether it is still there

    @property
    def account(self) -> Account:
        """The account of the followers."""
        return self.driver.engine.accounts["FAR"]

    def share(self, shares: bool) -> None:
        """The followers' account imports what they need, or nothing."""
        source = self.driver.engine.default_account
        services = [("$JS.API.>", "other.API.>"), ("$JS.FC.>", "$JS.FC.>")]
        streams = [(source, "deliver.>", "deliver.>", False)]
        import_streams(self.account, streams if shares else [])
        import_services(
            self.account, [(source, *each, TERMS) for each in services] if shares else []
        )
        self.driver.finish()

    @contextmanager
    def far(self) -> Iterator[None]:
        """What is asked meanwhile is asked in the followers' account."""
        near, self.client = self.client, self.far_client
        yield
        self.client = near

    def bodies_there(self, name: str) -> list[int]:
        """The numbers in a follower."""
        with self.far():
            return [int(body) for body in self.bodies(name)]

    def create_there(self, name: str, **config: Any) -> None:
        """Create a follower."""
        with self.far():
            assert "error" not in self.create(name, **config)


@pytest.mark.parametrize("seed", SEEDS)
def test_followers_in_another_account_have_what_the_upstream_has(seed: int) -> None:
    plan = Plan(seed, "u.a")
    world = plan.world = TwoAccounts(seed)
    world.create("U", subjects=["u.>"])
    world.create_there("M", mirror=UPSTREAM)
    world.create_there("S", sources=[UPSTREAM])
    plan.run()
    upstream = world.contents("U")
    with world.far():
        assert world.contents("M") == upstream
    kept = [int(body) for body in world.bodies("U")]
    assert world.bodies_there("S") == kept
    assert kept == sorted(set(kept))
    assert plan.acked <= set(kept)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_missing_when_an_import_was_away(seed: int) -> None:
    world = TwoAccounts(seed)
    random = Random(seed)
    world.create("U", subjects=["u.>"])
    world.create_there("M", mirror=UPSTREAM)
    world.create_there("S", sources=[UPSTREAM])
    number = 0
    for _ in range(40):
        what = random.choice(("publish", "publish", "time", "away", "back", "purge", "restart"))
        if what == "publish":
            count = random.randint(1, 50)
            world.publish("u.a", number + 1, number + count)
            number += count
        elif what == "time":
            world.settle(random.randint(1, 20))
        elif what == "purge":
            world.share(True)
            world.settle(60)  # all is copied
            world.client.api("STREAM.PURGE.U")
        elif what == "restart":
            world.restart()
        else:
            world.share(what == "back")
    world.share(True)
    world.settle(60)
    assert world.bodies_there("M") == list(range(1, number + 1))
    assert world.bodies_there("S") == list(range(1, number + 1))


@pytest.mark.parametrize("restarts", [False, True])
def test_an_upstream_that_was_made_anew_is_gathered_from_its_beginning(restarts: bool) -> None:
    world = TwoAccounts()
    world.create("U", subjects=["u.>"])
    world.create_there("M", mirror=UPSTREAM)
    world.create_there("S", sources=[UPSTREAM])
    world.publish("u.a", 1, 5)
    world.settle()
    world.client.api("STREAM.DELETE.U")
    world.settle(20)
    with world.far():
        assert world.info("S")["sources"][0]["error"]["err_code"] == 10059
    if restarts:
        world.restart()
    world.create("U", subjects=["u.>"])
    world.publish("u.a", 6, 13)
    world.settle(60)
    assert world.bodies_there("S") == list(range(1, 14))
    assert world.bodies_there("M") == [1, 2, 3, 4, 5, 11, 12, 13]  # behind its last sequence
