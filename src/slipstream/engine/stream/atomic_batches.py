"""Atomic batches: messages that are stored all together, or not at all (ADR-50).

The messages of a batch name it and number themselves. They are kept in memory, checked when the
last one says `Nats-Batch-Commit`, and then stored one after the other as one group of the log:
nothing comes between them, and after a crash all of them are there, or none.

A batch that is not committed leaves nothing. It is abandoned when a message is missing, when it
grows too large, when nothing came for a while, and when the server stops.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import read_number
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.ingest_checks import (
    HEADER_BYTES_MAX,
    Verdict,
    check_headers,
    remove_request_info,
)
from slipstream.engine.stream.retention import check_room_for
from slipstream.engine.stream.staging import Staged
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_BATCH_COMMIT,
    NATS_BATCH_ID,
    NATS_BATCH_SEQUENCE,
    NATS_PREFIX,
    NATS_REQUIRED_API_LEVEL,
    NATS_TTL,
)
from slipstream.wire.headers import count_prefix, find, with_fields, without

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

ID_BYTES_MAX = 64
BATCH_BYTES_MAX = 64 * 1024 * 1024  # of one batch: subjects, headers and bodies
STAGED_BYTES_MAX = 256 * 1024 * 1024  # of all that are open on the server
DIGITS_MAX = 20  # of a number with 64 bits
UINT64_MAX = 2**64 - 1
OVERHEAD = 256  # bytes of memory that a message takes beside its own


_NOTHING_ASKED = Verdict()


class Batch:
    """One that is open."""

    def __init__(self, id: bytes, now: int) -> None:
        self.id = id
        self.messages: list[Inbound] = []
        self.plain: list[bool] = []  # which of these have no field but those of batches
        self.size = 0  # of the messages, in bytes
        self.touched = now  # when its last message came (ns)
        self.timer: Any = None


class AtomicBatches:
    """The open batches of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._open: dict[bytes, Batch] = {}

    def stop(self) -> None:
        """Drop all that are open."""
        for batch in list(self._open.values()):
            self._close(batch)

    def take(self, subject: bytes, message: Inbound) -> None:
        """A message with a `Nats-Batch-Id` was published. Raises `ApiError`, `StorageError`."""

        def value(name: bytes) -> bytes:
            return find(message.data, message.header_start, message.body_start, name) or b""

        id = value(NATS_BATCH_ID)
        if len(id) > ID_BYTES_MAX:
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_INVALID_BATCH_ID)
        number = read_number(value(NATS_BATCH_SEQUENCE), DIGITS_MAX)
        if not 0 <= number <= UINT64_MAX:
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_MISSING_SEQ)
        batch = self._open.get(id)
        said = find(message.data, message.header_start, message.body_start, NATS_BATCH_COMMIT)
        commit = said or b""
        most = self._stream.engine.options.jetstream_limits.batch.max_msgs
        follows = batch is None or number == len(batch.messages) + 1
        if follows and number - (commit == b"eob") > most:
            if batch is not None:
                self._abandon(batch, "large")
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=most)
        if batch is None:
            batch = self._begin(id, number)
        if said not in (None, b"1", b"eob"):
            self._close(batch)
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        fields = count_prefix(message.data, message.header_start, message.body_start, NATS_PREFIX)
        is_plain = fields == (2 if said is None else 3)
        if not is_plain and self._stream.js.refused_level(message):
            self._abandon(batch, "unsupported")
            raise ApiError(ErrorCode.REQUIRED_API_LEVEL)
        if number != len(batch.messages) + 1 or (commit == b"eob" and number == 1):
            self._abandon(batch, "incomplete")
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
        if commit != b"eob":
            self._stage(batch, subject, message, is_plain)
        if not commit:
            if message.reply:
                self._stream.account.send(message.reply, b"", b"", b"")
            return
        self._close(batch)
        if commit == b"eob":
            _end_with_commit(batch.messages[-1])
        self._commit(batch, message.reply)

    # -- open batches ----------------------------------------------------------------------------

    def _begin(self, id: bytes, number: int) -> Batch:
        engine = self._stream.engine
        limits = engine.options.jetstream_limits.batch
        if number != 1:
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
        if (
            len(self._open) >= limits.max_inflight_per_stream
            or engine.staged.batches >= limits.max_inflight_total
        ):
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT)
        batch = self._open[id] = Batch(id, self._stream.clock.now)
        engine.staged.batches += 1
        batch.timer = engine.timers.after(limits.timeout, lambda: self._look_at(batch))
        return batch

    def _stage(self, batch: Batch, subject: bytes, message: Inbound, is_plain: bool) -> None:
        """Keep a message, which is only ours during the call."""
        engine = self._stream.engine
        size = len(subject) + message.end - message.header_start
        if batch.size + size > BATCH_BYTES_MAX:
            self._abandon(batch, "large")
            raise ApiError(
                ErrorCode.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=f"{BATCH_BYTES_MAX} bytes"
            )
        if engine.staged.bytes + size + OVERHEAD > STAGED_BYTES_MAX:
            self._abandon(batch, "large")
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT)
        header = message.header()
        if not is_plain and NATS_REQUIRED_API_LEVEL in header:
            header = without(header, NATS_REQUIRED_API_LEVEL)
        batch.messages.append(Inbound(subject, b"", header, message.body()))
        batch.plain.append(is_plain)
        batch.size += size
        batch.touched = self._stream.clock.now
        engine.staged.bytes += size + OVERHEAD

    def _look_at(self, batch: Batch) -> None:
        """Abandon a batch for which nothing has come for a while."""
        engine = self._stream.engine
        due = batch.touched + engine.options.jetstream_limits.batch.timeout
        if due <= engine.clock.now:
            self._abandon(batch, "timeout")
        else:
            batch.timer = engine.timers.at(due, lambda: self._look_at(batch))

    def _abandon(self, batch: Batch, reason: str) -> None:
        self._close(batch)
        self._stream.js.advisories.batch_abandoned(
            self._stream.name, batch.id.decode("utf-8", "replace"), reason
        )

    def _close(self, batch: Batch) -> None:
        del self._open[batch.id]
        batch.timer.cancel()
        staged = self._stream.engine.staged
        staged.batches -= 1
        staged.bytes -= batch.size + OVERHEAD * len(batch.messages)

    # -- the commit ------------------------------------------------------------------------------

    def _commit(self, batch: Batch, reply: bytes) -> None:
        """Store all, or raise `ApiError` or `StorageError` and store none."""
        stream = self._stream
        staged = Staged()
        verdicts = [
            self._check_plain(message, staged)
            if is_plain and not stream.config.allow_msg_counter
            else self._check(message, staged)
            for message, is_plain in zip(batch.messages, batch.plain, strict=True)
        ]
        seq = stream.store_group(batch.messages, verdicts, staged.messages, staged.text_bytes)
        end = b',"batch":%b,"count":%d}' % (
            msgspec.json.encode(batch.id.decode("utf-8", "replace")),
            len(batch.messages),
        )
        stream.promise(reply, seq, end)

    def _check(self, message: Inbound, staged: Staged) -> Verdict:
        """Whether a message may follow those in `staged`, to which it is added."""
        stream = self._stream
        staged.check(stream.log.last_seq, message)
        if stream.ttls is None and find(message.data, 0, message.body_start, NATS_TTL):
            raise ApiError(ErrorCode.MESSAGE_TTL_DISABLED)
        verdict = check_headers(stream, message.subject, message, staged)
        if verdict.duplicate_of:
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
        staged.check_rollup(message.subject, verdict.rollup)
        remove_request_info(message)
        self._add(message, staged, verdict)
        return verdict

    def _check_plain(self, message: Inbound, staged: Staged) -> Verdict:
        """Check a message that has no header fields but those of batches."""
        if message.body_start - message.header_start > HEADER_BYTES_MAX:
            raise ApiError(ErrorCode.STREAM_HEADER_EXCEEDS_MAXIMUM)
        self._add(message, staged, _NOTHING_ASKED)
        return _NOTHING_ASKED

    def _add(self, message: Inbound, staged: Staged, verdict: Verdict) -> None:
        """Add a message to those in `staged`, if there is room. Raises `ApiError`."""
        stream = self._stream
        check_room_for(stream, message.subject, message, verdict.rollup != "", staged)
        is_stored = stream.config.retention != "interest" or stream.is_wanted(message.subject)
        staged.add(stream.log, message, verdict.message_id, is_stored)


def _end_with_commit(message: Inbound) -> None:
    """Have the last message say that the batch ends with it."""
    block = with_fields(message.header(), [(NATS_BATCH_COMMIT, b"1")])
    message.data = block + message.body()
    message.header_start = 0
    message.body_start = len(block)
    message.end = len(message.data)
