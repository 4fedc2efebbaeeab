"""Direct get: messages straight from the stream, one or a batch (spec streams.md 7.2, ADR-31).

A batch is sent in pieces of bounded size. After each piece it waits for the next turn, and for the
client to keep up, so that a large read costs neither memory nor other clients their turn.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.message import Inbound
from slipstream.engine.routing import Service
from slipstream.log.base import Log
from slipstream.log.record import Record
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.engine.stream import Stream

MULTI_SUBJECTS_MAX = 1024
PIECE_MESSAGES = 2048
PIECE_BYTES = 512 * 1024
BACKLOG_BYTES_MAX = 4 * 1024 * 1024


class DirectRequest(msgspec.Struct):
    """A request's body; unknown fields are ignored."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: datetime | None = None
    batch: int = 0
    max_bytes: int = 0
    multi_last: list[str] = []
    up_to_seq: int = 0
    up_to_time: datetime | None = None
    no_hdr: bool = False


def time_text(ns: int) -> str:
    """RFC 3339 in UTC with as many of nine digits as it takes; "0001-01-01T00:00:00Z" for 0."""
    if not ns:
        return "0001-01-01T00:00:00Z"
    seconds, rest = divmod(ns, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"


def time_ns(moment: datetime) -> int:
    """Nanoseconds since the epoch."""
    whole = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(whole.replace(microsecond=0).timestamp()) * 1_000_000_000 + whole.microsecond * 1000


class DirectGet(Service):
    """Answers direct gets of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.account = stream.account
        self._subject = f"$JS.API.DIRECT.GET.{stream.name}".encode()
        self.account.add_service(self._subject, self)
        self.account.add_service(self._subject + b".>", self)

    def stop(self) -> None:
        """Answer no more."""
        self.account.remove_service(self._subject, self)
        self.account.remove_service(self._subject + b".>", self)

    def handle(self, message: Inbound) -> int:
        if not message.reply:
            return 1
        by_subject = message.subject[len(self._subject) + 1 :]
        answer = Answer(self.stream, message.reply)
        level = self.stream.js.refused_level(message)
        if level:
            answer.status(b"412 Required Api Level")
            return 1
        body = message.body().strip()
        if not body and not by_subject:
            answer.status(b"408 Empty Request")
            return 1
        try:
            request = msgspec.json.decode(body, type=DirectRequest) if body else DirectRequest()
        except msgspec.MsgspecError:
            answer.status(b"408 Malformed Request")
            return 1
        if by_subject:
            if request != DirectRequest(no_hdr=request.no_hdr, max_bytes=request.max_bytes):
                answer.status(b"408 Bad Request")
                return 1
            request.last_by_subj = by_subject.decode("utf-8", "surrogateescape")
        if request == DirectRequest():
            answer.status(b"408 Empty Request")
            return 1
        self._answer(answer, request)
        return 1

    def _answer(self, answer: "Answer", request: DirectRequest) -> None:
        if _is_contradictory(request):
            answer.status(b"408 Bad Request")
        elif request.multi_last:
            answer.multi(request)
        elif request.batch:
            answer.batch(request)
        else:
            answer.single(request)


def _is_contradictory(request: DirectRequest) -> bool:
    asked = (request.seq, request.last_by_subj, request.next_by_subj, request.start_time)
    if request.multi_last:
        later = request.up_to_seq and request.up_to_time
        return bool(request.last_by_subj or request.next_by_subj or later)
    if not any(asked):
        return True
    if request.last_by_subj and (request.seq or request.next_by_subj or request.start_time):
        return True
    if request.seq and request.start_time:
        return True
    return bool(request.batch and request.last_by_subj)


class Answer:
    """The answer to one request, as far as it has come."""

    def __init__(self, stream: "Stream", reply: bytes) -> None:
        self.stream = stream
        self.reply = reply
        self.record = Record()
        self.left = 0  # messages still wanted
        self.bytes_left = 0
        self.pending = 0  # messages that match behind the last one sent
        self.last = 0  # sequence of the last one sent
        self.matching: Any = None
        self.next_seq = 0
        self.sequences: list[int] | None = None  # of a multi request
        self.up_to = 0
        self.plain = False
        self.message = Inbound(reply)
        self.scratch = OutBuffer()

    def status(self, line: bytes, *fields: tuple[bytes, int]) -> None:
        """End with a status message."""
        block = b"NATS/1.0 " + line + b"\r\n"
        block += b"".join(b"%b: %d\r\n" % field for field in fields) + b"\r\n"
        self.stream.account.send(self.reply, b"", block, b"")

    def single(self, request: DirectRequest) -> None:
        """One message."""
        self.plain = request.no_hdr
        if not find_message(self.stream.log, request, self.record):
            self.status(b"404 Message Not Found")
            return
        self._send(with_batch=False)

    def batch(self, request: DirectRequest) -> None:
        """Up to so many messages in order, then the end marker."""
        log = self.stream.log
        patterns = (request.next_by_subj.encode(),) if request.next_by_subj else ()
        start = log.seq_at(time_ns(request.start_time)) if request.start_time else request.seq
        self.matching = log.filter(patterns)
        self.plain = request.no_hdr
        self.left = request.batch
        self.bytes_left = request.max_bytes or self.stream.engine.options.max_pending
        if not log.next(max(start, 1), self.matching, self.record):
            self.status(b"404 Message Not Found")
            return
        self.next_seq = self.record.seq
        self.pending = log.count(patterns, self.next_seq)
        self._continue()

    def multi(self, request: DirectRequest) -> None:
        """The last message of each subject."""
        log = self.stream.log
        up_to = request.up_to_seq
        if request.up_to_time is not None:
            up_to = log.seq_at(time_ns(request.up_to_time) + 1) - 1
        self.up_to = up_to or log.last_seq
        patterns = tuple(subject.encode() for subject in request.multi_last)
        found = log.last_per_subject(patterns, self.up_to)
        if len(found) > MULTI_SUBJECTS_MAX:
            self.status(b"413 Too Many Results")
            return
        start = log.seq_at(time_ns(request.start_time)) if request.start_time else request.seq
        self.sequences = [seq for seq in found if seq >= start]
        if not self.sequences:
            self.status(b"404 No Results")
            return
        self.left = request.batch or len(self.sequences)
        self.bytes_left = request.max_bytes or self.stream.engine.options.max_pending
        self.pending = len(self.sequences)
        self.plain = request.no_hdr
        self._continue()

    def _continue(self) -> None:
        """Send the next piece; the rest follows in a later turn."""
        sent = 0
        size = 0
        log = self.stream.log
        while self.left > 0 and self.bytes_left > 0 and self._advance(log):
            self.pending -= 1
            if not self._send(with_batch=True):
                return  # nobody listens any more
            record = self.record
            length = len(record.subject) + record.end - record.header_start
            self.last = record.seq
            self.left -= 1
            self.bytes_left -= length
            size += length
            sent += 1
            if sent >= PIECE_MESSAGES or size >= PIECE_BYTES:
                if self.left > 0 and self.bytes_left > 0:
                    self._continue_later()
                    return
                break
        fields = [(b"Nats-Num-Pending", self.pending), (b"Nats-Last-Sequence", self.last)]
        if self.sequences is not None:
            fields.append((b"Nats-UpTo-Sequence", self.up_to))
        self.status(b"204 EOB", *fields)

    def _advance(self, log: Log) -> bool:
        """Bring the next message into `record`."""
        if self.sequences is not None:
            while self.sequences:
                if log.read(self.sequences.pop(0), self.record):
                    return True
            return False
        if not log.next(self.next_seq, self.matching, self.record):
            return False
        self.next_seq = self.record.seq + 1
        return True

    def _continue_later(self) -> None:
        for subscription in self.stream.account.route(self.reply).plain:
            session: Any = subscription.receiver
            if session.out.size + session.transport.pending() > BACKLOG_BYTES_MAX:
                self.stream.engine.flush(session)
                session.on_drained(self._continue)
                return
        self.stream.turn.ready.append(self)

    def pump(self) -> None:
        """Go on; the engine calls this in the next round of the turn."""
        if not self.stream.closed:
            self._continue()

    def _send(self, with_batch: bool) -> int:
        """Send the message in `record` with what is known of it as headers."""
        record = self.record
        message = self.message
        if self.plain:
            message.data = record.data
            message.header_start = message.body_start = record.body_start
            message.end = record.end
            return self.stream.account.dispatch(self.stream.account.route(self.reply), message)
        out = self.scratch
        if record.body_start > record.header_start:
            out.put_slice(record.data, record.header_start, record.body_start - 2)
        else:
            out.put(b"NATS/1.0\r\n")
        out.put(b"Nats-Stream: ")
        out.put(self.stream.name.encode())
        out.put(b"\r\nNats-Subject: ")
        out.put(record.subject)
        out.put(b"\r\nNats-Sequence: ")
        out.put_int(record.seq)
        out.put(b"\r\nNats-Time-Stamp: ")
        out.put(time_text(record.ts).encode())
        if with_batch:
            out.put(b"\r\nNats-Num-Pending: ")
            out.put_int(self.pending)
            out.put(b"\r\nNats-Last-Sequence: ")
            out.put_int(self.last)
        out.put(b"\r\n\r\n")
        message.header_start = 0
        message.body_start = out.size
        out.put_slice(record.data, record.body_start, record.end)
        message.data = out.take()
        message.end = len(message.data)
        return self.stream.account.dispatch(self.stream.account.route(self.reply), message)


def find_message(log: Log, request: DirectRequest, record: Record) -> bool:
    """Fill `record` with the one message that a request for one asks for."""
    if request.last_by_subj:
        seq = log.last_of(request.last_by_subj.encode("utf-8", "surrogateescape"))
        return bool(seq) and log.read(seq, record)
    start = log.seq_at(time_ns(request.start_time)) if request.start_time else request.seq
    if request.next_by_subj:
        return log.next(max(start, 1), log.filter((request.next_by_subj.encode(),)), record)
    if request.start_time:
        return log.next(start, None, record)
    return log.read(request.seq, record)
