"""An archive that comes in pieces becomes a log with its consumers: the part that blocks.

Nobody else sees the log meanwhile, so all of it may run on a thread. In files it lies in a
directory that the next start removes, until it is complete. What is stored is written and synced in
batches, for each of which another thread may take its time: more is unpacked meanwhile.
"""

from collections.abc import Iterator

import msgspec

from slipstream.archive.entries import CONSUMER, MAGIC, STATE, EntryReader
from slipstream.archive.file_store import StreamFiles, consumers, store_blocks
from slipstream.archive.messages import skip_to, store_messages
from slipstream.archive.s2 import S2Reader
from slipstream.archive.tar import KeptInMemory, TarFiles
from slipstream.engine.backup.positions import ArchivedConsumer, read_entry
from slipstream.errors import CorruptionError, DiskFullError, Error
from slipstream.log.base import Log
from slipstream.log.disk import File
from slipstream.log.durability import Job, SyncBatch, Touched
from slipstream.log.file_log import FileLog
from slipstream.log.memory_log import MemoryLog
from slipstream.log.record import Record
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.log.stream_store import StreamStore
from slipstream.model.times import text_ns
from slipstream.wire.subjects import is_name

WRITTEN_AT_ONCE = 8 * 1024 * 1024
CONSUMERS_AT_ONCE = 200  # whose files are written in one go: others wait for the thread
TAR_IN_MEMORY_MAX = 1024 * 1024 * 1024
TAR_OVERHEAD_MAX = 64 * 1024 * 1024  # beside twice what the stream may hold
CONSUMERS_MAX = 100_000
CONSUMER_BYTES_MAX = 64 * 1024 * 1024


class _State(msgspec.Struct):
    """What counts of the stream's state."""

    last_seq: int = 0
    last_ts: str = ""


class Writing:
    """What a log wants written, while more is stored in it."""

    def __init__(self, batch: SyncBatch | None, jobs: list[Job]) -> None:
        self.batch = batch
        self.jobs = jobs

    def run(self) -> None:
        """Write it, and sync it. Blocks; any thread. Never raises: see `Unpacked.written`."""
        if self.batch is not None:
            self.batch.run()
        for job in self.jobs:
            job.run()


