"""Where a log ends is known elsewhere: what is missing there, or as a whole file, is reported, and
no sequence is given out twice."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import CorruptionError
from slipstream.log.end_record import EndRecord
from slipstream.log.record import COMMIT_SIZE
from slipstream.log.segment import HEADER_SIZE, SEQUENCE_MAX
from slipstream.log.stream_store import TwinFile
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, readable

MSGS = "store/jetstream/$G/S/msgs"
CONSUMER = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}


def stored(count: int, stop: bool, segment_bytes: int = 1 << 20) -> SimulatedDisk:
    """A disk where a server has stored so many messages, and was stopped or killed."""
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=segment_bytes).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for n in range(1, count + 1):
        client.store(f"s.{n}", b"body %d" % n)
    driver.advance(2 * SECOND)
    if stop:
        driver.stop()
    return disk


def started(disk: SimulatedDisk) -> tuple[Driver, Client]:
    driver = Driver(disk, segment_bytes=1 << 20).start()
    return driver, driver.client()


def lost(client: Client) -> list[int]:
    found: list[int] = client.api("STREAM.INFO.S")["state"].get("lost", {}).get("msgs", [])
    return found


def segments(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.files(".seg") if MSGS in path]


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("harm", ["zeros", "file", "directory"])
def test_a_log_of_which_nothing_is_left_is_missed(stop: bool, harm: str) -> None:
    disk = stored(10, stop)
    (path,) = segments(disk)
    if harm == "zeros":
        disk.overwrite(path, 0, bytes(4096))
    elif harm == "file":
        disk.lose(path)
    else:
        disk.lose(MSGS)
    for _ in range(2):  # the report outlives a restart
        driver, client = started(disk)
        assert lost(client) == list(range(1, 11))
        assert any("'$G > S' has lost 10 messages" in problem for problem in driver.js.problems)
        driver.stop()
    driver, client = started(disk)
    assert client.store("s.new", b"after it")["seq"] == 11
    driver.stop()
    for note in disk.files():
        if "damaged" in note:
            disk.lose(note)
    driver, client = started(disk)
    assert lost(client) == []
    assert driver.js.problems == []
    assert client.store("s.new", b"again")["seq"] == 12


@pytest.mark.parametrize("stop", [True, False])
def test_a_log_cut_to_half_has_lost_the_rest(stop: bool) -> None:
    disk = stored(200, stop)
    (path,) = segments(disk)
    used = len(disk.read(path).rstrip(b"\0"))
    disk.cut(path, used // 2)
    driver, client = started(disk)
    left = client.api("STREAM.INFO.S")["state"]["messages"]
    assert 90 < left < 110
    assert lost(client) == list(range(left + 1, 201))
    assert any(f"has lost {200 - left} messages" in problem for problem in driver.js.problems)
    assert client.store("s.new", b"after it")["seq"] == 201
    disk.crash()
    _, client = started(disk)
    assert lost(client) == list(range(left + 1, 201))
    assert client.store("s.new", b"after it")["seq"] == 202


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_a_segment_file_that_is_gone_is_missed(stop: bool, which: int) -> None:
    disk = stored(100, stop, 2_000)
    paths = segments(disk)
    assert len(paths) > 3
    bases = [int(path.split("/")[-1][:20]) for path in paths] + [101]
    at = which % len(paths)
    disk.lose(paths[at])
    gone = list(range(bases[at], bases[at + 1]))
    for _ in range(2):
        driver, client = started(disk)
        assert lost(client) == gone
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 100 - len(gone)
        driver.stop()
    assert started(disk)[1].store("s.new")["seq"] == 101


def test_what_the_log_itself_removed_is_not_missed() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    for _ in range(10):
        fill(log, 10)
        commit(log)
    for seq in [*range(1, 30), *range(45, 75), *range(90, 101)]:
        log.remove(seq, False)
        commit(log)
    log.advance(1_000)
    commit(log)
    left = readable(log)
    for crash in (True, False, True):
        if crash:
            disk.crash()
        else:
            log.close()
        log = opened(disk)
        assert readable(log) == left
        assert (log.last_seq, log.lost.count) == (1_000, 0)
        commit(log)


def test_files_of_emptied_segments_stay_until_it_is_kept_that_nothing_is_missing() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    for _ in range(10):
        fill(log, 10)
        commit(log)
    before = disk.files(".seg")
    log.drop_below(80)
    commit(log, jobs=False)
    assert disk.files(".seg") == before
    commit(log)
    assert disk.files(".seg") != before
    disk.crash()
    log = opened(disk)
    assert (log.first_seq, log.lost.count) == (80, 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_record_of_the_end_is_never_ahead_of_what_is_durable(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    log = opened(disk)
    waiting = []
    for _ in range(20):
        fill(log, 5)
        waiting.append(log.prepare_sync())
        log.save_end()
        for job in log.take_jobs():
            job.run()
            job.finish()
        while len(waiting) > 3 or (waiting and disk.random.random() < 0.4):
            batch = waiting.pop(0)
            assert batch is not None
            batch.run()
            log.finish_sync(batch)
    last = log.durable_seq
    disk.crash()
    log = opened(disk)
    assert log.last_seq >= last
    assert [seq for seq in log.lost.sequences if seq <= last] == []


def test_where_the_end_of_a_batch_is_gone_it_is_kept_at_once_that_less_is_durable() -> None:
    """Else a batch that a crash tears in that place passes for durable."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 3)
    commit(log)
    log.save_end()
    log.do_jobs()
    before = log.blocks[-1].records_end
    file = disk.open(log.blocks[-1].path)
    file.truncate(before - 10)
    file.sync()
    assert readable(opened(disk)) == [1, 2, 3]
    end = EndRecord.decode(TwinFile(disk, "end").load())
    assert end.durable == (1, before - COMMIT_SIZE)


