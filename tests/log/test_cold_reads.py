"""What has to be read from the disk is read elsewhere, and what was asked for is found then."""

import threading
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slipstream.log import direct_write, os_file
from slipstream.log.cold import ColdError, FetchJob
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import CHUNKS_BYTES_MAX, FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from slipstream.log.subject_index import SubjectFilter
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import body_of, commit, fill, opened, put


def test_a_message_that_a_thread_is_still_writing_is_cold_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(OsDisk(), str(tmp_path / "log"))
    put(log, b"s", b"first")
    commit(log)
    body = b"x" * 60_000
    batch = None
    for _ in range(2 * CHUNKS_BYTES_MAX // len(body)):
        put(log, b"s", body)
        batch = log.prepare_sync(batch)
    assert batch is not None
    [segment] = (tmp_path / "log").glob("*.seg")
    segment.read_bytes()  # somebody has the system keep in memory what is there so far
    begun, goes_on = threading.Event(), threading.Event()
    write_blocks = direct_write.write_blocks

    def slowly(*args: Any) -> bytes:
        begun.set()
        goes_on.wait(10)
        return write_blocks(*args)

    monkeypatch.setattr(os_file, "write_blocks", slowly)
    thread = threading.Thread(target=batch.flush)
    thread.start()
    begun.wait()
    record = Record()
    try:
        with pytest.raises(ColdError) as cold:
            log.read_near(2, record)
    finally:
        goes_on.set()
        thread.join()
    assert not log.lost.ranges
    fetch = FetchJob(cold.value, lambda: None)
    fetch.run()
    fetch.finish()
    assert log.read_near(2, record)
    assert record.body() == body


def when_fetched(log: FileLog, seq: int, matching: SubjectFilter | None, record: Record) -> int:
    """How many reads of the disk it took to find the next message."""
    for fetched in range(1000):
        try:
            assert log.next_near(seq, matching, record)
        except ColdError as cold:
            fetch = FetchJob(cold, lambda: None)
            fetch.run()
            fetch.finish()
        else:
            return fetched
    raise AssertionError("it was read again and again, and not found")


def test_a_message_far_behind_many_others_is_found_with_a_few_reads_of_each_segment() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    put(log, b"rare.a", b"first")
    fill(log, 500)
    put(log, b"rare.a", b"last")
    for _ in range(500):
        put(log, b"s", bytes(100))
    commit(log)
    segments = len(log.blocks)
    log.close()
    log = opened(disk)
    disk.is_cold = True  # nothing that was read stays in memory
    record = Record()
    for patterns in ((b"rare.a",), (b"rare.*",), (b"rare.a", b"other")):
        matching = log.filter(patterns)
        disk.calls["pread"] = 0
        when_fetched(log, 2, matching, record)
        assert record.body() == b"last"
        assert disk.calls["pread"] < 40 * segments


def test_many_readers_of_a_log_of_which_nothing_stays_in_memory_come_to_an_end() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    readers = 100
    for n in range(1000):
        put(log, b"s.%d" % (n % readers), body_of(n))
    commit(log)
    log.close()
    log = opened(disk)
    disk.is_cold = True
    waiting = deque((seq, log.filter((b"s.%d" % (7 * seq % readers),))) for seq in range(readers))
    fetches: deque[FetchJob] = deque()
    for steps in range(100 * readers):
        if steps >= readers and not waiting:
            break
        if steps >= readers:
            fetch = fetches.popleft()
            fetch.run()
            fetch.finish()
        seq, matching = waiting.popleft()
        try:
            assert log.next_near(9 * seq, matching, Record())
        except ColdError as cold:
            waiting.append((seq, matching))
            fetches.append(FetchJob(cold, lambda: None))
    assert not waiting


def test_readers_come_to_an_end_however_many_wait_for_places_of_their_own() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    readers = 1500
    for _ in range(readers):
        put(log, b"s", bytes(3_000))  # a segment is full with it
    commit(log)
    log.close()
    log = opened(disk)
    disk.is_cold = True
    waiting = deque(range(1, readers + 1))
    fetches: deque[FetchJob] = deque()
    for steps in range(20 * readers):
        if steps >= readers and not waiting:
            break
        if steps >= readers:
            fetch = fetches.popleft()
            fetch.run()
            fetch.finish()
        seq = waiting.popleft()
        try:
            assert log.read_near(seq, Record())
        except ColdError as cold:
            waiting.append(seq)
            fetches.append(FetchJob(cold, lambda: None))
    assert not waiting
