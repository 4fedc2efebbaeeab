"""What a follower says of its health, reason by reason."""

from types import SimpleNamespace
from typing import cast

import pytest

from slipstream.server.options import ServerOptions
from slipstream.server.replica.follower_view import BEHIND_MAX, FollowerView
from slipstream.server.replica.relay import Relay
from slipstream.server.replica.replica import Replica


def view(
    failed: str = "", applied: int = 5000, leader: str = "n1", **changes: object
) -> FollowerView:
    """n2 of three, which has all that n1 has committed."""
    host = {
        "leader_name": leader,
        "members": ("n1", "n2", "n3"),
        "linked_names": {"n1", "n3"},
        "heard_committed_index": 5000,
        "failed": "",
        "is_installing": False,
    }
    replica = SimpleNamespace(
        host=SimpleNamespace(**{**host, **changes}),
        directory=SimpleNamespace(applied=applied),
        leader_url="host:4222" if leader else "",
    )
    options = ServerOptions(server_name="n2")
    relay = cast(Relay, SimpleNamespace(clients={}, total=0))
    return FollowerView("C", options, cast(Replica, replica), relay, lambda: failed)


def test_a_server_that_has_what_the_leader_has_is_well() -> None:
    assert view().problem == ""
    assert view(applied=5000 - BEHIND_MAX).problem == ""
    assert view(leader="n1 5e0c1a42", linked_names={"n1 5e0c1a42"}).problem == ""  # it came later


@pytest.mark.parametrize(
    ("follower", "problem"),
    [
        (view("its disk has failed"), "takes no part in the group C: its disk has failed"),
        (view(failed="", leader=""), "no server leads the group C"),
        (view(leader="", linked_names=set()), "a connection to no other server"),
        (view(leader="n2"), "begins to lead the group C, or ceases to"),
        (view(linked_names={"n3"}), "there is no connection to n1, which leads"),
        (view(is_installing=True), "is being sent the files of the store by n1"),
        (view(applied=3000), "is 2,000 entries behind what n1 has committed"),
    ],
)
def test_a_server_that_has_not_says_why(follower: FollowerView, problem: str) -> None:
    assert problem in follower.problem


def test_who_knows_what_a_follower_does_not_is_named() -> None:
    assert view().who_knows == "n1 alone knows, which leads the group C at host:4222: ask there"
    assert "once there is one" in view(leader="").who_knows
