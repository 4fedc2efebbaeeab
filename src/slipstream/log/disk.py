"""The disk as the log sees it: a few operations that a simulator can stand in for.

`OsDisk` is the real one. Paths are strings relative to nothing: whatever the caller was given.
"""

import ctypes
import fcntl
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from slipstream.errors import StorageError
from slipstream.log.direct_write import replace
from slipstream.log.open_files import OpenFiles
from slipstream.log.os_file import Buffers, OsFile, data_end, flush_many, forget, full_or

SYNCED_EACH_MAX = 16  # files that are synced one by one
PUT_MAX = 1024 * 1024  # bytes of a file that leaves for other servers in one piece
# Bytes that other servers have as they were appended or written at once, or have none of, also
# where the lead of a group changes in between: what is larger had better be cut by who knows where.
WHOLE_MAX = 16 * 1024 * 1024
READ_BYTES = 64 * 1024  # of a file at once: most that are read as a whole are small


class File(Protocol):
    """An open file."""

    def append(self, data: bytes) -> None:
        """Write at the end. Raises `DiskFullError` or OSError; nothing half-written stays.

        A file that was reserved ahead may put that off until `sync`, which then raises.
        """

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""

    def pread_near(self, offset: int, size: int) -> bytes | None:
        """What `pread` gives, if the disk need not be waited for; else None."""

    def pread_stored(self, offset: int, size: int) -> bytes:
        """Up to `size` synced bytes from `offset`, read from the device and not from the
        system's cache, where they are not afterwards either."""

    def pwrite(self, offset: int, data: bytes) -> None:
        """Overwrite in place."""

    def reserve(self, size: int) -> int:
        """Make sure that the file can grow to `size` bytes, and say to how many it surely can.

        Raises `DiskFullError`.
        """

    def reserve_ahead(self, size: int) -> int:
        """As `reserve`, on another thread than those who append and sync; 0 if it cannot be had.
        Raises OSError, `DiskFullError`."""

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes, giving back what was reserved after it; `append` goes on there."""

    def go_on_at(self, size: int) -> None:
        """Have `append` go on at `size`; what the file holds after it is zeros, and stays. It was
        not reserved by this process."""

    def rewind(self) -> None:
        """Have `append` go on at the beginning, over what the file holds, which keeps its space."""

    def flush(self) -> None:
        """Hand to the system what `append` has put off. Raises OSError."""

    def sync(self) -> None:
        """fdatasync: returns when the bytes written so far survive a power failure."""

    def rename(self, path: str) -> None:
        """Have it another name in its directory, unless it has that already. Raises OSError."""

    def size(self) -> int:
        """Where `append` writes next. After it there may be zeros that were reserved."""

    def data_end(self) -> int:
        """An offset from which on an earlier process has left only zeros, at most `size`. It may
        be `size` after what follows it was read."""

    def hold(self) -> None:
        """Keep the descriptors until `close`, however many files are open."""

    def close(self) -> None:
        """Release the file."""

    def drop(self) -> None:
        """Release the file, which is to go: what `append` has put off need not be written."""


class Disk(Protocol):
    """Files by path."""

    def open(self, path: str) -> File:
        """Open for reading and writing; created if it does not exist."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""

    def read(self, path: str) -> bytes:
        """A whole file."""

    def read_stored(self, path: str) -> bytes:
        """A whole file, read from the device and not from the system's cache."""

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Have the system begin to read files, if they are there, that are about to be read. Waits
        for nothing, and never raises."""

    def mkdir(self, path: str) -> None:
        """Create a directory. Raises `DiskFullError` or OSError."""

    def makedirs(self, path: str) -> None:
        """Create a directory and those above it, durably. Raises `DiskFullError` or OSError."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, if it is there."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing `new`."""

    def sync_dir(self, path: str) -> None:
        """Make creations, removals and renames in a directory durable."""

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """`sync` of files and `sync_dir` of directories, where they still exist."""

    def flush_all(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """`flush` of files of this disk; for each, what it would have raised."""

    def settle(self) -> None:
        """Have what was flushed read by whoever opens a file from now on. Blocks; raises
        OSError."""

    def random_bytes(self, size: int) -> bytes:
        """Bytes that nobody can guess."""


class CopiedDisk:
    """A `Disk` whose files other servers have, too. It is no protocol, as it is asked for with each
    small file: whether an object has all methods of one is looked up for 20 µs."""

    def report_damage(self, what: str) -> None:
        """Something that was durable is not there, or not as it was. Raises `StorageError` if it is
        to be had from another server: what is here must not be gone on with then."""
        raise NotImplementedError

    def put(self, path: str, content: bytes, makes_directory: bool = False) -> None:
        """Have a file hold `content`, of `PUT_MAX` bytes at most, and nothing else, in a directory
        that is there or may be made; durably with the next sync, before which no crash leaves a
        part of it. It waits for nothing. Raises OSError."""
        raise NotImplementedError

    def waits_for_space(self) -> bool:
        """Whether what was written waits now for space that others have not got. Any thread may
        call."""
        raise NotImplementedError


def waits_for_space(disk: Disk) -> bool:
    """See `CopiedDisk`; any other disk refuses what it has no space for."""
    return isinstance(disk, CopiedDisk) and disk.waits_for_space()


def report_damage(disk: Disk, what: str) -> None:
    """See `CopiedDisk`; any other disk has the only copy, of which the best is made."""
    if isinstance(disk, CopiedDisk):
        disk.report_damage(what)


def write_file(disk: Disk, path: str, content: bytes, sync: bool = True) -> None:
    """Have a file hold `content` and nothing else; durably with `sync`, but for its name. It goes
    into blocks that the file has, so that a full disk takes it. Blocks; raises `DiskFullError`,
    OSError."""
    if isinstance(disk, CopiedDisk) and len(content) <= PUT_MAX:
        disk.put(path, content)
        if sync:
            disk.settle()
        return
    file = disk.open(path)
    try:
        if len(content) <= file.size():
            file.pwrite(0, content)
            if len(content) < file.size():
                file.truncate(len(content))
        else:
            file.truncate(0)
            file.append(content)
        if sync:
            file.sync()
    finally:
        file.close()


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Have a file hold `content`, or what it held before, whatever happens; durably once the file
    and its directory are synced, which is made if there is none. Blocks; raises `StorageError`,
    OSError."""
    if isinstance(disk, CopiedDisk) and len(content) <= PUT_MAX:
        disk.put(path, content, makes_directory=True)
        return
    staged = f"{path}.new"
    try:
        if isinstance(disk, OsDisk):
            disk.replace(path, staged, content)
            return
        _make_directory(disk, os.path.dirname(path))
        write_file(disk, staged, content, sync=False)
        disk.rename(staged, path)
    except (OSError, StorageError):
        with suppress(OSError):  # the next attempt overwrites it
            disk.remove(staged)
        raise


