"""Taking an archive in: chunks come as requests, and in the end there is a stream or there is none.

    request ──> answer: where the chunks go
    chunk ──> answer, as soon as there is room for more
    empty message ──> the stream is durable, with its consumers: StreamInfo, or what went wrong

Chunks are unpacked on a thread into a directory that a crash removes, while another one writes what
was unpacked before. Once it is complete it gets its name, which is one step, and the stream starts
as it would with the server.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.backup.positions import ArchivedConsumer
from slipstream.engine.backup.unpacking import Unpacked, Writing
from slipstream.engine.consumer.checks import check_config
from slipstream.engine.consumer.config import fill_defaults
from slipstream.engine.consumer.restore import place_consumer, restore_consumers
from slipstream.engine.jetstream.advisories import PREFIX, client_info
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.sourcing.inflow import set_inflow
from slipstream.engine.stream.checks import check_overlap
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.retention import enforce_all
from slipstream.engine.stream.stream import Stream
from slipstream.errors import CorruptionError, Error, StorageError
from slipstream.log.base import Log
from slipstream.log.block_cache import BlockCache
from slipstream.log.commit_log import Removal
from slipstream.log.file_log import FileLog
from slipstream.log.memory_log import MemoryLog
from slipstream.log.stream_store import StreamStore
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream

IDLE_NS = 5 * SECOND
BACKLOG_BYTES_MAX = 8 * 1024 * 1024  # received and not unpacked, beyond which answers wait
BACKLOG_BYTES_FATAL = 64 * 1024 * 1024  # of a client that does not wait for answers
AT_ONCE_MAX = 16  # restores of one account
RESPONSE = "io.nats.jetstream.api.v1.stream_create_response"


class _Step:
    """One part of the work that blocks; `then` follows on the loop, with what went wrong."""

    def __init__(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        self._work = work
        self._then = then
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the step, and keep its error; never raises."""
        try:
            self._work()
        except Exception as error:  # whatever it is, the client hears of it
            self._error = error

    def finish(self) -> None:
        """On the loop."""
        self._then(self._error)


