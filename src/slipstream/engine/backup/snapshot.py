"""Sending a stream as an archive, in chunks that the receiver acknowledges.

    request ──> answer: configuration, state
    chunk, reply $JS.SNAPSHOT.ACK... <──acknowledged── ...     at most `window` bytes on their way
    last chunk without a reply, then an empty message: 204, or what went wrong

The archive is of one position: what the stream and its consumers were when the request was
answered. It is read and compressed in pieces, some at a time on threads of their own, while the
stream goes on; they are sent in order.
"""

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from slipstream.archive import s2
from slipstream.archive.entries import CONSUMER, MAGIC, STATE, put_content, put_end
from slipstream.archive.messages import DamagedMessageError, MessageWriter
from slipstream.engine.backup.positions import ConsumerCopy
from slipstream.engine.jetstream.advisories import PREFIX, client_info
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.stream.stream import Stream
from slipstream.errors import StorageError
from slipstream.log.frozen import Block, FrozenLog, find_damage
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import time_text
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import StreamState

CHUNK_BYTES, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 128 * 1024, 1024, 1024 * 1024
WINDOW_BYTES, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX = 8 * 1024 * 1024, 1024, 32 * 1024 * 1024
# Read and compressed at a time; with what entries may have more than records it is one block of S2.
PIECE_BYTES = s2.BLOCK_BYTES - 64 * 1024
AHEAD_BYTES = 4 * 1024 * 1024  # in pieces that are being written, beside the first of them
READY_BYTES_MAX = 2 * 1024 * 1024  # compressed ahead of what may be sent
SENT_PER_TURN = 2 * 1024 * 1024
NO_INTEREST_NS = 2 * SECOND
OWN_SUBSCRIPTION_NS = SECOND // 2
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


class _Piece:
    """A part of the archive, which a job writes and compresses; its own bytes are few."""

    def __init__(self, snapshot: "Snapshot", size: int = 0) -> None:
        self.size = size  # about so many bytes before they are compressed
        self.parts: list[bytes] = []
        self.error: Exception | None = None
        self.is_written = False
        self._snapshot = snapshot

    def run(self) -> None:
        """Write it, and keep the error; never raises."""
        try:
            self.write()
        except Exception as error:  # whatever it is, the receiver hears of it
            self.error = error

    def write(self) -> None:
        """Fill `parts`. Blocks; any thread. Raises OSError, `StorageError`."""

    def finish(self) -> None:
        """On the loop."""
        self.is_written = True
        self._snapshot.go_on()


class _Consumers(_Piece):
    """What stands before the messages, or as much of it as one piece has."""

    def __init__(self, snapshot: "Snapshot", archive: "_Archive") -> None:
        super().__init__(snapshot, PIECE_BYTES)
        self._archive = archive

    def write(self) -> None:
        archive = self._archive
        out = archive.head
        while archive.consumers and out.size < PIECE_BYTES:
            one = archive.consumers.popleft()
            put_content(out, CONSUMER + one.name.encode(), archive.now, one.entry())
        self.parts = s2.chunks(out.take())


class _Messages(_Piece):
    """A run of messages in one block."""

    def __init__(self, snapshot: "Snapshot", block: Block, run: tuple[int, int, int]) -> None:
        super().__init__(snapshot, run[2])
        self._block = block
        self._start, self._stop = run[:2]

    def write(self) -> None:
        writer = MessageWriter(self._block, self._start, self._stop)
        out = OutBuffer()
        while True:
            is_more = writer.write(out, PIECE_BYTES)
            self.parts += s2.chunks(out.take())
            if not is_more:
                break


class _Opening(_Piece):
    """Nothing of the archive by itself: the next block of messages is opened."""

    def __init__(self, snapshot: "Snapshot", frozen: FrozenLog, number: int) -> None:
        super().__init__(snapshot)
        self.block: Block | None = None
        self._frozen = frozen
        self._number = number

    def write(self) -> None:
        self.block = self._frozen.block(self._number)


class _End(_Piece):
    """The end of the archive, for which no job is needed."""

    def __init__(self, snapshot: "Snapshot") -> None:
        super().__init__(snapshot)
        out = OutBuffer()
        put_end(out)
        self.parts = s2.chunks(out.take())
        self.is_written = True


