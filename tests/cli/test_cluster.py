"""The commands for clusters, on three nats-servers, on a group, and on one that is alone."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import slipstream
from slipstream import Server
from slipstream.client.jetstream import JetStream, StreamConfig
from slipstream.engine.protocol.group import Member
from slipstream.server.config import load_text
from tests.cli.conftest import Cli
from tests.fix_group import FakeGroup, facts_of
from tests.fix_nats_cluster import ACCOUNTS, nats_cluster

SIZE = 3
BOSS = ("--user", "boss", "--password", "secret")


async def _ready(url: str) -> None:
    """Wait until the cluster stores streams, and make one with a consumer."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        config = StreamConfig(name="ORDERS", subjects=["orders.>"], num_replicas=SIZE)
        while True:
            try:
                await js.create_stream(config)
                break
            except slipstream.Error:
                await asyncio.sleep(0.1)
        await js.create_consumer("ORDERS", durable_name="worker")
        await _led(js)


async def _led(js: JetStream) -> None:
    """Wait until all copies have a leader."""
    while True:
        stream = (await js.stream_info("ORDERS")).cluster
        consumer = (await js.consumer_info("ORDERS", "worker")).cluster
        if stream and consumer and stream.leader and consumer.leader:
            return
        await asyncio.sleep(0.1)


@contextmanager
def _group(directory: Path) -> Iterator[str]:
    """A server that leads a group of three."""
    text = f'store_dir: "{directory}"\nhost: 127.0.0.1\nport: -1\njetstream: enabled\n{ACCOUNTS}'
    server = Server(config=load_text(f"server_name: n0\n{text}").options)
    server.group = FakeGroup(
        followers=[Member(name, active=1_000_000, facts=facts_of(name)) for name in ("n1", "n2")],
        hands_over=True,
    )
    with server:
        yield server.url


@contextmanager
def _nats_servers(directory: Path) -> Iterator[str]:
    with nats_cluster(directory, SIZE) as servers:
        yield servers[0].url


@pytest.fixture(scope="module", params=[_nats_servers, _group], ids=["nats-servers", "a group"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Three servers that are one cluster, with a stream ORDERS; where clients connect."""
    with request.param(tmp_path_factory.mktemp("cluster")) as url:
        asyncio.run(asyncio.wait_for(_ready(url), 60))
        yield url


def test_the_leader_of_a_stream_hands_over(cluster: str, tmp_path: Path) -> None:
    cli = Cli(cluster, tmp_path)
    leader = json.loads(cli("stream", "info", "ORDERS", "--json").out)["cluster"]["leader"]
    said = cli("stream", "cluster", "step-down", "ORDERS").out
    assert "leads stream ORDERS" in said
    assert not said.startswith(leader)
    preferred = next(f"n{i}" for i in range(SIZE) if f"n{i}" not in (leader, said.split()[0]))
    found = json.loads(
        cli("stream", "cluster", "elect", "ORDERS", "--preferred", preferred, "--json").out
    )
    assert found == {"success": True, "leader": preferred}


def test_the_leader_of_a_consumer_hands_over(cluster: str, tmp_path: Path) -> None:
    said = Cli(cluster, tmp_path)("consumer", "cluster", "step-down", "ORDERS", "worker").out
    assert "leads consumer ORDERS > worker" in said


def test_a_server_without_a_copy_cannot_give_it_up(cluster: str, tmp_path: Path) -> None:
    cli = Cli(cluster, tmp_path)
    refused = cli("stream", "cluster", "peer-remove", "ORDERS", "nobody", "--force", status=2)
    assert 'no copy on "nobody": it is on n0, n1, n2' in refused.err


def test_the_leader_of_all_hands_over(cluster: str, tmp_path: Path) -> None:
    said = Cli(cluster, tmp_path)("server", "cluster", "step-down", *BOSS).out
    assert "leads the cluster" in said


def test_the_servers_of_a_cluster_are_checked(cluster: str, tmp_path: Path) -> None:
    cli = Cli(cluster, tmp_path)
    check = ("server", "check", "meta", "--lag-critical", "1000", "--seen-critical", "1h", *BOSS)
    assert "peers=3" in cli(*check, "--expect", "3").out
    assert "3 servers, not 4" in cli(*check, "--expect", "4", status=2).out
    listed = json.loads(cli("server", "ls", "--json", *BOSS).out)
    assert len(listed) == SIZE  # the fake group's leader keeps its name when it hands over


def test_who_leads_and_who_follows_is_shown(cluster: str, tmp_path: Path) -> None:
    cli = Cli(cluster, tmp_path)
    for words in (("stream", "info", "ORDERS"), ("consumer", "info", "ORDERS", "worker")):
        shown = cli(*words).out
        assert "Cluster Information:" in shown
        assert "Name: C\n" in shown
        leader = re.search(r"Leader: (n\d) \(.+\)\n", shown)
        assert leader is not None
        followers = re.findall(r"Replica: (n\d), (?:current|outdated), .*seen", shown)
        assert {leader[1], *followers} == {"n0", "n1", "n2"}


def test_the_servers_of_a_cluster_are_reported(cluster: str, tmp_path: Path) -> None:
    cli = Cli(cluster, tmp_path)
    shown = cli("server", "report", "jetstream", *BOSS).out
    members = shown[shown.index("Servers of Cluster C") :]
    assert [members.count(f" n{number} ") for number in range(SIZE)] == [1] * SIZE
    assert members.count(" yes ") == 1
    assert " C " in cli("server", "ls", *BOSS).out


def test_the_report_of_streams_names_their_servers(cluster: str, tmp_path: Path) -> None:
    shown = Cli(cluster, tmp_path)("stream", "report").out
    servers = re.search(r"n0([*!]?), n1([*!]?), n2([*!]?) ", shown)
    assert servers is not None
    assert servers.groups().count("*") == 1


def test_top_says_who_leads(cluster: str, tmp_path: Path) -> None:
    assert re.search(r"cluster C: n\d leads", Cli(cluster, tmp_path)("top", "--once").out)


def test_what_a_group_cannot_do_yet_is_said(tmp_path: Path) -> None:
    with _group(tmp_path / "store") as url:
        cli = Cli(url, tmp_path)
        cli("stream", "add", "S", "--subjects", "s", "--replicas", "3", "--defaults")
        said = cli.run("stream", "cluster", "peer-remove", "S", "n1", "--force").err
        assert "peer remap failed" in said
        said = cli.run("server", "cluster", "peer-remove", "zz", "--force", *BOSS).err
        assert 'the cluster has no server "zz": it has n0, n1, n2' in said


def test_a_server_that_has_gone_for_good_is_removed(tmp_path: Path) -> None:
    with _group(tmp_path / "store") as url:
        cli = Cli(url, tmp_path)
        said = cli("server", "cluster", "peer-remove", "n1", "--force", *BOSS).out
        assert "n1 is no server of the cluster any more" in said
        assert cli.run("server", "cluster", "peer-remove", "n1", "--force", *BOSS).status == 2


def test_a_server_that_is_alone_has_nobody_to_hand_over_to(cli: Cli) -> None:
    cli("stream", "add", "ALONE", "--subjects", "alone", "--storage", "memory", "--defaults")
    refused = cli("stream", "cluster", "step-down", "ALONE", status=2)
    assert "Cluster Information" not in cli("stream", "info", "ALONE").out
    assert "stream ALONE has one copy: there is nobody to hand over to" in refused.err
    assert "step-down or peer-remove" in cli("stream", "cluster", "jump", "ALONE", status=2).err
