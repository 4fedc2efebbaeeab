"""What the system says of the server's process and of its disk. A fact that it does not give is
absent."""

import os
import resource
import time
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def process_facts() -> Iterator[tuple[str, float]]:
    """Numbers by the names that Prometheus' client libraries give them."""
    yield "process_cpu_seconds_total", time.process_time()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "process_max_fds", soft
    try:
        yield "process_open_fds", len(os.listdir("/proc/self/fd")) - 1  # one is that of the list
        with open("/proc/self/stat", "rb") as file:
            # The second field, a name in brackets, may hold spaces.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    # Their numbers in proc(5), less the three that lie before.
    yield "process_threads", int(fields[20 - 3])
    yield "process_virtual_memory_bytes", int(fields[23 - 3])
    yield "process_resident_memory_bytes", int(fields[24 - 3]) * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    except (OSError, StopIteration):  # a container may hide it
        return
    yield "process_start_time_seconds", booted + int(fields[22 - 3]) / _TICKS


def disk_space(directory: str) -> tuple[int, int] | None:
    """Bytes that are free to this user, and bytes in all, of a directory's file system."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
