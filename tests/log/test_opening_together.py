"""Logs that are opened together at a start share the sync of what they write again."""

from pathlib import Path
from random import Random

import pytest

from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import UNCUT_MAX, open_log
from slipstream.log.segment import decode_header
from slipstream.log.stream_store import Store, TwinFile
from slipstream.log.written_again import Repeated
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log import storing

STREAMS = 30
BODY = b"some body"


def stored(disk: SimulatedDisk, bodies: int = 3, body: bytes = BODY) -> None:
    """Streams with durable messages, which a process leaves that is killed."""
    store = Store(disk, "root")
    for n in range(STREAMS):
        stream = store.stream("$G", f"S{n}")
        stream.belongs_to(1 + n)
        stream.create(b"{}")
        log = stream.begin_log()
        for k in range(bodies):
            log.append(b"s.%d" % k, body, 0, 0, len(body), 1 + k)
        batch = log.prepare_sync()
        assert batch is not None
        batch.run()
        log.finish_sync(batch)


def opened(disk: SimulatedDisk) -> list[FileLog]:
    store = Store(disk, "root")
    found = []
    for log in store.open_logs([(store.stream("$G", f"S{n}"), 1) for n in range(STREAMS)]):
        assert isinstance(log, FileLog), log
        found.append(log)
    return found


def messages(logs: list[FileLog]) -> list[list[bytes]]:
    record = Record()
    found = []
    for log in logs:
        bodies = []
        for seq in range(1, log.last_seq + 1):
            assert log.read(seq, record)
            bodies.append(record.body())
        found.append(bodies)
    return found


class CountingDisk(SimulatedDisk):
    """Knows what was synced by how many calls."""

    joint = 0

    def sync_all(self, files: list[str], directories: list[str]) -> None:  # type: ignore[override]
        before = self.calls["sync"], self.calls["sync_dir"]
        super().sync_all(files, directories)
        self.joint += bool(files)
        self.calls["sync"], self.calls["sync_dir"] = before


def test_what_a_killed_server_has_left_is_durable_again_after_one_sync() -> None:
    disk = CountingDisk(Random(1))
    stored(disk)
    disk.joint = 0
    store = Store(disk, "root")  # the commit log has syncs of its own
    before = disk.calls["sync"], disk.calls["sync_dir"]
    logs = store.open_logs([(store.stream("$G", f"S{n}"), 1) for n in range(STREAMS)])
    assert (disk.calls["sync"], disk.calls["sync_dir"]) == before
    assert disk.joint == 1
    assert [log.messages for log in logs if isinstance(log, FileLog)] == [3] * STREAMS


@pytest.mark.parametrize("seed", range(5))
def test_what_a_failed_sync_had_left_readable_is_durable_once_the_logs_are_open(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    stored(disk)
    for log in opened(disk):  # the process ends when a sync has failed, the system does not
        log.append(b"late", BODY, 0, 0, len(BODY), 9)
        disk.fail("sync")
        batch = log.prepare_sync()
        assert batch is not None
        batch.run()
        assert batch.error is not None
    found = messages(opened(disk))
    assert found == [[BODY] * 4] * STREAMS
    disk.crash()
    assert messages(opened(disk)) == found


@pytest.mark.parametrize("nth", [1, 2, STREAMS])
def test_a_joint_sync_that_fails_is_made_up_for_by_each_log_alone(nth: int) -> None:
    disk = SimulatedDisk(Random(nth))
    stored(disk)
    store = Store(disk, "root")
    streams = [(store.stream("$G", f"S{n}"), 1) for n in range(STREAMS)]
    disk.fail("sync", nth)
    logs = [log for log in store.open_logs(streams) if isinstance(log, FileLog)]
    assert messages(logs) == [[BODY] * 3] * STREAMS
    disk.crash()
    assert messages(opened(disk)) == [[BODY] * 3] * STREAMS


@pytest.mark.parametrize("wrong", ["", "path", "salt", "start", "end", "header", "behind"])
def test_a_log_is_written_again_unless_a_start_has_synced_all_that_may_be_in_memory_alone(
    wrong: str,
) -> None:
    disk = SimulatedDisk(Random(1))
    log = storing.opened(disk)
    ends = []
    for fails in (False, True):
        storing.fill(log, 1)
        batch = log.prepare_sync()
        assert batch is not None
        if fails:
            disk.fail("sync")
        batch.run()
        assert (batch.error is not None) == fails
        ends.append(batch.end_at)
        if not fails:
            log.finish_sync(batch)
            log.do_jobs()
    start, end = ends  # of what is in memory alone, and a start is said to have synced
    [path] = disk.files(".seg")
    salt = decode_header(disk.read(path)).salt
    synced = Repeated(path, salt, start, end)
    if wrong == "header":
        disk.flip(path, 8 * 9)
    elif wrong == "behind":
        disk.overwrite(path, end + 40, b"torn")
    elif wrong:
        other: dict[str, object] = {"path": "another", "salt": 1, "start": end - 1, "end": end - 1}
        synced = synced._replace(**{wrong: other[wrong]})
    before = disk.calls["pwrite"]
    again = open_log(disk, "log", copies=TwinFile(disk, "end"), repeated=synced)
    assert storing.readable(again) == [1, 2]
    assert (disk.calls["pwrite"] == before) == (not wrong)
    if wrong:
        disk.crash()
        assert storing.readable(storing.opened(disk)) == [1, 2]


@pytest.mark.parametrize("size", [len(BODY), UNCUT_MAX])
def test_a_log_that_was_written_again_goes_on_where_it_ended(tmp_path: Path, size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    store = Store(OsDisk(), str(tmp_path))
    stream = store.stream("$G", "S")
    stream.belongs_to(1)
    stream.create(b"{}")
    log = stream.begin_log()
    for round in range(1, 4):
        for _ in range(10 * round):
            log.append(b"s", body, 0, 0, len(body), round)
            batch = log.prepare_sync()
            assert batch is not None
            batch.run()
            log.finish_sync(batch)
        store = Store(OsDisk(), str(tmp_path))  # the process was killed
        [again] = store.open_logs([(store.stream("$G", "S"), 1)])
        assert isinstance(again, FileLog), again
        log = again
        assert messages([log]) == [[body] * (5 * round * (round + 1))]
    log.close()
    [last] = store.open_logs([(store.stream("$G", "S"), 1)])
    assert isinstance(last, FileLog), last
    assert messages([last]) == [[body] * 60]
