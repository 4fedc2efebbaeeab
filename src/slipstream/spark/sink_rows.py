"""What a row of a DataFrame becomes as a message; what of it may be wrong.

    subject     string; or the option `subject`, which wins
    data        binary or string (also called value)
    headers     map<string, string> or map<string, array<string>>
    message_id  string, becomes Nats-Msg-Id (also called messageId)
    ttl         whole seconds, becomes Nats-TTL
    timestamp   becomes the header Timestamp: the server stamps messages with its own time

The other columns of the source (stream, sequence ...) are allowed and left out, so that what was
read can be written. So are headers that belong to the server (Nats-...): those of another stream's
message would be conditions and ids of the wrong stream.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from slipstream.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

ROW_HEADER = "Slipstream-Row"
TIMESTAMP_HEADER = "Timestamp"
_ALIASES = {"value": "data", "messageId": "message_id"}
_LEFT_OUT = ("stream", "sequence", "timestamp_ns", "size", "key")
_TYPES = {
    "subject": ("string",),
    "data": ("binary", "string"),
    "headers": ("map<string,string>", "map<string,array<string>>"),
    "message_id": ("string",),
    "ttl": ("int", "bigint", "smallint"),
    "timestamp": ("timestamp",),
}

HeaderPairs = list[tuple[str, str]]


class Row(NamedTuple):
    """A message to be published. `number` counts the rows of the task, from 0."""

    number: int
    subject: str
    data: bytes
    headers: HeaderPairs
    message_id: str
    identity: str  # the same at every attempt, whatever the order of rows

    def __str__(self) -> str:
        return f"row {self.number} (subject {self.subject!r}, {len(self.data)} bytes)"


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
    """Takes messages out of Arrow batches, and gives each row its identity.

    The identity is a digest of what the message says and, among equal rows, their count so far; so
    an attempt that has the rows in another order (after a shuffle) finds the same identities.
    """

    def __init__(self, columns: dict[str, int], subject: str) -> None:
        self._columns = columns
        self._subject = subject
        self._seen: Counter[bytes] = Counter()
        self.count = 0
        self.digest = 0  # of all rows so far, whatever their order

    def rows(self, batch: "pyarrow.RecordBatch") -> Iterator[Row]:
        """The rows of a batch."""
        values = {name: batch.column(at).to_pylist() for name, at in self._columns.items()}
        for index in range(batch.num_rows):
            yield self._row({name: column[index] for name, column in values.items()})

    def has(self, identity: str) -> bool:
        """Whether a row of this identity has been read."""
        key, _, nth = identity.partition("-")
        return self._seen[bytes.fromhex(key)] >= int(nth or 1)

    def _row(self, value: dict[str, Any]) -> Row:
        subject = self.subject_of(value)
        data = value["data"]
        body = data.encode() if isinstance(data, str) else bytes(data or b"")
        headers = self.headers_of(value)
        message_id = value.get("message_id") or ""
        key = blake2b(body, digest_size=12)
        for part in (subject, message_id, *(f"{n}\0{v}" for n, v in headers)):
            key.update(b"\0" + part.encode())
        made = key.digest()
        self._seen[made] += 1
        nth = self._seen[made]
        self.digest = (self.digest + int.from_bytes(made, "big") * nth) % (1 << 96)
        self.count += 1
        identity = made.hex() if nth == 1 else f"{made.hex()}-{nth}"
        return Row(self.count - 1, subject, body, headers, message_id, identity)

    def subject_of(self, value: dict[str, Any]) -> str:
        """The subject of a row."""
        return self._subject or value.get("subject") or ""

    def headers_of(self, value: dict[str, Any]) -> HeaderPairs:
        """The headers of a row."""
        return _headers(value)


def _headers(value: dict[str, Any]) -> HeaderPairs:
    pairs: HeaderPairs = []
    for name, held in value.get("headers") or ():
        if name.lower().startswith("nats-") or name == ROW_HEADER:
            continue
        many = held if isinstance(held, list) else [held]
        pairs += [(name, one or "") for one in many]
    ttl = value.get("ttl")
    if ttl is not None:
        pairs.append(("Nats-TTL", str(ttl)))
    moment = value.get("timestamp")
    if isinstance(moment, datetime):
        utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        pairs.append((TIMESTAMP_HEADER, utc.isoformat().replace("+00:00", "Z")))
    return pairs
