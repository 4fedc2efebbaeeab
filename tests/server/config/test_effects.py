"""Limits of a configuration file hold in the server that it configures."""

from pathlib import Path

import nats
import pytest
from nats.js.client import JetStreamContext
from nats.js.errors import APIError

from slipstream import Server
from slipstream.server.config import load_text
from tests.compatibility.raw_client import RawClient


def server(directory: Path, jetstream: str) -> Server:
    text = f'host: 127.0.0.1, port: -1, jetstream {{ store_dir: "{directory}", {jetstream} }}'
    return Server(config=load_text(text).options)


async def refusal(js: JetStreamContext, storage: str) -> int | None:
    """The err_code with which a stream is refused."""
    try:
        await js.add_stream(name=storage, subjects=[storage], storage=storage)
    except APIError as error:
        return error.err_code
    return None


async def test_a_size_of_0_is_none_at_all(tmp_path: Path) -> None:
    async with server(tmp_path, "max_mem: 0") as one:
        client = await nats.connect(one.url)
        assert await refusal(client.jetstream(), "memory") == 10028
        assert await refusal(client.jetstream(), "file") is None
        await client.close()


async def test_no_disk_is_no_file_stream(tmp_path: Path) -> None:
    async with server(tmp_path, "max_file: 0, max_mem: 1M") as one:
        client = await nats.connect(one.url)
        assert await refusal(client.jetstream(), "file") == 10047
        assert await refusal(client.jetstream(), "memory") is None
        await client.close()


async def test_streams_may_not_reserve_more_than_the_machine_has(tmp_path: Path) -> None:
    async with server(tmp_path, "") as one:
        client = await nats.connect(one.url)
        js = client.jetstream()
        for storage, code in (("file", 10047), ("memory", 10028)):
            with pytest.raises(APIError) as raised:
                await js.add_stream(name="S", subjects=["s"], storage=storage, max_bytes=2**60)
            assert raised.value.err_code == code
        await client.close()


async def test_a_stream_that_does_not_say_may_have_so_many_consumers(tmp_path: Path) -> None:
    async with server(tmp_path, "limits { default_max_consumers: 2 }") as one:
        client = await nats.connect(one.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], storage="memory")
        for name in ("a", "b"):
            await js.add_consumer("S", durable_name=name)
        with pytest.raises(APIError) as raised:
            await js.add_consumer("S", durable_name="c")
        assert raised.value.err_code == 10026
        await client.close()


def test_atomic_batches_have_the_bounds_of_the_configuration(tmp_path: Path) -> None:
    bounds = "max_msgs: 2, max_inflight_per_stream: 2, max_inflight_total: 3, timeout: 1h"
    with (
        server(tmp_path, f"limits {{ batch {{ {bounds} }} }}") as one,
        RawClient(one.port) as client,
    ):
        for name in "st":
            config = {"name": name, "subjects": [name], "allow_atomic": True}
            client.api(f"STREAM.CREATE.{name}", config)

        def add(stream: str, batch: str, number: int) -> int:
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            reply = client.request(stream, b"x", headers)
            assert reply is not None
            return int(reply.json()["error"]["err_code"]) if reply.body else 0

        assert [add("s", "a", number) for number in (1, 2, 3)] == [0, 0, 10199]
        assert [add("s", batch, 1) for batch in "abc"] == [0, 0, 10210]
        assert [add("t", batch, 1) for batch in "ab"] == [0, 10210]


async def test_publishers_are_not_slowed_down_where_that_is_off(tmp_path: Path) -> None:
    options = load_text("host: 127.0.0.1, port: -1, no_fast_producer_stall: true").options
    async with Server(config=options) as one:
        assert one.runtime is not None
        assert one.runtime.engine.options.no_fast_producer_stall


def test_a_reload_changes_the_rate_of_the_scrub_and_stops_it(tmp_path: Path) -> None:
    with server(tmp_path, "scrub: 10MB") as running:
        assert running.runtime is not None
        engine = running.runtime.engine
        first = engine.scrub
        assert first is not None
        assert engine.options.scrub_rate == 10 * 1024**2
        for said, wanted in (("scrub: 20MB", 20 * 1024**2), ("scrub: off", 0)):
            running.reload(server(tmp_path, said).options)
            assert engine.options.scrub_rate == wanted
            assert engine.scrub is (first if wanted else None)
        running.reload(server(tmp_path, "").options)
        assert engine.scrub is not None