class _Ready:
    """Bytes that are ready to be sent, taken in chunks."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: deque[memoryview] = deque()

    def add(self, part: bytes) -> None:
        """Behind those that are there."""
        self.size += len(part)
        self._parts.append(memoryview(part))

    def take(self, size: int) -> bytes:
        """The first `size` bytes."""
        self.size -= size
        taken = []
        while size:
            part = self._parts.popleft()
            if len(part) > size:
                self._parts.appendleft(part[size:])
                part = part[:size]
            size -= len(part)
            taken.append(part)
        return b"".join(taken)

    def clear(self) -> None:
        """Nothing of it is wanted."""
        self.size = 0
        self._parts.clear()


class _Archive:
    """The archive of a stream, piece by piece; made on the loop, at the moment that counts.
    `state` is encoded, `now` the time of the entries (ns)."""

    def __init__(self, stream: Stream, no_consumers: bool, state: bytes, now: int) -> None:
        self.frozen = FrozenLog(stream.log)
        self.consumers: deque[ConsumerCopy] = deque()
        if not no_consumers:
            self.consumers.extend(ConsumerCopy(one) for one in stream.consumers.values())
        self.now = now
        self.head = OutBuffer()  # what stands before the messages, as far as it is written
        self.head.put(MAGIC)
        put_content(self.head, STATE, now, state)
        self._before: _Consumers | None = None  # the last piece before the messages
        self._openings: deque[_Opening] = deque()
        self._opened = 0  # blocks that were begun to be opened
        self._place = 0  # in the first of these, where the next piece begins
        self.ended = False  # there are no more pieces

    def next_piece(self, snapshot: "Snapshot") -> _Piece | None:
        """What is to be written next, beside the earlier ones; None if that cannot be known yet, or
        if there is no more."""
        before = self._before
        if before is None or (before.is_written and self.consumers):
            self._before = _Consumers(snapshot, self)
            return self._before
        if not before.is_written or self.ended:
            return None
        if len(self._openings) < 2 and self._opened < len(self.frozen):
            self._openings.append(_Opening(snapshot, self.frozen, self._opened))
            self._opened += 1
            return self._openings[-1]
        while self._openings:
            opening = self._openings[0]
            if opening.block is None:
                return None  # it takes a while, or has failed
            run = opening.block.next_run(self._place, PIECE_BYTES)
            if run[1]:
                self._place = run[1]
                return _Messages(snapshot, opening.block, run)
            self._openings.popleft()
            self._place = 0
            if self._opened < len(self.frozen):
                return self.next_piece(snapshot)
        self.ended = True
        return _End(snapshot)


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
        self._pieces: deque[_Piece] = deque()  # that are being written, in order
        self._ready = _Ready()  # compressed, and not sent
        self._ready.add(s2.NAME)
        self._sent = 0  # chunks that ask for an acknowledgement
        self._out: dict[int, int] = {}  # sizes of chunks that are not acknowledged, by number
        self._out_bytes = 0
        self._is_going = False
        self._is_more = False
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
        if not account.has_interest(self._deliver):
            self._wait(NO_INTEREST_NS, self._nobody)
        elif self._is_own_subscription_to_come():
            self._wait(OWN_SUBSCRIPTION_NS, self.go_on)
        else:
            self.go_on()

    def _is_own_subscription_to_come(self) -> bool:
        """Whether nobody listens but by a wildcard. Go's client, and so the `nats` tool, has one
        for all its answers, drops there what it does not expect, and subscribes to where the chunks
        go when it has the answer to its request."""
        listeners = self._stream.account.listeners(self._deliver)
        return bool(listeners) and all(one.subject != self._deliver for one in listeners)

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
        self._engine.timers.after(0, self.go_on)

    def _nobody(self) -> None:
        self._end(b"408 No Interest", "no interest")

    def _no_flow(self) -> None:
        self._end(b"408 No Flow Response", "no flow response")

    # -- sending -------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send what the window has room for, and have more written."""
        self._is_more = True
        if self._is_going:  # who is sent a chunk may acknowledge it at once, and jobs may end
            return
        self._is_going = True
        try:
            while self._is_more and not self.ended:
                self._is_more = False
                self._step()
        finally:
            self._is_going = False

    def _step(self) -> None:
        if not self._stream.account.has_interest(self._deliver):
            return  # the timer says when that is final
        if not self._take_pieces():
            return
        if self._send_some():
            self._engine.timers.after(0, self.go_on)
        elif self.archive.ended and not self._pieces:
            if self._ready.size < self._chunk:
                if self._ready.size:
                    self._publish(b"", b"", self._ready.take(self._ready.size))
                self._end(b"204" if self._sent else b"", "")
            return
        self._write_more()

    def _take_pieces(self) -> bool:
        """Take those that are written, in order; False if that was the end of it."""
        while self._pieces and self._pieces[0].is_written:
            piece = self._pieces.popleft()
            if piece.error is not None:
                self._refuse(piece.error)
                return False
            for part in piece.parts:
                self._ready.add(part)
        return True

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, DamagedMessageError):
            with suppress(OSError, StorageError):  # or the receiver would hear of nothing
                find_damage(self._stream.log, error.seq)
            self._fail(f"{error}, and counts as lost from now on; ask again for the others")
        else:
            self._fail(str(error) or type(error).__name__)

    def _write_more(self) -> None:
        """Have pieces written ahead of what may be sent."""
        while self._ready.size < READY_BYTES_MAX and not self.ended:
            if self._pieces and sum(piece.size for piece in self._pieces) >= AHEAD_BYTES:
                return
            if (piece := self.archive.next_piece(self)) is None:
                return
            self._pieces.append(piece)
            if piece.is_written:
                self._is_more = True
            else:
                self._engine.commit.run_beside(piece)

    def _send_some(self) -> bool:
        """Send chunks as far as the window goes; whether there are more for another turn."""
        sent = 0
        while self._ready.size >= self._chunk and self._out_bytes + self._chunk <= self._window:
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
        self._publish(reply.encode(), b"", self._ready.take(size))

    def _publish(self, reply: bytes, header: bytes, body: bytes) -> None:
        self._stream.account.send(self._deliver, reply, header, body)

    def handle(self, message: Inbound) -> int:
        """A chunk is acknowledged."""
        tokens = message.subject.split(b".")
        number = int(tokens[-1]) if tokens[-1].isdigit() and len(tokens[-1]) < 19 else 0
        size = self._out.pop(number, 0)
        if size:
            self._out_bytes -= size
            self._watch_flow()
            self.go_on()
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
