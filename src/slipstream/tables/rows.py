"""Messages of a stream as rows of its table, and as rows of the table of rejected messages."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.tables.bodies import Bodies, RawBodies
from slipstream.tables.json_bodies import JsonBodies
from slipstream.tables.options import MESSAGE_TIME, Column, TableOptions

_MICROSECONDS = pa.timestamp("us", tz="UTC")
_MILLION = 1_000_000


class Rows(msgspec.Struct):
    """What has come of some messages: rows for either table."""

    fitting: pa.Table
    rejected: pa.Table


class RowMaker:
    """Turns messages of one stream into rows; knows the columns of the bodies."""

    def __init__(self, stream: str, columns: dict[str, Column], options: TableOptions) -> None:
        self._stream = stream
        self._options = options
        self._bodies = _bodies(columns, options)

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of the bodies that were met until now."""
        return self._bodies.columns

    def close(self) -> None:
        """Close what reads the bodies."""
        self._bodies.close()

    def scanned_columns(self) -> list[str]:
        """The columns that messages are to have."""
        needs = self._options.headers or self._bodies.needs_headers
        headers = ["headers"] if needs else []
        return ["subject", "sequence", "timestamp", *headers, "data"]

    def make(
        self, batches: Sequence[pa.RecordBatch], created: str, left_out: frozenset[int]
    ) -> Rows:
        """The rows of messages of the stream that was created then, without those `left_out`."""
        messages = pa.Table.from_batches(batches)
        if left_out:
            known = pa.array(left_out, pa.int64())
            messages = messages.filter(pc.invert(pc.is_in(messages["sequence"], known)))
        fit = self._bodies.read(messages)
        reasons, made = fit.reasons, fit.columns
        places = fit.places if reasons else None
        taken = messages if places is None else messages.take(pa.array(places, pa.int64()))
        rows = pa.table(self._message_columns(taken) | made)
        if self._options.late_seconds is not None and self._options.time != MESSAGE_TIME:
            rows, late = self._without_late(rows)
            at = places if places is not None else range(messages.num_rows)
            reasons = reasons | {at[row]: reason for row, reason in late.items()}
        return Rows(rows, self._rejected(messages, created, reasons))

    def _message_columns(self, messages: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The columns of the message itself. Iceberg's times are in microseconds."""
        columns = {
            "_stream": pa.repeat(pa.scalar(self._stream), messages.num_rows),
            "_subject": messages["subject"],
            "_sequence": messages["sequence"],
            "_time": pc.cast(messages["timestamp"], _MICROSECONDS, safe=False),
        }
        if self._options.headers:
            columns["_headers"] = messages["headers"]
        return columns

    def _without_late(self, rows: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Rows that are not late, and which of the given ones are."""
        delays = pc.cast(pc.subtract(rows["_time"], rows[self._options.time]), pa.int64())
        limit = int((self._options.late_seconds or 0.0) * _MILLION)
        is_late = pc.fill_null(pc.greater(delays, limit), False)
        late = pc.indices_nonzero(is_late).to_pylist()
        if not late:
            return rows, {}
        reasons = {
            at: f"late: {self._options.time} is {delays[at].as_py() / _MILLION:g} s before the "
            "message was stored"
            for at in late
        }
        return rows.filter(pc.invert(is_late)), reasons

    def _rejected(self, messages: pa.Table, created: str, reasons: dict[int, str]) -> pa.Table:
        """Rows for the table of rejected messages."""
        places = sorted(reasons)
        taken = messages.take(pa.array(places, pa.int64()))
        columns = self._message_columns(taken) | {
            "_created": pa.repeat(pa.scalar(created), len(places)),
            "reason": pa.array([reasons[at] for at in places], pa.string()),
            "data": taken["data"],
        }
        return pa.table(columns)


def _bodies(columns: dict[str, Column], options: TableOptions) -> Bodies:
    """What reads the bodies of a stream. Raises `SchemaError`."""
    if options.schema is not None:
        from slipstream.tables.registered_bodies import RegisteredBodies

        return RegisteredBodies(options.schema, columns)
    if options.body == "bytes":
        return RawBodies(columns)
    return JsonBodies(columns, options.new_fields, options.columns_max)
