"""The same scripts of consumer calls on both servers: they agree after every step."""

import pytest

from slipstream import Server
from tests.compatibility.consumer_scripts import Side, Step, differences, make_script, run_step
from tests.compatibility.consumer_stories import STORIES
from tests.fix_nats_server import NatsServer


def _compare(steps: list[Step], ours: Side, theirs: Side) -> None:
    for number, step in enumerate(steps):
        views = run_step(step, ours, theirs)
        assert views is None, f"step {number}: {step}\n{differences(*views)}"
    ours.close()
    theirs.close()


@pytest.mark.parametrize("seed", [1, 4, 9, 12, 20, 27, 33, 41])
def test_both_servers_agree_after_every_step(
    seed: int, jetstream_server: Server, nats_server: NatsServer
) -> None:
    _compare(make_script(seed), Side(jetstream_server.port), Side(nats_server.port))


def test_both_servers_tell_the_same_stories(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    for number, steps in enumerate(STORIES.values()):
        # nats-server removes the files of a stream when it has already answered that it is deleted:
        # the next stream of that name would find them.
        names = (f"in{number}", f"S{number}")
        _compare(steps, Side(jetstream_server.port, *names), Side(nats_server.port, *names))
