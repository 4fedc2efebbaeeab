"""What a row of a DataFrame becomes as a message; what of it may be wrong.

    subject     string; or the option `subject`, which wins
    data        binary or string (also called value)
    headers     map<string, string> or map<string, array<string>>
    message_id  string, becomes Nats-Msg-Id (also called messageId)
    ttl         whole seconds, becomes Nats-TTL
    timestamp   becomes the header Timestamp: the server stamps messages with its own time

The other columns of the source (stream, sequence ...) are allowed and not stored, so that what was
read can be written; `stream` and `sequence` may give a row its identity. So are headers that belong
to the server (Nats-...): those of another stream's message would be conditions and ids of the wrong
stream.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from slipstream.client.arrow.row_block import RowBlock
from slipstream.errors import ConfigError, Error
from slipstream.model.header_names import NATS_TTL
from slipstream.model.times import datetime_text
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

ROW_HEADER = "Slip-Row"  # short: each row that is written exactly once carries it
OWN_HEADERS = (ROW_HEADER, "Slipstream-Row")  # the second one is of an earlier version
TIMESTAMP_HEADER = "Timestamp"
_ALIASES = {"value": "data", "messageId": "message_id"}
_LEFT_OUT = ("stream", "sequence", "timestamp_ns", "size")
_TYPES = {
    "subject": ("string",),
    "data": ("binary", "string"),
    "headers": ("map<string,string>", "map<string,array<string>>"),
    "message_id": ("string",),
    "ttl": ("int", "bigint", "smallint"),
    "timestamp": ("timestamp",),
}


class Identity(StrEnum):
    """What makes a row of a batch that is written again the same row."""

    NONE = ""
    CONTENT = "content"  # SipHash of the message; equal rows have the same one
    MESSAGE_ID = "message_id"  # the column of that name
    PLACE = "place"  # the columns stream and sequence, and the content
    TASK = "task"  # the content, and how many equal rows come before it in its partition


class RowError(Error):
    """A row that cannot be stored; the query fails with it."""


def place_columns(schema: "StructType") -> tuple[int, int] | None:
    """Where the columns are that say from which message of a stream a row comes."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if (found.get("stream"), found.get("sequence")) != ("string", "bigint"):
        return None
    names = list(found)
    return names.index("stream"), names.index("sequence")


def sink_columns(schema: "StructType", subject: str) -> dict[str, int]:
    """Where in a row each column of a message stands.

    Raises `ConfigError` for a column that the sink does not know, one of the wrong type, and for
    rows without subject or data.
    """
    found: dict[str, int] = {}
    for position, field in enumerate(schema.fields):
        name = _ALIASES.get(field.name, field.name)
        if name in _LEFT_OUT:
            continue
        if name == "key":
            raise ConfigError(
                "jetstream: a message has no key, so a column key would be lost; make it a token "
                "of subject, as concat('orders.', key), or drop the column"
            )
        if name not in _TYPES:
            raise ConfigError(
                f"jetstream: the sink has no column {field.name!r}; there are {', '.join(_TYPES)}. "
                "Put what the message says into data, for example with to_json(struct(...))"
            )
        kind = field.dataType.simpleString()
        if kind not in _TYPES[name]:
            raise ConfigError(
                f"jetstream: column {field.name} is {kind}; the sink takes "
                f"{' or '.join(_TYPES[name])}: cast it"
            )
        found[name] = position
    if "data" not in found:
        raise ConfigError("jetstream: the rows have no column data (binary or string)")
    if "subject" not in found and not subject:
        raise ConfigError("jetstream: the rows have no column subject, and there is no such option")
    return found


