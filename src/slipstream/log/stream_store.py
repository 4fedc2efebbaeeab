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
from slipstream.log.file_log import FileLog
from slipstream.log.recovery import open_log

_MAGIC = b"SLIPMETA"
_HEAD_SIZE = 24  # magic, generation (u64), CRC-32 of generation and content, length (u32)


class TwinFile:
    """Small content in two files in turn."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._generation = 0

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none."""
        best: tuple[int, bytes] | None = None
        for slot in (0, 1):
            path = f"{self._path}.{slot}"
            if self._disk.exists(path):
                found = _unpack(self._disk.read(path))
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
        if best is None:
            raise CorruptionError(f"{self._path} is missing or damaged in both of its copies")
        self._generation = best[0]
        return best[1]

    def save(self, content: bytes, sync: bool) -> None:
        """Replace the content. With `sync` it survives a power failure from then on; blocks."""
        self._generation += 1
        path = f"{self._path}.{self._generation % 2}"
        fresh = not self._disk.exists(path)
        file = self._disk.open(path)
        try:
            packed = _pack(self._generation, content)
            file.truncate(0)
            file.append(packed)
            if sync:
                file.sync()
        finally:
            file.close()
        if sync and fresh:
            self._disk.sync_dir(os.path.dirname(path))


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
        """Say how it went."""
        self.done(self.error)


class ConsumerStore:
    """One consumer's files."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.meta = TwinFile(disk, f"{path}/meta")
        self.state = TwinFile(disk, f"{path}/state")

    def create(self, meta: bytes) -> None:
        """Make the directory, and keep `meta`. Blocks."""
        self._disk.makedirs(self.path)
        self.meta.save(meta, sync=True)
        self._disk.sync_dir(os.path.dirname(self.path))

    def delete(self) -> None:
        """Remove everything."""
        self._disk.remove_tree(self.path)


class StreamStore:
    """One stream's directory."""

    def __init__(self, disk: Disk, path: str, cache: BlockCache) -> None:
        self._disk = disk
        self._cache = cache
        self.path = path
        self.meta = TwinFile(disk, f"{path}/meta")

    def create(self, meta: bytes) -> None:
        """Make the directory, and keep `meta`. Blocks."""
        self._disk.makedirs(self.path)
        self.meta.save(meta, sync=True)
        self._disk.sync_dir(os.path.dirname(self.path))

    def open_log(self, first_seq: int = 1) -> FileLog:
        """Open the stream's log; see `recovery`. Blocks."""
        return open_log(self._disk, f"{self.path}/msgs", self._cache, first_seq)

    def consumer(self, name: str) -> ConsumerStore:
        """The files of the consumer with this name, there or not."""
        return ConsumerStore(self._disk, f"{self.path}/consumers/{_escape(name)}")

    def consumers(self) -> Iterator[tuple[str, ConsumerStore]]:
        """Name and files of every consumer that has left any."""
        for entry in self._disk.list(f"{self.path}/consumers"):
            yield unquote(entry), self.consumer(unquote(entry))

    def delete(self) -> None:
        """Remove everything."""
        self._disk.remove_tree(self.path)


class Store:
    """The store directory of a server; `cache` bounds the memory that reading takes."""

    def __init__(self, disk: Disk, root: str, cache_bytes_max: int = 16 * 1024 * 1024) -> None:
        self.disk = disk
        self.root = f"{root}/jetstream"
        self._cache = BlockCache(cache_bytes_max)
        disk.makedirs(self.root)

    def stream(self, account: str, name: str) -> StreamStore:
        """The directory of a stream, there or not."""
        path = f"{self.root}/{_escape(account)}/{_escape(name)}"
        return StreamStore(self.disk, path, self._cache)

    def streams(self, account: str) -> Iterator[tuple[str, StreamStore]]:
        """Name and directory of every stream of an account that has left any."""
        for entry in self.disk.list(f"{self.root}/{_escape(account)}"):
            yield unquote(entry), self.stream(account, unquote(entry))


def _escape(name: str) -> str:
    """A name as a file name: anything but letters, digits and a few signs is percent-encoded."""
    return quote(name, safe="$-_@=+ ") or "%00"