def test_a_disk_that_can_not_keep_the_end_does_no_harm() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    for n in range(10):
        fill(log, 10)
        commit(log, jobs=False)
        disk.fail("open", error=OSError(5, "Input/output error"))
        for job in log.take_jobs():
            job.run()
            job.finish()
        disk.heal()
        if n > 4:
            log.drop_below(10 * n)
    commit(log)
    assert log.failed == ""
    assert readable(log) == list(range(90, 101))
    commit(log)
    assert len(disk.files(".seg")) <= 3


def test_an_idle_log_does_not_keep_its_end_again() -> None:
    disk = stored(10, stop=False)
    driver, _ = started(disk)
    driver.advance(2 * SECOND)
    before = disk.calls.copy()
    driver.advance(3600 * SECOND)
    assert disk.calls == before


ENDS = st.builds(
    EndRecord,
    st.integers(0, SEQUENCE_MAX),
    st.integers(0, SEQUENCE_MAX),
    st.tuples(st.integers(0, SEQUENCE_MAX), st.integers(0, 2**32)),
    st.dictionaries(st.integers(0, SEQUENCE_MAX), st.integers(0, 2**32 - 1), max_size=9),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=50),
)


@given(ENDS, st.integers(0, 600))
def test_the_record_of_the_end_is_read_as_it_was_written_or_not_at_all(
    end: EndRecord, cut: int
) -> None:
    content = end.encode()
    assert len(content) % 512 == 0
    assert EndRecord.decode(content) == end
    try:
        EndRecord.decode(content[:cut])
    except CorruptionError:
        pass  # it is the only error


def test_a_record_of_the_end_that_can_not_be_is_refused() -> None:
    with pytest.raises(CorruptionError, match="cannot be"):
        EndRecord.decode(EndRecord(last_seq=2**64 - 1).encode())
    with pytest.raises(CorruptionError, match="too short"):
        EndRecord.decode(b"")


def consumed(disk: SimulatedDisk, count: int) -> Driver:
    """A server with a consumer that has acknowledged so many messages, and was told so."""
    driver = Driver(disk, segment_bytes=1 << 20).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": CONSUMER})
    for n in range(count):
        client.store("s.a", b"body %d" % n)
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"%d" % count, "_INBOX.t.next")
    for message in client.take():
        assert client.ask(message.reply, b"+ACK")
    return driver


def test_a_consumer_knows_that_a_log_ended_later_once() -> None:
    disk = SimulatedDisk(Random(1))
    consumed(disk, 20).stop()
    for path in disk.files():
        if path.startswith("store/jetstream/$G/S/end."):
            disk.lose(path)
    (path,) = segments(disk)
    disk.cut(path, HEADER_SIZE + 700)
    driver, client = started(disk)
    left = client.api("STREAM.INFO.S")["state"]["messages"]
    assert 0 < left < 20
    assert lost(client) == list(range(left + 1, 21))
    info = client.api("CONSUMER.INFO.S.c")
    assert info["delivered"]["stream_seq"] == 20
    assert client.store("s.a", b"after it")["seq"] == 21
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", "_INBOX.t.next")
    assert [message.body for message in client.take()] == [b"after it"]
    driver.stop()
    assert lost(started(disk)[1]) == list(range(left + 1, 21))


def test_a_purge_that_a_crash_takes_back_is_no_loss() -> None:
    disk = SimulatedDisk(Random(1))
    driver = consumed(disk, 5)
    client = driver.client()
    driver.runner.hold()
    for _ in range(3):
        client.publish("s.a", b"in flight")
    client.publish("$JS.API.STREAM.PURGE.S", b"", "_INBOX.t.purge")
    driver.advance(SECOND)
    for item in list(driver.runner.waiting):
        if item.batch is None:
            item.run()  # positions are saved, and what they speak of is not durable
    disk.crash()
    _, client = started(disk)
    assert lost(client) == []


@pytest.mark.parametrize("crash", [True, False])
def test_what_was_removed_is_not_counted_as_lost_by_a_start_after_the_one_that_counted(
    crash: bool,
) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 10)
    commit(log)
    log.drop_below(9)
    commit(log)
    log.close()
    disk.cut(disk.files(".seg")[0], HEADER_SIZE + 3 * 129)
    log = opened(disk, 1 << 20)
    counted = log.lost.sequences
    assert counted == [9, 10]
    for _ in range(2):
        if crash:
            disk.crash()
        log = opened(disk, 1 << 20)
        assert log.lost.sequences == counted
        assert log.last_seq == 10
