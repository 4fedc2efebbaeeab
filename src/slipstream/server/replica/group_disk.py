"""The disk of a leader: what it has synced is on a majority of the group's servers.

Writes, and changes of names, are operations. They gather, and each sync makes them an entry of the
group's log, in the order in which they were made, of whatever files. It returns once a majority has
the entry and the files here have what it says. So the files hold what is committed and never more:
a leader that is deposed, or whose process ends, leaves nothing behind that the next one does not
have. Until then a file reads what was written to it from memory.

Who has something better to do than to wait has writes and their syncs `run_ahead`: the entries
leave, and a future says when all of it is on a majority and in the files. For what is of no use by
halves, such as the end of a store, few entries leave (`run_gathered`). A change of names waits all
the same, and so does whoever reads what is on its way.

A change of names is an entry at once, and waits for it. A file that is open is written to under its
new name from that entry on, and a file that is removed is written to in memory alone: an operation
never says something about a name that an earlier one has taken away. Small content that is `put` as
a whole waits for nothing: an entry is done as a whole, or once more after a crash, so no name aside
is needed, and many such files are one entry.

Once an entry has failed, the disk is *lost*: no later one leaves, or the servers would have what
follows without what went before; and whoever syncs is told. Space is reserved in the files here
alone. Where the disk is full, or the log of the group has little space (`is_full`), nothing is
reserved: what adds to the store is refused, and there is room for what removes.

What is damaged in the files here is whole on the other servers. So the first damage that anybody
finds has the disk be lost, too, if `may_refuse` says so: what the engine would make of it, a
message that counts as lost or a stream that is not there, would have become true for all servers.
"""

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

from slipstream.errors import DiskFullError, StorageError
from slipstream.log.disk import PUT_MAX, WHOLE_MAX, CopiedDisk, Disk, File
from slipstream.server.replica.operations import Kind, Operation, encode_operations

# Of one entry, about; what is more makes several. What was written at once stays in one, up to
# `WHOLE_MAX`: a lead that ends in between must not leave half a record, which looks like damage.
ENTRY_BYTES = 4 * 1024 * 1024
# Of entries that nobody has an answer to; who writes more waits. Two of the largest, and less than
# a host lets wait (`WAITING_MAX`).
UNDER_WAY_BYTES = 48 * 1024 * 1024
PENDING_MAX = 1024  # paths, after which those are forgotten of which all is applied
NAME_BYTES_MAX = 255  # of a file or directory, without those above it
_HEAD_BYTES = 24  # of an operation, about, beside its path and its data

_Read = TypeVar("_Read")

Submit = Callable[[bytes], "Future[None]"]  # an entry's body; done once it is applied here


class LostLeadError(StorageError):
    """Another server leads the group, or none: what was to be stored may be or not."""


class _Here(threading.local):
    """What this thread is about."""

    is_ahead = False  # it waits for no entry
    gathers = False  # ... and makes none before it has to


