"""A disk that fails the way disks fail, from a seed: the log's `Disk` and `File` without a disk.

What is written is readable at once and survives nothing but a `sync`. What is appended to a file
with reserved space is written by the next `sync` or `flush`, as a real one's direct writes are: it
goes with the process. On `crash` the power goes:

* of the writes that were not synced, each sector of 512 bytes is there or not, by chance;
* changes of size that were not synced are there up to some point in time, so a file may be shorter
  than what was written, or as long and full of zeros;
* names that were created, removed or renamed without `sync_dir` are so up to some point in time;
* files that were open are so no more: what still uses one gets `CrashedError`.

Beside that `fail` makes the nth call of an operation fail, `capacity` bounds the space, and `flip`
and `overwrite` damage what is stored. A sync that fails loses what it should have written, also for
the next sync: this is what kernels do, and why a failed fsync is final.
"""

import errno
import itertools
from collections import Counter
from collections.abc import Sequence
from random import Random

from slipstream.errors import DiskFullError
from slipstream.log.disk import File

SECTOR = 512
OPERATIONS = ("open", "append", "pread", "pwrite", "reserve", "truncate", "sync", "sync_dir",
              "rename", "remove", "read", "mkdir")  # fmt: skip


class CrashedError(RuntimeError):
    """A file from before the crash was used after it."""


