"""Taking over a store directory of nats-server: streams with their messages, sequences and times,
consumers with their positions. Buckets and object stores are streams, and come with them.

The directory is read, and nothing in it is changed. Each stream is there as a whole or not at all.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from slipstream.archive.file_store import blocks
from slipstream.engine.backup.unpacking import Unpacked
from slipstream.engine.engine import DEFAULT_ACCOUNT, Engine
from slipstream.engine.loop.clock import Clock
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.options import EngineOptions
from slipstream.engine.stream.config import StreamConfig, fill_defaults, load_restored
from slipstream.engine.stream.retention import enforce_all
from slipstream.engine.stream.stream import Stream
from slipstream.errors import CorruptionError, Error, StorageError
from slipstream.log.base import Log
from slipstream.log.disk import DirectoryLock, OsDisk
from slipstream.log.stream_store import Store, StreamStore
from slipstream.model.times import text_ns
from slipstream.server.foreign_store import foreign_streams
from slipstream.server.store_check.check import Idle, StreamFound
from slipstream.wire.subjects import is_name

NO_BOUND = -1


class ImportRefusedError(StorageError):
    """A directory that cannot be imported, or into which cannot be imported."""


class ImportedStream(StreamFound):
    """What became of one stream."""

    consumers: int = 0
    is_there_already: bool = False  # it was imported before
    problem: str = ""  # why it is not there; "" if it is


class ImportReport(msgspec.Struct):
    """What became of all of them."""

    source: str
    store: str
    streams: list[ImportedStream] = []

    @property
    def is_whole(self) -> bool:
        """Whether every stream is there."""
        return not any(stream.problem for stream in self.streams)


@dataclass
class _Directory:
    """The directory of a stream, as `file_store.StreamFiles`."""

    path: str
    _names: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """The paths of all files, relative to the directory."""
        if not self._names:
            for above, _, files in os.walk(self.path):
                relative = os.path.relpath(above, self.path)
                self._names += [os.path.normpath(os.path.join(relative, name)) for name in files]
        return self._names

    def read(self, name: str) -> bytes:
        """The content of a file. Raises OSError, `ImportRefusedError`."""
        path = os.path.join(self.path, name)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ImportRefusedError(f"{name} is no regular file, and nats-server writes no others")
        with open(path, "rb") as file:
            return file.read()

    def state(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of what holds messages and positions."""
        found = {}
        for above, _, files in os.walk(self.path):
            for name in files:
                if name.endswith((".blk", ".inf", "o.dat")):
                    status = os.stat(os.path.join(above, name))
                    found[os.path.join(above, name)] = (status.st_size, status.st_mtime_ns)
        return found


def import_store(
    source: str, store: str, progress: Callable[[ImportedStream], None] = lambda stream: None
) -> ImportReport:
    """Have the streams of nats-server's store directory `source` in the Slipstream store directory
    `store`, which is made if it is not there, and which no server may use meanwhile. `progress` is
    called after each stream. A stream that cannot be taken over is reported, and the others are
    there. Raises `ImportRefusedError`, `StorageError`, OSError."""
    found = list(foreign_streams(source))
    if not found:
        raise ImportRefusedError(
            f"{source} is no store directory of nats-server with streams in it: name what it was "
            "given as -sd or store_dir"
        )
    if os.path.realpath(source) == os.path.realpath(store) or any(foreign_streams(store)):
        raise ImportRefusedError(
            f"{store} is a store directory of nats-server: name another one for the streams"
        )
    lock = DirectoryLock(store)
    report = ImportReport(source, store)
    try:
        kept = Store(OsDisk(), store)
        taken: set[tuple[str, int]] = set()
        for account, path in found:
            stream = _take_over(account, path, kept, taken)
            report.streams.append(stream)
            progress(stream)
        kept.commit_log.apply_all()
        kept.commit_log.close()
    finally:
        lock.release()
    return report


def _take_over(
    account: str, path: str, store: Store, taken: set[tuple[str, int]]
) -> ImportedStream:
    """One stream; its `problem` says why it is not there."""
    result = ImportedStream(account, os.path.basename(path))
    files = _Directory(path)
    try:
        before = files.state()
        config, created = _read_config(files)
        result.name = config.name
        while (account, created) in taken:
            created += 1  # the time tells streams apart
        taken.add((account, created))
        place = store.stream(account, config.name)
        place.belongs_to(created)
        if place.is_begun():
            if _created_in(place) != created:
                raise ImportRefusedError("there is another stream of this name in the store")
            result.is_there_already = True
            return result
        staged = place.stage(f"import-{created}", created)
        unpacked = Unpacked(staged, config.first_seq, 0, NO_BOUND)
        try:
            _unpack(unpacked, files, config, created, result)
            if files.state() != before:
                raise ImportRefusedError("it changed while it was read: stop nats-server first")
            meta = {"config": config.emit(), "created": created}
            place.adopt(staged, msgspec.json.encode(meta))
        except (OSError, Error):
            unpacked.discard()
            raise
    except (OSError, Error, ApiError, msgspec.MsgspecError, ValueError, KeyError) as error:
        result.problem = str(error) or type(error).__name__
    return result


def _unpack(
    unpacked: Unpacked,
    files: _Directory,
    config: StreamConfig,
    created: int,
    result: ImportedStream,
) -> None:
    """Have all of a stream in its staged directory, durably."""
    for _ in unpacked.take_directory(files):
        pass
    log = unpacked.log
    _enforce_limits(config, log)
    result.messages, result.bytes = log.messages, log.bytes
    result.first_seq, result.last_seq = log.first_seq, log.last_seq
    result.consumers = len(unpacked.consumers)
    while not unpacked.complete(created):
        pass


def _created_in(place: StreamStore) -> int:
    """When the stream was created that is at a place; 0 if that cannot be read."""
    try:
        return int(msgspec.json.decode(place.meta.load())["created"])
    except (StorageError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0


def _enforce_limits(config: StreamConfig, log: Log) -> None:
    """Remove what limits had removed since the index was written, of which no block tells."""
    engine = Engine(Clock(time.time_ns()), Random(), EngineOptions(), Idle())
    engine.start_jetstream(None)
    js = engine.accounts[DEFAULT_ACCOUNT].jetstream
    assert js is not None, "JetStream was just started"
    stream = Stream(js, config, log, None, 0)
    enforce_all(stream)
    stream.stop()


def _read_config(files: _Directory) -> tuple[StreamConfig, int]:
    """The configuration of a stream, and when it was created. Raises OSError, `StorageError`,
    `ApiError`."""
    if any(name.endswith(".key") for name in files.names()):
        raise ImportRefusedError(
            "it is encrypted: start nats-server with its key, back the stream up with `slipstream "
            "stream backup`, and restore it here"
        )
    if not blocks(files) and "meta.inf" not in files.names():
        raise CorruptionError("it has neither a configuration nor messages")
    raw: dict[str, Any] = msgspec.json.decode(files.read("meta.inf"), type=dict)
    created = text_ns(raw.pop("Created", None) or raw.pop("created"))
    config = load_restored(raw, strict=False)
    if not is_name(config.name):
        raise CorruptionError(f"its configuration names it {config.name[:80]!r}")
    fill_defaults(config, 0)
    config.num_replicas = 1  # there is one server
    return config, created
