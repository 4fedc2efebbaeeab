"""Streams as sources and sinks of Spark's declarative pipelines (`pyspark.pipelines`).

    from pyspark import pipelines as dp
    from slipstream.spark.pipelines import jetstream_sink, jetstream_source

    @dp.table
    def orders():
        return jetstream_source("ORDERS")

    @jetstream_sink("LARGE_ORDERS", subject="large")
    def large_orders():
        return SparkSession.active().readStream.table("orders").where("size > 100").select("data")

`slipstream pipeline run` runs such a file, and so does Spark's own `spark-pipelines run`. Where the
server is says the environment (see `slipstream.spark.environment`), unless the option `servers` is
given: then the environment counts for nothing, so that no secret goes to a server that it was not
meant for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError
from slipstream.spark.environment import from_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Query = Callable[[], "DataFrame"]


def jetstream_source(
    stream: str, *, spark: "SparkSession | None" = None, follow: bool = True, **options: Any
) -> "DataFrame":
    """The messages of a stream, from the earliest on: all to come, or with `follow=False` a table.

    `options` are those of the source. `spark` is by default the session that runs the pipeline.
    Raises `ConfigError` if there is none, or for a wrong option.
    """
    from pyspark.sql import SparkSession

    from slipstream.spark.options import SourceOptions, parse
    from slipstream.spark.source import check_source

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("jetstream_source: no Spark session is active; give one as spark=")
    given = _with_server({"stream": stream, "startingOffsets": "earliest", **options})
    if {name.lower() for name in options} & {"startingtimestamp"}:
        del given["startingOffsets"]
    check_source(parse(SourceOptions, given))
    reader: Any = session.readStream if follow else session.read
    frame: DataFrame = reader.format("jetstream").options(**given).load()
    return frame


def jetstream_sink(stream: str = "", *, name: str = "", **options: Any) -> Callable[[Query], Query]:
    """A stream as a sink of the pipeline; as a decorator, of the rows that the function returns.

    `options` are those of the sink (docs/spark-sink.md): `subject` for all rows, `mode`,
    `deadLetterSubject`; or `bucket`, without a stream, to upsert into a key-value bucket. Streams
    are written exactly once where they allow it: the flow's checkpoint names the writer.

    The sink is called `name`, or as the stream or bucket; other flows write to it with
    ``@dp.append_flow(target=name)``. The function's name is that of the flow.

    Raises `ConfigError` for a wrong option, when the file is read: a dry run finds it.
    """
    from pyspark import pipelines

    from slipstream.spark.options import parse
    from slipstream.spark.sink import SinkOptions, check_sink

    given = _with_server({"stream": stream, **options} if stream else options)
    checked = parse(SinkOptions, given)
    check_sink(checked)
    target = name or checked.stream or checked.bucket
    if not target:
        raise ConfigError("jetstream_sink: say where rows go: a stream, or bucket=")
    pipelines.create_sink(target, "jetstream", given)

    def flow(query: Query) -> Query:
        pipelines.append_flow(target=target)(query)
        return query

    return flow


def _with_server(options: dict[str, Any]) -> dict[str, str]:
    """As text, as Spark wants them, and with what the environment says of the server."""
    given = {name: _text(value) for name, value in options.items()}
    if any(name.lower() == "servers" for name in given):
        return given
    return from_environment() | given


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
