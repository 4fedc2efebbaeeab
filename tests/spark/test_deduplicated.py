"""Mode deduplicated: what makes a row the same row, and when the mode refuses."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.errors import ConfigError
from slipstream.spark.sink.exactly_once import Task
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.rows import RowError
from slipstream.spark.sink.writing import StreamSink
from tests.spark.test_sink import messages, stream_of

_FIELDS = {
    name: StructField(name, LongType() if name == "sequence" else StringType())
    for name in ("stream", "sequence", "subject", "data", "message_id")
}


def sink_of(
    url: str, stream: str, columns: str, *, streaming: bool = True, **options: Any
) -> StreamSink:
    """A sink for rows with these columns."""
    schema = StructType([_FIELDS[name] for name in columns.split()])
    return StreamSink(
        schema, SinkOptions(servers=url, stream=stream, **options), streaming=streaming
    )


def write(sink: StreamSink, table: dict[str, list[Any]], parts: int) -> None:
    """Write a batch cut into so many partitions, row by row in turn."""
    for part in range(parts):
        cut = {name: values[part::parts] for name, values in table.items()}
        sink.run(iter([pa.RecordBatch.from_pydict(cut)]), Task("q", 0, part, f"run-{parts}"))


def written(url: str, stream: str) -> list[bytes]:
    """What the stream has, sorted."""
    return sorted(message.data for message in messages(url, stream))


@pytest.mark.parametrize("again", [1, 2, 3, 5])
def test_rows_of_a_stream_are_there_once_however_the_batch_is_cut(
    either_url: str, again: int
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name, "stream sequence subject data", mode="deduplicated")
    table: dict[str, list[Any]] = {
        "stream": ["S"] * 30,
        "sequence": list(range(30)),
        "subject": [f"{name}.x"] * 30,
        "data": [str(n % 10) for n in range(30)],  # rows with equal content, from other places
    }
    write(sink, table, 2)
    write(sink, table, again)
    assert written(either_url, name) == sorted(str(n % 10).encode() for n in range(30))


def test_rows_made_of_one_message_are_told_apart_by_their_content(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name, "stream sequence subject data", mode="deduplicated")
    table = {"stream": ["S"] * 3, "sequence": [1] * 3, "subject": [f"{name}.x"] * 3}
    write(sink, {**table, "data": ["a", "b", "c"]}, 1)
    write(sink, {**table, "data": ["c", "b", "a"]}, 3)
    assert written(jetstream_url, name) == [b"a", b"b", b"c"]


def test_rows_with_message_ids_are_there_once_however_the_batch_is_cut(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name, "message_id subject data", mode="deduplicated")
    values = [str(n) for n in range(20)]
    table = {"message_id": values, "subject": [f"{name}.x"] * 20, "data": ["same"] * 20}
    write(sink, table, 2)
    write(sink, table, 3)
    assert len(written(either_url, name)) == 20


def test_equal_rows_of_a_batch_write_are_all_there_and_a_task_may_be_tried_again(
    jetstream_url: str,
) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name, "subject data", streaming=False)
    assert sink.mode == "deduplicated"
    table = {"subject": [f"{name}.x"] * 4, "data": ["a", "a", "a", "b"]}
    write(sink, table, 2)
    write(sink, table, 2)
    assert written(jetstream_url, name) == [b"a", b"a", b"a", b"b"]


def test_rows_without_an_identity_that_lasts_are_refused(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    for columns in ("subject data", "sequence subject data", "stream subject data"):
        with pytest.raises(ConfigError, match="a column message_id, or the columns stream and seq"):
            sink_of(jetstream_url, name, columns, mode="deduplicated")
    with pytest.raises(ConfigError, match="needs an identity"):
        sink_of(
            jetstream_url, name, "subject data", streaming=False, mode="deduplicated", writer_id="w"
        )


def test_a_row_without_its_identity_is_named(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    by_id = sink_of(jetstream_url, name, "message_id subject data", mode="deduplicated")
    table = {"message_id": ["1", None], "subject": [f"{name}.x"] * 2, "data": ["a", "b"]}
    with pytest.raises(RowError, match="row 1 has no message_id"):
        write(by_id, table, 1)
    by_place = sink_of(jetstream_url, name, "stream sequence subject data", mode="deduplicated")
    table = {"stream": ["S"] * 2, "sequence": [1, None], "subject": [f"{name}.x"] * 2}
    with pytest.raises(RowError, match="row 1 has no stream or no sequence"):
        write(by_place, {**table, "data": ["a", "b"]}, 1)


def test_the_default_mode_is_the_strongest_that_can_be_kept(jetstream_url: str) -> None:
    lasting = stream_of(jetstream_url)
    queue = stream_of(jetstream_url, retention="workqueue")
    assert sink_of(jetstream_url, lasting, "subject data").mode == "exactly-once"
    named = sink_of(jetstream_url, lasting, "subject data", streaming=False, writer_id="w")
    assert named.mode == "exactly-once"
    assert sink_of(jetstream_url, queue, "message_id subject data").mode == "deduplicated"
    assert sink_of(jetstream_url, queue, "stream sequence subject data").mode == "at-least-once"
    assert sink_of(jetstream_url, queue, "subject data").mode == "at-least-once"
    once = sink_of(jetstream_url, queue, "stream sequence subject data", streaming=False)
    assert once.mode == "deduplicated"
