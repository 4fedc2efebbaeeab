"""What bounds a load on this machine: the disk, the memory, and a server that does nothing.

The disk is measured the way the log uses it (O_DIRECT over blocks that were written before, then
fdatasync): how long a small commit takes, and how many bytes a second large ones move.
"""

import mmap
import os
import statistics
import tempfile
import time
from dataclasses import dataclass

from bench.loads import Load
from bench.report import Row

BLOCK = 4096
LARGE = 1 << 20
FILE_BYTES = 256 << 20
SMALL_COMMITS = 1000
COPY_BYTES = 256 << 20


@dataclass(slots=True)
class Disk:
    """What the disk under the temporary directory, and memory, can do."""

    commit_us: float  # one block and a flush, the median
    bytes_per_second: float  # one megabyte at a time, each with a flush
    copy_bytes_per_second: float  # memory to memory

    def rows(self) -> list[Row]:
        """As rows of the page."""
        return [
            {"name": "write and flush 4 KiB (µs, median)", "value": self.commit_us},
            {
                "name": "write and flush 1 MiB at a time (MB/s)",
                "value": self.bytes_per_second / 1e6,
            },
            {
                "name": "copy memory, 1 MiB at a time (MB/s)",
                "value": self.copy_bytes_per_second / 1e6,
            },
        ]


def measure_disk() -> Disk:
    """Measure; takes a few seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        path = os.path.join(directory, "probe")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        zeros = bytes(LARGE)
        for _ in range(FILE_BYTES // LARGE):
            os.write(fd, zeros)
        os.fsync(fd)
        os.close(fd)
        fd = _open_direct(path)
        try:
            small = [_commit(fd, BLOCK, i * BLOCK) for i in range(SMALL_COMMITS)]
            large = [_commit(fd, LARGE, at) for at in range(0, FILE_BYTES, LARGE)]
        finally:
            os.close(fd)
    return Disk(statistics.median(small) * 1e6, LARGE / statistics.median(large), _copy_rate())


def _open_direct(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | getattr(os, "O_DIRECT", 0))
    except OSError:  # a file system without direct I/O
        return os.open(path, os.O_RDWR)


def _commit(fd: int, size: int, at: int) -> float:
    """Seconds of one write with its flush."""
    with mmap.mmap(-1, size) as buffer:
        buffer[:] = b"x" * size
        begin = time.perf_counter()
        os.pwrite(fd, buffer, at)
        os.fdatasync(fd)
        return time.perf_counter() - begin


def _copy_rate() -> float:
    source, target = bytearray(b"x" * COPY_BYTES), bytearray(COPY_BYTES)
    begin = time.perf_counter()
    for at in range(0, COPY_BYTES, LARGE):
        target[at : at + LARGE] = memoryview(source)[at : at + LARGE]
    return COPY_BYTES / (time.perf_counter() - begin)


def share_of_bandwidth(load: Load, per_second: float, disk: Disk) -> float | None:
    """Which share of the disk's bandwidth a load's rate is, where its row states that."""
    return per_second * load.disk_bytes / disk.bytes_per_second if load.states_bandwidth else None


def of_load(load: Load, ideal: float, disk: Disk) -> float:
    """The limit of a load, from what a server that does nothing reaches."""
    if load.lower_is_better:
        has_synced = load.bound_over_commit is not None
        return ideal + (disk.commit_us if load.disk_bytes and not has_synced else 0)
    if load.disk_bytes:
        return min(ideal, disk.bytes_per_second / load.disk_bytes)
    return ideal
