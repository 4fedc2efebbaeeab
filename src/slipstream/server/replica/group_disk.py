"""The disk of a leader: what it has synced is on a majority of the group's servers.

Writes, and changes of names, are operations. They gather, and each sync makes them an entry of the
group's log, in the order in which they were made, of whatever files. It returns once a majority has
the entry and the files here have what it says. So the files hold what is committed and never more:
a leader that is deposed, or whose process ends, leaves nothing behind that the next one does not
have. Until then a file reads what was written to it from memory.

A change of names is an entry at once, and waits for it. Space is reserved in the files here alone.
"""

import errno
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from slipstream.errors import StorageError
from slipstream.log.disk import Disk, File
from slipstream.server.replica.operations import Kind, Operation, encode_operations

ENTRY_BYTES = 4 * 1024 * 1024  # of one entry, about; what is more makes several
UNDER_WAY_BYTES_MAX = 24 * 1024 * 1024  # of entries that no majority has yet

Submit = Callable[[bytes], "Future[None]"]  # an entry's body; done once it is applied here


class LostLeadError(StorageError):
    """Another server leads the group, or none: what was to be stored may be or not."""


class GroupDisk:
    """The files below `root`, to which the group's entries are applied by whoever does what
    `submit` asks for; `disk` has them. For any number of threads."""

    def __init__(self, disk: Disk, root: str, submit: Submit) -> None:
        self._disk = disk
        self._root = root
        self._below = f"{root}/"
        self._submit = submit
        self._lock = threading.Lock()  # for the order of operations and entries
        self._operations: list[Operation] = []  # not in an entry yet
        self._bytes = 0
        self._last: Future[None] | None = None  # of the last entry
        self._under_way: deque[tuple[Future[None], int]] = deque()  # entries, and their bytes
        self._under_way_bytes = 0
        self._number = 1  # of the entry that is gathered
        self._applied = 0  # the number of the last entry that is known to be applied
        self._files: weakref.WeakSet[GroupFile] = weakref.WeakSet()  # that are open

    # -- operations ------------------------------------------------------------------------------

    def path_of(self, path: str) -> str:
        """A path as the operations have it. Raises `StorageError` for one elsewhere."""
        if not path.startswith(self._below):
            raise StorageError(f"{path} does not lie in the store of the group, {self._root}")
        return path[len(self._below) :]

    def write(self, file: "GroupFile", offset: int, data: bytes) -> int:
        """Note what is written to a file; the number of the entry that will have it."""
        with self._lock:
            path = self.path_of(file.path)
            number = self._number
            for start in range(0, len(data), ENTRY_BYTES):
                piece = data[start : start + ENTRY_BYTES]
                self._operations.append(Operation(Kind.WRITE, path, piece, offset + start))
                self._bytes += len(piece)
                number = self._number
                if self._bytes >= ENTRY_BYTES:
                    self._make_entry()
        self._wait_for_room()
        return number

    def _wait_for_room(self) -> None:
        """Block while more is on its way to the others than they may be behind. Raises
        `LostLeadError`."""
        while True:
            with self._lock:
                under_way = self._under_way
                while under_way and under_way[0][0].done():
                    self._under_way_bytes -= under_way.popleft()[1]
                if self._under_way_bytes <= UNDER_WAY_BYTES_MAX:
                    return
                first = under_way[0][0]
            first.result()

    def commit(self, *more: Operation) -> None:
        """Have all that was noted, and then `more` as an entry of its own, on a majority and in the
        files here. Blocks; raises `LostLeadError`."""
        with self._lock:
            self._make_entry()
            if more:
                self._operations.extend(more)
                self._make_entry()
            last, number = self._last, self._number - 1
        if last is not None:
            last.result()
        self._applied = max(self._applied, number)

    def hand_on(self) -> None:
        """Have all that was noted leave, and wait for nothing."""
        with self._lock:
            self._make_entry()

    def _make_entry(self) -> None:
        if self._operations:
            body = encode_operations(self._operations)
            self._operations, self._bytes = [], 0
            self._number += 1
            self._last = self._submit(body)
            self._under_way.append((self._last, len(body)))
            self._under_way_bytes += len(body)

    @property
    def applied(self) -> int:
        """The number of the last entry that is known to be in the files here."""
        return self._applied

    # -- names -----------------------------------------------------------------------------------

    def open(self, path: str) -> "GroupFile":
        if not self._disk.exists(path):
            self.commit(Operation(Kind.CREATE, self.path_of(path)))
        file = GroupFile(self, self._disk, path)
        self._files.add(file)
        return file

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def read(self, path: str) -> bytes:
        self.commit()
        return self._disk.read(path)

    def read_stored(self, path: str) -> bytes:
        self.commit()
        return self._disk.read_stored(path)

    def mkdir(self, path: str) -> None:
        if self._disk.exists(path):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.commit(Operation(Kind.MAKE_DIRECTORY, self.path_of(path)))

    def makedirs(self, path: str) -> None:
        parts = path.split("/")
        missing = [above for n in range(1, len(parts) + 1) if (above := "/".join(parts[:n]))]
        for above in missing:
            if not self._disk.exists(above):
                self.mkdir(above)

    def remove(self, path: str) -> None:
        if self._disk.exists(path):
            self.commit(Operation(Kind.REMOVE, self.path_of(path)))

    def remove_tree(self, path: str) -> None:
        if self._disk.exists(path):
            self.commit(Operation(Kind.REMOVE_TREE, self.path_of(path)))

    def rename(self, old: str, new: str) -> None:
        if not self._disk.exists(old):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self.commit(Operation(Kind.RENAME, self.path_of(old), other=self.path_of(new)))
        for file in list(self._files):
            file.moved(old, new)

    def sync_dir(self, path: str) -> None:
        self.commit()

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        self.commit()

    def random_bytes(self, size: int) -> bytes:
        return self._disk.random_bytes(size)


