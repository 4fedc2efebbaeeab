"""Files of emptied segments are removed by jobs, and no other file of their name."""

from random import Random

import pytest

from slipstream.engine.stream.log_job import LogJob
from slipstream.errors import DiskFullError
from slipstream.log.frozen import FrozenLog
from slipstream.log.unlink import UnlinkJob
from slipstream.testing.driver import Driver, Held, encode
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, put


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def test_a_purge_removes_files_by_a_job_alone(disk: SimulatedDisk) -> None:
    log = opened(disk)
    fill(log, 100)
    commit(log)
    log.purge((), 0, 0)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    (end,) = log.take_jobs()
    end.run()
    end.finish()
    assert disk.calls["remove"] == 0
    (unlink,) = log.take_jobs()
    unlink.run()
    unlink.finish()
    assert disk.calls["remove"] > 3
    assert len(disk.files(".seg")) == 1


def test_a_segment_that_the_disk_had_no_room_for_is_kept_once_it_has(disk: SimulatedDisk) -> None:
    """Also if somebody reads the log as it was meanwhile, and files are kept for that."""
    log = opened(disk)
    fill(log, 5)
    commit(log)
    frozen = FrozenLog(log)
    fill(log, 5)
    commit(log)
    capacity, disk.capacity = disk.capacity, disk.used()
    with pytest.raises(DiskFullError):
        put(log, b"s.0", bytes(2_000))
    disk.capacity = capacity
    assert put(log, b"s.0", bytes(2_000)) == 11
    commit(log)
    frozen.release()
    commit(log)
    disk.crash()
    assert opened(disk).messages == 11


def removes(held: Held) -> bool:
    """Whether a job removes files."""
    return isinstance(held.job, LogJob) and isinstance(held.job.job, UnlinkJob)


def test_what_is_to_be_removed_of_a_deleted_stream_is_not_removed_of_the_next_one_of_its_name(
    disk: SimulatedDisk,
) -> None:
    driver = Driver(disk, segment_bytes=1_000).start()
    client = driver.client()
    create = {"name": "S", "subjects": ["s"]}
    client.api("STREAM.CREATE.S", create)
    for _ in range(20):
        client.store("s", bytes(200))
    assert client.api("STREAM.PURGE.S")["purged"] == 20
    for _ in range(20):
        client.store("s", bytes(200))
    driver.runner.hold()
    client.send(encode("$JS.API.STREAM.PURGE.S", b"", "_INBOX.t.x"))
    late = []
    while not late:  # up to the job that removes files
        assert driver.runner.step()
        driver.finish()
        late = [one for one in driver.runner.waiting if removes(one)]
    for one in late:
        driver.runner.waiting.remove(one)
    driver.runner.held = False
    driver.runner.release()
    driver.finish()
    client.api("STREAM.DELETE.S")
    client.api("STREAM.CREATE.S", create)
    for seq in range(1, 41):
        assert client.store("s", b"%d" % seq + bytes(200))["seq"] == seq
    for one in late:
        one.run()
        one.finish()
    driver.finish()
    again = Driver(disk, now=driver.clock.now).start().client()
    assert again.api("STREAM.INFO.S")["state"]["messages"] == 40