class GroupDisk(CopiedDisk):
    """The files below `root`, to which the group's entries are applied by whoever does what
    `submit` asks for; `disk` has them. For any number of threads. `on_lost` is called once, on any
    thread, when an entry has failed, or damage was found that `may_refuse` is for, which `damage`
    is then; `on_full` each time that there was no space."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        submit: Submit,
        on_lost: Callable[[], None] = lambda: None,
        is_full: Callable[[], bool] = lambda: False,
        on_full: Callable[[], None] = lambda: None,
        may_refuse: Callable[[], bool] = lambda: False,
    ) -> None:
        self.damage = ""
        self._disk = disk
        self._root = root
        self._below = f"{root}/"
        self._submit = submit
        self._on_lost = on_lost
        self._is_full = is_full
        self._on_full = on_full
        self._may_refuse = may_refuse
        self._why_lost = ""
        self._here = _Here()
        self._lock = threading.Lock()  # for the order of operations and entries, and for
        self._changing: list[str] = []  # paths whose names change just now
        self._changed = threading.Condition(self._lock)
        self._operations: list[Operation] = []  # not in an entry yet
        self._bytes = 0
        self._last: Future[None] | None = None  # of the last entry
        self._under_way: deque[tuple[Future[None], int]] = deque()  # entries, with their bytes
        self._under_way_bytes = 0
        self._number = 1  # of the entry that is gathered
        # The number of the last entry that is known to be applied. It is noted on the thread that
        # applies, for which a thread may wait that holds the lock of the operations.
        self._applied = 0
        self._noting = threading.Lock()
        # By path, as operations have it: the last entry about the file, and its size after that.
        self._pending: dict[str, tuple[int, int]] = {}
        self._made: dict[str, int] = {}  # names that `put` has made: the entry that makes them
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
            number = self._number
            path = self.path_of(file.path)
            for start in range(0, len(data) if file.is_there else 0, WHOLE_MAX):
                part = data if len(data) <= WHOLE_MAX else data[start : start + WHOLE_MAX]
                self._operations.append(Operation(Kind.WRITE, path, part, offset + start))
                self._bytes += len(part) + len(path) + _HEAD_BYTES
                number = self._number
                size = max(file.size(), offset + start + len(part))
                self._pending[path] = (number, size)
                if self._bytes >= ENTRY_BYTES:
                    self._make_entry()
        return number

    def commit(self) -> None:
        """Have all that was noted on a majority and in the files here. Blocks, unless it runs
        ahead; raises `LostLeadError`."""
        if self._here.gathers:
            return
        with self._lock:
            last, number = self._begin_commit(())
        if not self._here.is_ahead:
            self._end_commit(last, number)

    def commit_now(self, *more: Operation) -> None:
        """The same, with `more` as an entry of its own behind it. Blocks, also if it runs ahead."""
        with self._lock:
            last, number = self._begin_commit(more)
        self._end_commit(last, number)

    def _commit_what_is_of(self, path: str) -> None:
        """What is read there has to be in the files: have it there. Blocks."""
        self.commit()
        if self.pending_size(path) is not None:
            self.commit_now()

    def pending_size(self, path: str) -> int | None:
        """The size of a file once all is applied; None where all is."""
        with self._lock:
            number, size = self._pending.get(self.path_of(path), (0, 0))
            return size if number > self._applied else None

    def _begin_commit(self, more: Sequence[Operation]) -> "tuple[Future[None] | None, int]":
        self._make_entry()
        if more:
            self._operations.extend(more)
            self._make_entry()
        return self._last, self._number - 1

    def run_ahead(self, run: Callable[[], None]) -> "Future[None] | None":
        """Have `run` write to files and sync these. It waits for nothing, unless it changes names,
        or reads what is on its way; done once all that it synced is on a majority and in the files
        here, or with a `LostLeadError`. None if it might have to wait before its entry leaves: then
        it was not run."""
        if self._under_way_bytes > UNDER_WAY_BYTES // 2:
            return None
        self._here.is_ahead = True
        try:
            run()
        finally:
            self._here.is_ahead = False
        return self._all_so_far()

    def run_gathered(self, run: Callable[[], None]) -> "Future[None]":
        """The same, in as few entries as can be, which leave at the end of it. It waits also where
        much is under way."""
        self._here.is_ahead = self._here.gathers = True
        try:
            run()
        finally:
            self._here.is_ahead = self._here.gathers = False
        self.hand_on()
        return self._all_so_far()

    def _all_so_far(self) -> "Future[None]":
        """Done once all entries that have left are on a majority and in the files here."""
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # who waits may give up, and does not cancel it
        with self._lock:
            last, number = self._last, self._number - 1

        def applied(_: object) -> None:
            try:
                self._end_commit(last, number)
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        if last is None:
            applied(None)
        else:
            last.add_done_callback(applied)
        return done

    def _end_commit(self, last: "Future[None] | None", number: int) -> None:
        if last is not None:
            last.result()
        if self._why_lost:  # an entry before that one has failed, or a later one
            raise LostLeadError(self._why_lost)
        with self._noting:
            self._applied = max(self._applied, number)

    def hand_on(self) -> None:
        """Have all that was noted leave, and wait for nothing."""
        if self._here.gathers:
            return
        with self._lock:
            self._make_entry()

    def _make_entry(self) -> None:
        """An entry of what has gathered. It waits where much is under way already."""
        if not self._operations:
            return
        operations, size = self._operations, self._bytes
        self._operations, self._bytes = [], 0
        if len(self._pending) > PENDING_MAX:
            left = [(path, one) for path, one in self._pending.items() if one[0] > self._applied]
            self._pending = dict(left)
            made = [(path, number) for path, number in self._made.items() if number > self._applied]
            self._made = dict(made)
        under_way = self._under_way
        while under_way and (
            under_way[0][0].done() or self._under_way_bytes + size > UNDER_WAY_BYTES
        ):
            future, done = under_way.popleft()
            self._under_way_bytes -= done
            future.exception()  # until it is done; `_entry_done` sees to the rest
        self._number += 1
        if self._why_lost:
            self._last = Future()
            self._last.set_exception(LostLeadError(self._why_lost))
            return
        future = self._last = self._submit(encode_operations(operations))
        under_way.append((future, size))
        self._under_way_bytes += size
        future.add_done_callback(self._entry_done)

    def _entry_done(self, future: "Future[None]") -> None:
        """On any thread, perhaps within `_make_entry`."""
        error = future.exception()
        if error is not None and not self._why_lost:
            self._why_lost = str(error) or repr(error)
            self._on_lost()

    def report_damage(self, what: str) -> None:
        """See `CopiedDisk`. Raises `LostLeadError`."""
        if self._why_lost or not self._may_refuse():
            return
        self.damage = what
        self._why_lost = f"{what}, and is to be had from another server"
        self._on_lost()
        raise LostLeadError(self._why_lost)

    @property
    def is_lost(self) -> bool:
        """Whether an entry has failed, or damage was found, so that nothing more is stored."""
        return bool(self._why_lost)

    def leave(self) -> None:
        """Another server leads, or another disk of this one: nothing more leaves from here."""
        self._why_lost = self._why_lost or "this server does not lead the group any more"

    def close(self) -> None:
        """Release what its files hold; nobody reads from them any more."""
        with self._lock:
            files = list(self._files)
        for file in files:
            file.close()

    @property
    def applied(self) -> int:
        """The number of the last entry that is known to be in the files here."""
        return self._applied

    # -- space -----------------------------------------------------------------------------------

    def reserve(self, file: File, size: int) -> int:
        """Reserve space in a file. Raises `DiskFullError`."""
        if self._is_full():
            raise DiskFullError("no space left in the log of the group; free some and go on")
        try:
            return file.reserve(size)
        except DiskFullError:
            self._on_full()
            raise

    def reserve_ahead(self, file: File, size: int) -> int:
        """Reserve space that is not needed yet; 0 if there is none."""
        return 0 if self._is_full() else file.reserve_ahead(size)

    # -- names -----------------------------------------------------------------------------------

    @contextmanager
    def _changes(self, *paths: str) -> Iterator[None]:
        """Names change, one change after the other where one path is the other or lies in it: what
        is checked before a change holds when the servers make it."""
        with self._changed:
            while any(_concerns(one, path) for one in self._changing for path in paths):
                self._changed.wait()
            self._changing.extend(paths)
        try:
            yield
        finally:
            with self._changed:
                for path in paths:
                    self._changing.remove(path)
                self._changed.notify_all()

    def _check_new(self, path: str) -> None:
        """No server could give a file this name: the leader says so before all of them fail.
        Raises OSError."""
        _check_name(path)
        if not self.exists(os.path.dirname(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def put(self, path: str, content: bytes, makes_directory: bool = False) -> None:
        """See `CopiedDisk`."""
        assert len(content) <= PUT_MAX, "it would not go into an entry"
        with self._changes(path):
            made: list[str] = []
            above = path
            while not self.exists(above):
                made.append(above)
                _check_name(above)
                above = os.path.dirname(above)
            if len(made) > 1 and not makes_directory:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            with self._lock:
                self._put(path, content, made[::-1])
                replaced = self._open_below(path)
            for file in replaced:  # each has a lock that its writers take before the disk's
                file.was_put(len(content))

    def _put(self, path: str, content: bytes, made: Sequence[str]) -> None:
        name = self.path_of(path)
        for one in made:
            kind = Kind.CREATE if one == path else Kind.MAKE_DIRECTORY
            self._operations.append(Operation(kind, self.path_of(one)))
            self._made[one] = self._number
        self._operations.append(Operation(Kind.TRUNCATE, name, offset=len(content)))
        self._operations.append(Operation(Kind.WRITE, name, content))
        self._bytes += len(content) + (len(made) + 2) * (len(name) + _HEAD_BYTES)
        self._pending[name] = (self._number, len(content))
        if self._bytes >= ENTRY_BYTES:
            self._make_entry()

    def open(self, path: str) -> "GroupFile":
        with self._changes(path):
            if not self._disk.exists(path):  # also where it is made by an entry on its way
                self._check_new(path)
                self.commit_now(Operation(Kind.CREATE, self.path_of(path)))
            size = self.pending_size(path)  # another thread may be ahead
            file = GroupFile(self, self._disk, path, size)
            with self._lock:
                self._files.add(file)
        return file

    def closed(self, file: "GroupFile") -> None:
        """A file is not open any more."""
        with self._lock:
            self._files.discard(file)
            file.is_there = False

    def exists(self, path: str) -> bool:
        return self._made.get(path, 0) > self._applied or self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        below = f"{path}/"
        with self._lock:
            found = [number for one, number in self._made.items() if one.startswith(below)]
        if max(found, default=0) > self._applied:
            self.commit_now()
        return self._disk.list(path)

    def read(self, path: str) -> bytes:
        self._commit_what_is_of(path)
        return self._disk.read(path)

    def read_stored(self, path: str) -> bytes:
        self._commit_what_is_of(path)
        return self._disk.read_stored(path)

    def read_ahead(self, paths: Sequence[str]) -> None:
        self._disk.read_ahead(paths)

    def mkdir(self, path: str) -> None:
        with self._changes(path):
            if self.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._check_new(path)
            self.commit_now(Operation(Kind.MAKE_DIRECTORY, self.path_of(path)))

    def makedirs(self, path: str) -> None:
        parts = path.split("/")
        missing = [above for n in range(1, len(parts) + 1) if (above := "/".join(parts[:n]))]
        for above in missing:
            if not self.exists(above):
                with suppress(FileExistsError):  # another thread has made it
                    self.mkdir(above)

    def remove(self, path: str) -> None:
        self._remove(Kind.REMOVE, path)

    def remove_tree(self, path: str) -> None:
        self._remove(Kind.REMOVE_TREE, path)

    def _remove(self, kind: Kind, path: str) -> None:
        with self._changes(path):
            if not self.exists(path):
                return
            with self._lock:
                last, number = self._begin_commit([Operation(kind, self.path_of(path))])
                for file in self._open_below(path):
                    file.is_there = False
            self._end_commit(last, number)

    def rename(self, old: str, new: str) -> None:
        with self._changes(old, new):
            self._rename(old, new)

    def rename_file(self, file: "GroupFile", new: str) -> None:
        """Give an open file a name, unless it has that; two threads may do so at once."""
        while file.path != new:
            old = file.path
            with self._changes(old, new):
                if file.path == old:
                    self._rename(old, new)
                    file.path = new  # also if it was closed meanwhile

    def _rename(self, old: str, new: str) -> None:
        if not self.exists(old):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._check_new(new)
        operation = Operation(Kind.RENAME, self.path_of(old), other=self.path_of(new))
        with self._lock:
            last, number = self._begin_commit([operation])
            for file in self._open_below(new):
                file.is_there = False
            moved = self._open_below(old)
            for file in moved:  # what is written from here on comes after the rename
                file.path = new + file.path[len(old) :]
        self._end_commit(last, number)
        for file in moved:
            file.open_again()

    def _open_below(self, path: str) -> "tuple[GroupFile, ...]":
        """The files that are open and there at a path, or in the directory."""
        below = f"{path}/"
        return tuple(
            file
            for file in self._files
            if file.is_there and (file.path == path or file.path.startswith(below))
        )

    def truncate(self, file: "GroupFile", size: int) -> bool:
        """Cut a file; whether it is cut already, which it is not if this runs ahead."""
        with self._lock:
            path = self.path_of(file.path)
            if file.is_there:
                self._operations.append(Operation(Kind.TRUNCATE, path, offset=size))
                self._bytes += len(path) + _HEAD_BYTES
                self._pending[path] = (self._number, size)
            if self._here.gathers:
                return False
            last, number = self._begin_commit(())
        if self._here.is_ahead:
            return False
        self._end_commit(last, number)
        return True

    def waits_for_space(self) -> bool:
        return self._is_full()

    def sync_dir(self, path: str) -> None:
        self.commit()

    def settle(self) -> None:
        self.commit()

    def flush_all(self, files: Sequence[File]) -> Sequence[OSError | None]:
        try:
            self.hand_on()
        except OSError as error:
            return [error] * len(files)
        return [None] * len(files)

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        self.commit()
        with self._lock:
            found = list(self._files)
        for file in found:
            file.forget()

    def random_bytes(self, size: int) -> bytes:
        return self._disk.random_bytes(size)


def _check_name(path: str) -> None:
    if len(os.fsencode(os.path.basename(path))) > NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


def _concerns(path: str, other: str) -> bool:
    """Whether two paths are the same, or one lies in the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


