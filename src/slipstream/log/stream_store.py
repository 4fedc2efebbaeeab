"""A store directory: accounts, their streams, their consumers (see docs/storage.md).

    <root>/jetstream/<account>/<stream>/meta.0, meta.1      two copies, the newer one counts
                                        msgs/*.seg          the log
                                        consumers/<name>/meta.0, meta.1, state.0, state.1

What is small and changes is kept in two files in turn, each with a generation and a checksum:
writing one never endangers the other, so a crash leaves the old or the new content, never none.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from slipstream.errors import CorruptionError
from slipstream.log.block_cache import BlockCache
from slipstream.log.disk import Disk
from slipstream.log.file_log import SEGMENT_BYTES, FileLog
from slipstream.log.recovery import open_log

_MAGIC = b"SLIPMETA"
_TRASH = ".removed-"  # before the names of directories on their way out
_HEAD_SIZE = 24  # magic, generation (u64), CRC-32 of generation and content, length (u32)


class TwinFile:
    """Small content in two files in turn: the one that is known to be durable is never touched."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._generation = 0  # of the newest content
        self._slot = 1  # where that is
        self._synced = True  # whether it is durable; if not, the other slot is
        self._unsure = False  # it was read, and may be in the system's memory alone
        self._named: set[int] = set()  # slots whose names are durable
        self.retired = False  # what it was for is deleted

    def retire(self) -> None:
        """Write no more: a save that is still on its way comes too late."""
        self.retired = True

    def is_begun(self) -> bool:
        """Whether there are files at all, however damaged."""
        return any(self._disk.exists(self._name(slot)) for slot in (0, 1))

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none."""
        best: tuple[int, bytes, int] | None = None
        for slot in (0, 1):
            path = self._name(slot)
            if self._disk.exists(path):
                found = _unpack(self._disk.read(path))
                if found is not None and (best is None or found[0] > best[0]):
                    best = (*found, slot)
        if best is None:
            raise CorruptionError(f"{self._path} is missing or damaged in both of its copies")
        self._generation, content, self._slot = best
        self._unsure = True
        return content

    def save(self, content: bytes, sync: bool) -> None:
        """Replace the content. With `sync` it survives a power failure from then on; blocks.

        Raises OSError, `StorageError`; what was durable still is then.
        """
        if self.retired:
            return
        if self._unsure:  # where a sync has failed, another one alone would not make it durable
            self._write(self._slot, self._disk.read(self._name(self._slot)), sync=True)
            self._synced = True
            self._unsure = False
        slot = 1 - self._slot if self._synced else self._slot
        self._write(slot, _pack(self._generation + 1, content), sync)
        self._generation += 1
        self._slot = slot
        self._synced = sync

    def _name(self, slot: int) -> str:
        return f"{self._path}.{slot}"

    def _write(self, slot: int, packed: bytes, sync: bool) -> None:
        """Replace what a slot holds; with `sync` durably, under its name."""
        file = self._disk.open(self._name(slot))
        try:
            if len(packed) <= file.size():
                file.pwrite(0, packed)  # into blocks that it has, so that a full disk takes it
                file.truncate(len(packed))
            else:
                file.truncate(0)
                file.append(packed)
            if sync:
                file.sync()
        finally:
            file.close()
        if sync and slot not in self._named:
            self._disk.sync_dir(os.path.dirname(self._path))
            self._named.add(slot)


def _pack(generation: int, content: bytes) -> bytes:
    number = generation.to_bytes(8, "little")
    crc = zlib.crc32(content, zlib.crc32(number))
    return (
        _MAGIC + number + crc.to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
    )


def _unpack(data: bytes) -> tuple[int, bytes] | None:
    content = data[_HEAD_SIZE:]
    if data[:8] != _MAGIC or len(content) != int.from_bytes(data[20:24], "little"):
        return None
    if zlib.crc32(content, zlib.crc32(data[8:16])) != int.from_bytes(data[16:20], "little"):
        return None
    return int.from_bytes(data[8:16], "little"), content


@dataclass
class StateSave:
    """A consumer's state on its way to the disk; `done` is called on the loop with the outcome."""

    file: TwinFile
    content: bytes
    sync: bool
    done: Callable[[Exception | None], None]
    error: Exception | None = field(default=None)

    def run(self) -> None:
        """Write it."""
        try:
            self.file.save(self.content, self.sync)
        except Exception as error:  # whatever the disk says is reported by `finish`
            self.error = error

    def finish(self) -> None:
        """Say how it went; a consumer that was deleted meanwhile misses nothing."""
        self.done(None if self.file.retired else self.error)