class GroupFile:
    """An open file of a `GroupDisk`."""

    def __init__(self, group: GroupDisk, disk: Disk, path: str) -> None:
        self.path = path
        self._group = group
        self._disk = disk
        self._base: File = disk.open(path)  # what is committed; it is not written to here
        self._size = self._base.size()
        self._lock = threading.Lock()  # for what follows
        self._ahead: list[tuple[int, int, bytes]] = []  # number of its entry, offset, data
        self._ahead_from = 0  # the lowest of these offsets
        self._is_held = False

    # -- writing ---------------------------------------------------------------------------------

    def append(self, data: bytes) -> None:
        self._write(self._size, data)
        self._size += len(data)

    def pwrite(self, offset: int, data: bytes) -> None:
        self._write(offset, data)

    def _write(self, offset: int, data: bytes) -> None:
        with self._lock:
            number = self._group.write(self, offset, data)
            self._ahead_from = min(self._ahead_from, offset) if self._ahead else offset
            self._ahead.append((number, offset, data))

    def sync(self) -> None:
        self._group.commit()
        self._forget()

    def flush(self) -> None:
        self._group.hand_on()

    def truncate(self, size: int) -> None:
        path = self._group.path_of(self.path)
        self._group.commit(Operation(Kind.TRUNCATE, path, offset=size))
        with self._lock:
            self._ahead.clear()
            self._open_again()
        self._size = size

    def rewind(self) -> None:
        self._size = 0

    def rename(self, path: str) -> None:
        if self.path != path:
            self._group.rename(self.path, path)

    def moved(self, old: str, new: str) -> None:
        """A file or directory has another name: this one, perhaps, or one that it lies in."""
        if self.path == old or self.path.startswith(f"{old}/"):
            with self._lock:
                self.path = new + self.path[len(old) :]
                self._open_again()

    def _open_again(self) -> None:
        before, self._base = self._base, self._disk.open(self.path)
        if self._is_held:
            self._base.hold()
        before.close()

    def _forget(self) -> None:
        """What was applied is read from the file again."""
        with self._lock:
            applied = self._group.applied
            self._ahead = [one for one in self._ahead if one[0] > applied]
            self._ahead_from = min((one[1] for one in self._ahead), default=0)

    # -- space -----------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        return self._base.reserve(size)

    def reserve_ahead(self, size: int) -> int:
        return self._base.reserve_ahead(size)

    # -- reading ---------------------------------------------------------------------------------

    def pread(self, offset: int, size: int) -> bytes:
        with self._lock:
            ahead = self._ahead_of(offset, size)
            base = self._base
        data = base.pread(offset, size)
        if not ahead:
            return data
        end = min(offset + size, max(at + len(part) for at, part in ahead))
        found = bytearray(data.ljust(max(end - offset, 0), b"\0"))
        for at, part in ahead:
            start, stop = max(at, offset), min(at + len(part), offset + size)
            found[start - offset : stop - offset] = part[start - at : stop - at]
        return bytes(found)

    def _ahead_of(self, offset: int, size: int) -> "list[tuple[int, bytes]]":
        """What was written to a part of the file, and may not be in it yet, in order."""
        if offset + size <= self._ahead_from:
            return []
        return [
            (at, part)
            for _, at, part in self._ahead
            if at < offset + size and at + len(part) > offset
        ]

    def pread_near(self, offset: int, size: int) -> bytes | None:
        with self._lock:
            if self._ahead_of(offset, size):
                return None
            base = self._base
        return base.pread_near(offset, size)

    def pread_stored(self, offset: int, size: int) -> bytes:
        return self._base.pread_stored(offset, size)

    # -- the end ---------------------------------------------------------------------------------

    def size(self) -> int:
        return self._size

    def hold(self) -> None:
        self._is_held = True
        self._base.hold()

    def close(self) -> None:
        """Release it. What was written leaves with what comes next."""
        self._base.close()
