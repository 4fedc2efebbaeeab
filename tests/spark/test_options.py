"""Options that could do nothing are errors, and those of Kafka's source name ours."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark.datasource import JetStreamDataSource
from slipstream.spark.loss import DataLossError
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.rows import sink_columns
from slipstream.spark.source.batch import BatchReader
from slipstream.spark.source.offsets import check_source
from slipstream.spark.source.streaming import StreamReader
from tests.spark.streams import add, fill
from tests.spark.test_sink import stream_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

SCHEMA = StructType([StructField("sequence", LongType())])
ROWS = StructType([StructField("subject", StringType()), StructField("data", StringType())])


def checked(**options: str) -> SourceOptions:
    """Options of a batch read that have passed all checks without a server."""
    made = parse(SourceOptions, options)
    check_source(made)
    return made


def read(url: str, **options: str) -> int:
    """How many messages a batch read finds."""
    reader = BatchReader(SCHEMA, checked(servers=url, **options))
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def stream_reader(**options: str) -> "DataSourceStreamReader":
    """What Spark gets for a streaming read."""
    return JetStreamDataSource(options).streamReader(SCHEMA)


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("kafka.bootstrap.servers", "servers"),
        ("subscribe", "stream"),
        ("groupIdPrefix", "commitDurable"),
        ("startingOffsetsByTimestamp", "startingTimestamp"),
    ],
)
def test_an_option_of_kafkas_source_names_ours(kafkas: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=rf"Kafka's {kafkas} sets is set here by {ours}"):
        checked(stream="S", **{kafkas: "1"})


def test_an_option_of_kafkas_sink_names_ours() -> None:
    with pytest.raises(ConfigError, match="Kafka's topic sets is set here by subject"):
        parse(SinkOptions, {"topic": "orders"})
    with pytest.raises(ConfigError, match="options of Kafka's own clients have no meaning"):
        parse(SinkOptions, {"kafka.linger.ms": "5"})


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_a_streaming_read_takes_no_end(option: str) -> None:
    with pytest.raises(ConfigError, match="end a batch read; a streaming query ends with Trigger"):
        stream_reader(stream="S", **{option: "2026-01-02"})


@pytest.mark.parametrize("kind", ["starting", "ending"])
def test_offsets_and_a_time_contradict_each_other(kind: str) -> None:
    given = {f"{kind}Offsets": "earliest", f"{kind}Timestamp": "2026-01-02"}
    with pytest.raises(ConfigError, match=f"take one of {kind}Offsets and {kind}Timestamp"):
        checked(stream="S", **given)


@pytest.mark.parametrize("filter_", ["orders..new", "orders.>.x", ".orders", "two words"])
def test_a_malformed_subject_filter_is_an_error(filter_: str) -> None:
    with pytest.raises(ConfigError, match="no subject filter"):
        checked(stream="S", subjects=f"orders.new,{filter_}")


def test_a_filter_outside_of_the_stream_is_an_error_that_names_its_subjects(
    either_url: str,
) -> None:
    name = fill(either_url, 2)
    with pytest.raises(ConfigError, match=rf"'elsewhere.\*' is none of {name}, which has {name}.>"):
        read(either_url, stream=name, subjects="elsewhere.*")
    other = fill(either_url, 3)
    assert read(either_url, stream=f"{name},{other}", subjects=f"{name}.new,{other}.new") == 5


def test_a_subject_outside_of_the_stream_is_an_error_before_anything_is_written(
    jetstream_url: str,
) -> None:
    name = stream_of(jetstream_url)
    source = JetStreamDataSource(
        {"servers": jetstream_url, "stream": name, "subject": "elsewhere.x"}
    )
    with pytest.raises(ConfigError, match=f"'elsewhere.x' is none of {name}"):
        source.writer(ROWS, overwrite=False)


def test_a_column_key_is_refused_because_a_message_has_none() -> None:
    schema = StructType([*ROWS.fields, StructField("key", StringType())])
    with pytest.raises(ConfigError, match="a column key would be lost; make it a token of subject"):
        sink_columns(schema, "")


def test_a_pattern_of_stream_names_reads_all_that_match(either_url: str) -> None:
    first, second = fill(either_url, 2), fill(either_url, 3)
    fill(either_url, 4)
    assert read(either_url, subscribePattern=f"{first}|{second}") == 5
    assert read(either_url, subscribePattern="nothing_has_this_name") == 0
    with pytest.raises(ConfigError, match="take one of the options stream and subscribePattern"):
        checked(stream="S", subscribePattern="S.*")
    with pytest.raises(ConfigError, match="no regular expression"):
        checked(subscribePattern="(")


def test_a_streaming_read_by_pattern_takes_new_streams_in_from_their_first_message(
    either_url: str,
) -> None:
    first = fill(either_url, 2)
    second = f"{first}_B"
    reader = stream_reader(
        servers=either_url, subscribePattern=f"{first}.*", startingOffsets="earliest"
    )
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    assert set(start) == {first}
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        js.create_stream(name=second, subjects=[f"{second}.>"], allow_direct=True)
        add(either_url, second, range(3))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert {name: found["next"] for name, found in end.items()} == {first: 3, second: 4}
        js.delete_stream(second)
    with pytest.raises(DataLossError, match=f"stream {second} was deleted"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    reader.stop()
