"""A file of the operating system, written directly once room is reserved in it.

A log reserves ahead and appends whole batches. Such a file is written past the page cache
(O_DIRECT): the kernel copies nothing and allocates nothing, and the fdatasync that follows has
little to do. That halves the time of a small commit and makes a large one several times as fast.

The device wants whole blocks. What lies in the last block, not full yet, is written again with what
follows; those bytes do not change, so a torn write of that block loses nothing that was there.
Small batches have blocks of zeros written before them, so that they overwrite: an fdatasync after
that has no new extent to record.

Where there is no direct I/O (tmpfs on older kernels, other systems) everything goes through the
page cache, with the same promises.
"""

import ctypes
import errno
import functools
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from slipstream.errors import DiskFullError
from slipstream.log.cached_read import KNOWS, read_cached
from slipstream.log.direct_write import BLOCK, ManyWrites, write_blocks
from slipstream.log.open_files import OpenFiles

BUFFER_BYTES = 1024 * 1024  # of one direct write
BUFFERS_KEPT = 4
DIRECT_READ_MIN = 64 * 1024  # bytes; below that the page cache costs little
SMALL_BATCH = 512 * 1024  # batches below this are worth zeros written ahead
RESERVE_STEP_MIN = 4096
RESERVE_STEP_MAX = 8 * 1024 * 1024
UNRESERVED_STEP = 1024 * 1024
# Linux's numbers of file systems that are asked where data ends: ext4, XFS, tmpfs.
KNOW_THEIR_DATA = (0xEF53, 0x58465342, 0x01021994)
_STATFS_BYTES = 256  # more than that structure takes anywhere
FLUSHED_TOGETHER = 64  # files; who reads one of them may have to wait for all


def forget(fd: int, offset: int, size: int) -> None:
    """Have the page cache drop what it has of these bytes of a file, all that follow if `size` is
    0; what waits to be written stays."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def data_end(fd: int, size: int, buffers: "Buffers") -> int:
    """Where the data of a file ends that has so many bytes; `size` on file systems that cannot say
    that, or were known to call data a hole that was just written."""
    if not buffers.knows_data(fd):
        return size
    end = 0
    while end < size:
        try:
            found = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no more
                return end
            return size
        if found <= end:  # a kernel before 4.12 may call a hole what is data (ext4)
            return size
        end = found
    return size


def _knows_its_data(fd: int) -> bool:
    """Whether a file lies on one of `KNOW_THEIR_DATA`."""
    statfs = _statfs()
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if statfs is None or statfs(fd, found):
        return False
    kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return kind & 0xFFFFFFFF in KNOW_THEIR_DATA


@functools.cache
def _statfs() -> Callable[[int, object], int] | None:
    """The call that tells the kind of a file's file system first; None where it is another one."""
    return getattr(ctypes.CDLL(None), "fstatfs", None) if sys.platform == "linux" else None


def full_or(error: OSError, what: str) -> Exception:
    """`DiskFullError` if that is what happened, else `error` as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"no space left on the disk while {what}; free some and go on")
    return error


class Buffers:
    """Page-aligned memory for direct writes, shared by the files of one disk."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []
        self._zeros: mmap.mmap | None = None
        # Whether a read can be asked for that does not wait for the disk.
        self.knows_what_is_near = KNOWS
        self._know_their_data: dict[int, bool] = {}  # by the number of the device
        self.many_writes = ManyWrites()

    def knows_data(self, fd: int) -> bool:
        """Whether a file lies where it is known which of it is data."""
        device = os.fstat(fd).st_dev
        found = self._know_their_data.get(device)
        if found is None:
            found = self._know_their_data[device] = _knows_its_data(fd)
        return found

    def take(self) -> mmap.mmap:
        """`BUFFER_BYTES` that nobody else uses. Raises MemoryError."""
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            return mmap.mmap(-1, BUFFER_BYTES)
        except OSError as error:
            raise MemoryError(f"no memory for a write: {error}") from error

    def give(self, buffer: mmap.mmap) -> None:
        """Back for others."""
        if len(self._free) < BUFFERS_KEPT:
            self._free.append(buffer)

    def some_zeros(self) -> mmap.mmap:
        """As many zeros as a buffer has bytes."""
        if self._zeros is None:
            self._zeros = mmap.mmap(-1, BUFFER_BYTES)
        return self._zeros


