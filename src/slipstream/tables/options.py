"""How a stream becomes a table: the options of a writer, checked where they are given."""

from typing import Literal

import msgspec
import pyarrow as pa

from slipstream.errors import ConfigError
from slipstream.schemas import Body, CloudEvents

MESSAGE_COLUMNS = ("_stream", "_subject", "_sequence", "_time", "_headers")
MESSAGE_TIME = "_time"
PARTITION = "_partition"  # the name of the partition field of Iceberg's tables
# The column that the others are partitioned by. It is the name of folders, and some readers leave
# out those that begin with an underscore.
BY_TIME = "by_time"
RESERVED = (*MESSAGE_COLUMNS, PARTITION, BY_TIME)

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "json": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL_DIGITS_MAX = 38


class Column(msgspec.Struct, frozen=True):
    """A column for a field of message bodies; `is_json` keeps any value as JSON text."""

    type: pa.DataType
    is_json: bool = False


def column_of(text: str) -> Column:
    """The column that a type's name stands for, such as long, list<double> or decimal(10,2).

    Raises `ConfigError`.
    """
    name = text.strip().lower().replace(" ", "")
    if name in _TYPES:
        return Column(_TYPES[name], name == "json")
    if name.startswith("list<") and name.endswith(">"):
        item = column_of(name[5:-1])
        if not item.is_json:
            return Column(pa.list_(item.type))
    if name.startswith("decimal(") and name.endswith(")"):
        digits, _, scale = name[8:-1].partition(",")
        if digits.isdigit() and (scale or "0").isdigit():
            if 1 <= int(digits) <= _DECIMAL_DIGITS_MAX and int(scale or 0) <= int(digits):
                return Column(pa.decimal128(int(digits), int(scale or 0)))
    raise ConfigError(
        f"no column type {text!r}: there are {', '.join(_TYPES)}, decimal(digits,scale) and "
        "list<type>, where the type of a list is not json"
    )


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a writer does with a stream. Raises `ConfigError` when it is made with wrong values.

    format: "iceberg", "delta" for Delta Lake, or "parquet" for a folder of plain files.
    body: "json" gives each field of a body a column of its own; "bytes" keeps bodies as they are,
        in a column `data`.
    schema: bodies are in this format of `slipstream.schemas` (Avro, Protobuf, MessagePack, JSON,
        CloudEvents), and its schema, or the newest one in its registry, says what the columns are.
    columns: columns that are known beforehand, a type's name for each field (see `column_of`).
    new_fields: what becomes of a field without a column: "add" adds a column, "reject" puts the
        row into the table of rejected rows, "ignore" leaves the field out.
    columns_max: with so many columns, rows with further fields are rejected.
    headers: keep the messages' headers, in a column `_headers`.
    time: the column by whose time the table is partitioned: `_time`, when the message was stored,
        or a column of type timestamp from the bodies.
    late_seconds: reject rows of which the `time` is so much before the message was stored.
    partition: a partition for each "hour", "day" or "month" of `time`, or "none".
    subjects: only messages on these subjects.
    commit_seconds: how long rows are gathered for a commit, at most.
    commit_rows, commit_bytes: a commit comes earlier with so many rows, or bytes of bodies.
    archive: remove from the stream what the table has durably.
    begin_anew: go on with the first message of a stream that was made anew.
    retry_seconds: how long a server may be away before the writer gives up.
    compact_files: merge files of similar size in a partition when there are so many; 0 never.
    file_bytes: files of this size are not merged further.
    snapshots_kept: older snapshots expire.
    unused_seconds: files that no snapshot names are deleted when they are so old.
    """

    format: Literal["iceberg", "delta", "parquet"] = "iceberg"
    body: Literal["json", "bytes"] = "json"
    schema: Body | CloudEvents | None = None
    columns: dict[str, str] = {}
    new_fields: Literal["add", "reject", "ignore"] = "add"
    columns_max: int = 1000
    headers: bool = False
    time: str = MESSAGE_TIME
    late_seconds: float | None = None
    partition: Literal["hour", "day", "month", "none"] = "day"
    subjects: tuple[str, ...] = ()
    commit_seconds: float = 1.0
    commit_rows: int = 250_000
    commit_bytes: int = 64 * 1024 * 1024
    archive: bool = False
    begin_anew: bool = False
    retry_seconds: float = 60.0
    compact_files: int = 32
    file_bytes: int = 32 * 1024 * 1024
    snapshots_kept: int = 100
    unused_seconds: float = 3600.0

    def __post_init__(self) -> None:
        positive = ("columns_max", "commit_rows", "commit_bytes", "file_bytes", "snapshots_kept")
        wrong = [name for name in positive if getattr(self, name) < 1]
        lengths = ("commit_seconds", "retry_seconds", "unused_seconds")
        wrong += [name for name in lengths if getattr(self, name) <= 0]
        if self.late_seconds is not None and self.late_seconds < 0:
            wrong.append("late_seconds")
        if wrong:
            raise ConfigError(f"table options: {', '.join(wrong)} must be more than 0")
        if self.compact_files == 1 or self.compact_files < 0:
            raise ConfigError("table options: compact_files is 0 (never) or 2 and more")
        self._check_columns()
        if self.archive and self.subjects:
            raise ConfigError(
                "table options: archive removes all messages up to the table's last one, so it "
                "takes no subjects"
            )

    def _check_columns(self) -> None:
        for name, kind in self.columns.items():
            column_of(kind)
            if name.casefold() in RESERVED:
                raise ConfigError(f"table options: {name} is a name that every table has taken")
        is_otherwise = bool(self.columns) or self.body != "json" or self.new_fields != "add"
        if self.schema is not None and is_otherwise:
            raise ConfigError(
                "table options: columns, body and new_fields are what the schema says, if given"
            )
        if self.body == "bytes" and (self.columns or self.time != MESSAGE_TIME):
            raise ConfigError('table options: body "bytes" has no columns and no time in bodies')
        if self.time != MESSAGE_TIME and self.columns.get(self.time, "timestamp") != "timestamp":
            raise ConfigError(f"table options: the column {self.time} of `time` is a timestamp")

    def given_columns(self) -> dict[str, Column]:
        """The columns that are known before any message is read."""
        if self.body == "bytes":
            return {"data": column_of("binary")}
        given = {name: column_of(kind) for name, kind in self.columns.items()}
        if self.time != MESSAGE_TIME:
            given.setdefault(self.time, column_of("timestamp"))
        return given
