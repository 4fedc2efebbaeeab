"""The sides as Spark sees them: one reads and writes streams, another one Kafka's topics; the third
does nothing, and is the limit of what Python can do there (`ready`)."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import slipstream.spark
import slipstream.sync
from bench.spark_kafka import fetch
from bench.spark_kafka.ready import ReadySide

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

FILLED = "filled"  # the stream or topic that is read


class Side(Protocol):
    """What a round asks for. `name` is that of a stream, or of a topic."""

    has_exactly_once: bool

    def make(self, name: str) -> None:
        """An empty stream or topic."""

    def drop(self, name: str) -> None:
        """Remove it."""

    def write(self, frame: "DataFrame", name: str, *, exact: bool = False) -> None:
        """Write the columns `subject` and `data`."""

    def table(self, name: str, *, few: bool = False) -> "DataFrame":
        """All rows, with all columns, or `data` and two more."""

    def follow(self, name: str, per_trigger: int = 0) -> "DataFrame":
        """A streaming read from the beginning, with `data` and `timestamp` among its columns."""

    def publisher(self, name: str) -> "Callable[[bytes], object]":
        """What publishes one message, and returns when it is on its way."""

    def close(self) -> None:
        """End the publisher."""


def open_side(name: str, address: str) -> "tuple[SparkSession, Side]":
    """A session, and the side in it."""
    config = {}
    if name == "kafka":
        jars = fetch.fetch().connector
        config["spark.jars"] = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    spark = slipstream.spark.session("local[2]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    if name == "kafka":
        return spark, Topics(spark, address)
    if name == "ready":
        return spark, ReadySide(spark, rows=int(address))
    return spark, Streams(spark, f"nats://{address}")


class Streams:
    """Streams of a Slipstream server."""

    has_exactly_once = True

    def __init__(self, spark: "SparkSession", url: str) -> None:
        self._spark = spark
        self._url = url
        self._connection = slipstream.sync.connect(url)

    def make(self, name: str) -> None:
        """See `Side`."""
        self._connection.jetstream().create_stream(
            name=name, subjects=[f"{name}.>"], storage="file", allow_direct=True
        )

    def drop(self, name: str) -> None:
        """See `Side`."""
        self._connection.jetstream().delete_stream(name)

    def write(self, frame: "DataFrame", name: str, *, exact: bool = False) -> None:
        """See `Side`."""
        rows = frame.selectExpr(f"concat('{name}.', subject) AS subject", "data")
        writer = rows.write.format("jetstream").mode("append")
        writer = writer.options(servers=self._url, stream=name, writerId=uuid.uuid4().hex)
        writer.option("mode", "exactly-once" if exact else "at-least-once").save()

    def table(self, name: str, *, few: bool = False) -> "DataFrame":
        """See `Side`."""
        reader = self._spark.read.format("jetstream").option("servers", self._url)
        if few:
            reader = reader.option("columns", "data,sequence,timestamp")
        return reader.option("stream", name).load()

    def follow(self, name: str, per_trigger: int = 0) -> "DataFrame":
        """See `Side`."""
        reader = self._spark.readStream.format("jetstream").option("servers", self._url)
        reader = reader.option("stream", name).option("startingOffsets", "earliest")
        if per_trigger:
            reader = reader.option("maxMessagesPerTrigger", per_trigger)
        return reader.load()

    def publisher(self, name: str) -> "Callable[[bytes], object]":
        """See `Side`."""
        js = self._connection.jetstream()
        return lambda body: js.publish(f"{name}.row", body)

    def close(self) -> None:
        """See `Side`."""
        self._connection.close()


class Topics:
    """Topics of a Kafka broker. Its own client is that of the connector, in Spark's driver."""

    has_exactly_once = False

    def __init__(self, spark: "SparkSession", address: str) -> None:
        self._spark = spark
        self._address = address
        self._java: Any = spark.sparkContext._jvm
        self._admin = self._java.org.apache.kafka.clients.admin.Admin.create(self._properties())
        self._producer: Any = None

    def _properties(self, **more: str) -> Any:
        made = self._java.java.util.Properties()
        for key, value in {"bootstrap.servers": self._address, **more}.items():
            made.put(key, value)
        return made

    def make(self, name: str) -> None:
        """See `Side`."""
        topic = self._java.org.apache.kafka.clients.admin.NewTopic(name, 2, 1)
        self._admin.createTopics(self._java.java.util.List.of(topic)).all().get()

    def drop(self, name: str) -> None:
        """See `Side`."""
        self._admin.deleteTopics(self._java.java.util.List.of(name)).all().get()

    def write(self, frame: "DataFrame", name: str, *, exact: bool = False) -> None:
        """See `Side`."""
        rows = frame.selectExpr("binary(subject) AS key", "data AS value")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self._address)
        writer.option("topic", name).save()

    def table(self, name: str, *, few: bool = False) -> "DataFrame":
        """See `Side`."""
        reader = self._spark.read.format("kafka").option("subscribe", name)
        rows = reader.option("kafka.bootstrap.servers", self._address).load()
        return rows.select("value", "offset", "timestamp") if few else rows

    def follow(self, name: str, per_trigger: int = 0) -> "DataFrame":
        """See `Side`."""
        reader = self._spark.readStream.format("kafka").option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", self._address)
        reader = reader.option("startingOffsets", "earliest")
        if per_trigger:
            reader = reader.option("maxOffsetsPerTrigger", per_trigger)
        return reader.load().withColumnRenamed("value", "data")

    def publisher(self, name: str) -> "Callable[[bytes], object]":
        """See `Side`."""
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        properties = self._properties(**{"key.serializer": serializer})
        properties.put("value.serializer", serializer)
        self._producer = self._java.org.apache.kafka.clients.producer.KafkaProducer(properties)
        record = self._java.org.apache.kafka.clients.producer.ProducerRecord
        return lambda body: self._producer.send(record(name, body))

    def close(self) -> None:
        """See `Side`."""
        if self._producer is not None:
            self._producer.close()
        self._admin.close()
