"""`/metrics` is well-formed, and tells how far consumers are behind."""

import asyncio
import re

import nats
from nats.js.api import ConsumerConfig

from slipstream import Server
from tests.server.monitoring.http_client import get

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\} (-?[0-9.e+]+)')


def read(server: Server) -> dict[tuple[str, str], float]:
    """Samples by name and by the stream and consumer that they are about."""
    found = get(server.monitoring_url, "/metrics")
    assert found.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {}
    typed = set()
    for line in found.body.decode().splitlines():
        if line.startswith("# TYPE "):
            assert line.split()[2] not in typed
            typed.add(line.split()[2])
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in typed
        labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match[2]))
        about = ".".join(labels[n] for n in ("stream_name", "consumer_name") if n in labels)
        samples[match[1], about] = float(match[3])
    return samples


async def test_metrics_tell_of_the_server_its_streams_and_its_consumers() -> None:
    async with Server(monitoring_port=0) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"], max_msgs=100)
        subscription = await js.pull_subscribe("s.>", "C", stream="S")
        for i in range(5):
            await js.publish(f"s.{i}", b"hello")
        messages = await subscription.fetch(3)
        await messages[0].ack_sync()

        samples = await asyncio.to_thread(read, server)
        await client.close()
    assert samples["gnatsd_varz_connections", ""] == 1
    assert samples["gnatsd_varz_start", ""] > 1.6e9
    assert samples["gnatsd_varz_jetstream_stats_storage", ""] > 0
    assert samples["jetstream_server_total_streams", ""] == 1
    assert samples["jetstream_server_jetstream_disabled", ""] == 0
    assert samples["jetstream_stream_total_messages", "S"] == 5
    assert samples["jetstream_stream_last_seq", "S"] == 5
    assert samples["jetstream_stream_limit_messages", "S"] == 100
    assert samples["jetstream_stream_subject_count", "S"] == 5
    assert samples["jetstream_consumer_num_pending", "S.C"] == 2
    assert samples["jetstream_consumer_num_ack_pending", "S.C"] == 2
    assert samples["jetstream_consumer_ack_floor_stream_seq", "S.C"] == 1
    assert samples["slipstream_consumer_lag_messages", "S.C"] == 4
    assert 0 <= samples["slipstream_consumer_idle_seconds", "S.C"] < 60
    assert 0 <= samples["slipstream_stream_idle_seconds", "S"] < 60
    assert samples["slipstream_healthy", ""] == 1


async def test_a_description_can_not_break_the_format() -> None:

    async with Server(monitoring_port=0) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        text = 'a "quoted" \\ and\nbroken'
        await js.add_consumer("S", ConsumerConfig(durable_name="C", description=text))
        samples = await asyncio.to_thread(read, server)
        await client.close()
    assert samples["jetstream_consumer_num_pending", "S.C"] == 0
