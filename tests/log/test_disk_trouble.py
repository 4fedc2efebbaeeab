"""A full disk, a failing disk: publishes hear of it, the rest goes on, nothing is claimed."""

import errno
from random import Random

import pytest

from slipstream.errors import DiskFullError, StorageError
from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk, SimulatedFile
from tests.log.storing import commit, fill, opened, put, readable

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.c"


def started(disk: SimulatedDisk) -> tuple[Driver, Client]:
    """A server with a work queue and a consumer."""
    driver = Driver(disk, segment_bytes=4_000).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "retention": "workqueue"})
    durable = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": durable})
    return driver, client


def fill_up(client: Client) -> int:
    """Publish until the disk is full; how many were stored."""
    for n in range(2_000):
        answer = client.store("s", b"x" * 200)
        if "error" in answer:
            assert answer["error"]["err_code"] == 10077
            assert "no space left" in answer["error"]["description"]
            return n
    raise AssertionError("the disk does not fill up")


def test_on_a_full_disk_publishes_get_an_error_and_reads_and_acks_go_on() -> None:
    disk = SimulatedDisk(Random(1))
    _, client = started(disk)
    disk.capacity = disk.used() + 20_000
    stored = fill_up(client)
    client.publish(NEXT, b"10", "_INBOX.t.next")
    got = client.take()
    assert len(got) == 10
    assert client.api("STREAM.INFO.S")["state"]["messages"] == stored
    for message in got:
        client.publish(message.reply, b"+ACK")
    assert client.api("STREAM.INFO.S")["state"]["messages"] == stored - 10
    assert "error" in client.store("s", b"x" * 200)


def test_what_a_disk_refused_is_read_from_memory_and_does_not_count_as_lost() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 1)
    commit(log)
    log.close()
    log = opened(disk)
    fill(log, 1)
    assert log.next(1, None, Record())  # with it, what the file has behind it was read
    disk.fail("append")
    assert readable(log) == [1, 2]
    assert log.failed
    assert log.lost.count == 0


def test_after_an_append_that_failed_nothing_is_put_in_its_place() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 1)
    commit(log)
    fill(log, 1)
    disk.fail("append")
    log.hand_over()  # as a checkpoint does, which then writes what the commit log has of it
    file = log.blocks[-1].file
    before = file.size()
    with pytest.raises(StorageError, match="cannot be written any more"):
        commit(log)
    assert file.size() == before
    assert readable(log) == [1, 2]


@pytest.mark.parametrize("operation", ["open", "reserve"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_without_descriptors_a_message_is_refused_and_the_next_one_is_stored(
    operation: str, count: int
) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, count)
    commit(log)
    disk.fail(operation, error=OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(StorageError, match="Too many open files"):
        fill(log, 100)
    stored = log.last_seq
    fill(log, 1)
    commit(log)
    disk.crash()
    assert readable(opened(disk)) == list(range(1, stored + 2))


def test_after_space_returns_so_do_writes_without_a_restart() -> None:
    disk = SimulatedDisk(Random(1))
    _, client = started(disk)
    disk.capacity = disk.used() + 20_000
    stored = fill_up(client)
    disk.capacity *= 2
    assert client.store("s", b"again") == {"stream": "S", "seq": stored + 1}
    disk.crash()
    state = Driver(disk).start().client().api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["last_seq"]) == (stored + 1, stored + 1)


def test_acknowledging_and_purging_give_a_full_disk_its_space_back() -> None:
    for purge in (True, False):
        disk = SimulatedDisk(Random(1))
        _, client = started(disk)
        disk.capacity = disk.used() + 40_000
        stored = fill_up(client)
        if purge:
            assert client.api("STREAM.PURGE.S")["purged"] == stored
        else:
            client.publish(NEXT, b"%d" % stored, "_INBOX.t.next")
            for message in client.take():
                client.publish(message.reply, b"+ACK")
        for seq in range(stored + 1, stored + 20):
            assert client.store("s", b"again")["seq"] == seq
        disk.crash()
        state = Driver(disk).start().client().api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["last_seq"]) == (19, stored + 19)


