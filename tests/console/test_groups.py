"""What the console shows of servers that act as one."""

import re
import time
from collections.abc import Callable

import pytest

import slipstream
import slipstream.sync
from tests.console.conftest import MakeConsole

LIMIT_SECONDS = 60


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize("jetstream_group_size", [2])
def test_of_two_it_says_which_server_is_away_and_that_there_is_one_copy(
    jetstream_group: slipstream.Group, make_console: MakeConsole
) -> None:
    leader = jetstream_group.leader
    at = jetstream_group.names.index(leader)
    other = jetstream_group.names[1 - at]
    url = jetstream_group.urls[at]
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=2)
        console = make_console(url)

        def copy() -> str:
            found = re.search(rf"Copy on {other}</dt><dd>(.*?)</dd>", console.get("/streams/S"))
            assert found
            return found[1]

        until(lambda: copy() == "current", f"{other} has everything")
        member = jetstream_group._members[1 - at]
        member.thread.ask_to_stop()
        member.thread.join()
        until(lambda: "away" in copy(), f"{other} is away")
        assert f"Server {other} is away; until it is back there is one copy" in console.get("/")
        nc.jetstream().publish("s", b"x")
