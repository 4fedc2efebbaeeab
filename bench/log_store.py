"""What the message log costs by itself: append, sync, read, open, remove.

    python -m bench.log_store [thousands of messages] [directory]

Messages have 128-byte bodies on 1,000 subjects; a batch of 1,000 is synced at once. Figures are
millions a second unless a unit stands behind them.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter

from slipstream import build
from slipstream.log.base import Log
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.memory_log import MemoryLog
from slipstream.log.record import Record
from slipstream.log.recovery import open_log

BODY = b"x" * 128
SUBJECTS = [b"bench.%d" % i for i in range(1000)]


def commit(log: FileLog) -> None:
    """What a runner does at the end of a turn, and the jobs that come of it."""
    batch = log.prepare_sync()
    if batch is not None:
        batch.run()
        log.finish_sync(batch)
    for job in log.take_jobs():
        job.run()
        job.finish()


def append(log: Log, batches: int, file_log: FileLog | None) -> tuple[float, float]:
    """Seconds spent appending, and syncing."""
    appending = syncing = 0.0
    for now in range(batches):
        begin = perf_counter()
        for subject in SUBJECTS:
            log.append(subject, BODY, 0, 0, len(BODY), now)
        middle = perf_counter()
        appending += middle - begin
        if file_log is not None:
            commit(file_log)
            syncing += perf_counter() - middle
    return appending, syncing


def read_all(log: Log) -> float:
    """Seconds it takes to read every message in order."""
    record = Record()
    begin = perf_counter()
    seq = log.first_seq
    while log.next(seq, None, record):
        seq = record.seq + 1
    return perf_counter() - begin


def say(what: str, figure: float, unit: str = "M/s") -> None:
    """One line of the result."""
    print(f"{what:<44}{figure:10.3f} {unit}", flush=True)


def measure_memory(batches: int) -> None:
    """The memory log."""
    count = batches * len(SUBJECTS)
    log = MemoryLog()
    say("memory: append", count / append(log, batches, None)[0] / 1e6)
    say("memory: next", count / read_all(log) / 1e6)


def measure_files(batches: int, directory: str) -> None:
    """The file log."""
    count = batches * len(SUBJECTS)
    disk = OsDisk()
    log = open_log(disk, directory)
    appending, syncing = append(log, batches, log)
    say("file: append", count / appending / 1e6)
    say("file: append, write, sync and footers", count / (appending + syncing) / 1e6)
    say("file: next", count / read_all(log) / 1e6)
    matching = log.filter((b"bench.7",))
    record = Record()
    begin = perf_counter()
    seq = 1
    while log.next(seq, matching, record):
        seq = record.seq + 1
    say("file: next of one subject in 1,000", (perf_counter() - begin) * 1e3, "ms in all")
    begin = perf_counter()
    log.count((b"bench.7",), count // 2)
    say("file: count of a subject from the middle", (perf_counter() - begin) * 1e3, "ms")
    log.close()
    begin = perf_counter()
    log = open_log(disk, directory)
    say("file: open, by footers", (perf_counter() - begin) * 1e3, "ms")
    begin = perf_counter()
    for seq in range(1, count):
        if seq % 3:
            log.remove(seq, False)
    say("file: remove two of three messages", count * 2 / 3 / (perf_counter() - begin) / 1e6)
    begin = perf_counter()
    commit(log)
    say("file: sync after that", (perf_counter() - begin) * 1e3, "ms")
    begin = perf_counter()
    for _ in range(3 * len(log.blocks)):
        commit(log)
    say("file: compact all segments", (perf_counter() - begin) * 1e3, "ms")
    log.close()
    held = sum(path.stat().st_size for path in Path(directory).rglob("*.seg"))
    say("file: bytes on disk", held / 1e6, "MB")
    begin = perf_counter()
    log = open_log(disk, directory)
    say("file: open, with two of three gone", (perf_counter() - begin) * 1e3, "ms")
    log.close()


def main() -> None:
    """Measure and print."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"slipstream log, {build.describe()} build, {batches},000 messages of {len(BODY)} bytes")
    measure_memory(batches)
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as directory:
        measure_files(batches, directory + "/log")


if __name__ == "__main__":
    main()