def _discard(disk: Disk, path: str) -> None:
    """Remove a directory in a way that a crash can not leave half of it."""
    above, name = os.path.split(path)
    trash = f"{above}/{_TRASH}{name[:200]}"  # a file name has at most 255 bytes
    disk.remove_tree(trash)
    if disk.exists(path):
        disk.rename(path, trash)
        try:
            disk.sync_dir(above)
        except OSError:
            disk.rename(trash, path)
            raise
        disk.remove_tree(trash)


def _entries(disk: Disk, path: str) -> Iterator[str]:
    """The directories in `path`; what a crash left of removed ones is removed now."""
    for entry in disk.list(path):
        if entry.startswith(_TRASH):
            disk.remove_tree(f"{path}/{entry}")
        else:
            yield entry


class ConsumerStore:
    """One consumer's files."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.meta = TwinFile(disk, f"{path}/meta")
        self.state = TwinFile(disk, f"{path}/state")

    def create(self, meta: bytes, state: bytes = b"") -> None:
        """Make the directory, and keep `meta` and, if there is one, a `state`; durable. Blocks.

        Raises OSError, `StorageError`.
        """
        self._disk.makedirs(self.path)
        if state:
            self.state.save(state, sync=True)
        self.meta.save(meta, sync=True)

    def is_begun(self) -> bool:
        """Whether there is more than a directory that a crash cut short."""
        return bool(self._disk.list(self.path))

    def retire(self) -> None:
        """Write no more: a save that is still on its way comes too late."""
        self.meta.retire()
        self.state.retire()

    def delete(self) -> None:
        """Remove everything, durably. Raises OSError: then it is as it was."""
        _discard(self._disk, self.path)
        self.retire()


class StreamStore:
    """One stream's directory."""

    def __init__(self, disk: Disk, path: str, cache: BlockCache, segment_bytes: int) -> None:
        self._disk = disk
        self._cache = cache
        self._segment_bytes = segment_bytes
        self.path = path
        self.meta = TwinFile(disk, f"{path}/meta")

    def create(self, meta: bytes) -> None:
        """Make the directory, and keep `meta`; durable. Blocks; raises OSError, `StorageError`."""
        self._disk.makedirs(self.path)
        self.meta.save(meta, sync=True)

    def is_begun(self) -> bool:
        """Whether there is more than a directory that a crash cut short."""
        return bool(self._disk.list(self.path))

    def open_log(self, first_seq: int = 1) -> FileLog:
        """Open the stream's log; see `recovery`. Blocks."""
        path = f"{self.path}/msgs"
        return open_log(self._disk, path, self._cache, first_seq, self._segment_bytes)

    def consumer(self, name: str) -> ConsumerStore:
        """The files of the consumer with this name, there or not."""
        return ConsumerStore(self._disk, f"{self.path}/consumers/{_escape(name)}")

    def consumers(self) -> Iterator[tuple[str, ConsumerStore]]:
        """Name and files of every consumer that has left any."""
        for entry in _entries(self._disk, f"{self.path}/consumers"):
            store = self.consumer(unquote(entry))
            if store.is_begun():
                yield unquote(entry), store

    def delete(self) -> None:
        """Remove everything, durably. Raises OSError: then it is as it was."""
        _discard(self._disk, self.path)


class Store:
    """The store directory of a server; `cache_bytes_max` bounds the memory that reading takes."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        cache_bytes_max: int = 16 * 1024 * 1024,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.disk = disk
        self.root = f"{root}/jetstream"
        self._cache = BlockCache(cache_bytes_max)
        self._segment_bytes = segment_bytes
        disk.makedirs(self.root)

    def stream(self, account: str, name: str) -> StreamStore:
        """The directory of a stream, there or not."""
        path = f"{self.root}/{_escape(account)}/{_escape(name)}"
        return StreamStore(self.disk, path, self._cache, self._segment_bytes)

    def streams(self, account: str) -> Iterator[tuple[str, StreamStore]]:
        """Name and directory of every stream of an account that has left any."""
        for entry in _entries(self.disk, f"{self.root}/{_escape(account)}"):
            store = self.stream(account, unquote(entry))
            if store.is_begun():
                yield unquote(entry), store


def _escape(name: str) -> str:
    """A name as a file name: anything but letters, digits and a few signs is percent-encoded."""
    escaped = quote(name, safe="$-_@=+ ", errors="surrogateescape") or "%00"
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped
