"""`fetch_arrow`: messages of a pull consumer as one record batch, and their acknowledgement.

    batch = await consumer.fetch_arrow(10_000)
    ...
    await consumer.ack_batch(batch)

The batch has a column `reply`, where each row's acknowledgement goes. So rows can be filtered, and
what is left be acknowledged: the batch that `ack_batch` gets says which. What is not acknowledged
is delivered again after the consumer's `ack_wait`.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from slipstream.client.arrow.batches import COLUMNS, flags_of, schema, take_batch
from slipstream.client.arrow.columns import REPLY, MessageColumns
from slipstream.client.arrow.gather import BROKEN, STATUS, Gather
from slipstream.client.errors import ConnectionLostError
from slipstream.client.jetstream.pull import GroupOptions, request_body
from slipstream.client.jetstream.status import StatusMeaning, meaning_of
from slipstream.errors import Error

if TYPE_CHECKING:
    import pyarrow

    from slipstream.client.connection import Connection

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
    gathered = Gather(MessageColumns(flags_of(wanted)), count, max_bytes, False)
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


def _check(gathered: Gather, who: str) -> None:
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
