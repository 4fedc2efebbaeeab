"""A store directory: accounts, their streams, their consumers (see docs/storage.md).

    <root>/jetstream/<account>/<stream>/meta.0, meta.1      the configuration, twice
                                        msgs/*.seg          the log
                                        end.0, end.1        where it ends
                                        consumers/<name>/meta.0, meta.1, state.0, state.1
                                        ephemeral/<name>/...

Small content that changes is kept in two files, each with a generation and a checksum, so a crash
leaves the old or the new content, never none. There are two ways:

* A configuration (`ConfigurationFile`) is replaced by renaming: whatever a crash interrupts, each
  copy is whole. A copy that is not whole has been damaged, and the other one may be older.
* A position (`TwinFile`) is overwritten in place, which is cheap and works on a full disk, in two
  files in turn. A power failure may tear the one that is being written.

A directory is made under another name and renamed, and renamed before it is removed. So what a
crash leaves of either is recognised, and goes with the next start.
"""

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.block_cache import BlockCache
from slipstream.log.disk import Disk, File
from slipstream.log.file_log import SEGMENT_BYTES, FileLog
from slipstream.log.recovery import open_log

_MAGIC = b"SLIPMETA"
_FIRST_MAGIC = b"SLIPCONF"  # of a configuration whose first copy is always the newest
_CLOSED = 1 << 63  # in the generation: written by an orderly stop, in both copies alike
_TRASH = ".removed-"  # before the names of directories on their way out
_FRESH = ".new-"  # before the names of directories that are not complete yet
_NAME_BYTES_MAX = 200  # of a name behind such a prefix; a file name has at most 255 bytes
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
        self.damaged = ""  # what `load` found wrong with a copy that no crash can have torn
        self.torn = ""  # what it found wrong where a crash may have done that

    def retire(self) -> None:
        """Write no more: a save that is still on its way comes too late."""
        self.retired = True

    def is_begun(self) -> bool:
        """Whether there was any content, however damaged; a full disk may leave an empty file."""
        try:
            paths = [_slot(self._path, slot) for slot in (0, 1)]
            return any(self._disk.exists(path) and self._disk.read(path) for path in paths)
        except OSError:  # a bad sector
            return True

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none.

        `damaged` or `torn` says what is wrong with the other copy, "" for nothing.
        """
        copies = [_read_copy(self._disk, self._path, slot) for slot in (0, 1)]
        best = _newest(copies)
        if best is None:
            raise CorruptionError(f"{self._path} is missing or damaged in both of its copies")
        other = copies[1 - best.slot]
        if other.fault and best.generation & _CLOSED:
            self.damaged = f"the copy {other.name} is {other.fault}"
        elif other.fault and best.generation > 1:  # the first content ever has one copy
            self.torn = f"the copy {other.name} is {other.fault}"
        self._generation, self._slot = best.generation & ~_CLOSED, best.slot
        self._unsure = True
        return best.content

    def save(self, content: bytes, sync: bool) -> None:
        """Replace the content. With `sync` it survives a power failure from then on; blocks.

        Raises OSError, `StorageError`; what was durable still is then.
        """
        if self.retired:
            return
        if self._unsure:
            # Where a sync has failed, another one alone would not make it durable. Only the first
            # sector changes, if any: the mark of an orderly stop goes.
            found = _unpack(self._disk.read(_slot(self._path, self._slot)))
            if found is None:
                raise CorruptionError(
                    f"{_slot(self._path, self._slot)} was damaged after the start"
                )
            self._write(self._slot, _pack(self._generation, found[1]), sync=True)
            self._synced = True
            self._unsure = False
        slot = 1 - self._slot if self._synced else self._slot
        self._write(slot, _pack(self._generation + 1, content), sync)
        self._generation += 1
        self._slot = slot
        self._synced = sync

    def close(self, content: bytes) -> None:
        """Replace the content in both copies, durably, and mark them as left by an orderly stop.

        A copy that the next `load` finds damaged or missing was not torn then. Raises OSError,
        `StorageError`.
        """
        if self.retired:
            return
        self.save(content, sync=True)
        packed = _pack(self._generation | _CLOSED, content)
        self._write(1 - self._slot, packed, sync=True)
        self._write(self._slot, packed, sync=False)  # the first sector changes, if any
        self._unsure = True

    def _write(self, slot: int, packed: bytes, sync: bool) -> None:
        """Replace what a slot holds; with `sync` durably, under its name."""
        file = self._disk.open(_slot(self._path, slot))
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


class ConfigurationFile:
    """A configuration in two copies, both with the newest content soon after each change.

    The first copy is replaced before a change is answered, the second one afterwards (`copying`),
    both by renaming a file that is durable already. So the first copy is the newest one, and no
    crash leaves a part of a copy. If the first one is damaged or missing, the second one may be
    older: `doubt` says so until the next `save`.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._generation = 0
        self._packed = b""  # the newest content as it stands in a copy; b"" before the first
        self._copied = False  # whether the second copy holds it, as far as that is known
        self.retired = False  # what it was for is deleted
        self.alternates = False  # written by an earlier version, in which either may be newer
        self.doubt = ""  # why what was read may be older than what was saved last
        self.damaged = ""  # what is wrong with the second copy, the first one being whole

    def retire(self) -> None:
        """Write no more."""
        self.retired = True

    @property
    def is_new(self) -> bool:
        """Whether nothing was written yet, nor read."""
        return self._generation == 0

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none."""
        copies = [_read_copy(self._disk, self._path, slot) for slot in (0, 1)]
        best = _newest(copies)
        if best is None:
            raise CorruptionError(f"{self._path} is missing or damaged in both of its copies")
        first, second = copies
        if first.fault:
            self.doubt = f"the copy {first.name} is {first.fault}"
        elif (
            not first.in_order
            and second.fault
            and (second.fault == "damaged" or best.generation > 1)
        ):
            self.doubt = f"the copy {second.name} is {second.fault}"
        elif second.fault == "damaged":
            self.damaged = f"the copy {second.name} is damaged"
        self._generation = best.generation
        self._packed = _pack(best.generation, best.content, _FIRST_MAGIC)
        self._copied = second.content == best.content
        self.alternates = not first.in_order
        return best.content

    def create(self, content: bytes, path: str, sync: bool) -> None:
        """Write the first copy at `path`, from where it is to be renamed with its directory."""
        packed = _pack(1, content, _FIRST_MAGIC)
        self._put(_slot(path, 0), packed, sync)
        self._generation, self._packed = 1, packed

    def save(self, content: bytes) -> None:
        """Replace the content durably, in the first copy. Blocks.

        Raises OSError, `StorageError`; the content is as before then.
        """
        if self.retired:
            return
        packed = _pack(self._generation + 1, content, _FIRST_MAGIC)
        first = _slot(self._path, 0)
        self._replace(first, packed)
        try:
            self._disk.sync_dir(os.path.dirname(self._path))
        except OSError:
            self._put_back(first)
            raise
        self._generation += 1
        self._packed = packed
        self._copied = self.alternates = False
        self.doubt = self.damaged = ""

    def renew(self) -> None:
        """What an earlier version wrote, in copies of which either may be newer, is written anew.
        Blocks. Raises OSError, `StorageError`."""
        if self.alternates and not self.doubt:
            self.save(self._packed[_HEAD_SIZE:])

    def _put_back(self, first: str) -> None:
        """The change did not become durable: as far as the disk can, make the file say so.

        A restart finds the old or the new content, whole in either case, or the same doubt.
        """
        try:
            if self.doubt:
                self._disk.remove(first)
            else:
                self._replace(first, self._packed)
        except (OSError, StorageError):
            pass

    def copying(self) -> "CopyOfConfiguration | None":
        """The write of the second copy; None if that is up to date, or is evidence of damage."""
        if self.retired or self._copied or self.doubt or not self._packed:
            return None
        self._copied = True
        return CopyOfConfiguration(self._disk, self._path, self._packed, self)

    def not_copied(self) -> None:
        """The second copy could not be written."""
        self._copied = False

    def _replace(self, name: str, packed: bytes) -> None:
        """Write another file, which is durable before it is renamed to `name`; nothing is left of
        it if that fails."""
        try:
            self._put(name + _STAGED, packed, sync=True)
            self._disk.rename(name + _STAGED, name)
        except (OSError, StorageError):
            try:
                self._disk.remove(name + _STAGED)
            except OSError:
                pass  # the next attempt overwrites it
            raise

    def _put(self, name: str, packed: bytes, sync: bool) -> None:
        file = self._disk.open(name)
        try:
            if file.size():  # of an attempt that did not come to its end
                file.truncate(0)
            file.append(packed)
            if sync:
                file.sync()
        finally:
            file.close()


class CopyOfConfiguration:
    """The second copy of a configuration on its way to the disk, in steps: all copies of a batch
    are written, then synced and renamed, then their directories are synced."""

    def __init__(
        self, disk: Disk, path: str, packed: bytes, configuration: ConfigurationFile
    ) -> None:
        self._disk = disk
        self._name = _slot(path, 1)
        self._packed = packed
        self.configuration = configuration
        self._file: File | None = None
        self.failed: Exception | None = None

    @property
    def directory(self) -> str:
        """Where it is renamed."""
        return os.path.dirname(self._name)

    def write(self) -> None:
        """Write it under another name. Never raises: what the disk says is kept in `failed`."""
        if not self.configuration.retired:
            self._attempt(self._write)

    def _write(self) -> None:
        self._file = self._disk.open(self._name + _STAGED)
        if self._file.size():
            self._file.truncate(0)
        self._file.append(self._packed)

    def settle(self) -> None:
        """Sync it and give it its name."""
        if self._file is not None:
            self._attempt(self._settle, self._file)

    def _settle(self, file: File) -> None:
        if self.failed is None:
            file.sync()
        if self.failed is None and not self.configuration.retired:
            self._disk.rename(self._name + _STAGED, self._name)

    def sync_name(self) -> None:
        """Make its name durable."""
        if self._file is not None and self.failed is None and not self.configuration.retired:
            self._attempt(self._disk.sync_dir, self.directory)

    def _attempt(self, step: Callable[..., None], *given: Any) -> None:
        try:
            step(*given)
        except Exception as error:  # whatever the disk says; `finish` reports it
            self.failed = error

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._attempt(self._file.close)

    def has_failed(self) -> bool:
        """Take over the outcome, on the loop; whether it is to be attempted again."""
        if self.failed is None or self.configuration.retired:
            return False
        self.configuration.not_copied()
        return True


@dataclass
class CopyJob:
    """The second copies of several configurations; `done` is called on the loop with those that
    the disk refused."""

    copies: list[CopyOfConfiguration]
    done: Callable[[list[CopyOfConfiguration]], None]

    def run(self) -> None:
        """Write them. On most file systems the first sync makes the rest of them cheap."""
        for step in ("write", "settle", "sync_name", "close"):
            for copy in self.copies:
                getattr(copy, step)()

    def finish(self) -> None:
        """Say how it went."""
        self.done([copy for copy in self.copies if copy.has_failed()])


_STAGED = ".new"  # behind the name of a file that is about to replace it


def _slot(path: str, slot: int) -> str:
    return f"{path}.{slot}"


@dataclass
class _Copy:
    """One of two copies, as it was read."""

    slot: int
    name: str  # of the file, without its directory
    fault: str = ""  # "missing" or "damaged"
    generation: int = 0
    content: bytes = b""
    in_order: bool = False  # the first copy is written before the second one


def _read_copy(disk: Disk, path: str, slot: int) -> _Copy:
    name = _slot(path, slot)
    copy = _Copy(slot, os.path.basename(name))
    if not disk.exists(name):
        copy.fault = "missing"
        return copy
    try:
        data = disk.read(name)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        data = b""  # a bad sector
    found = _unpack(data)
    if found is None:
        copy.fault = "damaged"
    else:
        copy.generation, copy.content = found
        copy.in_order = data.startswith(_FIRST_MAGIC)
    return copy


def _newest(copies: list[_Copy]) -> _Copy | None:
    whole = [copy for copy in copies if not copy.fault]
    return max(whole, key=lambda copy: (copy.generation & ~_CLOSED, -copy.slot), default=None)


def _pack(generation: int, content: bytes, magic: bytes = _MAGIC) -> bytes:
    number = generation.to_bytes(8, "little")
    crc = zlib.crc32(content, zlib.crc32(number))
    return magic + number + crc.to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def _unpack(data: bytes) -> tuple[int, bytes] | None:
    content = data[_HEAD_SIZE:]
    if data[:8] not in (_MAGIC, _FIRST_MAGIC):
        return None
    if len(content) != int.from_bytes(data[20:24], "little"):
        return None
    if zlib.crc32(content, zlib.crc32(data[8:16])) != int.from_bytes(data[16:20], "little"):
        return None
    return int.from_bytes(data[8:16], "little"), content


@dataclass
class StateSave:
    """A consumer's state on its way to the disk; `done` is called on the loop with the outcome."""

    store: "ConsumerStore"
    content: bytes
    sync: bool
    done: Callable[[Exception | None], None]
    error: Exception | None = field(default=None)

    def run(self) -> None:
        """Write it."""
        try:
            self.store.save_state(self.content, self.sync)
        except Exception as error:  # whatever the disk says is reported by `finish`
            self.error = error

    def finish(self) -> None:
        """Say how it went; a consumer that was deleted meanwhile misses nothing."""
        self.done(None if self.store.is_retired() else self.error)


