"""How far a micro-batch goes: asked of the reader as Spark asks it, without a session."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark.loss import DataLossError
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.planning import Planner
from slipstream.spark.source.offsets import check_source
from slipstream.spark.source.ranges import Part, cut
from slipstream.spark.source.sizes import shrunk
from slipstream.spark.source.streaming import StreamReader
from tests.spark.streams import WAIT_SECONDS, add, fill

SCHEMA = StructType([StructField("sequence", LongType())])
MakeReader = Callable[..., StreamReader]


@pytest.fixture
def reader_of(either_url: str) -> Iterator[MakeReader]:
    """Makes readers of a server of each kind; they are stopped after the test."""
    made: list[StreamReader] = []

    def make(stream: str, **options: Any) -> StreamReader:
        given = {name: str(value) for name, value in options.items()}
        parsed = parse(SourceOptions, {"servers": either_url, "stream": stream, **given})
        made.append(StreamReader(SCHEMA, parsed))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def next_of(reader: StreamReader, start: dict[str, Any]) -> dict[str, int]:
    """Where the next micro-batch ends, by stream."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return {stream: found["next"] for stream, found in end.items()}


def test_a_micro_batch_waits_for_its_least_count_or_its_longest_delay(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 5)
    common = {"startingOffsets": "earliest", "minMessagesPerTrigger": 10}
    patient = reader_of(name, maxTriggerDelay="1h", **common)
    start = patient.initialOffset()
    assert next_of(patient, start) == {name: 1}
    assert next_of(reader_of(name, maxTriggerDelay="0ms", **common), start) == {name: 6}
    add(either_url, name, range(5, 10))
    assert next_of(patient, start) == {name: 11}
    both = reader_of(name, maxTriggerDelay="1h", maxMessagesPerTrigger=4, **common)
    assert next_of(both, start) == {name: 5}


def test_available_now_goes_to_where_the_stream_ended_and_no_further(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 5)
    reader = reader_of(name, startingOffsets="earliest", minMessagesPerTrigger=100)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    add(either_url, name, range(5, 9))
    assert next_of(reader, start) == {name: 6}
    report = reader.reportLatestOffset()
    assert report is not None
    assert (report[name]["next"], report[name]["backlogMessages"]) == (10, 4)


def test_a_limit_is_shared_by_what_waits_in_each_stream(
    either_url: str, reader_of: MakeReader
) -> None:
    large, small, empty = fill(either_url, 30), fill(either_url, 10), fill(either_url, 0)
    reader = reader_of(f"{large},{small},{empty}", maxMessagesPerTrigger=20)
    start = {stream: {"next": 1, "created": ""} for stream in (large, small, empty)}
    assert next_of(reader, start) == {large: 16, small: 6, empty: 1}


