"""The answer to a direct get, as far as it has come (docs/protocol/streams.md#direct-get, ADR-31).

A batch is sent in pieces of bounded size. After each piece it waits for the next turn, and for the
client to keep up, so that a large read costs neither memory nor other clients their turn.

A client that asks for it has a piece as one *packed* answer
(docs/protocol/streams.md#packed-batches): numbers in binary instead of headers in text, and one
frame for a thousand messages.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.session.message import Inbound
from slipstream.errors import StorageError
from slipstream.log.cold import ColdError
from slipstream.log.record import Portion, Record, copy_message
from slipstream.log.subject_index import SubjectFilter
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
    NATS_UPTO_SEQUENCE,
    SLIPSTREAM_PACKED,
)
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.timestamps import put_timestamp

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

PIECE_MESSAGES: _int = 2048
PIECE_BYTES: _int = 512 * 1024
BACKLOG_BYTES_MAX: _int = 4 * 1024 * 1024
PACK_BYTES: _int = 256 * 1024  # a packed answer ends with the message that reaches this
ALONE_PART: _int = 4  # a message of this part of it gains nothing by being packed
_SEQUENCE = b"\r\n%b: " % NATS_SEQUENCE
_TIME_STAMP = b"\r\n%b: " % NATS_TIME_STAMP
_NUM_PENDING = b"\r\n%b: " % NATS_NUM_PENDING
_LAST_SEQUENCE = b"\r\n%b: " % NATS_LAST_SEQUENCE
_PACK_HEAD = b"NATS/1.0\r\n%b: %%d\r\n%b: %%d\r\n%b: %%d\r\n\r\n" % (
    SLIPSTREAM_PACKED,
    NATS_NUM_PENDING,
    NATS_LAST_SEQUENCE,
)


def answer_head(name: str) -> bytes:
    """The headers of a message of the stream `name`, up to its subject."""
    return b"%b: %b\r\n%b: " % (NATS_STREAM, name.encode(), NATS_SUBJECT)


class Answer:
    """What one request of `session` (None: nobody's) gets; `record` is the message that is sent
    next. `head` is the stream's `answer_head`."""

    def __init__(self, stream: "Stream", reply: bytes, session: Any, head: bytes) -> None:
        self.stream = stream
        self.session = session
        self.account = stream.account
        self.log = stream.log
        self.reply = reply
        self.record = Record()
        self.plain = False  # without what is known of each message as headers
        self.end_seq = 0  # of a batch: no message after this one
        self._left = 0  # messages still wanted
        self._bytes_left = 0
        self._pending = 0  # messages that match after the last one sent
        self._last = 0  # sequence of the last one sent
        self._matching: SubjectFilter | None = None
        self._next_seq = 0
        self._sequences: list[int] | None = None  # of a multi request
        self._up_to = 0
        self._message = Inbound(reply)
        self._scratch = OutBuffer()
        self._gathered = 0  # messages that are packed in it
        # Bounds of a packed answer, once it is one; else each message is an answer of its own.
        self._portion: Portion | None = None
        self._stream_head = head

    def status(self, line: bytes, *fields: tuple[bytes, _int]) -> None:
        """End with a status message."""
        block = b"NATS/1.0 " + line + b"\r\n"
        block += b"".join(b"%b: %d\r\n" % field for field in fields) + b"\r\n"
        self.account.send(self.reply, b"", block, b"")

    def single(self) -> None:
        """The one message in `record`."""
        self._send(False)

    def limit(self, messages: _int, size: _int, pending: _int) -> None:
        """A batch: at most so many messages and bytes (0: what a client may have pending) of the
        `pending` ones that match."""
        self._left = messages
        self._bytes_left = size if size > 0 else self.stream.engine.options.max_pending
        self._pending = pending

    def pack(self) -> None:
        """Have many messages in one answer. Whoever relays that takes no more than a payload."""
        portion = Portion()
        portion.size_max = min(PACK_BYTES, self.stream.engine.options.max_payload // 2)
        portion.large = portion.size_max // ALONE_PART
        self._portion = portion

    def from_sequence(self, seq: _int, matching: SubjectFilter | None) -> None:
        """Send messages in order."""
        self._next_seq = seq
        self._matching = matching
        self.pump()

    def of_sequences(self, sequences: "list[int]", up_to: _int) -> None:
        """Send just these, ascending."""
        self._sequences = sequences
        self._up_to = up_to
        self.pump()

    def put_off(self, error: Exception) -> None:
        """The disk refused to give the next message: the answer ends."""
        self.status(b"500 Storage Failure")

    def pump(self) -> None:
        """Send the next piece; the rest follows in a later round of the turn."""
        if self.stream.closed:
            return
        try:
            state = self._piece() if self._portion is None else self._packed_piece()
        except ColdError as cold:
            self.stream.engine.fetch(cold, self.session, self._continue_later)
            return
        except (OSError, StorageError) as error:
            self.put_off(error)
            return
        if state == 0:
            self._continue_later()
        elif state > 0:
            fields = [(NATS_NUM_PENDING, self._pending), (NATS_LAST_SEQUENCE, self._last)]
            if self._sequences is not None:
                fields.append((NATS_UPTO_SEQUENCE, self._up_to))
            self.status(b"204 EOB", *fields)

    def _piece(self) -> _int:
        """Send up to a piece. 1 when that was all, 0 when more is to come, -1 if nobody listens."""
        sent = 0
        size = 0
        while self._left > 0 and self._bytes_left > 0 and self._advance():
            self._pending -= 1
            if not self._send(True):
                return -1
            size += self._note_sent()
            sent += 1
            if sent >= PIECE_MESSAGES or size >= PIECE_BYTES:
                return 0 if self._left > 0 and self._bytes_left > 0 else 1
        return 1

    def _packed_piece(self) -> _int:
        """The same, but in one answer; a message that is large is a piece of its own."""
        before = self._last
        try:
            count = self._gather()
        except (ColdError, OSError, StorageError):  # what there is leaves before the disk is asked
            if self._gathered and not self._send_gathered(before):
                return -1
            raise
        if self._gathered and not self._send_gathered(before):
            return -1
        if count < 0 and not self._send_alone():
            return -1
        return 0 if count and self._left > 0 and self._bytes_left > 0 else 1

    def _gather(self) -> _int:
        """Gather messages for an answer; how many. -1: the one in `record` is to follow alone."""
        record, portion = self.record, self._portion
        assert portion is not None
        self._gathered = 0
        while not self._has_enough(portion):
            if self._sequences is None and self._gather_run(portion):
                continue
            if not self._advance():
                break
            if record.end - record.header_start >= portion.large:
                return -1
            copy_message(record, self._scratch)
            self._gathered += 1
            self._pending -= 1
            self._note_sent()
        return self._gathered

    def _gather_run(self, portion: Portion) -> _int:
        """Gather the next messages as far as the log has them at hand; how many."""
        portion.messages = min(self._left, PIECE_MESSAGES - self._gathered)
        portion.bytes = self._bytes_left
        portion.end_seq = self.end_seq
        count = self.log.copy_near(self._next_seq, self._matching, portion, self._scratch)
        if count:
            self._gathered += count
            self._left -= count
            self._pending -= count
            self._bytes_left = portion.bytes
            self._last = portion.last_seq
            self._next_seq = self._last + 1
        return count

    def _has_enough(self, portion: Portion) -> bool:
        """Whether what was gathered is enough for an answer, or for the request."""
        if self._gathered >= PIECE_MESSAGES or self._scratch.size >= portion.size_max:
            return True
        return self._left <= 0 or self._bytes_left <= 0

    def _send_gathered(self, before: _int) -> _int:
        """Send what was gathered, which follows the message `before`; how many got it."""
        head = _PACK_HEAD % (self._gathered, self._pending, before)
        message = self._message
        message.data = head + self._scratch.take()
        message.header_start = 0
        message.body_start = len(head)
        message.end = len(message.data)
        return self.account.dispatch(self.account.route(self.reply), message)

    def _send_alone(self) -> _int:
        """Send the message in `record` as an answer of its own; how many got it."""
        self._pending -= 1
        heard = self._send(True)
        self._note_sent()
        return heard

    def _note_sent(self) -> _int:
        """The message in `record` is sent, or gathered to be; its bytes."""
        record = self.record
        length = len(record.subject) + record.end - record.header_start
        self._last = record.seq
        self._left -= 1
        self._bytes_left -= length
        return length

    def _advance(self) -> bool:
        """Bring the next message into `record`."""
        if self._sequences is not None:
            while self._sequences:
                found = self.log.read_near(self._sequences[0], self.record)
                del self._sequences[0]
                if found:
                    return True
            return False
        if not self.log.next_near(self._next_seq, self._matching, self.record):
            return False
        if self.record.seq > self.end_seq:
            return False
        self._next_seq = self.record.seq + 1
        return True

    def _continue_later(self) -> None:
        """Send more in this turn, or once the client has taken what it was sent."""
        for subscription in self.account.listeners(self.reply):
            session: Any = subscription.receiver
            pending = session.out.length() + session.transport.pending()
            if pending > BACKLOG_BYTES_MAX or session.has_enough():
                self.stream.engine.flush(session)
                session.on_drained(self.pump)
                return
        self.stream.turn.ready.append(self)

    def _send(self, with_batch: bool) -> _int:
        """Send the message in `record`; how many got it."""
        record = self.record
        message = self._message
        if self.plain:
            message.data = record.data
            message.header_start = message.body_start = record.body_start
            message.end = record.end
            return self.account.dispatch(self.account.route(self.reply), message)
        out = self._scratch
        if record.body_start > record.header_start:
            out.put_slice(record.data, record.header_start, record.body_start - 2)
        else:
            out.put(b"NATS/1.0\r\n")
        out.put(self._stream_head)
        out.put(record.subject)
        out.put(_SEQUENCE)
        out.put_int(record.seq)
        out.put(_TIME_STAMP)
        put_timestamp(out, record.ts)
        if with_batch:
            out.put(_NUM_PENDING)
            out.put_int(self._pending)
            out.put(_LAST_SEQUENCE)
            out.put_int(self._last)
        out.put(b"\r\n\r\n")
        message.header_start = 0
        message.body_start = out.size
        out.put_slice(record.data, record.body_start, record.end)
        message.data = out.take()
        message.end = len(message.data)
        return self.account.dispatch(self.account.route(self.reply), message)