class RowReader:
    """Takes messages out of Arrow batches.

    `count` and `digest` speak of all rows so far; the digest is the same whatever their order, and
    however they are cut into batches and partitions.
    """

    def __init__(
        self,
        columns: dict[str, int],
        subject: str,
        writer: str = "",
        identity: Identity = Identity.CONTENT,
        place: tuple[int, int] | None = None,
    ) -> None:
        self._columns = columns
        self._subject = subject
        self._identity = identity
        self._place = place
        self._key = blake2b(writer.encode(), digest_size=16, person=b"slipstream-row").digest()
        self._seen: dict[bytes, int] = {}
        self.count = 0
        self.low = 0
        self.high = 0

    @property
    def digest(self) -> str:
        """A digest of all rows so far."""
        return digest_of(self.low, self.high)

    def rows(self, batch: "pyarrow.RecordBatch") -> Iterator[tuple[int, RowBlock]]:
        """The rows of a batch, with the number of the first one. Raises `RowError`."""
        first, count = self.count, batch.num_rows
        block = RowBlock(
            count,
            self.subjects_of(batch),
            buffers_of(batch.column(self._columns["data"])),
            self._extras(batch, first),
            self._ids(batch, first),
        )
        if self._identity != Identity.NONE:
            block.digest(self._key)
            self.low += block.sum_low
            self.high += block.sum_high
        if self._identity == Identity.TASK:
            block.number_equals(self._key, self._seen)
        elif self._identity == Identity.PLACE:
            block.tell_apart(self._key, self._places(batch, first))
        self.count += count
        yield first, block

    def _places(self, batch: "pyarrow.RecordBatch", first: int) -> list[bytes]:
        """Where each row comes from. Raises `RowError` for a row that does not say so."""
        assert self._place is not None
        stream, sequence = (batch.column(at) for at in self._place)
        for column in (stream, sequence):
            if column.null_count:
                row = first + column.is_null().to_pylist().index(True)
                raise RowError(
                    f"row {row} has no stream or no sequence, which identify the rows in mode "
                    "deduplicated: fill them, or give the rows a column message_id"
                )
        pairs = zip(stream.to_pylist(), sequence.to_pylist(), strict=True)
        return [f"{name}.{number}".encode() for name, number in pairs]

    def subjects_of(self, batch: "pyarrow.RecordBatch") -> Any:
        """The subjects: one for all rows, or a column."""
        if self._subject:
            return self._subject.encode()
        return buffers_of(batch.column(self._columns["subject"]))

    def first_subject(self, batch: "pyarrow.RecordBatch") -> str:
        """The subject of the first row; "" if there is none."""
        at = self._columns.get("subject")
        if self._subject or at is None or not batch.num_rows:
            return self._subject
        return batch.column(at)[0].as_py() or ""

    def headers_of(self, value: dict[str, Any]) -> list[tuple[str, str]]:
        """The headers of a row."""
        return _headers(value)

    def _ids(self, batch: "pyarrow.RecordBatch", first: int) -> Any:
        import pyarrow.compute as pc

        if "message_id" not in self._columns:
            return None
        ids = batch.column(self._columns["message_id"])
        if ids.null_count and self._identity == Identity.MESSAGE_ID:
            row = first + ids.is_null().to_pylist().index(True)
            raise RowError(f"row {row} has no message_id, which mode deduplicated needs")
        if ids.null_count == len(ids):
            return None
        broken = pc.index(pc.match_substring_regex(ids, "[\r\n]"), value=True).as_py()
        if broken >= 0:
            raise RowError(f"row {first + broken} has a line break in its message_id")
        return buffers_of(ids)

    def _extras(self, batch: "pyarrow.RecordBatch", first: int) -> Any:
        """The header lines of each row; None if no row has any."""
        import pyarrow as pa

        used = {
            name: batch.column(at)
            for name, at in self._columns.items()
            if name in ("headers", "ttl", "timestamp")
            and batch.column(at).null_count < batch.num_rows
        }
        if not used:
            return None
        values = {name: column.to_pylist() for name, column in used.items()}
        lines = []
        for index in range(batch.num_rows):
            pairs = self.headers_of({name: column[index] for name, column in values.items()})
            try:
                lines.append(Headers(pairs).encode()[len(b"NATS/1.0\r\n") : -2] if pairs else b"")
            except ValueError as error:
                raise RowError(f"row {first + index} cannot be sent: {error}") from error
        return buffers_of(pa.array(lines, pa.binary()))


def digest_of(low: int, high: int) -> str:
    """A digest of rows from the sums of the halves of theirs."""
    return f"{high % 2**64:016x}{low % 2**64:016x}"


def name_of(number: int, subject: bytes, size: int) -> str:
    """How errors name a row."""
    return f"row {number} (subject {subject.decode('utf-8', 'replace')!r}, {size} bytes)"


def buffers_of(column: "pyarrow.Array") -> tuple[int, Any, Any]:
    """A column of text or bytes as `RowBlock` takes it; null counts as empty."""
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary())
    if column.null_count:
        column = column.fill_null("" if pa.types.is_string(column.type) else b"")
    if len(column) == 0:
        return 0, bytes(4), b""
    _, offsets, data = column.buffers()
    return column.offset, offsets, b"" if data is None else data


def _headers(value: dict[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, held in value.get("headers") or ():
        if name.lower().startswith("nats-") or name in OWN_HEADERS:
            continue
        many = held if isinstance(held, list) else [held]
        pairs += [(name, one or "") for one in many]
    ttl = value.get("ttl")
    if ttl is not None:
        pairs.append((NATS_TTL, str(ttl)))
    moment = value.get("timestamp")
    if isinstance(moment, datetime):
        utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        pairs.append((TIMESTAMP_HEADER, datetime_text(utc)))
    return pairs
