"""The same random scripts of consumer calls on both servers: they agree after every step."""

import pytest

from slipstream import Server
from tests.compatibility.consumer_scripts import Side, differences, make_script, run_step
from tests.fix_nats_server import NatsServer


@pytest.mark.parametrize("seed", [1, 4, 9, 12, 20, 27, 33, 41])
def test_both_servers_agree_after_every_step(
    seed: int, jetstream_server: Server, nats_server: NatsServer
) -> None:
    ours, theirs = Side(jetstream_server.port), Side(nats_server.port)
    for number, step in enumerate(make_script(seed)):
        views = run_step(step, ours, theirs)
        assert views is None, f"step {number}: {step}\n{differences(*views)}"
    ours.close()
    theirs.close()