@dataclass
class EphemeralSave:
    """The configuration of an ephemeral consumer on its way to the disk, with its directory the
    first time; `failed` is called on the loop if the disk refused it."""

    store: "ConsumerStore"
    meta: bytes
    failed: Callable[[Exception], None]
    error: Exception | None = field(default=None)

    def run(self) -> None:
        """Write it, unless the consumer was deleted meanwhile."""
        try:
            self.store.save_ephemeral(self.meta)
        except Exception as error:  # whatever the disk says is reported by `finish`
            self.error = error

    def finish(self) -> None:
        """Report how it went."""
        if self.error is not None and not self.store.is_retired():
            self.failed(self.error)


def _make(disk: Disk, path: str, fill: Callable[[str], None], sync: bool) -> None:
    """Make a directory that `fill` completes: whatever fails or crashes, it is there as a whole
    or, from the next start on, not at all. Raises OSError, `StorageError`."""
    above, name = os.path.split(path)
    if disk.list(path):
        raise StorageError(
            f"{path} holds files that could not be read when the server started, and they are kept;"
            " move that directory away (docs/storage.md), or take another name"
        )
    disk.makedirs(above)
    fresh = f"{above}/{_FRESH}{name[:_NAME_BYTES_MAX]}"
    is_named = False
    try:
        try:
            disk.mkdir(fresh)
        except FileExistsError:  # of an attempt that the disk did not even let clean up
            disk.remove_tree(fresh)
            disk.mkdir(fresh)
        fill(fresh)
        if sync:
            disk.sync_dir(fresh)
        disk.rename(fresh, path)
        is_named = True
        if sync:
            disk.sync_dir(above)
    except (OSError, StorageError):
        if is_named:
            disk.rename(path, fresh)
        disk.remove_tree(fresh)
        raise


