"""Requests whose answers are lost, as when a leader changes, are made again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import slipstream
import slipstream.sync
from slipstream.client.errors import ConnectionLostError
from slipstream.client.jetstream.api import Api
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.spark import markers
from slipstream.spark.connections import patiently
from slipstream.spark.lookup import _values
from slipstream.spark.options import ServerOptions, SourceOptions, parse
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.writing import StreamSink, Task
from slipstream.spark.source.batch import BatchReader
from slipstream.spark.source.ranges import Part
from slipstream.tables import StreamTable, TableWriter, stream_table
from slipstream.tables.iceberg import open_catalog
from tests.spark.streams import fill
from tests.spark.test_groups import SCHEMA, numbered
from tests.spark.test_killed import numbers_in
from tests.spark.test_sink import stream_of

READ = StructType([StructField("sequence", LongType()), StructField("subject", StringType())])
REQUESTS_MAX = 40


class Losing:
    """Has one request of JetStream's API, the nth, sent and its answer lost."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nth = 0
        self.count = 0
        request = Api.request

        async def lossy(api: Api, endpoint: str, *words: Any, **more: Any) -> Any:
            self.count += 1
            is_lost = self.count == self.nth
            answer = await request(api, endpoint, *words, **more)
            if is_lost:
                raise ConnectionLostError(f"{endpoint}: lost")
            return answer

        patch.setattr(Api, "request", lossy)


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Losing:
    """Loses nothing until it is told."""
    return Losing(monkeypatch)


def each_lost_in_turn(losing: Losing, work: Callable[[], object]) -> int:
    """Do the work while its first request is lost, then its second ...; how many it makes."""
    for nth in range(1, REQUESTS_MAX):
        losing.nth, losing.count = nth, 0
        work()
        count, losing.nth = losing.count, 0
        if count < nth:
            return nth - 1
    raise AssertionError(f"it makes more than {REQUESTS_MAX} requests")


# For the stream, before and after it reads; and for a consumer.
@pytest.mark.parametrize(("by", "requests"), [("direct gets", 2), ("a consumer", 3)])
def test_a_task_that_reads_repeats_what_it_asks(
    jetstream_url: str, losing: Losing, by: str, requests: int
) -> None:
    name = fill(jetstream_url, 500)
    with slipstream.sync.connect(jetstream_url) as nc:
        nc.jetstream().stream(name).delete_message(300)  # a hole that has to be accounted for
    given = {"servers": jetstream_url, "stream": name, "fetchMessages": "100"}
    given |= {} if by == "direct gets" else {"subjects": f"{name}.new,{name}.old"}
    reader = BatchReader(READ, parse(SourceOptions, given))
    (part,) = reader.partitions()

    def read() -> None:
        batches = list(reader.read(part))
        found = [number for batch in batches for number in batch.column("sequence").to_pylist()]
        assert found == [number for number in range(1, 501) if number != 300]

    assert each_lost_in_turn(losing, read) >= requests


def test_the_plan_of_a_read_is_made_again(jetstream_url: str, losing: Losing) -> None:
    name = fill(jetstream_url, 10)
    options = parse(SourceOptions, {"servers": jetstream_url, "stream": name})

    def plan() -> None:
        (part,) = BatchReader(READ, options).partitions()
        assert isinstance(part, Part)
        assert (part.start, part.end) == (1, 11)

    assert each_lost_in_turn(losing, plan) >= 1


@pytest.mark.parametrize("mode", ["exactly-once", "deduplicated"])
def test_a_write_repeats_what_it_asks_and_adds_each_row_once(
    jetstream_url: str, losing: Losing, mode: str
) -> None:
    name = stream_of(jetstream_url)
    options = SinkOptions(servers=jetstream_url, stream=name, mode=mode)
    batch = 0

    def write() -> None:
        nonlocal batch
        sink = StreamSink(SCHEMA, options, streaming=True)
        rows = numbered(name, range(batch * 10, batch * 10 + 10))
        sink.commit([sink.run(iter([rows]), Task("q", batch, 0, f"run-{batch}"))])
        batch += 1

    assert each_lost_in_turn(losing, write) >= 1
    assert numbers_in(jetstream_url, name) == list(range(batch * 10))


def test_the_stream_of_markers_may_be_made_without_its_answer(
    jetstream_url: str, losing: Losing
) -> None:
    name = stream_of(jetstream_url)
    options = SinkOptions(servers=jetstream_url, stream=name, mode="exactly-once")

    def begin() -> None:
        with slipstream.sync.connect(jetstream_url) as nc, suppress(StreamNotFoundError):
            losing.count -= 1  # this request is the test's own
            nc.jetstream().delete_stream(markers.STREAM)
        assert StreamSink(SCHEMA, options, streaming=True).mode == "exactly-once"

    assert each_lost_in_turn(losing, begin) >= 3


def test_a_lookup_repeats_what_it_asks(jetstream_url: str, losing: Losing) -> None:
    with slipstream.sync.connect(jetstream_url) as nc:
        nc.jetstream().create_key_value("PRICES").put("tea", b"3")
    options = ServerOptions(servers=jetstream_url)

    def look() -> None:
        found = patiently(lambda: _values("PRICES", ["tea", "milk"], options), options)
        assert asyncio.run(found) == {"tea": "3", "milk": None}

    assert each_lost_in_turn(losing, look) >= 1


def test_a_table_is_written_though_answers_are_lost(
    jetstream_url: str, losing: Losing, tmp_path: Path
) -> None:
    name = stream_of(jetstream_url)
    published = 0

    async def publish_and_write() -> None:
        nonlocal published
        async with slipstream.connect(jetstream_url) as nc:
            js = nc.jetstream()
            for number in range(published, published + 5):
                await js.publish(f"{name}.x", b'{"n":%d}' % number)
            published += 5
            await TableWriter(js, table()).write_all()

    def table() -> StreamTable:
        return stream_table(str(tmp_path), "numbers", name)

    assert each_lost_in_turn(losing, lambda: asyncio.run(publish_and_write())) >= 3
    rows = open_catalog(str(tmp_path)).load_table("streams.numbers").scan().to_arrow()
    assert sorted(rows["n"].to_pylist()) == list(range(published))
