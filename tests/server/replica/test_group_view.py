"""Where clients are told that they may connect."""

from types import SimpleNamespace
from typing import cast

import msgspec

from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.replica.group_view import OFFLINE_NS, GroupView
from slipstream.server.replica.replica import Replica
from tests.fix_group import facts_of


def urls(
    silent: str = "", led: dict[str, str] | None = None, no_advertise: bool = False
) -> list[str]:
    """As n1 tells them, which leads; n2 has said where it is, and n3 is of an earlier version.
    `led` are the servers that have led."""
    said = {"n2": msgspec.json.encode(facts_of("n2", client_address="n2:4222"))}
    names = ("n2", "n3")
    host = SimpleNamespace(
        name="n1",
        followers=lambda: [(one, 0, OFFLINE_NS * 2 * (one == silent), False) for one in names],
        said_of_itself=lambda name: said.get(name, b""),
    )
    replica = SimpleNamespace(host=host, directory=SimpleNamespace(clients=led or {}))
    options = ClusterOptions(name="C", no_advertise=no_advertise)
    view = GroupView(options, "n1:4222", cast(Replica, replica), lambda name: None)
    return list(view.client_urls)


def test_the_leader_is_first_and_followers_are_told_by_what_they_say() -> None:
    assert urls() == ["n1:4222", "n2:4222"]


def test_a_server_of_an_earlier_version_is_told_once_it_has_led() -> None:
    assert urls(led={"n1": "n1:4222", "n3": "n3:4222"}) == ["n1:4222", "n2:4222", "n3:4222"]


def test_who_is_silent_or_has_left_the_group_is_not_told() -> None:
    assert urls(silent="n2", led={"n2": "n2:4222", "n0": "n0:4222"}) == ["n1:4222"]


def test_no_advertise_tells_of_the_leader_alone() -> None:
    assert urls(led={"n3": "n3:4222"}, no_advertise=True) == ["n1:4222"]
