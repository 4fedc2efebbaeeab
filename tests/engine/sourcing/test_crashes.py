"""Whatever the moment of a power failure: followers have what their upstreams were acknowledged,
each message once and in order.

A random plan publishes, lets the disk get on with its work by single steps, deletes, lets time
pass and fails the power. What an upstream has afterwards decides what its followers must have.
"""

from random import Random

import pytest

from tests.engine.sourcing.conftest import World

SEEDS = range(25)
STEPS = 120


class Plan:
    """Random steps on one server; `acked` are the numbers that publishes were acknowledged for."""

    def __init__(self, seed: int, subject: str) -> None:
        self.random = Random(seed)
        self.world = World(seed)
        self.subject = subject
        self.sent = 0
        self.acked: set[int] = set()

    def run(self) -> None:
        """A plan's steps, then peace."""
        for _ in range(STEPS):
            self._step()
        self._wait()
        self.world.settle(60)

    def _step(self) -> None:
        world, random = self.world, self.random
        what = random.choices(
            ("publish", "disk", "time", "crash", "restart", "hold"), (40, 30, 10, 3, 2, 10)
        )[0]
        if what == "publish":
            for _ in range(random.randint(1, 20)):
                self.sent += 1
                world.client.publish(self.subject, b"%d" % self.sent, f"_INBOX.t.p{self.sent}")
        elif what == "disk":
            for _ in range(random.randint(1, 5)):
                world.driver.runner.step()
                world.driver.finish()
        elif what == "time":
            world.driver.advance(random.randint(1, 3_000_000_000))
        elif what == "hold":
            world.driver.runner.hold()
        self._hear()
        if what == "crash":
            world.crash()
        elif what == "restart":
            self._wait()
            world.restart()

    def _wait(self) -> None:
        """Let the disk do all that it has to do."""
        self.world.driver.runner.held = False
        self.world.driver.runner.release()
        self.world.driver.finish()
        self._hear()

    def _hear(self) -> None:
        """Take note of acknowledgements."""
        for message in self.world.client.take():
            if b'"seq":' in message.body and b'"error"' not in message.body:
                self.acked.add(int(message.subject.rsplit("p", 1)[1]))


@pytest.mark.parametrize("seed", SEEDS)
def test_mirrors_and_sources_of_a_stream_have_what_it_has(seed: int) -> None:
    plan = Plan(seed, "u.a")
    world = plan.world
    world.create("U", subjects=["u.>"])
    world.create("M", mirror={"name": "U"})
    world.create("S", subjects=["s"], sources=[{"name": "U"}], storage="file")
    world.create("N", mirror={"name": "M"})
    plan.run()
    upstream = world.contents("U")
    assert world.contents("M") == upstream
    assert world.contents("N") == upstream
    assert world.bodies("S") == world.bodies("U")
    kept = [int(body) for body in world.bodies("U")]
    assert kept == sorted(set(kept))
    assert plan.acked <= set(kept)


@pytest.mark.parametrize("kind", ["mirror", "sources"])
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_has_what_its_upstream_let_go(seed: int, retention: str, kind: str) -> None:
    plan = Plan(seed, "w.a")
    world = plan.world
    world.create("W", subjects=["w.>"], retention=retention)
    source = {"name": "W"}
    world.create("F", **{kind: source if kind == "mirror" else [source]})
    world.settle()
    plan.run()
    taken = [int(body) for body in world.bodies("F")]
    assert taken == sorted(set(taken))
    assert plan.acked <= set(taken)
    assert world.contents("W") == []
