"""What tests of the file log do all the time."""

from slipstream.log.base import Log
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from slipstream.log.stream_store import TwinFile
from slipstream.testing.simulated_disk import SimulatedDisk


def opened(disk: SimulatedDisk, segment_bytes: int = 2_000, first_seq: int = 1) -> FileLog:
    """A log on a simulated disk, with the record of its end, as a stream opens it."""
    return open_log(disk, "log", None, first_seq, segment_bytes, TwinFile(disk, "end"))


def commit(log: FileLog, jobs: bool = True) -> None:
    """What a runner does; with `jobs` also what comes of it."""
    batch = log.prepare_sync()
    if batch is not None:
        batch.run()
        log.finish_sync(batch)
    if jobs:
        log.do_jobs()


def put(log: Log, subject: bytes, body: bytes) -> int:
    """Store a message without headers."""
    return log.append(subject, body, 0, 0, len(body), 1_000 + log.last_seq)


def body_of(seq: int, size: int = 100) -> bytes:
    """A body that names its message."""
    return (b"message %d " % seq).ljust(size, b".")


def fill(log: Log, count: int) -> None:
    """Store so many messages on s.0, s.1, s.2."""
    for _ in range(count):
        seq = log.last_seq + 1
        put(log, b"s.%d" % (seq % 3), body_of(seq))


def readable(log: Log) -> list[int]:
    """The sequences that can be read; each has the body that it was given."""
    found = []
    record = Record()
    seq = 1
    while log.next(seq, None, record):
        assert record.body() == body_of(record.seq)
        found.append(record.seq)
        seq = record.seq + 1
    return found
