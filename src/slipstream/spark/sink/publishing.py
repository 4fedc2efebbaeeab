"""How a task publishes rows: many in flight, every acknowledgement awaited, failures by the row.

A row fails for what is wrong with it (too large, no stream on its subject, a subject that is
denied, a TTL where none is allowed): then the task fails with the row named, or the row goes to the
dead-letter subject. A connection that breaks, or a server that does not answer, leaves rows in
doubt: the caller says how they are published again.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

from slipstream.client.arrow.row_block import REFUSED, SENT, RowBlock
from slipstream.client.arrow.row_publisher import NOBODY_LISTENS
from slipstream.client.errors import MaxPayloadError, PermissionsError
from slipstream.client.events import ErrorEvent
from slipstream.client.jetstream.errors import ApiError, NoStreamError, WrongLastSequenceError
from slipstream.client.jetstream.publish import read_ack
from slipstream.client.payload import subject_bytes
from slipstream.errors import Error
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_names import NATS_MSG_ID, NATS_TTL
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.retried_rows import RetryingPublisher, is_settled
from slipstream.spark.sink.rows import RowError, name_of
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream

REASON_HEADER = "Slipstream-Reason"
ORIGIN_HEADER = "Slipstream-Origin"
SIZE_HEADER = "Slipstream-Size"
_BLAME_THE_ROW = {
    ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode.STREAM_NOT_MATCH,
    ErrorCode.STREAM_ROLLUP_FAILED,
    ErrorCode.MESSAGE_TTL_INVALID,
    ErrorCode.MESSAGE_TTL_DISABLED,
}  # errors of a message, not of the stream
NOT_SENT = ValueError("not sent")  # in the place of a reason that is not known yet
_HEADERS_BYTES = 4096  # left for headers when a row is cut to fit


class FencedError(Error):
    """Another attempt of this batch has taken over; this one may add nothing more."""


class Publisher:
    """Publishes over one connection. `lines` and `label` are what the mode adds to the headers.

    `subjects` are those of the stream. `task` begins the ids of dead letters. `refused` says of
    rows, by number, why they cannot be stored; None once that is dealt with. It outlives the
    connection.
    """

    def __init__(
        self,
        connection: "Connection",
        js: "JetStream",
        options: SinkOptions,
        lines: bytes,
        label: bytes,
        *,
        subjects: list[str],
        task: str,
        refused: "dict[int, Exception | None]",
    ) -> None:
        self._connection = connection
        self._js = js
        self._options = options
        self._denied: set[str] = set()
        self._refused = refused
        self._task = task
        self._rows = RetryingPublisher(
            connection,
            lines,
            label,
            in_flight_max=options.max_ack_pending,
            quiet=options.request_timeout,
            subjects=subjects,
            retry_timeout=options.retry_timeout,
            keeps_order=bool(options.bucket),
        )
        self.dead = 0
        connection.on("error", self._on_error)

    @property
    def error(self) -> Exception | None:
        """Why rows are in doubt: the connection is no good any more."""
        return self._rows.error

    @property
    def is_ordered(self) -> bool:
        """Whether rows are stored in the order of their blocks; not if some were sent again."""
        return not self._rows.has_resent

    async def send(self, block: RowBlock) -> None:
        """Put the rows that are to be sent on their way."""
        await self._rows.send(block)

    async def settle(self, first: int, block: RowBlock) -> bool:
        """Await the answers on the rows; False if some are in doubt: they are to be sent again.

        `first` is the number of the block's first row. Raises `RowError`, `FencedError` and
        `UnheardError`.
        """
        for row, answer in await self._rows.settle(block):
            self._refused[first + row] = self._reason(first + row, block, row, answer)
        if self._denied:
            self._give_up_denied(first, block)
        if REFUSED in block.states:
            for row in (row for row, state in enumerate(block.states) if state == REFUSED):
                await self._refuse(first + row, block, row)
        if is_settled(block):
            return True
        block.send_again()
        return False

    def _give_up_denied(self, first: int, block: RowBlock) -> None:
        """Rows on subjects that are denied get no answer, ever."""
        for row, state in enumerate(block.states):
            subject = block.subject(row).decode("utf-8", "replace")
            if state == SENT and subject in self._denied:
                block.settle(row, REFUSED)
                self._refused[first + row] = PermissionsError(
                    "publish", subject, "", "Permissions Violation", "the server"
                )

    def _why_not_sent(self, block: RowBlock, row: int) -> Exception:
        name = block.subject(row).decode("utf-8", "replace")
        try:
            subject_bytes(name)
        except ValueError as error:
            return error
        return MaxPayloadError(
            f"publish to {name!r}: {len(block.body(row))} bytes and the headers are more than the "
            f"server takes ({self._connection.max_payload}, its max_payload)"
        )

    def _reason(self, number: int, block: RowBlock, row: int, answer: bytes) -> Exception:
        """Why a row was refused. Raises what is no fault of the row."""
        name = name_of(number, block.subject(row), len(block.body(row)))
        subject = block.subject(row).decode("utf-8", "replace")
        asked = f"publish to {subject!r}"
        if answer == NOBODY_LISTENS:
            return NoStreamError(
                f"{asked}: no stream listens on this subject", subject=subject, may_be_stored=False
            )
        try:
            read_ack(answer, asked)
        except WrongLastSequenceError as error:
            raise FencedError(
                f"{name}: another attempt of this batch has taken over; this one ends"
            ) from error
        except ApiError as error:
            if error.err_code in _BLAME_THE_ROW:
                return error
            raise RowError(f"{name} is not stored: {error}") from error
        raise RowError(f"{name}: the stream acknowledges it without a sequence: {answer[:80]!r}")

    def _on_error(self, event: ErrorEvent) -> None:
        if isinstance(event.error, PermissionsError) and event.error.operation == "publish":
            self._denied.add(event.error.subject)

    def _letter_id(self, number: int, block: RowBlock, row: int) -> str:
        """What makes a dead letter the same one when its task is tried again.

        Its place alone would be another row's if the rows come in another order, its content alone
        that of each row that is equal: no row may be taken for another one and be lost.
        """
        content = b"\r\n".join((block.subject(row), block.extra(row), block.body(row)))
        digest = blake2b(content, digest_size=16).hexdigest()
        return f"{self._task}.{number}.{digest}"

    async def _refuse(self, number: int, block: RowBlock, row: int) -> None:
        """Send a row to the dead-letter subject, or raise `RowError`."""
        error = self._refused.get(number, NOT_SENT)
        if error is None:
            return
        if error is NOT_SENT:
            error = self._why_not_sent(block, row)
            self._refused[number] = error
        target = self._options.dead_letter_subject
        subject, body = block.subject(row), block.body(row)
        if not target:
            raise RowError(
                f"{name_of(number, subject, len(body))} is not stored: {error}. The option "
                "deadLetterSubject sends such rows to a subject of their own"
            ) from error
        limit = max(self._connection.max_payload - _HEADERS_BYTES, 0)
        headers = Headers.parse(b"NATS/1.0\r\n" + block.extra(row) + b"\r\n")
        if NATS_TTL in headers:
            del headers[NATS_TTL]
        headers[REASON_HEADER] = " ".join(str(error).split())
        headers[ORIGIN_HEADER] = subject.decode("utf-8", "replace")
        headers[SIZE_HEADER] = str(len(body))
        headers[NATS_MSG_ID] = block.message_id(row).decode() or self._letter_id(number, block, row)
        await self._js.publish(target, body[:limit], headers=headers)
        self._refused[number] = None
        self.dead += 1
