"""Small batches of several streams share an entry of the commit log, and are as durable as any."""

import errno
import json
from collections.abc import Sequence

import pytest

from slipstream.engine.commit.commit import OWN_SYNCS_MAX
from slipstream.engine.commit.state_commit import CheckpointJob
from slipstream.errors import StorageError
from slipstream.log import commit_entry, commit_log, file_log
from slipstream.log.commit_entry import HEAD_SIZE, Head
from slipstream.log.commit_log import CommitLog
from slipstream.log.disk import File
from slipstream.log.durability import Job, Touched
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import SECTOR, JointSync
from slipstream.log.segment import HEADER_SIZE, Segment, decode_header, encode_header
from slipstream.log.segment_bytes import SegmentCopy
from slipstream.log.written_again import write_again
from slipstream.testing.driver import Client, Driver, HandRunner, Held, encode
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.wire.buffer import OutBuffer

NAMES = ("A", "B", "C")
SECOND = 1_000_000_000


def begin(disk: SimulatedDisk, **options: int) -> Client:
    """A server with three streams, each with a message in a segment that is durable."""
    client = Driver(disk, **options).start().client()
    for name in NAMES:
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
        client.store(f"{name}.x", b"first")
    client.driver.advance(4 * SECOND)  # the checkpoint of what was created
    return client


def publish_to_all(client: Client, body: bytes) -> list[int]:
    """One message to each stream, in one turn; the sequences that were acknowledged."""
    frames = [encode(f"{name}.x", body, f"_INBOX.t.{name}") for name in NAMES]
    client.send(b"".join(frames))
    return [message.json().get("seq", 0) for message in client.take()]


def stored(client: Client, name: str) -> list[bytes]:
    """The bodies of a stream."""
    return [message.body for message in client.messages(name).values()]


def segment_of(disk: SimulatedDisk, name: str) -> str:
    """The one segment of a stream."""
    (path,) = [path for path in disk.files(".seg") if f"/{name}/" in path]
    return path


def test_what_a_turn_brings_several_streams_costs_one_sync(disk: SimulatedDisk) -> None:
    client = begin(disk)
    before = disk.calls["sync"]
    assert publish_to_all(client, b"second") == [2, 2, 2]
    assert disk.calls["sync"] == before + 1


def test_a_stream_by_itself_is_synced_where_it_belongs(disk: SimulatedDisk) -> None:
    client = begin(disk)
    log = client.driver.engine.state
    assert log is not None
    client.store("A.x", b"alone")
    assert log.log.unapplied == 0


