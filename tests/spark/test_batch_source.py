"""The batch source: what `spark.read.format("jetstream")` gives."""

import uuid
from typing import TYPE_CHECKING, Any

import slipstream.sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill(url: str, count: int, subject: str = "new", **config: Any) -> str:
    """A stream of a name of its own with messages "0", "1", ..."""
    name = "S" + uuid.uuid4().hex[:12]
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True, **config)
        for number in range(count):
            js.publish_async(f"{name}.{subject}", str(number), headers={"N": str(number)})
        js.publish_async_complete()
    return name


def read(spark: "SparkSession", url: str, stream: str, **options: Any) -> "DataFrame":
    """A batch read."""
    reader = spark.read.format("jetstream").option("servers", url).option("stream", stream)
    return reader.options(**options).load()


def test_a_stream_is_a_table_with_a_row_per_message(spark: "SparkSession", either_url: str) -> None:
    name = fill(either_url, 3)
    rows = read(spark, either_url, name).orderBy("sequence").collect()
    assert [(r.stream, r.subject, r.sequence, bytes(r.data)) for r in rows] == [
        (name, f"{name}.new", n + 1, str(n).encode()) for n in range(3)
    ]
    assert rows[1].headers == {"N": ["1"]}
    assert rows[0].timestamp_ns // 1_000_000_000 == int(rows[0].timestamp.timestamp())