class _Inode:
    """A file: what is read, what is durable, and what lies between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.reserved = 0  # space taken, at least the size
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, bytes), or (size, None)

    def write(self, offset: int, data: bytes) -> None:
        if offset + len(data) > len(self.data):
            self.resize(offset + len(data))
        self.data[offset : offset + len(data)] = data
        self.pending.append((offset, bytes(data)))

    def resize(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        for at, change in self.pending:
            if change is None:
                _resize(self.durable, at)
            else:
                self.durable[at : at + len(change)] = change
        self.pending.clear()

    def lose_pending(self) -> None:
        """What was written stays readable and will never be durable."""
        self.pending.clear()

    def crash(self, random: Random) -> None:
        sizes_kept = random.randint(0, len(self.pending))
        share = random.choice((0.0, 0.5, 0.9, 1.0))
        for n, (at, change) in enumerate(self.pending):
            if change is None:
                if n < sizes_kept:
                    _resize(self.durable, at)
                continue
            for start, end in _sectors(at, at + len(change)):
                end = min(end, len(self.durable))
                if start < end and random.random() < share:
                    self.durable[start:end] = change[start - at : end - at]
        self.pending.clear()
        self.data = bytearray(self.durable)
        self.reserved = len(self.data)


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _sectors(start: int, end: int) -> list[tuple[int, int]]:
    """The pieces of a range, cut at the boundaries of sectors."""
    cuts = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    return list(itertools.pairwise(cuts))


class _Directory:
    """Names: as they are, as they are durable, and the changes between, each all or nothing."""

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[dict[str, _Inode | _Directory | None]] = []

    def change(self, changes: "dict[str, _Inode | _Directory | None]") -> None:
        _apply(self.names, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        for changes in self.pending:
            _apply(self.durable, changes)
        self.pending.clear()

    def crash(self, random: Random) -> None:
        for changes in self.pending[: random.randint(0, len(self.pending))]:
            _apply(self.durable, changes)
        self.pending.clear()
        self.names = dict(self.durable)
        for _, node in sorted(self.names.items()):
            node.crash(random)


def _apply(
    names: "dict[str, _Inode | _Directory]", changes: "dict[str, _Inode | _Directory | None]"
) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class SimulatedDisk:
    """See the module's text. `capacity` in bytes may be changed at any time."""

    def __init__(self, random: Random, capacity: int = 1 << 40) -> None:
        self.random = random
        self.capacity = capacity
        self.is_cold = False  # whether nothing that is read is in memory
        self._secrets = Random(repr(random.getstate()))  # draws nothing from what crashes depend on
        self.calls: Counter[str] = Counter()
        self._root = _Directory()
        self._epoch = 0  # how many crashes there were
        self._faults: dict[str, tuple[int, OSError]] = {}

    # -- what a test does to it ------------------------------------------------------------------

    def crash(self) -> None:
        """The power fails, and comes back."""
        self._epoch += 1
        self._faults.clear()
        self._root.crash(self.random)

    def fail(self, operation: str, nth: int = 1, error: OSError | None = None) -> None:
        """The `nth` call of `operation` (see `OPERATIONS`) from now on raises `error` (EIO)."""
        if operation not in OPERATIONS:
            raise ValueError(f"a disk has no operation {operation!r}; it has {OPERATIONS}")
        failure = error or OSError(errno.EIO, "Input/output error")
        self._faults[operation] = (self.calls[operation] + nth, failure)

    def heal(self) -> None:
        """Nothing that `fail` asked for will happen any more."""
        self._faults.clear()

    def flip(self, path: str, bit: int) -> None:
        """Turn over one bit of what is stored."""
        node = self._file(path)
        for data in (node.data, node.durable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Put other bytes where some are stored."""
        node = self._file(path)
        for stored in (node.data, node.durable):
            part = data[: max(len(stored) - offset, 0)]
            stored[offset : offset + len(part)] = part

    def cut(self, path: str, size: int) -> None:
        """Make a file shorter."""
        node = self._file(path)
        for stored in (node.data, node.durable):
            del stored[size:]

    def lose(self, path: str) -> None:
        """A file is gone for good."""
        directory, name = self._parent(path)
        directory.names.pop(name, None)
        directory.durable.pop(name, None)

    def files(self, suffix: str = "") -> list[str]:
        """Paths of all files whose names end so."""
        found: list[str] = []

        def walk(directory: _Directory, prefix: str) -> None:
            for name, node in sorted(directory.names.items()):
                if isinstance(node, _Directory):
                    walk(node, f"{prefix}{name}/")
                elif name.endswith(suffix):
                    found.append(prefix + name)

        walk(self._root, "")
        return found

    def used(self) -> int:
        """Bytes taken."""

        def walk(directory: _Directory) -> int:
            return sum(
                walk(node) if isinstance(node, _Directory) else max(len(node.data), node.reserved)
                for node in directory.names.values()
            )

        return walk(self._root)

    # -- what files and the disk share -----------------------------------------------------------

    def begin(self, operation: str, epoch: int | None = None) -> None:
        """Count a call; fail it if it was asked to. Raises OSError, `CrashedError`."""
        if epoch is not None and not self.is_current(epoch):
            raise CrashedError(f"{operation} on a file that was open when the power failed")
        self.calls[operation] += 1
        due = self._faults.get(operation)
        if due is not None and self.calls[operation] >= due[0]:
            del self._faults[operation]
            raise due[1]

    def is_current(self, epoch: int) -> bool:
        """Whether the power has not failed since."""
        return epoch == self._epoch

    def take(self, node: _Inode, size: int) -> None:
        """Find space for `node` to have `size` bytes. Raises `DiskFullError`."""
        more = size - max(len(node.data), node.reserved)
        if more > 0 and more > self.capacity - self.used():
            raise DiskFullError("no space left on the simulated disk; free some and go on")
        node.reserved = max(node.reserved, size)

    def _walk(self, parts: list[str]) -> "_Directory":
        node: _Inode | _Directory = self._root
        for part in parts:
            if not isinstance(node, _Directory) or part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/".join(parts))
            node = node.names[part]
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", "/".join(parts))
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parts = _split(path)
        return self._walk(parts[:-1]), parts[-1]

    def _file(self, path: str) -> _Inode:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    # -- slipstream.log.disk.Disk ------------------------------------------------------------------

    def open(self, path: str) -> "SimulatedFile":
        """Open; created if it does not exist."""
        self.begin("open")
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if node is None:
            node = _Inode()
            directory.change({name: node})
        return SimulatedFile(self, node, self._epoch, path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        try:
            directory, name = self._parent(path)
        except OSError:
            return False
        return name in directory.names

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""
        try:
            return sorted(self._walk(_split(path)).names)
        except OSError:
            return []

    def read(self, path: str) -> bytes:
        """A whole file."""
        self.begin("read")
        return bytes(self._file(path).data)

    def read_stored(self, path: str) -> bytes:
        """What `read` returns: there is no cache."""
        return self.read(path)

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Nothing: there is no cache."""

    def mkdir(self, path: str) -> None:
        """Create a directory."""
        self.begin("mkdir")
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        directory.change({name: _Directory()})

    def makedirs(self, path: str) -> None:
        """Create a directory and those above it, durably."""
        node = self._root
        for part in _split(path):
            if part not in node.names:
                node.change({part: _Directory()})
                node.sync()
            below = node.names[part]
            if not isinstance(below, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            node = below

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self.begin("remove")
        directory, name = self._parent(path)
        if name in directory.names:
            directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, if it is there; one name after the other, in
        any order."""
        if not self.exists(path):
            return
        directory, name = self._parent(path)
        node = directory.names[name]
        if isinstance(node, _Directory):
            for below in self.random.sample(sorted(node.names), len(node.names)):
                self.remove_tree(f"{path}/{below}")
        directory.change({name: None})

    def rename(self, old: str, new: str) -> None:
        """Rename within a directory, atomically."""
        self.begin("rename")
        directory, name = self._parent(old)
        target, fresh = self._parent(new)
        if target is not directory:
            raise OSError(errno.EXDEV, "only renames within a directory are simulated", new)
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        directory.change({fresh: directory.names[name], name: None})

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        try:
            self._walk(_split(path))
        except OSError:
            return False
        return True

    def link(self, old: str, new: str) -> None:
        """Give a file another name."""
        node = self._file(old)
        directory, name = self._parent(new)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        directory.change({name: node})

    def sync_dir(self, path: str) -> None:
        """Make creations, removals and renames in a directory durable."""
        self.begin("sync_dir")
        self._walk(_split(path)).sync()

    def settle(self) -> None:
        """Nothing: whoever opens a file reads what was flushed."""

    def flush_all(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """`flush` of files, none of which fails; see `SimulatedFile.flush`."""
        for file in files:
            file.flush()
        return [None] * len(files)

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """`sync` of files and `sync_dir` of directories, where they still exist."""
        for path in files:
            if self.exists(path):
                self.open(path).sync()
        for path in directories:
            if self.exists(path):
                self.sync_dir(path)

    def random_bytes(self, size: int) -> bytes:
        """Bytes that the next run with the same seed gets, too."""
        return self._secrets.randbytes(size)

    def free_bytes(self, path: str) -> int:
        """Space left."""
        return max(self.capacity - self.used(), 0)


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, node: _Inode, epoch: int, path: str) -> None:
        self._disk = disk
        self._node = node
        self._epoch = epoch
        self._path = path
        self._size = len(node.data)
        self._direct = False
        self._pending = bytearray()  # appended directly, and not written
        self._closed = False

    def _begin(self, operation: str) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "Bad file descriptor")
        self._disk.begin(operation, self._epoch)

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self._begin("append")
        self._disk.take(self._node, self._size + len(data))
        self._pending += data
        self._size += len(data)
        if not self._direct:
            self._write_pending()

    def go_on_at(self, size: int) -> None:
        """Have `append` go on at `size`."""
        self._write_pending()
        self._size = size

    def rewind(self) -> None:
        """Have `append` go on at the beginning."""
        self._write_pending()
        self._size = 0

    def _write_pending(self) -> None:
        if self._pending and self._disk.is_current(self._epoch):
            self._node.write(self._size - len(self._pending), bytes(self._pending))
            self._pending.clear()

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        self._begin("pread")
        self._write_pending()
        return bytes(self._node.data[offset : offset + size])

    def pread_near(self, offset: int, size: int) -> bytes | None:
        """What `pread` returns, unless the disk is cold."""
        return None if self._disk.is_cold else self.pread(offset, size)

    def pread_stored(self, offset: int, size: int) -> bytes:
        """What `pread` returns: there is no cache."""
        return self.pread(offset, size)

    def pwrite(self, offset: int, data: bytes) -> None:
        """Overwrite in place."""
        self._begin("pwrite")
        self._write_pending()
        self._disk.take(self._node, offset + len(data))
        self._node.write(offset, data)

    def reserve(self, size: int) -> int:
        """Take space up to `size` bytes; zeros for now."""
        self._begin("reserve")
        self._disk.take(self._node, size)
        self._direct = True
        if size > len(self._node.data):
            self._node.resize(size)
        return max(size, self._node.reserved)

    def reserve_ahead(self, size: int) -> int:
        """What `reserve` does."""
        return self.reserve(size)

    def rename(self, path: str) -> None:
        """Have it another name, unless it has that already."""
        if self._path != path and self._disk.is_current(self._epoch):
            self._disk.rename(self._path, path)
            self._path = path

    def truncate(self, size: int) -> None:
        """Cut to `size`; `append` goes on there."""
        self._begin("truncate")
        self._write_pending()
        self._direct = False
        self._node.resize(size)
        self._node.reserved = self._size = size

    def flush(self) -> None:
        """Write what was put off."""
        self._write_pending()

    def sync(self) -> None:
        """Write what was put off, and fdatasync."""
        self._write_pending()
        self._begin_sync()
        self._node.sync()

    def _begin_sync(self) -> None:
        try:
            self._begin("sync")
        except OSError:
            self._node.lose_pending()
            raise

    def size(self) -> int:
        """Where `append` writes next."""
        return self._size

    def data_end(self) -> int:
        """Where zeros begin, also those that a record ends with: a file may be a sparse copy."""
        return len(self._node.data[: self._size].rstrip(b"\0"))

    def hold(self) -> None:
        """There are descriptors enough."""

    def close(self) -> None:
        """Release it."""
        self._write_pending()
        self._closed = True

    def drop(self) -> None:
        """Release it; what was put off is not written."""
        self._pending.clear()
        self._closed = True


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