class OsFile:
    """One open file; `sync` may run on another thread than the rest, one at a time."""

    __slots__ = (
        "_broken",
        "_buffers",
        "_busy",
        "_closed",
        "_direct",
        "_fallocate",
        "_fd",
        "_flushed",
        "_gate",
        "_held",
        "_is_direct",
        "_lock",
        "_open_files",
        "_path",
        "_pending",
        "_reserved",
        "_size",
        "_tail",
        "_taken",
        "_zeroed",
    )

    def __init__(
        self,
        path: str,
        buffers: Buffers,
        fallocate: "Callable[..., int] | None",
        open_files: OpenFiles,
    ) -> None:
        self._open_files = open_files
        try:
            self._fd = open_files.with_room(
                lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            )
        except OSError as error:
            raise full_or(error, f"opening {path}") from error
        self._path = path
        self._buffers = buffers
        self._fallocate = fallocate
        self._size = os.fstat(self._fd).st_size  # where `append` goes on
        self._reserved = self._size
        self._direct = -1  # the descriptor for direct writes; -1 while there is none
        self._pending: list[bytes] = []  # appended, to be written directly
        self._taken: list[bytes] = []  # ... that are being written beside those of other files
        self._flushed = self._size  # where they begin
        self._tail = b""  # what the last block holds before that
        self._zeroed = 0  # up to here every block was written before
        self._lock = threading.Lock()  # for what `_flush` works on
        self._broken = False  # a write of what was pending has failed
        self._is_direct = False
        self._gate = threading.Lock()  # for the descriptors, and for
        self._busy = 0  # how many calls use them
        self._held = False
        self._closed = False  # they go with the last call that uses them
        open_files.used(self)

    # -- descriptors ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """The descriptors are needed until `_end`."""
        with self._gate:
            is_open = self._fd >= 0
            if is_open:
                self._busy += 1
        if not is_open:
            self._open_files.with_room(self._use)
        if not self._closed:
            self._open_files.used(self)

    def _use(self) -> None:
        with self._gate:
            if self._fd < 0 and not self._closed:
                self._open_again()
            self._busy += 1

    def _end(self) -> None:
        with self._gate:
            self._busy -= 1
            if self._closed and not self._busy:
                self._close_descriptors()

    def _close_descriptors(self) -> None:
        for fd in (self._fd, self._direct):
            if fd >= 0:
                os.close(fd)
        self._fd = self._direct = -1

    def _open_again(self) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, flags)
            if self._is_direct:
                self._direct = os.open(self._path, flags | getattr(os, "O_DIRECT", 0))
        except OSError as error:
            self._close_descriptors()  # one of two is none
            raise full_or(error, f"opening {self._path} again") from error

    def hold(self) -> None:
        """Never rest: what is to be written must not fail for want of descriptors."""
        self._begin()
        self._held = True

    def rest(self) -> bool:
        """Give up the descriptors until they are needed again; False if they are in use."""
        with self._gate:
            if self._closed:  # a thread that had begun to use it may have said so after that
                return True
            if self._busy:
                return False
            self._close_descriptors()
        return True

    # -- writing -------------------------------------------------------------------------------

    def append(self, data: bytes) -> None:
        """Write at the end: at once through the page cache, or with the next `sync`."""
        if self._is_direct:
            self._pending.append(data)
            self._size += len(data)
            return
        self._begin()
        try:
            _write_all(self._fd, data, self._size)
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            self._reserved = self._size
            raise full_or(error, "appending to the log") from error
        finally:
            self._end()
        self._size += len(data)

    def sync(self) -> None:
        """fdatasync, after what is pending was written."""
        self._begin()
        try:
            self._flush()
            os.fdatasync(self._fd)
        except (OSError, ValueError):
            if not self._closed:
                raise
            # Closed on the loop meanwhile: its segment or stream is gone, and nobody waits for it.
        finally:
            self._end()

    def flush(self) -> None:
        """Hand what is pending to the operating system; if it was closed, that has happened."""
        self._begin()
        try:
            self._flush()
        finally:
            self._end()

    def _flush(self) -> None:
        with self._lock:
            if self._broken:
                raise OSError(errno.EIO, f"an earlier write to {self._path} has failed")
            parts = self._pending
            if not parts:
                return
            self._pending = []
            size = sum([len(part) for part in parts])
            try:
                self._write_parts(parts)
                self._flushed += size
                if size < SMALL_BATCH and self._flushed >= self._zeroed:
                    self._zero_ahead()
            except BaseException:
                self._broken = True  # what follows may not take its place
                raise

    def begin_flush(self) -> tuple[int, bytes, int] | None:
        """What is pending, for `ManyWrites`; None if `flush` has to see to it. Unless it is None,
        nobody else works on the file until `end_flush`. Never raises: others have begun already."""
        if not self._pending or not self._is_direct:
            return None
        try:
            self._begin()
        except (OSError, DiskFullError):  # such as no descriptors, which those others keep
            return None
        self._lock.acquire()
        if self._broken or not self._pending or not self._is_direct or self._direct < 0:
            self._lock.release()
            self._end()
            return None
        self._taken, self._pending = self._pending, []
        try:
            data = b"".join((self._tail, *self._taken))
        except MemoryError:
            self.end_flush(b"", errno.EINVAL)
            return None
        return self._direct, data, self._flushed - len(self._tail)

    def end_flush(self, data: bytes, failed: int) -> bool:
        """`ManyWrites` has written `data`, or has `failed` with an errno; then `flush` says so, or
        goes on in its own way."""
        taken, self._taken = self._taken, []
        if not failed:
            self._flushed += len(data) - len(self._tail)
            self._tail = data[len(data) // BLOCK * BLOCK :]
        elif failed == errno.EINVAL:  # `flush` knows what to do
            self._pending[:0] = taken
        else:
            self._broken = True
        self._lock.release()
        self._end()
        return not failed

    def _write_parts(self, parts: list[bytes]) -> None:
        """Write `parts` after what was flushed."""
        begin = self._flushed - len(self._tail)
        buffer = self._buffers.take()
        try:
            self._tail = write_blocks(self._direct, buffer, parts, self._tail, begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Opened for direct writes, but refuses them: the page cache takes any.
            os.close(self._direct)
            self._direct = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            self._tail = write_blocks(self._direct, buffer, parts, self._tail, begin)
        finally:
            self._buffers.give(buffer)

    def _zero_ahead(self) -> None:
        """Write zeros to the reserved blocks that come next."""
        start = -(-self._flushed // BLOCK) * BLOCK
        size = min(self._reserved // BLOCK * BLOCK - start, BUFFER_BYTES)
        if size > 0:
            with memoryview(self._buffers.some_zeros()) as zeros:
                _write_all(self._direct, zeros[:size], start)
            self._zeroed = start + size

    def pwrite(self, offset: int, data: bytes) -> None:
        """Overwrite in place."""
        self._begin()
        try:
            self._flush()
            with self._lock:
                _write_all(self._fd, data, offset)
                if self._tail:
                    begin = self._flushed - len(self._tail)
                    self._tail = os.pread(self._fd, len(self._tail), begin)
        finally:
            self._end()

    def rename(self, path: str) -> None:
        """Have it another name, unless it has that already; it does not rest meanwhile."""
        self._begin()
        try:
            with self._lock:
                if self._path != path:
                    os.replace(self._path, path)
                    self._path = path
        finally:
            self._end()

    # -- space ---------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        """Make sure that the file can grow to `size` bytes, and say to how many it surely can.

        From now on it is written directly, where the system can.
        """
        if self._fallocate is None:
            return size + UNRESERVED_STEP
        if size <= self._reserved:
            return self._reserved
        self._begin()
        try:
            return self._grow(size)
        finally:
            self._end()

    def _grow(self, size: int) -> int:
        if not self._is_direct:
            self._begin_direct()
        failed = self._allocate_more(size)
        if not failed:
            return self._reserved
        if failed in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError("no space left on the disk for this message; free some and go on")
        self._fallocate = None  # this file system cannot: the write itself will tell
        self._end_direct()
        return size + UNRESERVED_STEP

    def reserve_ahead(self, size: int) -> int:
        """As `reserve`, on another thread than those who append and write. How they do so does not
        change, as it does when `reserve` finds that the system cannot: then this gives 0."""
        self._begin()
        try:
            is_there = self._is_direct and self._fallocate is not None
            return self._reserved if is_there and not self._allocate_more(size) else 0
        finally:
            self._end()

    def _allocate_more(self, size: int) -> int:
        """Allocate up to `size` bytes, and more if there is space; 0 or an errno."""
        step = min(max(self._reserved, RESERVE_STEP_MIN), RESERVE_STEP_MAX)
        failed = 0
        for wanted in (max(size, self._reserved + step), size):
            failed = self._allocate(wanted)
            if not failed:
                self._reserved = max(wanted, self._reserved)
                break
        return failed

    def _allocate(self, wanted: int) -> int:
        """Allocate up to `wanted` bytes, zeros as yet; 0 or an errno.

        The file grows now, so that a later fdatasync has no new size to record.
        """
        assert self._fallocate is not None
        if self._fallocate(self._fd, 0, self._reserved, wanted - self._reserved) == 0:
            return 0
        return ctypes.get_errno()

    def _begin_direct(self) -> None:
        flag = getattr(os, "O_DIRECT", 0)
        if not flag:
            return
        try:
            self._direct = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flag)
        except OSError:
            return  # not on this file system
        self._is_direct = True
        self._flushed = self._size
        begin = self._size - self._size % BLOCK
        self._tail = os.pread(self._fd, self._size - begin, begin)

    def _end_direct(self) -> None:
        self._flush()
        self._is_direct = False
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes and give back what was reserved after it; `append` goes on there."""
        self._begin()
        try:
            self._end_direct()
            os.ftruncate(self._fd, size)
        finally:
            self._end()
        self._size = self._reserved = size

    def go_on_at(self, size: int) -> None:
        """Have `append` go on at `size`, over zeros that an earlier process has reserved."""
        self._size = self._reserved = self._flushed = size

    def rewind(self) -> None:
        """Go on at the beginning; the blocks that were written stay, and are written over."""
        with self._lock:
            written = self._flushed // BLOCK * BLOCK
            self._zeroed = max(self._zeroed, written)
            self._size = self._flushed = 0
            self._tail = b""

    # -- reading, the end ----------------------------------------------------------------------

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`, also of what is not synced yet."""
        self._begin()
        try:
            if self._is_direct and offset + size > self._flushed and not self._broken:
                self._flush()  # or wait for the thread that does
            return os.pread(self._fd, size, offset)
        finally:
            self._end()

    def pread_near(self, offset: int, size: int) -> bytes | None:
        """What `pread` gives, if it is in the page cache; None if not. Where the system cannot say
        that, it is read at once."""
        if not self._buffers.knows_what_is_near:
            return self.pread(offset, size)
        self._begin()
        try:
            if self._is_direct and self._flushed < min(offset + size, self._size):
                return None  # it is not written yet: it waits, or a thread is at it
            return self._read_near(offset, size)
        finally:
            self._end()

    def _read_near(self, offset: int, size: int) -> bytes | None:
        try:
            return read_cached(self._fd, offset, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            self._buffers.knows_what_is_near = False
            return os.pread(self._fd, size, offset)

    def pread_stored(self, offset: int, size: int) -> bytes:
        """Read what is synced from the device; the page cache does not keep it."""
        self._begin()
        try:
            forget(self._fd, offset, size)
            data = self._read_directly(offset, size) if size >= DIRECT_READ_MIN else None
            if data is None:
                data = os.pread(self._fd, size, offset)
                forget(self._fd, offset, size)
            return data
        finally:
            self._end()

    def _read_directly(self, offset: int, size: int) -> bytes | None:
        """Read past the page cache, which would copy everything once more; None where that cannot
        be done."""
        flag = getattr(os, "O_DIRECT", 0)
        if not flag or not hasattr(os, "preadv"):
            return None
        buffer = self._buffers.take()
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | flag
            fd = self._open_files.with_room(lambda: os.open(self._path, flags))
            try:
                with memoryview(buffer) as memory:
                    return b"".join(_blocks(fd, memory, offset, size))
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None  # not on this file system
        finally:
            self._buffers.give(buffer)

    def size(self) -> int:
        """Where `append` writes next. After it there may be zeros that were reserved."""
        return self._size

    def data_end(self) -> int:
        """Where space begins that was reserved and never written, up to `size`. What this process
        has appended is not asked for."""
        self._begin()
        try:
            return data_end(self._fd, self._size, self._buffers)
        finally:
            self._end()

    def close(self) -> None:
        """Release it; what was appended is handed to the operating system."""
        with self._lock:  # a thread may be writing
            broken = self._broken
            waits = bool(self._pending) and not broken
        with self._gate:
            is_open = self._fd >= 0
            self._busy += is_open  # it does not rest meanwhile
        try:
            if waits:
                self.flush()
            if is_open and not broken:
                self._end_direct()
        finally:
            self._let_go(is_open)

    def drop(self) -> None:
        """Release it; what is pending is not written any more."""
        with self._lock:  # a thread may be writing
            self._pending = []
        self.close()

    def _let_go(self, was_busy: bool) -> None:
        with self._gate:
            self._busy -= was_busy + self._held
            self._held = False
            self._closed = True
            if not self._busy:  # else a thread uses them, and another file may get their numbers
                self._close_descriptors()
        self._open_files.forget(self)


def flush_many(files: Sequence[OsFile], buffers: Buffers) -> list[OSError | None]:
    """Hand what is pending in `files` to the operating system; for each, what went wrong.

    The interpreter is asked for once for many files: where it is busy, each time that a thread
    comes back to it may take milliseconds.
    """
    outcomes: list[OSError | None] = []
    buffer = buffers.take()
    try:
        for start in range(0, len(files), FLUSHED_TOGETHER):
            together = files[start : start + FLUSHED_TOGETHER]
            outcomes += _flush_together(together, buffers.many_writes, buffer)
    finally:
        buffers.give(buffer)
    return outcomes


def _flush_together(
    files: Sequence[OsFile], many_writes: ManyWrites, buffer: mmap.mmap
) -> list[OSError | None]:
    begun = [(file, file.begin_flush()) for file in files]
    pieces = [piece for _, piece in begun if piece is not None]
    failed = [errno.EIO] * len(pieces)  # unless it is known to be there
    try:
        failed = many_writes.write(buffer, pieces)
    finally:
        outcome = iter(failed)
        written = [
            piece is not None and file.end_flush(piece[1], next(outcome)) for file, piece in begun
        ]
    return [None if done else _flush_alone(file) for file, done in zip(files, written, strict=True)]


def _flush_alone(file: OsFile) -> OSError | None:
    """What goes wrong when `file` hands over what is pending, or has gone wrong with it before."""
    try:
        file.flush()
    except OSError as error:
        return error
    return None


def _blocks(fd: int, buffer: memoryview, offset: int, size: int) -> Iterator[bytes]:
    """Up to `size` bytes from `offset`, in pieces, from a file that is read in whole blocks."""
    end = offset + size
    while offset < end:
        start = offset - offset % BLOCK
        wanted = min(-(-(end - start) // BLOCK) * BLOCK, len(buffer))
        with buffer[:wanted] as part:
            count = os.preadv(fd, [part], start)
        upto = min(start + count, end)
        if upto <= offset:
            return
        yield bytes(buffer[offset - start : upto - start])
        if count < wanted:  # the file ends there
            return
        offset = upto


def _write_all(fd: int, data: "bytes | memoryview", offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:] if done else data, offset + done)
