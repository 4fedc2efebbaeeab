"""What a type checker knows of configurations that are given by keywords."""

from datetime import timedelta

import slipstream
import slipstream.sync
from slipstream.client import ConnectOptions
from slipstream.client.jetstream import Stream


async def connections(url: str) -> None:
    async with slipstream.connect(url, name="billing", timeout=timedelta(seconds=2)) as nc:
        nc.jetstream(domain="edge", timeout=3)
        nc.jetstream(domian="edge")  # type: ignore[call-arg]
        await nc.add_service("calculator", "1.0.0", description="roots")
        await nc.add_service("calculator", "1.0.0", descripton="roots")  # type: ignore[call-arg]
    await slipstream.connect(url, ConnectOptions(name="billing"), echo=False)
    await slipstream.connect(url, nmae="billing")  # type: ignore[call-arg]
    await slipstream.connect(url, timeout="2s")  # type: ignore[arg-type]
    await slipstream.connect(url, when_full="drop_all")  # type: ignore[arg-type]


async def streams(js: slipstream.JetStream) -> None:
    stream = await js.create_stream(name="ORDERS", subjects=["orders.>"], max_age=3600)
    await js.update_stream(stream.config, max_age=timedelta(days=1), retention="workqueue")
    await stream.update(max_msgs=10)
    await js.create_stream(name="ORDERS", subject=["orders.>"])  # type: ignore[call-arg]
    await js.create_stream(name="ORDERS", subjects="orders.>")  # type: ignore[arg-type]
    await js.create_stream(name="ORDERS", max_age="1h")  # type: ignore[arg-type]
    await js.create_stream(name="ORDERS", retention="queue")  # type: ignore[arg-type]
    await js.create_stream("ORDERS")  # type: ignore[arg-type]
    await stream.update(max_messages=10)  # type: ignore[call-arg]


async def consumers(stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="billing", ack_wait=30)
    await stream.create_consumer(durable="billing")  # type: ignore[call-arg]
    await stream.create_consumer(ack_policy="maybe")  # type: ignore[arg-type]
    stream.ordered_consumer(deliver_policy="new")
    stream.ordered_consumer(durable_name="billing")  # type: ignore[call-arg]
    await consumer.fetch(10, timeout=1, group="a")
    await consumer.fetch(10, timout=1)  # type: ignore[call-overload]
    stream.scan(columns=["subject"])
    stream.scan(colums=["subject"])  # type: ignore[call-arg]


async def buckets(js: slipstream.JetStream) -> None:
    await js.create_key_value("prefs", history=5, ttl=timedelta(hours=1))
    await js.create_key_value("prefs", histroy=5)  # type: ignore[call-overload]
    store = await js.create_object_store("files", max_bytes=1 << 30)
    await js.create_object_store("files", max_byte=1 << 30)  # type: ignore[call-arg]
    await store.put_file("a.txt", chunk_size=1024)
    await store.put_file("a.txt", chunksize=1024)  # type: ignore[call-arg]


def servers() -> None:
    slipstream.Server(store_dir="data", server_name="edge", server_tags=["a"])
    slipstream.Server(server_nmae="edge")  # type: ignore[call-arg]
    slipstream.Server(port="4222")  # type: ignore[arg-type]


def without_await(url: str) -> None:
    def stopped(service: slipstream.sync.Service) -> None:
        service.info()

    with slipstream.sync.connect(url, ConnectOptions(), token=lambda: "secret") as nc:
        nc.add_service("calculator", "1.0.0", on_stop=stopped)
        nc.jetstream().create_stream(name="ORDERS", max_age=60)
        nc.jetstream().create_stream(nmae="ORDERS")  # type: ignore[call-arg]
        nc.jetstream().create_key_value("prefs", histroy=5)  # type: ignore[call-overload]
    slipstream.sync.connect(url, nmae="billing")  # type: ignore[call-arg]