def test_where_a_query_starts_is_said_by_word_sequence_offset_or_time(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 6)
    with slipstream.sync.connect(either_url) as nc:
        stored = nc.jetstream().stream(name).get_message(6)
    moment = datetime.now(UTC)
    assert stored.sequence == 6
    add(either_url, name, range(6, 10))
    forms: dict[str, int] = {
        "earliest": 1,
        "latest": 11,
        "new": 11,
        json.dumps({name: 4}): 4,
        json.dumps({name: -2}): 1,
        json.dumps({name: -1}): 11,
        json.dumps({name: {"next": 7, "created": "2026-01-02T03:04:05Z"}}): 7,
    }
    for form, sequence in forms.items():
        assert reader_of(name, startingOffsets=form).initialOffset()[name]["next"] == sequence
    for form in (moment.isoformat(), json.dumps({name: moment.isoformat()})):
        assert reader_of(name, startingTimestamp=form).initialOffset()[name]["next"] == 7
    milliseconds = int(moment.timestamp() * 1000) - 3_600_000
    assert reader_of(name, startingTimestamp=milliseconds).initialOffset()[name]["next"] == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("startingOffsets", "first", "it is earliest, latest, new, or JSON"),
        ("startingOffsets", '{"S": ', "is no JSON"),
        ("startingOffsets", '{"T": 1}', "speaks of T, and the option stream of S"),
        ("startingOffsets", '{"S": -3}', "gives -3 for S: no sequence"),
        ("startingTimestamp", "yesterday", "neither ISO 8601 nor milliseconds"),
        ("maxTriggerDelay", "soon", "a number with ms, s, m or h"),
    ],
)
def test_a_wrong_form_is_an_error_that_shows_the_right_one(
    option: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_source(parse(SourceOptions, {"stream": "S", option: value}))


def test_a_committed_offset_shows_as_the_lag_of_a_durable(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 12)
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        js.create_key_value(f"B{name}")
        reader = reader_of(name, commitDurable="q", commitBucket=f"B{name}", queryName="count")
        for reached in (6, 9):
            reader.commit({name: {"next": reached, "created": "then"}})
            assert js.consumer_info(name, "q").num_pending == 13 - reached
        told = js.key_value(f"B{name}").get(f"count.{name}").value
        assert json.loads(told) == {"next": 9, "created": "then"}
        js.stream(name).create_consumer(durable_name="mine")
    with pytest.raises(ConfigError, match="has a consumer of that name which is not a query's"):
        reader_of(name, commitDurable="mine").commit({name: {"next": 6, "created": ""}})


def test_what_is_lost_while_a_batch_waits_is_counted_once(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 5)
    options = {"minMessagesPerTrigger": 10, "maxTriggerDelay": "1h", "startingOffsets": "earliest"}
    reader = reader_of(name, failOnDataLoss=False, **options)
    strict = reader_of(name, **options)
    start = reader.initialOffset()
    with slipstream.sync.connect(either_url) as nc:
        nc.jetstream().stream(name).purge(sequence=4)
    for _ in range(3):
        assert next_of(reader, start) == {name: 1}
    add(either_url, name, range(5, 15))
    assert next_of(reader, start) == {name: 16}
    report = reader.reportLatestOffset()
    assert report is not None
    assert report[name]["lostMessages"] == 3
    with pytest.raises(DataLossError, match=r"sequences 1 to 3 \(3\) expired"):
        next_of(strict, start)


def test_what_is_purged_between_planning_and_reading_is_counted(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 50)
    reader = reader_of(name, failOnDataLoss=False, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    with slipstream.sync.connect(either_url) as nc:
        nc.jetstream().stream(name).purge(sequence=21)
    rows = sum(batch.num_rows for part in parts for batch in reader.read(part))
    for part in parts:
        list(reader.read(part))  # a task that is tried again reports its loss again
    assert rows == 30
    assert lost_of(reader, name, 20) == 20


def test_what_is_purged_between_the_choice_of_the_end_and_planning_is_counted_once(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 50)
    reader = reader_of(name, failOnDataLoss=False, startingOffsets="earliest")
    start = reader.initialOffset()
    with slipstream.sync.connect(either_url) as nc:
        stream = nc.jetstream().stream(name)
        stream.purge(sequence=11)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        stream.purge(sequence=31)
    for _ in range(2):
        parts = reader.partitions(start, end)
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 20
    assert lost_of(reader, name, 30) == 30


def test_a_stream_that_is_made_anew_costs_what_waited_in_the_old_one(
    either_url: str, reader_of: MakeReader
) -> None:
    name = fill(either_url, 100)
    options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": 90}
    reader = reader_of(name, failOnDataLoss=False, **options)
    start = reader.initialOffset()
    reached = reader.latestOffset(start, reader.getDefaultReadLimit())
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        js.delete_stream(name)
        js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    add(either_url, name, range(1000))
    reader.latestOffset(reached, reader.getDefaultReadLimit())
    assert lost_of(reader, name, 10) == 10


def lost_of(reader: StreamReader, name: str, expected: int) -> int:
    """What the reader reports as lost, once it has heard of as much as is expected."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        report = reader.reportLatestOffset()
        assert report is not None
        lost = int(report[name]["lostMessages"])
        if lost >= expected or time.monotonic() > deadline:
            return lost


def parts_of(url: str, stream: str, end: int, **options: Any) -> list[Part]:
    """How a range from the first sequence is cut."""
    parsed = parse(SourceOptions, {"servers": url, "stream": stream, **options})
    planner = Planner(parsed)

    async def plan() -> list[Part]:
        return await cut(await planner.view(stream, []), 1, end, parsed)

    try:
        return planner.call(plan)
    finally:
        planner.close()


def test_ranges_are_cut_by_bytes_where_messages_grow_along_the_stream(either_url: str) -> None:
    name = fill(either_url, 600)
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        for _ in range(400):
            js.publish_async(f"{name}.new", bytes(30_000))
        js.publish_async_complete()
    parts = parts_of(either_url, name, 1001, minPartitions="4")
    assert (parts[0].start, parts[-1].end, len(parts)) == (1, 1001, 4)
    assert all(one.end == other.start for one, other in pairwise(parts))
    large = [max(part.end - max(part.start, 601), 0) for part in parts]
    assert max(large) <= 200  # 400 by four, and what sampling cannot see
    few = parts_of(either_url, name, 1001, minPartitions="4", maxMessagesPerPartition="250")
    assert max(part.end - part.start for part in few) <= 250


@pytest.mark.parametrize("holes", ["few", "many"])
def test_a_cut_costs_one_request_where_holes_are_few(either_url: str, holes: str) -> None:
    count, parts_wanted = 6400, 64
    name = fill(either_url, count)
    with slipstream.sync.connect(either_url) as nc:
        stream = nc.jetstream().stream(name)
        for sequence in range(7, count, 90 if holes == "few" else 3):
            stream.delete_message(sequence)
        left = stream.info().state.messages
        asked: list[str] = []
        watch = nc.subscribe(
            f"$JS.API.DIRECT.GET.{name}", handler=lambda m: asked.append(m.subject)
        )
        nc.flush()
        parts = parts_of(either_url, name, count + 1, minPartitions=str(parts_wanted))
        watch.drain()
        sizes = [_count_in(stream, part) for part in parts]
    assert len(parts) == parts_wanted
    assert sum(sizes) == left
    assert max(sizes) - min(sizes) <= 0.1 * left / parts_wanted
    most = 1.1 if holes == "few" else 3
    assert len(asked) <= parts_wanted * most


def _count_in(stream: Any, part: Part) -> int:
    """Messages of a part."""
    return len(stream.scan(part.start, part.end - 1, columns=["sequence"]).to_table())


def test_sizes_that_change_from_message_to_message_do_not_move_a_cut() -> None:
    mixed = shrunk([[10, 1000, 10, 1000]] * 4 + [[1000, 10, 10, 10]] * 4)
    assert max(mixed) - min(mixed) < 0.2 * max(mixed)
    assert shrunk([[10] * 4] * 4 + [[1000] * 4] * 4) == [10.0] * 4 + [1000.0] * 4