def test_a_position_is_not_lost_when_it_can_not_be_saved() -> None:
    disk = SimulatedDisk(Random(1))
    driver, client = started(disk)
    for n in range(4):
        client.store("s", b"%d" % n)
    client.publish(NEXT, b"2", "_INBOX.t.next")
    first, second = client.take()
    assert len(client.ask(first.reply, b"+ACK")) == 1  # confirmed
    free = disk.capacity
    disk.capacity = disk.used()
    for _ in range(5):
        assert client.ask(second.reply, b"+WPI")  # positions change, and cannot be saved
        driver.advance(SECOND)
    disk.capacity = free
    disk.crash()
    again = Driver(disk, now=driver.clock.now).start()
    other = again.client()
    info = other.api("CONSUMER.INFO.S.c")
    assert info["ack_floor"]["stream_seq"] == 1
    again.advance(60 * SECOND)
    other.publish(NEXT, b"10", "_INBOX.t.next")
    assert first.body not in [message.body for message in other.take()]


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_a_failed_sync_is_final_for_that_stream_and_no_other(operation: str) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=4_000).start()
    client = driver.client()
    for name in ("A", "B"):
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
    if operation == "sync":
        assert client.store("A", b"before")["seq"] == 1
    disk.fail(operation)
    answer = client.store("A", b"not acknowledged")
    assert answer["error"]["err_code"] == 10077
    for _ in range(3):  # never tried again on the same file
        syncs = disk.calls["sync"]
        assert "error" in client.store("A", b"refused")
        assert disk.calls["sync"] == syncs
    assert client.store("B", b"fine")["seq"] == 1
    assert any("'$G > A'" in problem for problem in driver.js.problems)
    disk.crash()
    again = Driver(disk).start().client()
    stored = again.api("STREAM.INFO.A")["state"]["messages"]
    assert stored in ((1,) if operation == "sync" else (0, 1))
    assert again.store("A", b"back after a restart")["seq"] == stored + 1


def test_a_failed_sync_takes_what_was_written_with_it() -> None:
    """The simulated disk does as kernels do: a later sync does not bring back what one lost."""
    disk = SimulatedDisk(Random(1))
    file = disk.open("file")
    disk.sync_dir("")
    file.append(b"lost")
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append(b"kept")
    file.sync()
    disk.crash()
    assert disk.read("file").strip(b"\0") == b"kept"


def test_a_log_that_failed_refuses_at_once() -> None:
    disk = SimulatedDisk(Random(1))
    log = open_log(disk, "log")
    fill(log, 3)
    disk.fail("sync", error=OSError(errno.EIO, "Input/output error"))
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    with pytest.raises(StorageError, match="cannot be written any more"):
        log.finish_sync(batch)
    with pytest.raises(StorageError, match="restart the server"):
        put(log, b"s", b"body")
    again = log.prepare_sync()
    assert again is not None
    assert again.error is not None
    assert log.durable_seq == 0


def test_a_message_without_room_uses_up_no_sequence() -> None:
    disk = SimulatedDisk(Random(1))
    log = open_log(disk, "log")
    fill(log, 2)
    commit(log)
    disk.capacity = disk.used()
    with pytest.raises(DiskFullError):
        put(log, b"s", bytes(100_000))
    assert log.last_seq == 2
    disk.capacity += 1_000_000
    fill(log, 1)
    commit(log)
    assert readable(log) == [1, 2, 3]


def test_a_stream_that_is_created_on_a_full_disk_takes_messages_when_there_is_space() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    free, disk.capacity = disk.capacity, disk.used()
    assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert client.store("s")["error"]["err_code"] == 10077
    disk.crash()
    driver = Driver(disk, now=driver.clock.now + SECOND).start()
    client = driver.client()
    assert client.store("s")["error"]["err_code"] == 10077
    disk.capacity = free
    assert client.store("s")["seq"] == 1


def test_a_stream_for_which_the_disk_has_no_directory_is_refused_and_can_be_created_later() -> None:
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    disk.fail("mkdir", error=OSError(errno.ENOSPC, "No space left on device"))
    assert client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})["error"]["code"] == 500
    assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert client.store("s")["seq"] == 1


def test_when_the_first_message_was_stored_is_read_again_after_a_disk_has_refused_it() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 60)
    commit(log)
    log.close()
    log = opened(disk)
    log.drop_below(log.blocks[2].base)
    record = Record()
    disk.fail("pread", error=OSError(errno.ESTALE, "Stale file handle"))
    assert log.first_ts == 0
    disk.heal()
    assert log.read(log.first_seq, record)
    assert log.first_ts == record.ts


def test_room_that_was_reserved_is_for_what_removes_where_messages_are_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk(Random(1))
    reserve = SimulatedFile.reserve
    monkeypatch.setattr(SimulatedFile, "reserve", lambda file, size: reserve(file, size + 10_000))
    log = opened(disk, segment_bytes=100_000)
    fill(log, 3)
    commit(log)
    disk.capacity = disk.used()
    fill(log, 1)  # there was room for more
    log.ask_for_room_again()
    with pytest.raises(DiskFullError):
        fill(log, 1)
    log.remove(2, False)
    commit(log)
    disk.crash()
    log = opened(disk, segment_bytes=100_000)
    assert readable(log) == [1, 3, 4]
    disk.capacity += 1_000_000
    fill(log, 1)
    log.ask_for_room_again()
    fill(log, 1)
    commit(log)
    assert readable(log) == [1, 3, 4, 5, 6]