class Unpacked:
    """What has come so far. `staged` has the files; None for a stream in memory.
    `config_first` is where its configuration has it begin, `state_first` where it began when it was
    backed up (0: not known), `bytes_max` how much the log may hold, -1 for no bound."""

    def __init__(
        self, staged: StreamStore | None, config_first: int, state_first: int, bytes_max: int
    ) -> None:
        self.staged = staged
        self.consumers: dict[str, ArchivedConsumer] = {}
        self.log: Log
        if staged is not None:
            self.log = staged.open_log(max(config_first, 1))
        else:
            self.log = MemoryLog(max(config_first, 1))
        self._bytes_max = bytes_max
        self._frames = S2Reader()
        self._entries = EntryReader()
        self._record = Record()
        self._last_seq = self._last_ts = 0  # as the state says it
        self._has_state = False
        self._first_seq = state_first
        self._is_begun = False
        self._head = b""  # what has come before that
        self._tar: TarFiles | None = None
        self._files: Iterator[int] | None = None  # what is left to do with these
        self._spool: File | None = None
        self._completing: Iterator[int] | None = None

    def feed(self, piece: bytes) -> Iterator[Writing]:
        """Store more of the archive, up to where this gives what is to be written: the caller has
        that done, tells `written`, and may go on meanwhile. All of it has to be taken before the
        next piece. Blocks. Raises OSError, `StorageError`."""
        for block in self._frames.feed(piece):
            if not self._is_begun and not self._begin(block):
                continue
            if self._tar is not None:
                self._tar.feed(self._head or block)
                self._check_tar(self._tar)
            else:
                self._entries.feed(self._head or block)
                while store_messages(self._entries, self._record, self.log):
                    self._take(self._record)
                self._check_room()
                if self.log.unwritten() >= WRITTEN_AT_ONCE:
                    yield Writing(self.log.prepare_sync(), self.log.take_jobs())
            self._head = b""

    def written(self, writing: Writing) -> None:
        """It has run. Raises `StorageError` for what it could not write."""
        if writing.batch is not None:
            self.log.finish_sync(writing.batch)
        for job in writing.jobs:
            job.finish()

    def _begin(self, block: bytes) -> bool:
        """Find out which kind of archive it is; False while too little of it has come."""
        self._head += block
        self._is_begun = len(self._head) >= len(MAGIC)
        if self._is_begun and not self._head.startswith(MAGIC):
            staged = self.staged
            self._spool = staged.spool() if staged is not None else None
            self._tar = TarFiles(self._spool or KeptInMemory())
        return self._is_begun

    def _check_room(self) -> None:
        if 0 <= self._bytes_max < self.log.bytes:
            raise DiskFullError("the account may not store that much")

    def _check_tar(self, tar: TarFiles) -> None:
        """A small archive may unpack to a thousand times its size."""
        bounds = [2 * self._bytes_max + TAR_OVERHEAD_MAX] if self._bytes_max >= 0 else []
        if self.staged is None:
            bounds.append(TAR_IN_MEMORY_MAX)
        if bounds and tar.size > min(bounds):
            raise DiskFullError("the account may not store that much, nor memory hold it")

    def _write(self) -> None:
        """Have the log on disk as far as it goes."""
        writing = Writing(self.log.prepare_sync(), [])
        writing.run()
        self.written(writing)
        self.log.do_jobs()

    def _take(self, record: Record) -> None:
        if self._has_state:
            self._take_consumer(record)
            return
        if record.subject != STATE:
            raise CorruptionError("the archive does not begin with the stream's state")
        try:
            state = msgspec.json.decode(record.body(), type=_State)
            self._last_seq = state.last_seq
            self._last_ts = max(text_ns(state.last_ts), 0) if state.last_ts else 0
        except (msgspec.MsgspecError, ValueError) as error:
            raise CorruptionError(f"the archive's state cannot be read: {error}") from error
        if not 0 <= self._last_seq <= SEQUENCE_MAX:
            raise CorruptionError("the archive's state names a sequence that cannot be")
        self._has_state = True

    def _take_consumer(self, record: Record) -> None:
        name = record.subject.removeprefix(CONSUMER).decode("utf-8", "replace")
        if not record.subject.startswith(CONSUMER) or not is_name(name):
            raise CorruptionError(f"the archive has an entry of an unknown kind: {name[:80]!r}")
        if name in self.consumers or len(self.consumers) == CONSUMERS_MAX:
            raise CorruptionError(f"the archive has consumer {name} twice, or too many of them")
        if record.end - record.body_start > CONSUMER_BYTES_MAX:
            raise CorruptionError(f"the archive's consumer {name} is larger than one can be")
        self.consumers[name] = read_entry(name, record.body())

    def finish(self) -> bool:
        """Store what is left of an archive that has come whole; False while there is more to do.

        Blocks. Raises OSError, `StorageError`, also if the archive is not whole.
        """
        self._frames.finish()
        if self._tar is not None:
            if self._files is None:
                self._files = self._take_files(self._tar)
            return next(self._files, None) is None
        if not self._entries.ended:
            raise CorruptionError("the archive is cut off")
        if not self._has_state:
            raise CorruptionError("the archive has no state")
        self.log.last_ts = max(self.log.last_ts, self._last_ts)
        skip_to(self.log, self._last_seq, self.log.last_ts)
        return True

    def _take_files(self, files: TarFiles) -> Iterator[int]:
        """The archive is a directory of nats-server 2.14 or earlier: take it block by block."""
        files.finish()
        if "meta.inf" not in files.names():
            raise CorruptionError("the archive is tar, and not of a stream: it has no meta.inf")
        yield from self.take_directory(files)

    def take_directory(self, files: StreamFiles) -> Iterator[int]:
        """A directory of nats-server's file store is all there is to come: take it block by block.
        Blocks. Raises OSError, `StorageError`."""
        for name, entry in consumers(files):
            if is_name(name):
                self.consumers[name] = read_entry(name, entry)
        for last_seq in store_blocks(files, self.log, self._first_seq):
            skip_to(self.log, last_seq, self.log.last_ts)
            self._check_room()
            self._write()
            yield last_seq

    def complete(self, created: int) -> bool:
        """Have everything durable, and the log's files closed; False if it is to be called again,
        as there is much to do. Blocks. Raises OSError, `StorageError`."""
        if self._completing is None:
            self._completing = self._complete(created)
        return next(self._completing, None) is None

    def _complete(self, created: int) -> Iterator[int]:
        for n, consumer in enumerate(self.consumers.values()):
            consumer.position(self.log, created)  # which says what cannot be
            if n % CONSUMERS_AT_ONCE == 0:
                yield n
        staged = self.staged
        if staged is None:
            for block in self.log.blocks:
                block.has_headers = True  # the ids of messages are looked for
            return
        if self._spool is not None:
            self._spool.close()
        self._write()
        touched = Touched()
        for n, consumer in enumerate(self.consumers.values()):
            if not consumer.config.mem_storage:
                position = consumer.position(self.log, created)
                meta = consumer.meta(position, created)
                staged.put_consumer(consumer.name, consumer.is_ephemeral, meta, position, touched)
            if n % CONSUMERS_AT_ONCE == 0:
                yield n
        staged.sync(touched)
        self.log.close()

    def discard(self) -> None:
        """Nothing of it is wanted. Blocks."""
        try:
            if self._spool is not None:
                self._spool.close()
            if self.staged is not None:
                if isinstance(self.log, FileLog):
                    self.log.delete()
                self.staged.discard(sync=False)
        except (OSError, Error):
            pass  # the next start removes it
