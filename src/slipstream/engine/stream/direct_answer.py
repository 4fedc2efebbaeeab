"""The answer to a direct get, as far as it has come (docs/protocol/streams.md#direct-get, ADR-31).

A batch is sent in pieces of bounded size. After each piece it waits for the next turn, and for the
client to keep up, so that a large read costs neither memory nor other clients their turn.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.session.message import Inbound
from slipstream.errors import StorageError
from slipstream.log.cold import ColdError
from slipstream.log.record import Record
from slipstream.log.subject_index import SubjectFilter
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
    NATS_UPTO_SEQUENCE,
)
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.timestamps import put_timestamp

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

PIECE_MESSAGES: _int = 2048
PIECE_BYTES: _int = 512 * 1024
BACKLOG_BYTES_MAX: _int = 4 * 1024 * 1024
_SEQUENCE = b"\r\n%b: " % NATS_SEQUENCE
_TIME_STAMP = b"\r\n%b: " % NATS_TIME_STAMP
_NUM_PENDING = b"\r\n%b: " % NATS_NUM_PENDING
_LAST_SEQUENCE = b"\r\n%b: " % NATS_LAST_SEQUENCE


class Answer:
    """What one request of `session` (None: nobody's) gets; `record` is the message that is sent
    next."""

    def __init__(self, stream: "Stream", reply: bytes, session: Any) -> None:
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
        self._stream_head = b"%b: %b\r\n%b: " % (
            NATS_STREAM,
            stream.name.encode(),
            NATS_SUBJECT,
        )

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
            state = self._piece()
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
        record = self.record
        sent = 0
        size = 0
        while self._left > 0 and self._bytes_left > 0 and self._advance():
            self._pending -= 1
            if not self._send(True):
                return -1
            length = len(record.subject) + record.end - record.header_start
            self._last = record.seq
            self._left -= 1
            self._bytes_left -= length
            size += length
            sent += 1
            if sent >= PIECE_MESSAGES or size >= PIECE_BYTES:
                return 0 if self._left > 0 and self._bytes_left > 0 else 1
        return 1

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