def _make_directory(disk: Disk, directory: str) -> None:
    if not disk.exists(directory):
        disk.makedirs(os.path.dirname(directory))
        disk.mkdir(directory)


class OsDisk:
    """The real disk. Directories are made for the owner alone (0700), files too (0600).

    `open_files_max` bounds how many files it keeps open; 0 takes what the process may open.
    """

    def __init__(self, open_files_max: int = 0) -> None:
        self.open_files = OpenFiles(open_files_max)
        self._buffers = Buffers()
        self._fallocate: Callable[..., int] | None = None
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "fallocate"):
            libc.fallocate.argtypes = [
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_longlong,
                ctypes.c_longlong,
            ]
            self._fallocate = libc.fallocate
        # Of many files, one call for the file system; it reports what failed from Linux 5.8 on.
        self._syncfs: Callable[..., int] | None = None
        if hasattr(libc, "syncfs") and _linux_version() >= (5, 8):
            self._syncfs = libc.syncfs

    def open(self, path: str) -> OsFile:
        return OsFile(path, self._buffers, self._fallocate, self.open_files)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(self.open_files.with_room(lambda: os.listdir(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # `open` asks five times as much of it
        try:
            piece = os.read(fd, READ_BYTES)
            if len(piece) < READ_BYTES:  # as nearly always
                return piece
            pieces = [piece]
            while piece := os.read(fd, READ_BYTES):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    def read_stored(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            forget(file.fileno(), 0, 0)
            data = file.readall()
            forget(file.fileno(), 0, 0)
            return data

    def read_ahead(self, paths: Sequence[str]) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        for path in paths:
            with suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    # No more than that: what the cache has of a file counts as data afterwards.
                    size = data_end(fd, os.fstat(fd).st_size, self._buffers)
                    if size:  # 0 would be all of it
                        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_WILLNEED)
                finally:
                    os.close(fd)

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise full_or(error, f"creating {path}") from error

    def makedirs(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            try:
                self.mkdir(directory)
            except FileExistsError:
                continue
            self.sync_dir(os.path.dirname(directory))

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        import shutil

        shutil.rmtree(path, ignore_errors=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def replace(self, path: str, staged: str, content: bytes) -> None:
        """What `replace_file` asks for, as one call: a thread that writes a thousand files would
        wait for the interpreter after each of the eight calls that one takes."""
        try:
            try:
                self.open_files.with_room(lambda: replace(path, staged, content))
            except FileNotFoundError:
                _make_directory(self, os.path.dirname(path))
                self.open_files.with_room(lambda: replace(path, staged, content))
        except OSError as error:
            raise full_or(error, f"writing {path}") from error

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return os.path.isdir(path)

    def link(self, old: str, new: str) -> None:
        """Give a file another name."""
        os.link(old, new)

    def sync_dir(self, path: str) -> None:
        fd = self._open_to_sync(path or ".", os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        if self._syncfs is not None and len(files) + len(directories) > SYNCED_EACH_MAX:
            above = os.path.commonpath([*files, *directories])
            while not os.path.exists(above):  # removed meanwhile
                above = os.path.dirname(above)
            fd = self._open_to_sync(above)
            try:
                if self._syncfs(fd):
                    failed = ctypes.get_errno()
                    raise OSError(failed, os.strerror(failed))
            finally:
                os.close(fd)
            return
        for path in [*files, *directories]:
            try:
                fd = self._open_to_sync(path)
            except FileNotFoundError:  # removed meanwhile
                continue
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def flush_all(self, files: Sequence[File]) -> Sequence[OSError | None]:
        return flush_many([file for file in files if isinstance(file, OsFile)], self._buffers)

    def settle(self) -> None:
        pass  # so it is

    def _open_to_sync(self, path: str, flags: int = 0) -> int:
        return self.open_files.with_room(lambda: os.open(path, os.O_RDONLY | flags))

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)


def _linux_version() -> tuple[int, ...]:
    """The kernel's version, such as (6, 1); (0,) for other systems."""
    if sys.platform != "linux":
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


class DirectoryLock:
    """Keeps a second server away from a store directory; released with the process at last."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, "lock")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise StorageError(
                f"another server uses the store directory {directory}; "
                "stop it, or give this one a directory of its own"
            ) from error

    def release(self) -> None:
        """Let others have it."""
        os.close(self._fd)
