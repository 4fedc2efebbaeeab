"""The sink: rows become messages, and what is wrong with a row is said."""

import uuid
from typing import TYPE_CHECKING, Any

import pytest

import slipstream.sync
from tests.fix_nats_server import NatsServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_of(url: str, **config: Any) -> str:
    """A new stream."""
    name = "T" + uuid.uuid4().hex[:12]
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True, **config)
    return name


def messages(url: str, name: str) -> list[Any]:
    """What the stream has below its own subjects."""
    with slipstream.sync.connect(url) as nc:
        stream = nc.jetstream().stream(name)
        last = stream.info().state.last_seq
        found = [stream.get_message(sequence) for sequence in range(1, last + 1)]
    return [message for message in found if message.subject.startswith(name)]


def write(frame: "DataFrame", url: str, stream: str, **options: Any) -> None:
    """A batch write."""
    writer = frame.write.format("jetstream").mode("append")
    writer.options(servers=url, stream=stream, **options).save()


def numbers(spark: "SparkSession", name: str, count: int, partitions: int = 2) -> "DataFrame":
    """Rows with subject and data."""
    return spark.range(count, numPartitions=partitions).selectExpr(
        f"concat('{name}.', id % 3) AS subject", "cast(id AS string) AS data"
    )


def test_each_row_is_a_message(spark: "SparkSession", either_url: str) -> None:
    name = stream_of(either_url)
    frame = spark.sql(
        f"""SELECT '{name}.a' AS subject, binary('one') AS data, map('Kind', array('x', 'y'))
        AS headers, 'id-1' AS message_id, timestamp'2026-01-02 03:04:05' AS timestamp"""
    )
    write(frame, either_url, name)
    (message,) = messages(either_url, name)
    assert (message.subject, message.data) == (f"{name}.a", b"one")
    assert message.headers.get_all("Kind") == ["x", "y"]
    assert message.headers["Nats-Msg-Id"] == "id-1"
    assert message.headers["Timestamp"] == "2026-01-02T03:04:05Z"


def test_a_row_says_how_long_it_is_kept(
    spark: "SparkSession", shared_nats_server: NatsServer
) -> None:
    url = shared_nats_server.url
    name = stream_of(url, allow_msg_ttl=True)
    write(spark.sql(f"SELECT '{name}.a' AS subject, 'one' AS data, 60 AS ttl"), url, name)
    assert [m.headers["Nats-TTL"] for m in messages(url, name)] == ["60"]


def test_all_rows_of_all_partitions_arrive_with_few_in_flight(
    spark: "SparkSession", either_url: str
) -> None:
    name = stream_of(either_url)
    write(numbers(spark, name, 500), either_url, name, maxAckPending=10)
    assert sorted(int(m.data) for m in messages(either_url, name)) == list(range(500))


def test_the_option_subject_wins_over_the_column(spark: "SparkSession", jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    write(numbers(spark, name, 3), jetstream_url, name, subject=f"{name}.all")
    assert {m.subject for m in messages(jetstream_url, name)} == {f"{name}.all"}


def test_a_row_that_is_too_large_fails_the_query_by_name(
    spark: "SparkSession", either_url: str
) -> None:
    name = stream_of(either_url, max_msg_size=100)
    frame = spark.sql(f"SELECT '{name}.a' AS subject, repeat('x', 200) AS data")
    with pytest.raises(Exception, match=rf"row 0 \(subject '{name}.a', 200 bytes\) is not stored"):
        write(frame, either_url, name)


def test_bad_rows_go_to_the_dead_letter_subject_with_reason_and_origin(
    spark: "SparkSession", either_url: str
) -> None:
    name, dead = stream_of(either_url, max_msg_size=500), stream_of(either_url)
    frame = spark.sql(
        f"""SELECT '{name}.a' AS subject, repeat('x', 600) AS data UNION ALL
        SELECT 'nobody.listens.{name}', 'b' UNION ALL SELECT '{name}.c', 'c'"""
    )
    write(frame, either_url, name, deadLetterSubject=f"{dead}.letters")
    assert [m.data for m in messages(either_url, name)] == [b"c"]
    letters = {m.headers["Slipstream-Origin"]: m.headers for m in messages(either_url, dead)}
    assert "maximum" in letters[f"{name}.a"]["Slipstream-Reason"]
    assert "no stream listens" in letters[f"nobody.listens.{name}"]["Slipstream-Reason"]


def test_a_missing_stream_is_an_error_before_anything_runs(
    spark: "SparkSession", jetstream_url: str
) -> None:
    with pytest.raises(Exception, match="stream not found"):
        write(numbers(spark, "X", 1), jetstream_url, "MISSING")


def test_a_column_that_is_no_part_of_a_message_is_refused(
    spark: "SparkSession", jetstream_url: str
) -> None:
    frame = spark.sql("SELECT 'a' AS subject, 'b' AS data, 1 AS price")
    with pytest.raises(Exception, match=r"the sink has no column 'price'.*to_json"):
        write(frame, jetstream_url, "ANY")


def test_a_mistyped_option_names_the_right_one(spark: "SparkSession", jetstream_url: str) -> None:
    with pytest.raises(Exception, match="did you mean 'maxAckPending'"):
        write(numbers(spark, "X", 1), jetstream_url, "ANY", maxAcksPending=1)
