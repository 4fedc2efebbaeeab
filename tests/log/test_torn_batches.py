"""A batch that a crash tore removes nothing; damage to one that was acknowledged undoes nothing."""

import base64
from random import Random
from typing import Any

import pytest

from slipstream.log.segment import decode_header, scan_records
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, put, readable

BIG = bytes(range(256)) * 20


def started(disk: SimulatedDisk) -> Client:
    return Driver(disk).start().client()


def segment(disk: SimulatedDisk) -> str:
    return disk.files(".seg")[-1]


def span(disk: SimulatedDisk, path: str, seq: int) -> tuple[int, int]:
    """Where a message lies in a segment."""
    data = disk.read(path)
    header = decode_header(data)
    for record, at in scan_records(data, header.base, header.salt):
        if record.seq == seq and record.kind == 1:
            return at, record.end
    raise AssertionError(f"there is no message {seq} in {path}")


def torn(config: dict[str, Any], subject: str, headers: dict[str, str]) -> Client:
    """A stream with k.0 to k.99 acknowledged, then one more message in a batch that was written but
    for 24 bytes of that message when the power failed; the server that came after."""
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    asked = {"name": "S", "subjects": ["k.>"], "allow_rollup_hdrs": True} | config
    client.api("STREAM.CREATE.S", asked)
    for n in range(100):
        assert client.store(f"k.{n}", b"%d" % n)["seq"] == n + 1
    driver.runner.hold()
    client.publish(subject, BIG, "_INBOX.t.last", headers or None)
    assert client.take() == []
    batch = driver.runner.waiting[0].batch
    assert batch is not None
    batch.flush()
    at, _ = span(disk, segment(disk), 101)
    disk.overwrite(segment(disk), at + 2_000, bytes(24))
    return started(disk)


@pytest.mark.parametrize(
    ("config", "subject", "headers"),
    [
        ({}, "k.new", {"Nats-Rollup": "all"}),
        ({}, "k.7", {"Nats-Rollup": "sub"}),
        ({"max_msgs_per_subject": 1}, "k.7", {}),
        ({"max_msgs": 100}, "k.new", {}),
        ({"max_bytes": 8_000}, "k.new", {}),
    ],
)
def test_a_torn_message_takes_no_other_along(
    config: dict[str, Any], subject: str, headers: dict[str, str]
) -> None:
    client = torn(config, subject, headers)
    state = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    assert (state["messages"], state["first_seq"]) == (100, 1)
    assert state["subjects"] == {f"k.{n}": 1 for n in range(100)}
    assert state["lost"]["msgs"] == [101]
    assert client.store("k.after")["seq"] == 102


def test_what_a_torn_batch_removes_stays_void_after_the_next_batches() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 10)
    commit(log)
    put(log, b"s.1", BIG)
    log.drop_below(11)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    at, _ = span(disk, segment(disk), 11)
    disk.overwrite(segment(disk), at + 100, bytes(24))
    for _ in range(3):
        log = opened(disk)
        assert readable(log)[:10] == list(range(1, 11))
        fill(log, 2)
        commit(log)


def test_readable_messages_of_a_torn_batch_stay() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 10)
    commit(log)
    fill(log, 10)
    log.remove(5, False)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    at, _ = span(disk, segment(disk), 15)
    disk.overwrite(segment(disk), at + 30, bytes(24))
    log = opened(disk, 100_000)
    assert readable(log) == [seq for seq in range(1, 21) if seq != 15]
    assert log.lost.sequences == [15]


@pytest.mark.parametrize("later", [0, 1, 3])
def test_a_batch_that_is_whole_counts_whether_it_was_synced_or_not(later: int) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 10)
    commit(log)
    for n in range(later + 1):
        fill(log, 1)
        log.remove(2 + n, False)
        batch = log.prepare_sync()
        assert batch is not None
        batch.flush()
    log = opened(disk, 100_000)
    gone = range(2, 3 + later)
    assert readable(log) == [seq for seq in range(1, 12 + later) if seq not in gone]
    assert log.lost.count == 0


