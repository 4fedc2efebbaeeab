"""Sending a stream as an archive, in chunks that the receiver acknowledges.

    request ──> answer: configuration, state
    chunk, reply $JS.SNAPSHOT.ACK... <──acknowledged── ...     at most `window` bytes on their way
    last chunk without a reply, then an empty message: 204, or what went wrong

The archive is of one position: what the stream and its consumers were when the request was
answered. It is read and compressed piece by piece on a thread, while the stream goes on.
"""

from typing import TYPE_CHECKING, Any, Protocol

from slipstream.archive.entries import CONSUMER, MAGIC, STATE, put_content, put_end
from slipstream.archive.messages import DamagedMessageError, MessageWriter
from slipstream.archive.s2 import S2Writer
from slipstream.engine.backup.positions import ConsumerCopy
from slipstream.engine.jetstream.advisories import PREFIX, client_info
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.stream.stream import Stream
from slipstream.log.frozen import FrozenLog, find_damage
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import time_text
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import StreamState

CHUNK_BYTES, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 128 * 1024, 1024, 1024 * 1024
WINDOW_BYTES, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX = 8 * 1024 * 1024, 1024, 32 * 1024 * 1024
PIECE_BYTES = 1024 * 1024  # read and compressed at a time
READY_BYTES_MAX = 2 * 1024 * 1024  # compressed ahead of what may be sent
SENT_PER_TURN = 2 * 1024 * 1024
NO_INTEREST_NS = 2 * SECOND
NO_FLOW_NS = 5 * SECOND
AT_ONCE_MAX = 16  # snapshots of one account


class Asked(Protocol):
    """What the request says."""

    deliver_subject: str
    no_consumers: bool
    chunk_size: int
    window_size: int


def _within(asked: int, default: int, least: int, most: int) -> int:
    return min(max(asked, least), most) if asked > 0 else default


class _Archive:
    """Writes the archive of a stream, piece by piece; made on the loop, at the moment that counts.
    `state` is encoded, `now` the time of the entries (ns)."""

    def __init__(self, stream: Stream, no_consumers: bool, state: bytes, now: int) -> None:
        self.frozen = FrozenLog(stream.log)
        self._consumers: list[ConsumerCopy] = []
        if not no_consumers:
            self._consumers = [ConsumerCopy(one) for one in stream.consumers.values()]
        self._now = now
        self._out = OutBuffer()
        self._out.put(MAGIC)
        put_content(self._out, STATE, now, state)
        self._frames = S2Writer()
        self._next_block = 0
        self._writer: MessageWriter | None = None
        self.ended = False

    def piece(self) -> bytes:
        """The next piece, compressed. Blocks. Raises OSError, `StorageError`."""
        out = self._out
        while out.size < PIECE_BYTES and not self.ended:
            if self._consumers:
                one = self._consumers.pop(0)
                put_content(out, CONSUMER + one.name.encode(), self._now, one.entry())
                continue
            if self._writer is None:
                if self._next_block == len(self.frozen):
                    put_end(out)
                    self.ended = True
                    break
                self._writer = MessageWriter(self.frozen.block(self._next_block))
                self._next_block += 1
            if not self._writer.write(out, PIECE_BYTES):
                self._writer = None
        return self._frames.write(out.take())


class _PieceJob:
    """Has the next piece written, on a thread."""

    def __init__(self, snapshot: "Snapshot") -> None:
        self._snapshot = snapshot
        self.piece = b""
        self.error: Exception | None = None

    def run(self) -> None:
        """Write the next piece, and keep the error; never raises."""
        try:
            self.piece = self._snapshot.archive.piece()
        except Exception as error:  # whatever it is, the receiver hears of it
            self.error = error

    def finish(self) -> None:
        """On the loop."""
        self._snapshot.take(self)