def _discard(disk: Disk, path: str) -> None:
    """Remove a directory in a way that a crash can not leave half of it."""
    above, name = os.path.split(path)
    trash = f"{above}/{_TRASH}{name[:_NAME_BYTES_MAX]}"
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
    """The directories in `path`; what a crash left of removed and of incomplete ones is removed."""
    for entry in disk.list(path):
        if entry.startswith((_TRASH, _FRESH)):
            disk.remove_tree(f"{path}/{entry}")
        else:
            yield entry


class ConsumerStore:
    """One consumer's files. Those of an ephemeral one are not synced until its state is."""

    def __init__(self, disk: Disk, path: str, is_ephemeral: bool = False) -> None:
        self._disk = disk
        self.path = path
        self.is_ephemeral = is_ephemeral
        self._is_synced = not is_ephemeral
        self.meta = ConfigurationFile(disk, f"{path}/meta")
        self.state = TwinFile(disk, f"{path}/state")

    def create(self, meta: bytes) -> None:
        """Make the directory with `meta`; durable unless the consumer is ephemeral. Blocks.

        Raises OSError, `StorageError`.
        """

        def fill(fresh: str) -> None:
            self.meta.create(meta, f"{fresh}/meta", sync=not self.is_ephemeral)

        _make(self._disk, self.path, fill, sync=not self.is_ephemeral)

    def save_ephemeral(self, meta: bytes) -> None:
        """Keep the configuration of an ephemeral consumer, new or changed. Blocks.

        Raises OSError, `StorageError`.
        """
        if self.is_retired():
            return
        if self.meta.is_new:
            self.create(meta)
            if self.is_retired():  # it was deleted at the same time, and must not come back
                _discard(self._disk, self.path)
        else:
            self.meta.save(meta)

    def save_state(self, state: bytes, sync: bool) -> None:
        """Replace the state; with `sync` it is durable from then on. Blocks.

        Raises OSError, `StorageError`.
        """
        if sync and not self._is_synced and not self.is_retired():
            file = self._disk.open(f"{self.path}/meta.0")
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_dir(self.path)
            self._disk.sync_dir(os.path.dirname(self.path))
            self._is_synced = True
        self.state.save(state, sync)

    def close(self, state: bytes) -> None:
        """Save the state as the last one of an orderly stop. Raises OSError, `StorageError`."""
        if self.is_ephemeral:
            self.state.save(state, sync=False)
        else:
            self.state.close(state)

    def is_begun(self) -> bool:
        """Whether there is more than a directory that a crash cut short."""
        return bool(self._disk.list(self.path))

    def is_retired(self) -> bool:
        """Whether the consumer was deleted."""
        return self.state.retired

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
        self.meta = ConfigurationFile(disk, f"{path}/meta")

    def create(self, meta: bytes) -> None:
        """Make the directory with `meta`; durable. Blocks; raises OSError, `StorageError`.

        One of this name that could not be read is replaced if it has no messages and no consumers.
        """
        parts = ("msgs", "consumers", "ephemeral")
        if not any(self._disk.list(f"{self.path}/{part}") for part in parts):
            _discard(self._disk, self.path)

        def fill(fresh: str) -> None:
            self._disk.mkdir(f"{fresh}/msgs")
            self.meta.create(meta, f"{fresh}/meta", sync=True)

        _make(self._disk, self.path, fill, sync=True)

    def is_begun(self) -> bool:
        """Whether there is more than a directory that a crash cut short."""
        return bool(self._disk.list(self.path))

    def open_log(self, first_seq: int = 1) -> FileLog:
        """Open the stream's log; see `recovery`. Blocks."""
        path = f"{self.path}/msgs"
        end = TwinFile(self._disk, f"{self.path}/end")
        return open_log(self._disk, path, self._cache, first_seq, self._segment_bytes, end)

    def consumer(self, name: str, is_ephemeral: bool = False) -> ConsumerStore:
        """The files of the consumer with this name, there or not."""
        kind = "ephemeral" if is_ephemeral else "consumers"
        return ConsumerStore(self._disk, f"{self.path}/{kind}/{_escape(name)}", is_ephemeral)

    def consumers(self) -> Iterator[tuple[str, ConsumerStore]]:
        """Name and files of every consumer that has left any, ephemeral ones last."""
        for is_ephemeral in (False, True):
            kind = "ephemeral" if is_ephemeral else "consumers"
            for entry in _entries(self._disk, f"{self.path}/{kind}"):
                store = self.consumer(unquote(entry), is_ephemeral)
                if store.is_begun():
                    yield unquote(entry), store

    def delete(self) -> None:
        """Remove everything, durably. Raises OSError: then it is as it was."""
        _discard(self._disk, self.path)
        self.meta.retire()


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
