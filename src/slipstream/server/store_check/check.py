"""What is in a store directory, and what is wrong with it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from urllib.parse import unquote

import msgspec

from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.engine import Engine
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.loop.clock import Clock
from slipstream.engine.protocol.options import EngineOptions
from slipstream.engine.stream.stream import Stream
from slipstream.errors import StorageError
from slipstream.log.disk import OsDisk
from slipstream.log.durability import Job
from slipstream.log.log_place import DIRECTORY as LOG_DIRECTORY
from slipstream.log.log_place import find_log
from slipstream.log.record import Record
from slipstream.log.stream_store import Store
from slipstream.server.foreign_store import foreign_store
from slipstream.server.store_check.overlay import OverlayDisk


class StoreUnavailable(StorageError):
    """A store directory cannot be looked at: it is not there, in use, or something else."""


class Damage(msgspec.Struct):
    """Bytes that were no whole record, or a file that is missing (`bytes` is 0)."""

    file: str  # in the stream's directory
    offset: int
    bytes: int
    first_seq: int  # of the messages that were lost with them; 0: none
    last_seq: int
    is_known: bool  # a server has found it before, and keeps the bytes aside


class ConsumerReport(msgspec.Struct):
    """A consumer and its position."""

    name: str
    delivered: int  # the last stream sequence
    ack_floor: int  # everything up to this stream sequence is acknowledged
    ack_pending: int
    problem: str = ""


class StreamFound(msgspec.Struct):
    """A stream in a store directory."""

    account: str
    name: str
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamReport(StreamFound):
    """A stream; counts are of the messages that can be read."""

    lost_messages: int = 0
    lost: list[tuple[int, int]] = msgspec.field(default_factory=list)  # first and last sequence
    damage: list[Damage] = msgspec.field(default_factory=list)
    consumers: list[ConsumerReport] = msgspec.field(default_factory=list)
    problem: str = ""  # why it cannot be read, or may not be as it was
    is_unreadable: bool = False


class Report(msgspec.Struct):
    """All that was found. `problems` are what a server would report at its start."""

    store: str
    is_whole: bool
    streams: list[StreamReport]
    problems: list[str]


class Idle:
    """Runs no job: whatever is to be written later stays unwritten."""

    def start(self, job: Job) -> None:
        """Forget the job."""

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Forget the job."""

    def start_beside(self, job: Job) -> None:
        """Forget the job."""

    def start_read(self, job: Job) -> None:
        """Nobody is kept from anything by it: read."""
        job.run()
        job.finish()

    def run_here(self, job: Job, size: int, is_second: bool) -> bool:
        """Never."""
        return False


class Checked:
    """A store that was opened over an `OverlayDisk`, with its report."""

    def __init__(self, engine: Engine, report: Report) -> None:
        self.engine = engine
        self.report = report

    def streams(self) -> Iterator[Stream]:
        """Every stream that can be read."""
        for account in self.engine.accounts.values():
            if account.jetstream is not None:
                yield from account.jetstream.streams.values()


@contextmanager
def check_store(directory: str) -> Iterator[Checked]:
    """Look at everything in a store directory, and change nothing. Meanwhile no server starts on
    it. Raises `StoreUnavailable`, `StorageError`, OSError."""
    directory = directory.rstrip("/") or "/"
    if not os.path.isdir(os.path.join(directory, "jetstream")):
        raise StoreUnavailable(
            f"{directory} is no store directory: there is no folder jetstream in it. Name what the "
            "server was given as -sd or store_dir"
        )
    foreign = foreign_store(directory)
    if foreign:
        raise StoreUnavailable(foreign)
    with _kept_from_servers(directory):
        yield _look(directory)


@contextmanager
def _kept_from_servers(directory: str) -> Iterator[None]:
    """Hold the lock that a server holds; one that was copied without it needs none."""
    try:
        fd = os.open(os.path.join(directory, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreUnavailable(
                f"a server uses the store directory {directory}: stop it first, or look at a copy "
                "of the directory; /healthz says what a running server has found"
            ) from error
        yield
    finally:
        os.close(fd)


def _look(directory: str) -> Checked:
    disk = OverlayDisk(directory)
    log = find_log(OsDisk(), directory)
    if os.path.isdir(log):
        disk.put_before(LOG_DIRECTORY, log)
    engine = Engine(Clock(time.time_ns()), Random(), EngineOptions(), Idle())
    problems: list[str] = []
    engine.on_problem = problems.append
    store = Store(disk, directory)
    for name in disk.list(f"{directory}/jetstream"):
        account = unquote(name)
        if not name.startswith(".") and account not in engine.accounts:
            engine.add_account(account)
    engine.start_jetstream(store)
    streams = [
        report
        for account in engine.accounts.values()
        if account.jetstream is not None
        for report in _streams(account.jetstream, store, disk, problems)
    ]
    is_whole = not problems and not any(stream.lost or stream.problem for stream in streams)
    return Checked(engine, Report(directory, is_whole, streams, problems))


def _streams(
    js: JetStream, store: Store, disk: OverlayDisk, problems: list[str]
) -> Iterator[StreamReport]:
    account = js.account.name
    for stream in js.streams.values():
        yield _stream(stream, disk, problems)
    for name, _ in store.streams(account):
        if name not in js.streams:
            text = next((p for p in problems if f"'{account} > {name}'" in p), "it is unreadable")
            yield StreamReport(account, name, problem=text, is_unreadable=True)


def _stream(stream: Stream, disk: OverlayDisk, problems: list[str]) -> StreamReport:
    """Read every message: `log.lost` then has all that cannot be read."""
    log = stream.log
    record = Record()
    seq = 0
    while log.next(seq, None, record):
        seq = record.seq + 1
    return StreamReport(
        stream.account.name,
        stream.name,
        log.messages,
        log.bytes,
        log.first_seq,
        log.last_seq,
        log.lost.count,
        sorted(log.lost.ranges),
        list(_damage(f"{stream.store.path}/msgs", disk)),
        [_consumer(c, problems) for c in stream.consumers.values() if c.store is not None],
        stream.js.doubts.of(stream.name),
    )


def _damage(directory: str, disk: OverlayDisk) -> Iterator[Damage]:
    """What was set aside, now or before; see `slipstream.log.damage` for the names."""
    for name in disk.list(f"{directory}/damaged"):
        place, _, lost = name.partition(".lost-")
        base, _, offset = place.partition("-")
        first, _, last = lost.partition("-")
        path = f"{directory}/damaged/{name}"
        if base.isdecimal():
            yield Damage(
                f"msgs/{base}.seg",
                int(offset.partition("-")[0] or 0),
                len(disk.read(path)),
                int(first or 0),
                int(last or 0),
                os.path.exists(path),
            )


def _consumer(consumer: Consumer, problems: list[str]) -> ConsumerReport:
    stream = consumer.stream
    where = f"{stream.account.name} > {stream.name} > {consumer.name}'"
    found = [text for text in problems if where in text]
    return ConsumerReport(
        consumer.name,
        consumer.delivered_stream_seq,
        consumer.floor_stream_seq,
        len(consumer.pending),
        found[0] if found else "",
    )