def test_it_is_there_after_a_crash_before_a_checkpoint_and_after_one(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3
    publish_to_all(client, b"third")
    client.driver.advance(4 * SECOND)
    assert client.driver.engine.state is not None
    assert client.driver.engine.state.log.is_applied()
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second", b"third"]] * 3


def test_what_was_not_answered_yet_is_not_shown(disk: SimulatedDisk) -> None:
    client = begin(disk)
    client.driver.runner.hold()
    assert publish_to_all(client, b"second") == []
    assert client.ask("$JS.API.STREAM.MSG.GET.A", {"last_by_subj": "A.x"}) == []
    while client.driver.runner.step():
        client.driver.finish()
    answers = [message.json() for message in client.take()]
    assert [answer["seq"] for answer in answers if "seq" in answer] == [2, 2, 2]
    assert [answer["message"]["seq"] for answer in answers if "message" in answer] == [2]


def _log_of(client: Client, name: str) -> FileLog:
    log = client.driver.js.streams[name].log
    assert isinstance(log, FileLog)
    return log


def test_it_is_read_before_its_segment_has_it(disk: SimulatedDisk) -> None:
    client = begin(disk)
    before = {name: len(disk.read(segment_of(disk, name))) for name in NAMES}
    publish_to_all(client, b"second")
    publish_to_all(client, b"third")
    assert {name: len(disk.read(segment_of(disk, name))) for name in NAMES} == before
    assert stored(client, "B") == [b"first", b"second", b"third"]
    publish_to_all(client, b"fourth")
    disk.crash()
    client = Driver(disk).start().client()
    assert [len(stored(client, name)) for name in NAMES] == [4] * 3


def test_a_read_in_the_middle_of_a_batch_costs_no_sync_of_its_own(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    calls = disk.calls["sync"]
    log, record = _log_of(client, "A"), Record()
    append = log.append
    frames = [encode(f"{name}.x", b"third", f"_INBOX.t.{name}") for name in NAMES]
    client.driver.js.streams["A"].mark_dirty()
    append(b"A.x", b"by hand", 0, 0, 7, client.driver.clock.now)
    assert log.read(log.last_seq, record)
    client.send(b"".join(frames))
    assert sorted(message.json()["seq"] for message in client.take()) == [3, 3, 4]
    assert disk.calls["sync"] == calls + 1
    disk.crash()
    client = Driver(disk).start().client()
    assert stored(client, "A") == [b"first", b"second", b"by hand", b"third"]


def test_a_log_that_fails_shows_what_it_had_and_the_checkpoint_keeps_it(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    assert publish_to_all(client, b"second") == [2, 2, 2]
    disk.fail("sync")
    client.store("A.x", b"refused")
    assert _log_of(client, "A").failed
    assert stored(client, "A") == [b"first", b"second"]
    client.driver.advance(4 * SECOND)
    disk.crash()
    client = Driver(disk).start().client()
    assert stored(client, "A")[:2] == [b"first", b"second"]
    assert stored(client, "B") == [b"first", b"second"]


def test_what_is_carried_for_long_does_not_stay_in_memory_alone(disk: SimulatedDisk) -> None:
    client = begin(disk)
    before = len(disk.read(segment_of(disk, "A")))
    for _ in range(9):
        publish_to_all(client, b"x" * 8_000)
    assert len(disk.read(segment_of(disk, "A"))) > before


def test_a_stream_that_is_deleted_amid_a_purge_costs_no_other_one_its_messages(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk, segment_bytes=4_000)
    second = b"x" * 1_500
    assert publish_to_all(client, second) == [2, 2, 2]
    client.driver.runner.hold()
    client.publish("$JS.API.STREAM.PURGE.A", b"")  # which begins a segment
    client.send(encode("A.x", b"third"))
    client.publish("$JS.API.STREAM.DELETE.A", b"")
    while client.driver.runner.step():
        client.driver.finish()
    client.driver.runner.held = False
    for name in ("c", "d"):  # of changes a checkpoint says that all before them was applied
        client.api(f"CONSUMER.DURABLE.CREATE.B.{name}", durable(name))
        client.driver.advance(4 * SECOND)
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in ("B", "C")] == [[b"first", second]] * 2
    assert "A" not in client.driver.js.streams


def durable(name: str) -> dict[str, object]:
    """A request for a consumer of B."""
    return {"stream_name": "B", "config": {"durable_name": name, "ack_policy": "explicit"}}


def test_a_file_that_refuses_what_was_carried_is_reported(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begin(disk)
    assert publish_to_all(client, b"second") == [2, 2, 2]

    def refuse(_data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(_log_of(client, "B").blocks[-1].file, "append", refuse)
    client.driver.advance(4 * SECOND)
    answers = [client.store(f"{name}.x", b"third") for name in NAMES]
    assert sum("error" in answer for answer in answers) == 1
    assert "cannot be written any more" in " ".join(client.driver.js.problems)
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name)[:2] for name in NAMES] == [[b"first", b"second"]] * 3


def test_of_a_large_batch_no_more_is_kept_than_the_log_has(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    client.store("A.x", b"x" * 500_000)  # synced where it belongs, with what was carried
    kept: list[bytes] = []
    monkeypatch.setattr(file_log, "write_again", lambda *given: kept.extend(given[2]))
    log = _log_of(client, "A")
    log.sync_failed(OSError(errno.EIO, "Input/output error"))  # so that it is written once more
    log.blocks[-1].copy.apply(b"", Touched())
    assert 0 < sum(len(content) for content in kept) < 1_000


def test_without_room_in_the_log_each_stream_syncs_its_own(disk: SimulatedDisk) -> None:
    client = begin(disk, log_bytes=HEAD_SIZE + 1_000)
    before = disk.calls["sync"]
    assert publish_to_all(client, b"x" * 2_000) == [2, 2, 2]
    assert disk.calls["sync"] == before + 3
    disk.crash()
    assert stored(Driver(disk).start().client(), "B") == [b"first", b"x" * 2_000]


class SlowCheckpoints(HandRunner):
    """Checkpoints wait until they are told to run, and nothing waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[Held] = []

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        if isinstance(job, CheckpointJob):
            self.checkpoints.append(Held(self, job))
        else:
            super().start_aside(job)


class Waiting:
    """A server whose commit log is full while a checkpoint is under way: of its streams 8 have
    syncs of their own under way, and others wait, each with a message that is not durable."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.runner = SlowCheckpoints()
        self.driver = Driver(disk, runner=self.runner, log_bytes=40_000).start()
        self.client = self.driver.client()
        self.names = [f"S{n}" for n in range(OWN_SYNCS_MAX + 4)]
        for name in self.names:
            self.client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
            self.client.store(f"{name}.x", b"first")
        assert self.driver.engine.state is not None
        log = self.driver.engine.state.log
        while not log.copies.lacks_room:  # both files fill up
            self.publish()
        assert len(self.client.take()) % len(self.names) == 0
        self.runner.hold()
        self.publish()
        assert len(self.runner.waiting) == OWN_SYNCS_MAX
        assert self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """Whether streams wait for room."""
        return self.driver.engine.commit.is_waiting

    def publish(self) -> None:
        """A message to each stream, in one turn."""
        frames = [encode(f"{name}.x", b"x" * 300, f"_INBOX.t.{name}") for name in self.names]
        self.client.send(b"".join(frames))

    def run_checkpoints(self) -> None:
        """Have all of them run and end, and all that waits for the disk."""
        while self.runner.checkpoints or self.runner.waiting:
            self.runner.waiting.extend(self.runner.checkpoints)
            self.runner.checkpoints.clear()
            while self.runner.step():
                self.driver.finish()

    def acknowledged(self) -> int:
        """How many messages have been; none was refused."""
        answers = [message.json() for message in self.client.take()]
        assert all("seq" in answer for answer in answers)
        return len(answers)


@pytest.mark.parametrize("trouble", ["", "the disk is full", "there is no memory"])
def test_while_a_checkpoint_makes_room_few_streams_sync_their_own_and_others_wait(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def no_space(_old: str, _new: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def no_memory(_files: Sequence[File]) -> Sequence[OSError | None]:
        raise MemoryError

    waiting = Waiting(disk)
    waiting.publish()  # more for all of them
    assert len(waiting.runner.waiting) == OWN_SYNCS_MAX
    if trouble == "the disk is full":
        monkeypatch.setattr(disk, "rename", no_space)
    elif trouble:
        monkeypatch.setattr(disk, "flush_all", no_memory)
    waiting.run_checkpoints()
    assert not waiting.is_waiting
    assert waiting.acknowledged() == 2 * len(waiting.names)


def test_what_waits_for_room_is_not_shown(disk: SimulatedDisk) -> None:
    waiting = Waiting(disk)
    reader = waiting.driver.client()
    name = waiting.names[-1]
    stream = waiting.driver.js.streams[name]
    assert stream.log.durable_seq < stream.log.last_seq
    assert not stream.is_settled
    assert reader.ask(f"$JS.API.STREAM.INFO.{name}", b"") == []
    waiting.run_checkpoints()
    (info,) = [answer for one in reader.take() if "state" in (answer := one.json())]
    assert info["state"]["last_seq"] == stream.log.durable_seq == stream.log.last_seq


def test_who_waits_for_room_has_the_next_sync_of_its_own(disk: SimulatedDisk) -> None:
    waiting = Waiting(disk)
    for _ in waiting.names:  # what the first ones publish again comes later
        waiting.runner.step()
        waiting.runner.step()
        waiting.driver.finish()
    assert waiting.acknowledged() == len(waiting.names)
    assert not waiting.is_waiting
    assert waiting.runner.checkpoints


def test_who_waits_for_room_does_not_wait_for_a_checkpoint_that_ends_unheard(
    disk: SimulatedDisk,
) -> None:
    waiting = Waiting(disk)
    state = waiting.driver.engine.state
    assert state is not None
    for checkpoint in waiting.runner.checkpoints:
        checkpoint.run()
    state.apply_all()  # as JetStream ends for an account
    waiting.driver.finish()
    while waiting.runner.step():
        waiting.driver.finish()
    assert not waiting.is_waiting
    assert waiting.acknowledged() == len(waiting.names)


def test_what_was_erased_is_not_written_once_more(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"secret")
    publish_to_all(client, b"third")
    assert client.api("STREAM.MSG.DELETE.A", {"seq": 2})["success"]
    client = Driver(disk).start().client()  # killed: the log repeats what it has
    assert stored(client, "A") == [b"first", b"third"]
    assert b"secret" not in disk.read(segment_of(disk, "A"))
    assert b"secret" in disk.read(segment_of(disk, "B"))


@pytest.mark.parametrize("pause", [0, 3 * SECOND, 60 * SECOND])
@pytest.mark.parametrize("stops", [False, True])
def test_what_was_erased_does_not_stay_in_the_log(
    disk: SimulatedDisk, pause: int, stops: bool
) -> None:
    client = begin(disk)
    frames = [encode(f"{name}.x", b"of %b" % name.encode(), "_INBOX.t.x") for name in NAMES]
    client.send(b"".join(frames))
    client.driver.advance(pause)  # the checkpoint of it has been, or has not
    assert client.api("STREAM.MSG.DELETE.A", {"seq": 2})["success"]
    if stops:
        client.driver.stop()
    else:
        client.driver.advance(5 * SECOND)
    assert not any(b"of A" in disk.read(path) for path in disk.files())
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [
        [b"first"],
        [b"first", b"of B"],
        [b"first", b"of C"],
    ]


def test_what_is_erased_while_its_copy_waits_for_an_entry_does_not_stay_in_the_log(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    runner = client.driver.runner
    runner.hold()
    asked = {"stream_name": "A", "config": {"durable_name": "c"}}
    client.publish("$JS.API.CONSUMER.DURABLE.CREATE.A.c", json.dumps(asked).encode())
    frames = [encode(f"{name}.x", b"of %b" % name.encode(), "_INBOX.t.x") for name in NAMES]
    client.send(b"".join(frames))  # they wait for the entry under way
    client.publish("$JS.API.STREAM.MSG.DELETE.A", b'{"seq":2}')
    for _ in range(3):
        client.driver.advance(5 * SECOND)  # a checkpoint begins when the entry is there
        while runner.step():
            client.driver.finish()
    assert not any(b"of A" in disk.read(path) for path in disk.files())
    disk.crash()
    client = Driver(disk).start().client()
    assert stored(client, "A") == [b"first"]
    assert stored(client, "B") == [b"first", b"of B"]


def test_a_stream_that_was_deleted_does_not_come_back_to_its_successor(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    assert client.api("STREAM.DELETE.A")["success"]
    client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["A.>"]})
    client.store("A.x", b"new")
    disk.crash()
    client = Driver(disk).start().client()
    assert stored(client, "A") == [b"new"]
    assert stored(client, "B") == [b"first", b"second"]


def test_a_damaged_header_does_not_keep_bytes_from_being_written(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.flip(segment_of(disk, "A"), 9)
    disk.crash()
    assert stored(Driver(disk).start().client(), "A") == [b"first", b"second"]


def test_a_start_that_cannot_write_them_keeps_them_for_the_next(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.crash()
    disk.fail("pwrite")
    client = Driver(disk).start().client()
    missing = [name for name in NAMES if not stored(client, name)]
    assert len(missing) == 1
    assert "could not be written" in " ".join(client.driver.js.problems)
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3


def test_a_checkpoint_that_cannot_sync_ends_the_streams_and_loses_nothing(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.fail("sync")
    client.driver.advance(3 * SECOND)
    assert all("error" in client.store(f"{name}.x") for name in NAMES)
    client.driver.advance(20 * SECOND)
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3


def test_a_segment_that_is_gone_or_another_one_is_left_alone(disk: SimulatedDisk) -> None:
    client = begin(disk)
    path = segment_of(disk, "A")
    salt = decode_header(disk.read(path)).salt
    content = (salt ^ 1).to_bytes(4, "little") + (40).to_bytes(8, "little") + b"x" * 30
    before = disk.read(path)
    write_again(disk, path, [content])
    write_again(disk, path.replace("01.seg", "09.seg"), [content])
    assert disk.read(path) == before
    assert disk.files(".seg") == [segment_of(disk, name) for name in NAMES]
    client.driver.stop()


def test_without_descriptors_a_checkpoint_ends_no_stream(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.fail("open", error=OSError(errno.EMFILE, "Too many open files"))
    client.driver.advance(3 * SECOND)
    assert publish_to_all(client, b"third") == [3, 3, 3]
    client.driver.advance(20 * SECOND)
    assert client.driver.js.problems == []


def test_a_stream_that_is_deleted_during_a_checkpoint_is_no_failed_disk(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    client.driver.runner.hold()
    client.driver.advance(3 * SECOND)
    while not client.driver.runner.waiting[0].ran:
        client.driver.runner.step()
    client.publish("$JS.API.STREAM.DELETE.A", b"", "_INBOX.t.x")
    while client.driver.runner.step():
        client.driver.finish()
    assert client.driver.js.problems == []


def test_a_start_whose_sync_fails_writes_once_more(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.crash()
    disk.fail("sync")
    client = Driver(disk).start().client()
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3


def test_a_start_writes_to_segments_what_the_log_has_and_nothing_else(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3
    before = disk.calls["pwrite"]
    again = Driver(disk).start().client()  # the server was killed, the system was not
    assert disk.calls["pwrite"] == before + len(NAMES) + 1  # ... and the head of the log
    disk.crash()
    again = Driver(disk).start().client()
    assert publish_to_all(again, b"third") == [3, 3, 3]
    assert [stored(again, name) for name in NAMES] == [[b"first", b"second", b"third"]] * 3


def test_a_start_writes_again_what_a_failed_sync_has_left_in_memory(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.fail("sync")
    assert "error" in client.store("A.x", b"alone")  # it was synced where it belongs
    again = Driver(disk).start().client()
    found = stored(again, "A")
    assert found == [b"first", b"second", b"alone"]
    disk.crash()
    assert stored(Driver(disk).start().client(), "A") == found


def test_a_start_writes_again_what_a_damaged_entry_of_the_log_was_to_keep(
    disk: SimulatedDisk,
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    publish_to_all(client, b"third")
    disk.fail("sync")
    client.driver.advance(3 * SECOND)  # the checkpoint leaves it in the system's memory alone
    [path] = [path for path in disk.files(".log") if b"second" in disk.read(path)]
    at = disk.read(path).index(b"second")
    disk.flip(path, 8 * at)
    again = Driver(disk).start().client()
    assert [stored(again, name) for name in NAMES] == [[b"first", b"second", b"third"]] * 3
    disk.crash()
    again = Driver(disk).start().client()
    assert [stored(again, name) for name in NAMES] == [[b"first", b"second", b"third"]] * 3


def test_a_start_writes_again_what_was_erased_in_memory_alone(disk: SimulatedDisk) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    client.driver.advance(4 * SECOND)  # the log repeats nothing of that any more
    publish_to_all(client, b"third")
    client.driver.runner.hold()
    client.publish("$JS.API.STREAM.MSG.DELETE.A", b'{"seq":1}')
    disk.fail("sync")  # the server was killed before it could say what it has erased
    found = stored(Driver(disk).start().client(), "A")
    assert found == [b"second", b"third"]
    disk.crash()
    assert stored(Driver(disk).start().client(), "A") == found


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_a_crash_has_torn_does_not_stay_behind_what_follows(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.crash()
    path = segment_of(disk, "A")
    disk.overwrite(path, 2 * SECTOR, b"torn")  # a batch of which the crash has left nothing else
    run = JointSync.run

    def failed(joint: JointSync, disk: SimulatedDisk) -> set[str]:
        begin, left = disk.begin, [failing]

        def refused(operation: str, epoch: int | None = None) -> None:
            if operation == "sync" and left[0]:
                left[0] -= 1
                disk.fail("sync")
            begin(operation, epoch)

        monkeypatch.setattr(disk, "begin", refused)
        return run(joint, disk)

    monkeypatch.setattr(JointSync, "run", failed)
    client = Driver(disk).start().client()
    monkeypatch.undo()
    if failing == 2:  # the logs together, and this one by itself
        assert "could not be recovered" in " ".join(client.driver.js.problems)
        client = Driver(disk).start().client()
    assert client.store("A.x", b"third")["seq"] == 3
    disk.crash()
    assert b"torn" not in disk.read(path)
    assert stored(Driver(disk).start().client(), "A") == [b"first", b"second", b"third"]


def test_a_start_leaves_out_a_stream_that_cannot_be_synced(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begin(disk)
    publish_to_all(client, b"second")
    disk.crash()
    sync_all = SimulatedDisk.sync_all

    def refuse(disk: SimulatedDisk, files: Sequence[str], directories: Sequence[str]) -> None:
        if any("/B/" in path for path in files):
            raise OSError(errno.EIO, "Input/output error")
        sync_all(disk, files, directories)

    monkeypatch.setattr(SimulatedDisk, "sync_all", refuse)
    client = Driver(disk).start().client()
    found = [stored(client, name) for name in NAMES]
    assert found == [[b"first", b"second"], [], [b"first", b"second"]]
    monkeypatch.undo()
    client = Driver(disk).start().client()
    assert [stored(client, name) for name in NAMES] == [[b"first", b"second"]] * 3


def test_a_log_that_fails_while_batches_wait_for_it_lets_them_down(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begin(disk)
    calls = []
    reserve = CommitLog._reserve

    def refuse_second(log: CommitLog, file: object, size: int) -> bool:
        calls.append(size)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return reserve(log, file, size)  # type: ignore[arg-type]

    monkeypatch.setattr(CommitLog, "_reserve", refuse_second)
    monkeypatch.setattr(commit_log, "COPIES_ROOM", 0)  # each asks for room of its own
    assert sorted(publish_to_all(client, b"second")) == [0, 2, 2]
    assert "cannot be written any more" in " ".join(client.driver.js.problems)
    assert sum("error" not in client.store(f"{name}.x", b"third") for name in NAMES) == 2


def test_what_is_copied_while_a_checkpoint_runs_is_left_to_the_next_one(
    disk: SimulatedDisk,
) -> None:
    log = FileLog(disk, "")
    segment = Segment(1, "00000000000000000001.seg")
    segment.file = disk.open(segment.path)
    segment.file.append(encode_header(segment) + b"onetwo")
    copy = SegmentCopy(log, segment)
    copy.took((HEADER_SIZE, b"one"))
    copy.begin_flush()
    copy.took((HEADER_SIZE + 3, b"two"))
    copy.flushed(None)
    copy.apply(b"", Touched())
    assert copy.applied()
    segment.file.pwrite(HEADER_SIZE, bytes(6))
    log.sync_failed(OSError(errno.EIO, "Input/output error"))  # now copies are written once more
    copy.apply(b"", Touched())
    assert segment.file.pread(HEADER_SIZE, 6) == b"\0\0\0two"


def test_nothing_is_called_durable_of_copies_that_were_encoded_in_part(
    disk: SimulatedDisk,
) -> None:
    log = CommitLog(disk, "store")
    log.open()
    log.begin()
    segment = Segment(1, "store/00000000000000000001.seg")
    segment.file = disk.open("segment")
    copy = SegmentCopy(FileLog(disk, "store"), segment)
    told: list[Exception | None] = []
    assert log.copies.has_room(copy, 3)
    log.copies.put(copy, HEADER_SIZE, b"one", OutBuffer(), 0)
    log.when_carried(told.append)
    log.copies.records.clear()  # as memory that runs out may leave it
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    assert [type(error) for error in told] == [StorageError]
    assert "in part" in log.failed


def test_a_segment_that_cannot_be_flushed_with_others_fails_its_own_log_alone(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = begin(disk)
    assert publish_to_all(client, b"second") == [2, 2, 2]
    flush_all = SimulatedDisk.flush_all

    def fail_second(disk: SimulatedDisk, files: Sequence[File]) -> Sequence[OSError | None]:
        flush_all(disk, files)
        return [OSError(errno.EIO, "Input/output error") if i == 1 else None for i in range(3)]

    with monkeypatch.context() as failing:
        failing.setattr(SimulatedDisk, "flush_all", fail_second)
        client.driver.advance(4 * SECOND)
    answers = [client.store(f"{name}.x", b"third") for name in NAMES]
    assert ["error" in answer for answer in answers] == [False, True, False]
    disk.crash()
    client = Driver(disk).start().client()
    assert [stored(client, name)[:2] for name in NAMES] == [[b"first", b"second"]] * 3


def test_changes_that_wait_for_a_checkpoint_hold_up_no_publish(disk: SimulatedDisk) -> None:
    client = begin(disk, log_bytes=60_000)
    state = client.driver.engine.state
    assert state is not None
    log = state.log
    client.driver.runner.hold()

    def create(n: int) -> bytes:
        config = {"durable_name": f"c{n}", "description": "x" * 900}
        asked = json.dumps({"stream_name": "A", "config": config}).encode()
        return encode(f"$JS.API.CONSUMER.DURABLE.CREATE.A.c{n}", asked, "_INBOX.t.c")

    count = 0
    while log._is_other_free() or log._size + 9_000 < 60_000:  # checkpoints wait
        count += 1
        client.send(create(count))
        client.driver.settle_log()
    client.take()
    client.send(create(count + 1))  # an entry that is on its way
    assert publish_to_all(client, b"second") == []
    for n in range(10):
        client.send(create(count + 2 + n))
    client.driver.settle_log()
    assert log.is_held()
    answers = [message.json() for message in client.take()]
    assert [answer["seq"] for answer in answers if "seq" in answer] == [2, 2, 2]


def test_a_log_of_an_earlier_version_gets_no_bytes_that_it_does_not_know(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Head.__init__, "__defaults__", (1,))
        begin(disk)
    path = "store/commit-log/0.log"
    first = Head.decode(disk.read(path))
    assert first is not None
    assert first.version == 1
    client = Driver(disk).start().client()  # killed
    assert publish_to_all(client, b"second") == [2, 2, 2]
    heads = [Head.decode(disk.read(f"store/commit-log/{n}.log")) for n in (0, 1)]
    newest = max((head for head in heads if head is not None), key=lambda head: head.first)
    assert newest.version == commit_entry.VERSION
