"""A batch that was synced in its segment leaves a reference in the commit log: nothing on disk says
otherwise in which order the batches of several streams became durable."""

from random import Random

import pytest

from slipstream.errors import StorageError
from slipstream.log.commit_entry import HEAD_SIZE, REFER, WRITE, Head, next_entry
from slipstream.log.commit_entry import Record as Logged
from slipstream.log.commit_log import CommitLog
from slipstream.log.record import COMMIT, Record, decode
from slipstream.log.segment import HEADER_SIZE
from slipstream.log.segment_bytes import Reference
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk


def begin(disk: SimulatedDisk, **options: int) -> Client:
    """Streams A and B, which take turns."""
    client = Driver(disk, **options).start().client()
    for name in "AB":
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    return client


def entries(disk: SimulatedDisk) -> list[list[Logged]]:
    """The records of each entry in the commit log, in order."""
    found = {}
    for path in disk.files(".log"):
        data = disk.read(path)
        head = Head.decode(data)
        at = HEAD_SIZE
        while head is not None and (there := next_entry(data, at, head.salt)) is not None:
            at = there[0] + there[1].size
            found[there[1].index] = there[1].records
    return [found[index] for index in sorted(found)]


def references(disk: SimulatedDisk) -> list[Reference]:
    """All references in the commit log, in order."""
    return [
        Reference.decode(one.path, one.stream_created, one.content)
        for records in entries(disk)
        for one in records
        if one.kind == REFER
    ]


def stream_of(reference: Reference) -> str:
    return reference.path.split("/")[-3]


def lost(client: Client, stream: str = "A") -> list[int]:
    found: list[int] = client.api(f"STREAM.INFO.{stream}")["state"].get("lost", {}).get("msgs", [])
    return found


def segment(disk: SimulatedDisk, stream: str) -> str:
    return next(path for path in disk.files(".seg") if f"/{stream}/" in path)


def test_the_log_says_in_which_order_batches_of_streams_became_durable() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    for name in "ABBAAAB":
        client.store(f"{name}.x")
    client.driver.advance(2 * SECOND)
    found = references(disk)
    assert [(stream_of(one), one.last_seq) for one in found] == [
        ("A", 1),
        ("B", 2),
        ("A", 4),
        ("B", 3),
    ]


def test_references_come_before_the_change_that_follows_them() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    client.store("A.x")
    client.api("STREAM.CREATE.C", {"name": "C", "subjects": ["C.>"]})
    client.store("B.x")
    client.send(encode("A.x", b"both", "_INBOX.t.x") + encode("B.x", b"both", "_INBOX.t.x"))
    said = [
        (one.kind, one.path.split("/")[2])
        for one in [one for all_ in entries(disk) for one in all_]
    ]
    at = said.index((REFER, "A"))
    assert said[at + 1][1] == "C"
    assert said[at + 2 :] == [(REFER, "B"), (WRITE, "A"), (WRITE, "B")]


def test_a_reference_says_where_whole_batches_are() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    for n in range(5):
        client.store("A.x", b"%d" % n)
    client.driver.advance(2 * SECOND)
    client.store("A.x", b"later")
    client.driver.advance(2 * SECOND)
    first, second = references(disk)
    assert (first.start, first.end) == (HEADER_SIZE, second.start)
    for one in (first, second):
        data = disk.read(f"store/{one.path}")
        record = Record()
        at = one.start
        while at < one.end:
            begins, at = at, decode(data, at, one.salt, 1, record)
        assert (at, record.kind) == (one.end, COMMIT)
        assert one.checksum == int.from_bytes(data[begins : begins + 4], "little")
        assert one.last_seq == record.seq - 1


def test_nobody_waits_for_a_reference() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    client.store("A.x")
    before = disk.calls["sync"]
    for _ in range(100):
        client.store("A.x")
    assert disk.calls["sync"] == before + 100
    client.driver.advance(2 * SECOND)
    assert len(references(disk)) == 1


def test_what_a_reference_speaks_of_is_missed_where_it_is_gone() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    for _ in range(3):
        client.store("A.x")
    client.api("STREAM.CREATE.C", {"name": "C", "subjects": ["C.>"]})  # the references go with it
    path = segment(disk, "A")
    disk.crash()
    disk.cut(path, HEADER_SIZE + 10)
    for _ in range(2):
        client = Driver(disk).start().client()
        assert lost(client) == [1, 2, 3]
        assert lost(client, "B") == []
    assert client.store("A.x")["seq"] == 4


def test_what_was_not_durable_is_referred_to_by_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    client.store("A.x")
    client.driver.runner.hold()
    client.publish("A.x", b"never synced", "_INBOX.t.x")
    client.driver.settle_log()
    client.driver.advance(3 * SECOND)
    client.driver.settle_log()
    assert [one.last_seq for one in references(disk)] == [1]
    disk.crash()
    client = Driver(disk).start().client()
    assert lost(client) == []


def test_a_batch_that_failed_leaves_no_reference() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    client.store("A.x")
    disk.fail("sync")
    assert "error" in client.store("A.x")
    client.store("B.x")
    client.driver.advance(2 * SECOND)
    assert [(stream_of(one), one.last_seq) for one in references(disk)] == [("A", 1), ("B", 1)]


def test_references_alone_do_not_fill_the_log() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk, log_bytes=HEAD_SIZE + 20_000)
    for _ in range(200):
        client.store("A.x")
        client.store("B.x")
        client.driver.advance(SECOND // 5)
    assert client.driver.js.problems == []
    assert all(len(disk.read(path)) <= 256 * 1024 for path in disk.files(".log"))
    disk.crash()
    client = Driver(disk).start().client()
    assert client.api("STREAM.INFO.A")["state"]["messages"] == 200


def test_a_disk_that_takes_no_entry_leaves_one_reference_for_each_segment() -> None:
    log = CommitLog(SimulatedDisk(Random(1)), "store", HEAD_SIZE + 1_000)
    log.open()
    log.begin()
    paths = [f"store/jetstream/$G/{name}/msgs/{1:020d}.seg" for name in "AB"]
    for n in range(1, 200):
        log.refer([Reference(path, 7, 1, 10 * n, 10 * n + 10, n, n) for path in paths])
    assert len(log._references) < 30
    assert [(one.end, one.last_seq) for one in log._references[-2:]] == [(2000, 199), (2000, 199)]
    assert {one.path: one.start for one in reversed(log._references)} == dict.fromkeys(paths, 10)


def test_the_references_to_a_deleted_stream_are_not_those_of_its_successor() -> None:
    disk = SimulatedDisk(Random(1))
    client = begin(disk)
    for _ in range(9):
        client.store("A.x")
    client.api("STREAM.DELETE.A")
    client.driver.clock.now += 1
    client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["A.>"]})
    client.store("A.x")
    disk.crash()
    client = Driver(disk).start().client()
    assert lost(client) == []
    assert client.store("A.x")["seq"] == 2


def test_half_a_reference_is_refused() -> None:
    with pytest.raises(StorageError, match="half an entry about a/b"):
        Reference.decode("a/b/00000000000000000001.seg", 1, b"short")