class GroupFile:
    """An open file of a `GroupDisk`."""

    def __init__(self, group: GroupDisk, disk: Disk, path: str, size: int | None) -> None:
        self.path = path  # changed by the disk alone, as is
        self.is_there = True  # whether the file has a name still
        self._group = group
        self._disk = disk
        self._base: File = disk.open(path)  # what is committed; it is not written to here
        self._size = self._base.size() if size is None else size
        self._lock = threading.Lock()  # for what follows
        self._ahead: list[tuple[int, int, bytes]] = []  # number of its entry, offset, data
        self._ahead_from = 0  # the lowest of these offsets
        self._is_held = False
        self._is_closed = False
        self._is_behind = size is not None  # the file: nothing is read before all is applied

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
        self.forget()

    def flush(self) -> None:
        self._group.hand_on()

    def truncate(self, size: int) -> None:
        is_done = self._group.truncate(self, size)
        with self._lock:
            self._ahead.clear()
        self._size = size
        self._is_behind = not is_done
        if is_done:
            self.open_again()

    def was_put(self, size: int) -> None:
        """Other content takes the place of all that it held."""
        with self._lock:
            self._ahead.clear()
        self._size = size
        self._is_behind = True

    def _catch_up(self) -> None:
        """What is read has to be in the file. Blocks."""
        if self._group.pending_size(self.path) is not None:
            self._group.commit_now()
        self._is_behind = False
        self.open_again()

    def go_on_at(self, size: int) -> None:
        self._size = size

    def rewind(self) -> None:
        self._size = 0

    def rename(self, path: str) -> None:
        self._group.rename_file(self, path)

    def open_again(self) -> None:
        """It has another name or another size: what was known of it does not hold any more."""
        with self._lock:
            if self._is_closed or not self.is_there:
                return
            before, self._base = self._base, self._disk.open(self.path)
            if self._is_held:
                self._base.hold()
        before.close()

    def forget(self) -> None:
        """What was applied is read from the file again."""
        if self._ahead:
            with self._lock:
                self._forget()

    def _forget(self) -> None:
        applied = self._group.applied if self.is_there else 0
        self._ahead = [one for one in self._ahead if one[0] > applied]
        self._ahead_from = min((one[1] for one in self._ahead), default=0)

    # -- space -----------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        return self._group.reserve(self._base, size)

    def reserve_ahead(self, size: int) -> int:
        return self._group.reserve_ahead(self._base, size)

    # -- reading ---------------------------------------------------------------------------------

    def pread(self, offset: int, size: int) -> bytes:
        if self._is_behind:
            self._catch_up()
        with self._lock:
            ahead = self._ahead_of(offset, size)
        data = self._of_base(lambda base: base.pread(offset, size))
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
        if self._ahead and self._ahead[0][0] <= self._group.applied:  # what ran ahead is there
            self._forget()
        if offset + size <= self._ahead_from:
            return []
        return [
            (at, part)
            for _, at, part in self._ahead
            if at < offset + size and at + len(part) > offset
        ]

    def pread_near(self, offset: int, size: int) -> bytes | None:
        if self._is_behind:
            return None
        with self._lock:
            if self._ahead_of(offset, size):
                return None
        return self._of_base(lambda base: base.pread_near(offset, size))

    def pread_stored(self, offset: int, size: int) -> bytes:
        if self._is_behind:
            self._catch_up()
        return self._of_base(lambda base: base.pread_stored(offset, size))

    def _of_base(self, read: Callable[[File], _Read]) -> _Read:
        """What is read of the file. It may be opened again meanwhile, by another thread."""
        while True:
            base = self._base
            try:
                return read(base)
            except (OSError, ValueError):
                if base is self._base:
                    raise

    # -- the end ---------------------------------------------------------------------------------

    def size(self) -> int:
        return self._size

    def data_end(self) -> int:
        return self._size

    def hold(self) -> None:
        self._is_held = True
        self._base.hold()

    def close(self) -> None:
        """Release it. What was written leaves with what comes next."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._group.closed(self)
        self._base.close()

    def drop(self) -> None:
        """As `close`: what was appended to it leaves before the deletion, in the same order."""
        self.close()
