"""What a process uses of its machine: memory, and its share of a core."""

import os
import time

_CPU_SAMPLE_SECONDS = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessLoad:
    """This process."""

    def __init__(self) -> None:
        self._cpu_at = time.monotonic()
        self._cpu_used = time.process_time()
        self._cpu_percent = 0.0

    def memory_bytes(self) -> int:
        """Resident memory; 0 where the system does not say."""
        try:
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError, ValueError):
            return 0

    def cpu_percent(self) -> float:
        """Share of one core that was used of late, in percent."""
        now = time.monotonic()
        elapsed = now - self._cpu_at
        if elapsed >= _CPU_SAMPLE_SECONDS:
            used = time.process_time()
            self._cpu_percent = round((used - self._cpu_used) / elapsed * 100, 1)
            self._cpu_at, self._cpu_used = now, used
        return self._cpu_percent
