"""The commands for clusters, on three nats-servers and on one that is alone."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, StreamConfig
from tests.cli.conftest import Cli
from tests.fix_nats_cluster import nats_cluster

SIZE = 3


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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three nats-servers that are one cluster, with a stream ORDERS; where clients connect."""
    with nats_cluster(tmp_path_factory.mktemp("cluster"), SIZE) as servers:
        asyncio.run(asyncio.wait_for(_ready(servers[0].url), 60))
        yield servers[0].url


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
    boss = ("--user", "boss", "--password", "secret")
    said = Cli(cluster, tmp_path)("server", "cluster", "step-down", *boss).out
    assert "leads the cluster" in said


def test_a_server_that_is_alone_has_nobody_to_hand_over_to(cli: Cli) -> None:
    cli("stream", "add", "ALONE", "--subjects", "alone", "--storage", "memory", "--defaults")
    refused = cli("stream", "cluster", "step-down", "ALONE", status=2)
    assert "stream ALONE has one copy: there is nobody to hand over to" in refused.err
    assert "step-down or peer-remove" in cli("stream", "cluster", "jump", "ALONE", status=2).err
