"""What a server has acknowledged is there after it comes back, whether it ended or crashed."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from slipstream import Server
from tests.fix_server_process import ServerProcess, StartProcess
from tests.server.monitoring.http_client import get

PUBLISHERS = 4
ACKS_BEFORE_THE_CRASH = 400


async def publish_until_the_crash(server: ServerProcess) -> dict[int, str]:
    """Publish from several clients at once; kill the server in the middle. The acknowledged ones:
    message ids by sequence."""
    acknowledged: dict[int, str] = {}
    numbers = itertools.count()
    enough = asyncio.Event()

    async def publisher() -> None:
        nc = await nats.connect(server.url, allow_reconnect=False, error_cb=ignore)
        js = nc.jetstream()
        try:
            while True:
                name = f"id-{next(numbers)}"
                try:
                    ack = await js.publish(
                        f"s.{name}", name.encode() * 20, headers={"Nats-Msg-Id": name}, timeout=2
                    )
                except TimeoutError:  # the crash, or a machine that is busy before it
                    if nc.is_closed:
                        return
                    continue
                acknowledged[ack.seq] = name
                if len(acknowledged) >= ACKS_BEFORE_THE_CRASH:
                    enough.set()
        except Exception:  # whichever error the end of the connection happens to be
            await nc.close()

    tasks = [asyncio.create_task(publisher()) for _ in range(PUBLISHERS)]
    await enough.wait()
    server.kill()
    await asyncio.gather(*tasks)
    return acknowledged


async def ignore(error: Exception) -> None:
    """The connection ends; that is what this is about."""


async def test_after_kill_9_every_acknowledged_message_is_there(
    start_server: StartProcess, tmp_path: Path
) -> None:
    store = ("-js", "-sd", str(tmp_path / "store"))
    server = start_server(*store)
    nc = await nats.connect(server.url, allow_reconnect=False, error_cb=ignore)
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s.>"], duplicate_window=3600))
    consumer = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
    pull = await js.pull_subscribe("s.>", "C", stream="S", config=consumer)
    for n in range(10):
        await js.publish("s.first", str(n).encode())
    done = [await message.ack_sync() for message in await pull.fetch(7, timeout=5)]
    assert len(done) == 7
    acknowledged = await publish_until_the_crash(server)

    server = start_server(*store)
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    for seq, name in acknowledged.items():
        stored = await js.get_msg("S", seq)
        assert (stored.subject, stored.data) == (f"s.{name}", name.encode() * 20)
    info = await js.consumer_info("S", "C")
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (7, 0)
    (message,) = await (await js.pull_subscribe("s.>", "C", stream="S")).fetch(1, timeout=5)
    assert message.metadata.sequence.stream == 8
    last = max(acknowledged)
    repeated = await js.publish(
        "s.again", b"", headers={"Nats-Msg-Id": acknowledged[last]}, timeout=5
    )
    assert (repeated.seq, repeated.duplicate) == (last, True)
    fresh = await js.publish("s.new", b"")
    assert fresh.seq > last
    await nc.close()


def comparable(info: Any) -> dict[str, Any]:
    """What has to be the same after a restart."""
    fields = info.as_dict() if hasattr(info, "as_dict") else dict(vars(info))
    for name in ("cluster", "alternates", "timestamp", "ts", "push_bound", "num_waiting"):
        fields.pop(name, None)
    return fields


async def test_a_clean_restart_changes_nothing(start_server: StartProcess, tmp_path: Path) -> None:
    store = ("-js", "-sd", str(tmp_path / "store"))
    server = start_server(*store)
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    interest = RetentionPolicy.INTEREST
    await js.add_stream(StreamConfig(name="LIMITS", subjects=["l.*"], max_msgs=50))
    await js.add_stream(StreamConfig(name="INTEREST", subjects=["i.*"], retention=interest))
    for stream, subject in (("LIMITS", "l.a"), ("INTEREST", "i.a")):
        await js.add_consumer(
            stream, ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
        )
        for n in range(60):
            await js.publish(subject, str(n).encode())
        pull = await js.pull_subscribe_bind("C", stream)
        for message in await pull.fetch(20, timeout=5):
            await message.ack_sync()
        await pull.fetch(5, timeout=5)  # delivered, not acknowledged
    kv = await js.create_key_value(bucket="B")
    await kv.put("k", b"v")
    streams = {info.config.name: comparable(info.state) for info in await js.streams_info()}
    consumers = [comparable(await js.consumer_info(name, "C")) for name in ("LIMITS", "INTEREST")]
    await nc.close()
    server.send(2)
    assert server.wait_for_end() == 0

    server = start_server(*store)
    assert "Restored 50 messages and 1 consumers of stream '$G > LIMITS'" in server.log
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    assert {i.config.name: comparable(i.state) for i in await js.streams_info()} == streams
    found = [comparable(await js.consumer_info(name, "C")) for name in ("LIMITS", "INTEREST")]
    assert found == consumers
    assert (await (await js.key_value("B")).get("k")).value == b"v"
    await nc.close()


@pytest.mark.parametrize("copy", [0, 1])
async def test_one_bad_bit_in_a_configuration_removes_nothing_and_is_reported_until_an_update(
    tmp_path: Path, copy: int
) -> None:
    config = StreamConfig(name="S", subjects=["s.>"], max_msgs=5)
    async with Server(store_dir=str(tmp_path)) as server:
        nc = await nats.connect(server.url)
        js = nc.jetstream()
        await js.add_stream(config)
        await js.update_stream(config, max_msgs=100_000)
        for n in range(50):
            await js.publish("s.a", str(n).encode())
        await nc.close()
    path = tmp_path / "jetstream" / "$G" / "S" / f"meta.{copy}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    async with Server(store_dir=str(tmp_path), monitoring_port=0) as server:
        nc = await nats.connect(server.url)
        js = nc.jetstream()
        health = await asyncio.to_thread(get, server.monitoring_url, "/healthz")
        assert health.status == 503
        assert f"meta.{copy} is damaged" in health.json["error"]
        assert (await js.publish("s.a", b"one more")).seq == 51
        info = await js.stream_info("S")
        assert (info.state.messages, info.config.max_msgs) == (51, 100_000)
        await js.update_stream(config, max_msgs=40)
        assert (await js.stream_info("S")).state.messages == 40
        if copy == 0:
            health = await asyncio.to_thread(get, server.monitoring_url, "/healthz")
            assert health.status == 200
        await nc.close()
    async with Server(store_dir=str(tmp_path), monitoring_port=0) as server:
        health = await asyncio.to_thread(get, server.monitoring_url, "/healthz")
        assert health.status == 200
