"""What the Python workers of a Spark session hold at most, as the kernel has it (Linux).

Workers live on between tasks, so that after a query the peak of each can still be read. It is set
back before: what is left is what the query needed, on top of the interpreter and its packages.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDED = (FileNotFoundError, ProcessLookupError)  # whoever is asked about may end meanwhile


def workers(spark: "SparkSession") -> list[int]:
    """The processes that run tasks in Python."""
    java = spark.sparkContext._gateway.proc.pid
    daemons = [pid for pid in _children(java) if b"pyspark.worker" in _command(pid)]
    return [pid for daemon in daemons for pid in _children(daemon)]


def forget_peaks(spark: "SparkSession") -> int:
    """Set the peaks back to what is resident now; the largest of these, in bytes."""
    for pid in workers(spark):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(spark)


def peak(spark: "SparkSession") -> int:
    """The most that one worker has had resident, in bytes; 0 without workers."""
    return max((_kilobytes(pid, "VmHWM:") * 1024 for pid in workers(spark)), default=0)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(*_ENDED):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(*_ENDED):  # this thread of it alone
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _command(pid: int) -> bytes:
    """What a process was started with; nothing if it has ended."""
    with suppress(*_ENDED):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _kilobytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
