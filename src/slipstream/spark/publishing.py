"""How a task publishes rows: many in flight, every acknowledgement awaited, failures by the row.

A row fails for what is wrong with it (too large, no stream on its subject, a subject that is
denied, a TTL where none is allowed): then the task fails with the row named, or the row goes to the
dead-letter subject. A connection that breaks, or a server that does not answer, leaves rows in
doubt: `publish` gives them back, and the caller says how they are published again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from slipstream.client.errors import MaxPayloadError, PermissionsError
from slipstream.client.events import ErrorEvent
from slipstream.client.jetstream.errors import (
    ApiError,
    NoStreamError,
    PublishError,
    WrongLastSequenceError,
)
from slipstream.errors import Error
from slipstream.spark.sink_options import SinkOptions
from slipstream.spark.sink_rows import Row
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream
    from slipstream.client.jetstream.publisher import PubAck

REASON_HEADER = "Slipstream-Reason"
ORIGIN_HEADER = "Slipstream-Origin"
SIZE_HEADER = "Slipstream-Size"
_BLAME_THE_ROW = {10054, 10060, 10111, 10165, 10166}  # errors of a message, not of the stream
_HEADERS_BYTES = 4096  # left for headers when a row is cut to fit

HeaderMaker = Callable[[Row], "dict[str, str] | None"]


class RowError(Error):
    """A row that cannot be stored; the query fails with it."""


class FencedError(Error):
    """Another attempt of this batch has taken over; this one may add nothing more."""


class Publisher:
    """Publishes over one connection. `headers_of` gives what the mode adds to a row's headers."""

    def __init__(self, connection: "Connection", js: "JetStream", options: SinkOptions) -> None:
        self._connection = connection
        self._js = js
        self._options = options
        self._denied: set[str] = set()
        self.dead = 0
        connection.on("error", self._on_error)

    async def publish(self, rows: Iterable[Row], headers_of: HeaderMaker) -> list[Row]:
        """Publish rows and await all acknowledgements; those in doubt are returned.

        Raises `RowError` and `FencedError`.
        """
        waiting: list[tuple[Row, asyncio.Future[PubAck]]] = []
        doubtful: list[Row] = []
        bad: list[tuple[Row, Exception]] = []
        timeout = self._options.request_timeout
        for row in rows:
            block = _block(row, headers_of(row))
            try:
                future = await self._js.publish_async(
                    row.subject, row.data, headers=block, timeout=timeout
                )
            except (MaxPayloadError, ValueError) as error:
                bad.append((row, error))
            except (PublishError, OSError):
                doubtful.append(row)
            else:
                waiting.append((row, future))
        for row, future in waiting:
            try:
                await future
            except WrongLastSequenceError as error:
                raise FencedError(
                    f"{row}: another attempt of this batch has taken over; this one ends"
                ) from error
            except (NoStreamError, ApiError) as error:
                if isinstance(error, ApiError) and error.err_code not in _BLAME_THE_ROW:
                    raise RowError(f"{row} is not stored: {error}") from error
                bad.append((row, error))
            except Error as error:
                if row.subject in self._denied:
                    bad.append((row, PermissionsError("publish", row.subject, "", str(error), "")))
                else:
                    doubtful.append(row)
        for row, reason in bad:
            await self._refuse(row, reason)
        return doubtful

    def _on_error(self, event: ErrorEvent) -> None:
        if isinstance(event.error, PermissionsError) and event.error.operation == "publish":
            self._denied.add(event.error.subject)

    async def _refuse(self, row: Row, error: Exception) -> None:
        """Send a row to the dead-letter subject, or raise `RowError`."""
        target = self._options.dead_letter_subject
        if not target:
            raise RowError(
                f"{row} is not stored: {error}. The option deadLetterSubject sends such rows to a "
                "subject of their own"
            ) from error
        limit = max(self._connection.max_payload - _HEADERS_BYTES, 0)
        headers = Headers([(name, text) for name, text in row.headers if name != "Nats-TTL"])
        headers[REASON_HEADER] = " ".join(str(error).split())
        headers[ORIGIN_HEADER] = row.subject
        headers[SIZE_HEADER] = str(len(row.data))
        identity = row.message_id or row.identity
        await self._js.publish(target, row.data[:limit], headers=headers, message_id=identity)
        self.dead += 1


def _block(row: Row, added: "dict[str, str] | None") -> bytes | None:
    """The header block; the one of few plain fields, which is nearly all, is put together here."""
    if not row.headers and not added:
        return None
    if not row.headers and added:
        text = "".join([f"{name}: {value}\r\n" for name, value in added.items()])
        return f"NATS/1.0\r\n{text}\r\n".encode()
    headers = Headers(row.headers)
    for name, value in (added or {}).items():
        headers[name] = value
    return headers.encode()