class Snapshot(Service):
    """One snapshot on its way. Raises `ApiError`, `StorageError` if it cannot begin."""

    def __init__(
        self, stream: Stream, asked: Asked, state: "StreamState", encoded: bytes, session: Any
    ) -> None:
        js: JetStream = stream.js  # type: ignore[assignment]
        if len([one for one in js.transfers if isinstance(one, Snapshot)]) >= AT_ONCE_MAX:
            raise ApiError(
                ErrorCode.STREAM_SNAPSHOT,
                err=f"{AT_ONCE_MAX} snapshots are under way, ask again later",
            )
        self._js = js
        self._stream = stream
        self._engine = stream.engine
        self._deliver = asked.deliver_subject.encode()
        self._chunk = _within(asked.chunk_size, CHUNK_BYTES, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
        window = _within(asked.window_size, WINDOW_BYTES, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
        self._window = max(window, self._chunk)
        self._state = state
        self._client = client_info(js, session)
        self._started = stream.clock.now
        self._ack_subject = f"$JS.SNAPSHOT.ACK.{stream.name}.{self._engine.new_id()}"
        self._ready = bytearray()  # compressed, and not sent
        self._sent = 0  # chunks that ask for an acknowledgement
        self._out: dict[int, int] = {}  # sizes of chunks that are not acknowledged, by number
        self._out_bytes = 0
        self._is_writing = False
        self._is_sending = False
        self._timer: Any = None
        self.ended = False
        self.archive = _Archive(stream, asked.no_consumers, encoded, self._started)
        stream.mark_dirty()
        js.transfers.add(self)

    def begin(self) -> None:
        """The request is answered: send, as soon as somebody listens."""
        if self.ended:
            return
        account = self._stream.account
        account.add_service(self._ack_subject.encode() + b".>", self)
        fields = {"stream": self._stream.name, "state": self._state, "client": self._client}
        self._advise("SNAPSHOT_CREATE", "snapshot_create", fields)
        account.watch_interest(self._deliver, self._look_at_interest)
        if account.has_interest(self._deliver):
            self._go_on()
        else:
            self._wait(NO_INTEREST_NS, self._nobody)

    def _wait(self, delay: int, then: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.timers.after(delay, then)

    def _watch_flow(self) -> None:
        """A client that has chunks to acknowledge has its time for the next one."""
        if self._out:
            self._wait(NO_FLOW_NS, self._no_flow)
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_interest(self) -> None:
        """Somebody has subscribed to where the chunks go, or does not any more."""
        if self.ended:
            return
        if not self._stream.account.has_interest(self._deliver):
            self._wait(NO_INTEREST_NS, self._nobody)
            return
        self._watch_flow()
        self._engine.timers.after(0, self._go_on)

    def _nobody(self) -> None:
        self._end(b"408 No Interest", "no interest")

    def _no_flow(self) -> None:
        self._end(b"408 No Flow Response", "no flow response")

    # -- sending -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Send what the window has room for, and have more written."""
        if self.ended or self._is_sending:
            return
        if not self._stream.account.has_interest(self._deliver):
            return  # the timer says when that is final
        self._is_sending = True  # who is sent a chunk may acknowledge it at once
        is_more = self._send_some()
        self._is_sending = False
        if is_more:
            self._engine.timers.after(0, self._go_on)
        elif self.archive.ended and not self._is_writing:
            if len(self._ready) < self._chunk:
                if self._ready:
                    self._publish(b"", b"", bytes(self._ready))
                self._end(b"204" if self._sent else b"", "")
        elif not self._is_writing and len(self._ready) < READY_BYTES_MAX:
            self._is_writing = True
            self._engine.commit.run_aside(_PieceJob(self))

    def _send_some(self) -> bool:
        """Send chunks as far as the window goes; whether there are more for another turn."""
        sent = 0
        while len(self._ready) >= self._chunk and self._out_bytes + self._chunk <= self._window:
            if sent >= SENT_PER_TURN:
                return True
            sent += self._chunk
            self._send_chunk()
        return False

    def _send_chunk(self) -> None:
        size = self._chunk
        self._sent += 1
        if not self._out:
            self._wait(NO_FLOW_NS, self._no_flow)
        self._out[self._sent] = size
        self._out_bytes += size
        reply = f"{self._ack_subject}.{size}.{self._sent}"
        chunk = bytes(self._ready[:size])
        del self._ready[:size]
        self._publish(reply.encode(), b"", chunk)

    def _publish(self, reply: bytes, header: bytes, body: bytes) -> None:
        self._stream.account.send(self._deliver, reply, header, body)

    def take(self, job: _PieceJob) -> None:
        """A piece is written."""
        self._is_writing = False
        if self.ended:
            return
        if isinstance(job.error, DamagedMessageError):
            find_damage(self._stream.log, job.error.seq)
            self._fail(f"{job.error}, and counts as lost from now on; ask again for the others")
        elif job.error is not None:
            self._fail(str(job.error) or type(job.error).__name__)
        else:
            self._ready += job.piece
            self._go_on()

    def handle(self, message: Inbound) -> int:
        """A chunk is acknowledged."""
        tokens = message.subject.split(b".")
        number = int(tokens[-1]) if tokens[-1].isdigit() and len(tokens[-1]) < 19 else 0
        size = self._out.pop(number, 0)
        if size:
            self._out_bytes -= size
            self._watch_flow()
            self._go_on()
        return 1

    def look(self) -> None:
        """A stream was deleted."""
        if self._stream.closed and not self.ended:
            self._fail(f"stream {self._stream.name} was deleted")

    # -- the end -------------------------------------------------------------------------------

    def _fail(self, why: str) -> None:
        text = why.encode().replace(b"\r", b" ").replace(b"\n", b" ")
        self._end(b"500 " + text, why)

    def _end(self, status: bytes, error: str) -> None:
        self._publish(b"", b"NATS/1.0 " + status + b"\r\n\r\n" if status else b"", b"")
        self.stop()
        now = self._stream.clock.now
        fields = {
            "stream": self._stream.name,
            "start": time_text(self._started),
            "end": time_text(now),
            "client": self._client,
        }
        if error:
            fields["error"] = error
        self._advise("SNAPSHOT_COMPLETE", "snapshot_complete", fields)

    def _advise(self, event: str, kind: str, fields: dict[str, Any]) -> None:
        subject = f"{PREFIX}.STREAM.{event}.{self._stream.name}"
        self._js.advisories.publish(subject, f"advisory.v1.{kind}", fields)

    def stop(self) -> None:
        """Send nothing any more."""
        if self.ended:
            return
        self.ended = True
        self._ready.clear()
        if self._timer is not None:
            self._timer.cancel()
        account = self._stream.account
        account.remove_service(self._ack_subject.encode() + b".>", self)
        account.unwatch_interest(self._deliver, self._look_at_interest)
        self.archive.frozen.release()
        self._stream.mark_dirty()  # files that were kept for it may go
        self._js.transfers.discard(self)