def test_a_batch_after_a_torn_one_removes_nothing_either() -> None:
    """The second of two batches that no sync has covered stands on the first one."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 10)
    commit(log)
    for n in range(2):
        put(log, b"s.1", BIG)
        log.drop_below(3 + n)
        batch = log.prepare_sync()
        assert batch is not None
        batch.flush()
    at, _ = span(disk, segment(disk), 11)
    disk.overwrite(segment(disk), at + 100, bytes(24))
    log = opened(disk, 100_000)
    assert (log.first_seq, log.messages) == (1, 11)


@pytest.mark.parametrize("known", ["by the next batch", "elsewhere", "by the end of the segment"])
def test_damage_in_a_durable_batch_undoes_no_removal(known: str) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 4_000)
    fill(log, 10)
    commit(log)
    fill(log, 3)
    log.drop_below(4)
    log.remove(6, False)
    commit(log)
    path = segment(disk)
    _, end = span(disk, path, 12)
    if known == "elsewhere":
        log.keep_end_at_once()
    else:
        fill(log, 1 if known == "by the next batch" else 30)
        commit(log, jobs=False)
    disk.crash()
    disk.flip(path, 8 * (end - 10))
    log = opened(disk, 4_000)
    assert [seq for seq in readable(log) if seq <= 13] == [4, 5, 7, 8, 9, 10, 11, 13]
    assert log.lost.sequences == [12]


def test_a_batch_in_two_segments_of_which_the_first_is_torn_removes_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    fill(log, 10)
    commit(log)
    fill(log, 10)
    log.remove(3, False)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    assert len(disk.files(".seg")) == 2
    path = disk.files(".seg")[0]
    at, _ = span(disk, path, 12)
    disk.overwrite(path, at + 30, bytes(24))
    log = opened(disk)
    assert readable(log) == [seq for seq in range(1, 21) if seq != 12]


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_erasure_undoes_no_removal_that_was_acknowledged(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    log = opened(disk, 100_000)
    fill(log, 9)
    put(log, b"s.1", BIG)
    log.remove(2, False)
    log.remove(4, False)
    commit(log)
    log.remove(10, True)
    assert log.prepare_sync() is not None
    disk.crash()
    log = opened(disk, 100_000)
    assert [log.holds(seq) for seq in (1, 2, 3, 4, 9)] == [True, False, True, False, True]
    assert log.last_seq == 10


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_crash_tears_no_acknowledged_message_goes_for_one_that_is_not_there(
    seed: int,
) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    log = opened(disk, random.choice((2_000, 10_000, 100_000)))
    subjects = [b"k.%d" % n for n in range(8)]
    for life in range(4):
        acknowledged = {}
        for subject in subjects:
            acknowledged[subject] = put(log, subject, bytes(random.randrange(900)))
        commit(log)
        fresh: dict[bytes, list[int]] = {}
        for _ in range(random.randrange(1, 9)):
            for _ in range(random.randrange(1, 4)):
                subject = random.choice(subjects)
                seq = put(log, subject, bytes(random.randrange(3_000)))
                log.remove(log.first_of(subject), False)  # as one message for each subject
                fresh.setdefault(subject, []).append(seq)
            if random.random() < 0.6:
                assert log.prepare_sync() is not None
        disk.crash()
        log = opened(disk, 100_000)
        for subject in subjects:
            kept = [acknowledged[subject], *fresh.get(subject, [])]
            assert any(log.holds(seq) for seq in kept), (life, subject)
        for subject in subjects:
            while log.subjects.count(log.subjects.find(subject)) > 1:
                log.remove(log.first_of(subject), False)


def test_a_removal_that_a_crash_tore_excuses_no_hole() -> None:
    """A key is written twice in one batch over two segments, and both of these writes are torn."""
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=8000).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1})
    client.store("s.zero")
    client.store("s.key", b"acknowledged")
    driver.runner.hold()
    turn = [("s.key", b"X" * 1600)]
    turn += [(f"s.other{number}", bytes(700)) for number in range(12)]
    turn += [("s.key", b"Y" * 1600)]
    client.send(b"".join(encode(subject, body, "_INBOX.t") for subject, body in turn))
    for held in driver.runner.waiting:
        if held.batch is not None:
            held.batch.flush()
    for path in disk.files(".seg"):
        for body in (b"X" * 1600, b"Y" * 1600):
            at = disk.read(path).find(body)
            if at >= 0:
                disk.overwrite(path, at + 600, bytes(24))
    client = Driver(disk, segment_bytes=8000).start().client()
    found = client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.key"})
    assert base64.b64decode(found["message"]["data"]) == b"acknowledged"
