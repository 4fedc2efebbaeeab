"""DataFrames of messages in a format: bodies as columns, and columns as bodies, with registries.

    form = Avro(registry=RestRegistry("http://registry:8081"), subject="orders-value")
    good, bad = decode_as(orders, form)                     # value has the fields
    dead_letters(bad, "orders.bad").write.format("jetstream")...
    rows = encode_as(good, form)                            # data has the bodies again

What the columns are is fixed when `decode_as` is called: by the reader's schema, or the newest one
in the registry. In a query that runs for long, bodies of newer versions are resolved into that;
within foreachBatch each batch takes the version that is newest then.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from slipstream.errors import ConfigError
from slipstream.schemas import (
    Body,
    CloudEvents,
    Decoded,
    Decoder,
    EventDecoder,
    encoder,
    registered,
)
from slipstream.spark.connections import wait_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Batch: TypeAlias = "pa.Array | tuple[pa.Array, pa.Array]"  # bodies, or bodies and headers


def decode_as(
    frame: "DataFrame", form: Body | CloudEvents, column: str = "data", headers: str = "headers"
) -> "tuple[DataFrame, DataFrame]":
    """The rows whose body is of the format, with its fields as a column `value`; and the others.

    Both keep the columns of `frame`; the bad ones have a column `reason`, for `dead_letters` of
    `slipstream.spark.decode`. `headers` is the column with the headers of `CloudEvents`. Raises
    `SchemaError` if there is no schema, or the registry does not answer.
    """
    pinned = wait_for(_pinned(form))
    columns = [f.col(column)]
    if isinstance(pinned, CloudEvents):
        if headers not in frame.columns:
            raise ConfigError(f"CloudEvents need the headers, and the rows have no {headers}")
        columns.append(f.col(headers))
    judged = frame.withColumn("_decoded", _decoding(pinned, columns))
    reason = f.col("_decoded.reason")
    good = judged.where(reason.isNull()).withColumn("value", f.col("_decoded.value"))
    bad = judged.where(reason.isNotNull()).withColumn("reason", reason)
    return good.drop("_decoded"), bad.drop("_decoded")


def encode_as(
    frame: "DataFrame", form: Body, column: str = "value", into: str = "data"
) -> "DataFrame":
    """The frame with bodies of the format, made of the column's values; a null has no body.

    With a registry and a subject, a schema that was given is registered under the subject if it is
    new, and each body begins with the id. Raises `SchemaError`; in a task, for values that the
    schema does not take.
    """
    pinned, identity = wait_for(registered(form))

    def write(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encode = encoder(pinned, identity)
        for batch in batches:
            values = batch.to_pylist(maps_as_pydicts="strict")
            bodies = [None if value is None else encode(value) for value in values]
            yield pa.array(bodies, pa.binary())

    write.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    wrap: Any = arrow_udf  # which kind of function it is, it takes from the annotations
    return frame.withColumn(into, wrap(write, returnType="binary")(f.col(column)))


async def _pinned(form: Body | CloudEvents) -> Body | CloudEvents:
    return await form.pinned()


def _decoding(pinned: Body | CloudEvents, columns: "list[Column]") -> "Column":
    """A column of structs with a body's value, or the reason why there is none."""
    kind = t.StructType(
        [
            t.StructField("value", from_arrow_type(_decoder(pinned).type)),
            t.StructField("reason", t.StringType()),
        ]
    )

    def read(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        with asyncio.Runner() as runner:
            decoder = _decoder(pinned)
            try:
                for batch in batches:
                    found = runner.run(_decoded(decoder, batch))
                    arrays = [found.values, found.reasons]
                    yield pa.StructArray.from_arrays(arrays, names=["value", "reason"])
            finally:
                runner.run(decoder.close())

    given = Iterator[pa.Array] if len(columns) == 1 else Iterator[tuple[pa.Array, pa.Array]]
    read.__annotations__ = {"batches": given, "return": Iterator[pa.Array]}
    wrap: Any = arrow_udf
    made: Column = wrap(read, returnType=kind).asNondeterministic()(*columns)
    return made


def _decoder(pinned: Body | CloudEvents) -> Decoder | EventDecoder:
    return EventDecoder(pinned) if isinstance(pinned, CloudEvents) else Decoder(pinned)


async def _decoded(decoder: Decoder | EventDecoder, batch: Batch) -> Decoded:
    bodies, headers = batch if isinstance(batch, tuple) else (batch, None)
    if isinstance(decoder, Decoder):
        return await decoder.decode(bodies.to_pylist())
    given = headers.to_pylist(maps_as_pydicts="strict")
    return await decoder.decode(bodies.to_pylist(), given)