class Restore(Service):
    """One restore under way; the configuration was checked. `first_seq` is where the stream began
    when it was backed up, 0 if that is not said. Raises `ApiError`."""

    def __init__(
        self,
        js: "JetStream",
        config: StreamConfig,
        first_seq: int,
        session: Any,
        show: Callable[[Stream], Mapping[str, object]],
    ) -> None:
        if len([one for one in js.transfers if isinstance(one, Restore)]) >= AT_ONCE_MAX:
            raise ApiError(
                ErrorCode.STREAM_RESTORE,
                err=f"{AT_ONCE_MAX} restores are under way, ask again later",
            )
        self._js = js
        self._engine = js.engine
        self._config = config
        self._first_seq = first_seq
        self._show = show
        self._client = client_info(js, session)
        self._started = js.engine.clock.now
        self._created = js.new_created()
        self._id = js.engine.new_id()
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{self._id}"
        self._chunks: deque[bytes] = deque()  # received, and not unpacked
        self._taken: deque[bytes] = deque()  # that are being unpacked
        self._feeding: Iterator[Writing] | None = None  # the one before these
        self._to_write: Writing | None = None  # what comes of it next
        self._is_writing = False
        self._written: deque[Writing] = deque()  # which the log has to be told of
        self._backlog = 0  # bytes of both
        self._answers: list[bytes] = []  # reply subjects that wait
        self._received = 0
        self._is_working = False
        self._last = b""  # the reply subject of the end
        self._is_ending = False
        self._is_whole = False  # all that has come is unpacked ...
        self._is_complete = False  # ... and durable, with the consumers
        self._is_placed = False  # the stream is there, and is about to be durable
        self._error: Exception | None = None
        self._unpacked: Unpacked | None = None
        self._log: Log | None = None  # of the stream, opened at its place
        self._store: StreamStore | None = None
        self._leaving: Removal | None = None  # an earlier one of its name that is on its way out
        self._timer: Any = None
        self.ended = False
        js.transfers.add(self)
        js.account.add_service(self.subject.encode(), self)
        fields = {"stream": config.name, "client": self._client}
        self._advise("RESTORE_CREATE", "restore_create", fields)
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.timers.after(IDLE_NS, self._silent)

    def _silent(self) -> None:
        """The client has stopped sending, or the disk is slow."""
        if self._is_working or self._is_writing or self._is_placed:
            self._wait()
        else:
            self._end(ApiError(ErrorCode.STREAM_RESTORE, err="the client has stopped sending"))

    # -- receiving -----------------------------------------------------------------------------

    def handle(self, message: Inbound) -> int:
        """A chunk; without a body it is the end."""
        if self.ended or self._last:
            return 1
        self._wait()
        chunk = message.body()
        if not chunk:
            self._last = message.reply or b"-"
        elif self._error is not None:
            self._last = message.reply or b"-"  # it hears at once that there is no use in more
        else:
            self._received += len(chunk)
            self._backlog += len(chunk)
            self._chunks.append(chunk)
            self._answer_later(message.reply)
        self._go_on()
        return 1

    def _answer_later(self, reply: bytes) -> None:
        if self._backlog > BACKLOG_BYTES_FATAL:
            self._error = self._error or StorageError("chunks come without waiting for answers")
        elif self._backlog > BACKLOG_BYTES_MAX:
            self._answers.append(reply)
        elif reply:
            self._js.account.send(reply, b"", b"", b"")

    def _go_on(self) -> None:
        if self._is_working or self.ended:
            return
        if self._to_write is not None and not self._is_writing:
            self._have_written(self._to_write)
        if self._error is not None:
            self._chunks.clear()
            if self._last and not self._is_writing:
                self._end(self._error)
        elif self._chunks or self._taken or self._feeding is not None:
            if self._to_write is None:
                self._taken += self._chunks
                self._chunks.clear()
                self._start(self._unpack, self._unpacked_some, beside=True)
        elif self._last and not self._is_ending and not self._is_writing:
            self._is_ending = True
            self._start(self._finish_unpacking, self._unpacked_all)

    def _start(
        self,
        work: Callable[[], None],
        then: Callable[[Exception | None], None],
        beside: bool = False,
    ) -> None:
        """Have some work done, most of it on the disk or, if it is `beside`, on a processor."""
        self._is_working = True

        def done(error: Exception | None) -> None:
            self._is_working = False
            if self.ended:  # JetStream has stopped meanwhile
                self._discard_at_rest()
            else:
                then(error)

        commit = self._engine.commit
        (commit.run_beside if beside else commit.run_aside)(_Step(work, done))

    def _have_written(self, writing: Writing) -> None:
        """Have something written while more is unpacked."""
        self._to_write = None
        self._is_writing = True

        def done(error: Exception | None) -> None:
            self._is_writing = False
            self._written.append(writing)
            if self.ended:
                self._discard_at_rest()
            else:
                self._go_on()

        self._engine.commit.run_aside(_Step(writing.run, done))

    def _unpack(self) -> None:
        """On a thread: what has come so far, up to where something is to be written."""
        unpacked = self._begun()
        self._tell_written(unpacked)
        while self._feeding is not None or self._taken:
            if self._feeding is None:
                self._feeding = unpacked.feed(self._taken[0])
            self._to_write = next(self._feeding, None)
            if self._to_write is not None:
                return
            self._feeding = None
            self._taken.popleft()

    def _tell_written(self, unpacked: Unpacked) -> None:
        while self._written:
            unpacked.written(self._written.popleft())

    def _begun(self) -> Unpacked:
        """On a thread."""
        if self._unpacked is None:
            js, config = self._js, self._config
            staged = None
            if config.storage != "memory" and js.store is not None:
                place = js.store.stream(js.account.name, config.name)
                staged = place.stage(self._id, self._created)
            room = js.room_for(config.storage)
            self._unpacked = Unpacked(staged, config.first_seq, self._first_seq, room)
        return self._unpacked

    def _unpacked_some(self, error: Exception | None) -> None:
        if error is not None:
            self._error = self._error or error
            self._feeding = self._to_write = None
            self._taken.clear()
        self._backlog = sum(map(len, self._taken)) + sum(map(len, self._chunks))
        if self._backlog <= BACKLOG_BYTES_MAX:
            answers, self._answers = self._answers, []
            for reply in answers:
                if reply:
                    self._js.account.send(reply, b"", b"", b"")
        self._go_on()

    # -- completing ----------------------------------------------------------------------------

    def _finish_unpacking(self) -> None:
        """On a thread: the archive has to be whole."""
        unpacked = self._begun()
        self._tell_written(unpacked)
        self._is_whole = unpacked.finish()

    def _unpacked_all(self, error: Exception | None) -> None:
        """Look at the consumers before anything of them is kept."""
        if error is not None:
            self._end(error)
            return
        if not self._is_whole:
            self._start(self._finish_unpacking, self._unpacked_all)
            return
        try:
            self._check_consumers()
        except (OSError, Error) as refused:
            self._end(refused)
            return
        self._start(self._complete, self._completed)

    def _check_consumers(self) -> None:
        """Raises `CorruptionError` for one that could not be created."""
        assert self._unpacked is not None
        js, config = self._js, self._config
        stand_in = Stream(js, config, MemoryLog(), None, self._created)
        try:
            for archived in self._unpacked.consumers.values():
                wanted = archived.config
                if wanted.num_replicas > config.num_replicas:
                    wanted.num_replicas = 0  # as the stream
                server = self._engine.options.jetstream_limits
                fill_defaults(wanted, config.consumer_limits, server, js.limits)
                check_config(stand_in, wanted)
        except ApiError as refused:
            raise CorruptionError(f"consumer {archived.name}: {refused}") from refused
        finally:
            stand_in.stop()

    def _complete(self) -> None:
        """On a thread."""
        self._is_complete = self._begun().complete(self._created)

    def _completed(self, error: Exception | None) -> None:
        """All is there, under a name that does not count; take the real one, if it is free."""
        unpacked = self._unpacked
        if error is not None or unpacked is None:
            self._end(error or StorageError("nothing was unpacked"))
            return
        if not self._is_complete:
            self._start(self._complete, self._completed)
            return
        js, config = self._js, self._config
        try:
            if config.name in js.streams or config.name in js.arriving:
                raise ApiError(ErrorCode.STREAM_NAME_EXIST_RESTORE_FAILED)
            js.check_account(config, is_new=True)
            self._check_count(len(unpacked.consumers))
            if js.has_storage_limits:
                js.check_storage(config.storage, unpacked.log.bytes)
            check_overlap(config, js.claims)
            if unpacked.staged is not None:
                store = js.store
                assert store is not None
                self._store = store.stream(js.account.name, config.name)
                self._store.belongs_to(self._created)
                self._leaving = js.state.leaving(self._store.path)
        except (Error, OSError, ApiError) as refused:
            self._end(refused)
            return
        js.arriving.add(config.name)
        js.claims.add(config.name, config.subjects)
        self._start(self._adopt, self._adopted)

    def _check_count(self, consumers: int) -> None:
        """Whether the account may have so many consumers more. Raises `ApiError`."""
        most = self._js.limits.max_consumers
        there = sum(len(stream.consumers) for stream in self._js.streams.values())
        own = self._config.max_consumers
        if (0 <= most < there + consumers) or 0 < own < consumers:
            raise ApiError(ErrorCode.MAXIMUM_CONSUMERS_LIMIT)

    def _adopt(self) -> None:
        """On a thread: the step that makes it count, and what a start of the server does."""
        unpacked = self._unpacked
        assert unpacked is not None
        if self._store is None or unpacked.staged is None:
            self._log = unpacked.log
            return
        if self._leaving is not None:
            self._leaving.free()
        meta = msgspec.json.encode({"config": self._config.emit(), "created": self._created})
        self._store.adopt(unpacked.staged, meta)
        unpacked.staged = None
        self._store.meta.load()
        self._log = self._store.open_log(self._config.first_seq or 1, BlockCache())

    def _adopted(self, error: Exception | None) -> None:
        js, config = self._js, self._config
        js.arriving.discard(config.name)
        js.claims.remove(config.name, config.subjects)
        if error is not None or self._log is None:
            if self._store is not None and self._unpacked and self._unpacked.staged is None:
                self._unpacked.staged = self._store  # it has its name, and is to go
            self._end(error or StorageError("nothing was opened"))
            return
        if self._store is not None and isinstance(self._log, FileLog):
            self._store.share_cache(self._log)
        stream = Stream(js, config, self._log, self._store, self._created)
        stream.shows_front = True
        js.take_in(stream)
        self._place_consumers(stream)
        enforce_all(stream)
        set_inflow(stream, is_restored=True)
        js.advisories.stream_action("CREATED", "create", stream.name)
        self._unpacked = None
        self._is_placed = True
        stream.when_durable(lambda failed: self._end(failed, stream))

    def _place_consumers(self, stream: Stream) -> None:
        """Start the consumers: those with files as a start of the server does, then the others."""
        assert self._unpacked is not None
        restore_consumers(stream)
        for archived in self._unpacked.consumers.values():
            if archived.name not in stream.consumers:
                self._place(stream, archived)
        for name in list(stream.consumers):
            js = self._js
            js.advisories.consumer_action("CREATED", "create", stream.name, name)

    def _place(self, stream: Stream, archived: ArchivedConsumer) -> None:
        position = archived.position(stream.log, self._created)
        place_consumer(stream, archived.name, archived.config, self._created, position)

    # -- the end -------------------------------------------------------------------------------

    def _end(self, error: Exception | None, stream: Stream | None = None) -> None:
        reply = self._last
        self._leave()
        unpacked, self._unpacked = self._unpacked, None
        if unpacked is not None:
            self._engine.commit.run_aside(_Step(unpacked.discard, lambda error: None))
        answer: dict[str, Any] = {"type": RESPONSE}
        if error is not None:
            refused = error if isinstance(error, ApiError) else None
            if refused is None or refused.err_code != ErrorCode.STREAM_NAME_EXIST_RESTORE_FAILED:
                refused = _failed(error)
            answer["error"] = refused.body
        elif stream is not None:
            answer.update(self._show(stream))
        now = self._engine.clock.now
        fields = {
            "stream": self._config.name,
            "start": time_text(self._started),
            "end": time_text(now),
            "bytes": self._received,
            "client": self._client,
        }
        self._advise("RESTORE_COMPLETE", "restore_complete", fields)
        if reply not in (b"", b"-"):
            self._js.account.send(reply, b"", b"", msgspec.json.encode(answer))

    def _advise(self, event: str, kind: str, fields: dict[str, Any]) -> None:
        subject = f"{PREFIX}.STREAM.{event}.{self._config.name}"
        self._js.advisories.publish(subject, f"advisory.v1.{kind}", fields)

    def look(self) -> None:
        """A stream was deleted, which is of no interest here."""

    def stop(self) -> None:
        """JetStream stops: what was unpacked goes, unless it is a stream already. Blocks."""
        if self.ended:
            return
        self._leave()
        self._discard_at_rest()

    def _leave(self) -> None:
        """Take nothing any more."""
        self.ended = True
        self._chunks.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._js.account.remove_service(self.subject.encode(), self)
        self._js.transfers.discard(self)

    def _discard_at_rest(self) -> None:
        """Nothing of it is wanted, once no thread is at it."""
        if self._is_working or self._is_writing:
            return
        unpacked, self._unpacked = self._unpacked, None
        if unpacked is not None:
            unpacked.discard()


def _failed(error: Exception) -> ApiError:
    """What the client is told of a restore that has failed."""
    if isinstance(error, ApiError):
        return ApiError(
            ErrorCode.STREAM_RESTORE, err=f"error adding stream: {error} ({error.err_code})"
        )
    return ApiError(ErrorCode.STREAM_RESTORE, err=str(error) or type(error).__name__)
