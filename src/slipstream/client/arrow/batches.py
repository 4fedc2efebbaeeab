"""The record batches that users get: their columns, and how buffers become one.

    subject     string
    sequence    int64
    timestamp   timestamp[ns, UTC]
    headers     map<string, list<string>>
    data        binary
    size        int64       bytes of data, for those who do not want the data; on demand
    reply       string      where an acknowledgement goes; of fetches alone

A batch is an ordinary `pyarrow.RecordBatch`: `batch.to_pandas()`, `polars.from_arrow(batch)`.
pyarrow is imported on first use; without it a `MissingPackageError` says what to install.

`fetch_arrow` gives messages of a pull consumer as one record batch:

    batch = await consumer.fetch_arrow(10_000)
    ...
    await consumer.ack_batch(batch)

Its column `reply` says where each row's acknowledgement goes. So rows can be filtered, and the rest
be acknowledged: `ack_batch` acknowledges the rows of the batch it gets. A row that is not
acknowledged is delivered again after the consumer's `ack_wait`.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slipstream.client.arrow.column_sink import BROKEN, STATUS, ColumnSink
from slipstream.client.arrow.columns import (
    DATA,
    HEADERS,
    REPLY,
    SIZE,
    SUBJECT,
    TIMESTAMP,
    MessageColumns,
)
from slipstream.client.errors import ConnectionLostError
from slipstream.client.jetstream.pull import GroupOptions, request_body
from slipstream.client.jetstream.status import StatusMeaning, meaning_of
from slipstream.errors import Error
from slipstream.extras import require

if TYPE_CHECKING:
    import pyarrow

    from slipstream.client.connection import Connection

COLUMNS = ("subject", "sequence", "timestamp", "headers", "data")
_FLAGS = {
    "subject": SUBJECT,
    "sequence": 0,
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
    "data": DATA,
    "size": SIZE,
    "reply": REPLY,
}


def arrow() -> ModuleType:
    """The pyarrow module; raises `MissingPackageError`."""
    return require("pyarrow", extra="arrow")


def flags_of(columns: Iterable[str]) -> int:
    """The flags with which `MessageColumns` keeps these columns; raises ValueError for others."""
    wanted = 0
    for name in columns:
        if name not in _FLAGS:
            raise ValueError(f"no column {name!r}: there are {', '.join(_FLAGS)}")
        wanted |= _FLAGS[name]
    return wanted


def schema(columns: Iterable[str] = COLUMNS) -> "pyarrow.Schema":
    """The schema of batches with these columns, in this order."""
    pa = arrow()
    types = {
        "subject": pa.string(),
        "sequence": pa.int64(),
        "timestamp": pa.timestamp("ns", tz="UTC"),
        "headers": pa.map_(pa.string(), pa.list_(pa.string())),
        "data": pa.binary(),
        "size": pa.int64(),
        "reply": pa.string(),
    }
    return pa.schema([pa.field(name, types[name], nullable=False) for name in columns])


def take_batch(gathered: MessageColumns, of: "pyarrow.Schema") -> "pyarrow.RecordBatch":
    """What `gathered` holds as a batch of schema `of`; `gathered` is empty afterwards."""
    pa = arrow()
    rows = gathered.rows
    buffers = gathered.take()
    arrays = [_array(pa, field.type, rows, buffers[field.name]) for field in of]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def _array(pa: ModuleType, kind: Any, rows: int, buffers: tuple[bytes, ...]) -> Any:
    parts = [pa.py_buffer(data) for data in buffers]
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, rows, [None, *parts])
    entries, name_offsets, names, list_offsets, value_offsets, values = parts
    texts = pa.Array.from_buffers(
        pa.string(), value_offsets.size // 4 - 1, [None, value_offsets, values]
    )
    count = name_offsets.size // 4 - 1
    lists = pa.Array.from_buffers(kind.item_type, count, [None, list_offsets], children=[texts])
    keys = pa.Array.from_buffers(pa.string(), count, [None, name_offsets, names])
    pairs = pa.StructArray.from_arrays([keys, lists], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, rows, [None, entries], children=[pairs])


FETCH_COLUMNS = (*COLUMNS, "reply")
HEARTBEAT_SECONDS = 5.0
"""How often a fetch of ten seconds or more hears from the server."""

_GRACE_SECONDS = 2.0


async def fetch_arrow(
    connection: "Connection",
    *,
    subject: str,
    who: str,
    count: int,
    timeout: float,
    max_bytes: int = 0,
    no_wait: bool = False,
    columns: Iterable[str] = FETCH_COLUMNS,
    group: GroupOptions | None = None,
) -> "pyarrow.RecordBatch":
    """Up to `count` messages, asked for at `subject`; fewer, or none, after `timeout` seconds.

    Raises the `ConsumeError` that came before any message, or `ConnectionLostError`.
    """
    if count < 1 or timeout <= 0:
        raise ValueError(f"fetch {count} messages in {timeout} s: both are to be positive")
    wanted = tuple(columns)
    of = schema(wanted)
    gathered = ColumnSink(MessageColumns(flags_of(wanted)), count, max_bytes, False)
    heartbeat = HEARTBEAT_SECONDS if timeout >= 2 * HEARTBEAT_SECONDS else 0.0
    body = request_body(
        count,
        expires=0.0 if no_wait else timeout,
        max_bytes=max_bytes,
        heartbeat=0.0 if no_wait else heartbeat,
        no_wait=no_wait,
        group=group,
    )
    inbox = connection.new_inbox()
    subscription = connection.open_sink(inbox, gathered)
    try:
        try:
            await connection.publish(subject, body, reply=inbox)
            await gathered.wait(2 * heartbeat if heartbeat else timeout + _GRACE_SECONDS)
        finally:
            subscription.close()
    except BaseException:
        # only now that the inbox is gone: before, they might come again to it
        _hand_back(connection, gathered.columns)
        raise
    if not gathered.columns.rows:
        _check(gathered, who)
    return take_batch(gathered.columns, of)


def _check(gathered: ColumnSink, who: str) -> None:
    """Nothing came: raise what went wrong, if something did."""
    if gathered.outcome == STATUS and gathered.status is not None:
        meaning, error = meaning_of(gathered.status, who)
        if meaning is not StatusMeaning.DONE and error is not None:
            raise error
    if gathered.outcome == BROKEN:
        raise gathered.error or ConnectionLostError(
            f"{who}: the connection broke before any message came. Fetch again"
        )


def _hand_back(connection: "Connection", columns: MessageColumns) -> None:
    """Nobody will see these: let the consumer deliver them again at once."""
    if not columns.wanted & REPLY or connection.is_closed:
        return
    offsets, text = columns.take()["reply"]
    ends = memoryview(offsets).cast("i")
    with suppress(Error):  # no room, or no connection: their ack_wait brings them back
        for start, end in pairwise(ends):
            connection.write_buffer.put_message(text[start:end], b"", b"", b"-NAK")


async def ack_batch(
    connection: "Connection", batch: "pyarrow.RecordBatch", ack_policy: str, word: bytes = b"+ACK"
) -> None:
    """Acknowledge every row of `batch`, by its column `reply`; waits while the buffer is full."""
    if ack_policy == "none" or not batch.num_rows:
        return
    replies = batch.column("reply")
    if ack_policy == "all":
        replies = replies.slice(len(replies) - 1)
    write_buffer = connection.write_buffer
    for reply in replies.to_pylist():
        write_buffer.put_message(reply.encode(), b"", b"", word)
        if write_buffer.crowded:
            await write_buffer.room()
