"""What a member keeps on its disk is there after a crash, and what is damaged is known."""

import contextlib
from pathlib import Path
from random import Random

import pytest

from slipstream.errors import DiskFullError, StorageError
from slipstream.group import DiskJob, Entry, State
from slipstream.group.log_replica import LogReplica
from slipstream.group.messages import BEGINNING, Ballot, Mark, make_entry
from slipstream.group.outbox import Outbox, Write
from slipstream.log.disk import OsDisk
from slipstream.server.group.records import RECORD_HEAD
from slipstream.server.group.store import GroupStore, Identity, Stored
from slipstream.testing.ledger import ViolationError
from slipstream.testing.log_disk import LogDisk
from slipstream.testing.simulated_disk import CrashedError, SimulatedDisk, SimulatedFile
from slipstream.testing.simulated_group import SimulatedGroup

SELF = Identity("c", "n1", ("n1", "n2", "n3"))
PATH = "group"


def entries(count: int, after: Mark = BEGINNING, epoch: int = 1) -> list[Entry]:
    made = []
    for _ in range(count):
        made.append(make_entry(epoch, after, b"%d of %d " % (after.index + 1, epoch) * 9))
        after = made[-1].mark
    return made


def job(*writes: Write, state: State | None = None, is_state_first: bool = False) -> DiskJob:
    return DiskJob(1, list(writes), state or State(), is_state_first)


def founded(disk: SimulatedDisk, segment_bytes: int = 1 << 20) -> GroupStore:
    store = GroupStore(disk, PATH, segment_bytes)
    store.found(SELF)
    return store


def opened(disk: SimulatedDisk) -> Stored:
    return GroupStore(disk, PATH).open()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(4))


def segments(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.files() if "/log/" in path]


def test_a_store_that_was_founded_says_whose_it_is(disk: SimulatedDisk) -> None:
    assert GroupStore(disk, PATH).is_empty
    founded(disk)
    disk.crash()
    found = opened(disk)
    assert (found.identity, found.state, found.entries, found.findings) == (SELF, State(), [], [])
    with pytest.raises(StorageError, match="name another directory"):
        GroupStore(disk, PATH).found(SELF)


def test_what_was_written_is_there_after_a_crash(disk: SimulatedDisk) -> None:
    store = founded(disk)
    log = entries(3)
    state = State(sealed=2, promised=Ballot(3, "n2"), synced=1)
    store.write(job(Write(1, log[:2])))
    store.write(job(Write(3, log[2:]), state=state))
    disk.crash()
    found = opened(disk)
    assert (found.entries, found.state, found.findings) == (log, state, [])


def test_a_later_leader_replaces_the_end(disk: SimulatedDisk) -> None:
    store = founded(disk)
    log = entries(5)
    other = entries(1, log[2].mark, epoch=2)
    store.write(job(Write(1, log)))
    store.write(job(Write(4, other), state=State(synced=3), is_state_first=True))
    store.write(job(Write(4, []), Write(4, other)))
    disk.crash()
    assert opened(disk).entries == [*log[:3], *other]


def test_the_log_goes_on_in_further_segments_and_after_each_start(disk: SimulatedDisk) -> None:
    log = entries(60)
    founded(disk).close()
    for first in range(0, 60, 20):
        store = GroupStore(disk, PATH, segment_bytes=10_000)
        assert store.open().entries == log[:first]
        for entry in log[first : first + 20]:
            store.write(job(Write(entry.index, [entry])))
        store.close()
    assert len(segments(disk)) > 1
    assert opened(disk).entries == log


def test_what_a_killed_process_left_in_memory_is_synced_before_it_counts(
    disk: SimulatedDisk,
) -> None:
    store = founded(disk)
    log = entries(2)
    store.write(job(Write(1, log[:1])))
    assert store._segment is not None
    store._segment.append(store._records(job(Write(2, log[1:]))))
    store._segment.flush()
    assert opened(disk).entries == log
    disk.crash()
    assert opened(disk).entries == log


@pytest.mark.parametrize("bit", range(0, 8 * 110, 37))
def test_a_damaged_entry_is_missing_and_costs_no_other(disk: SimulatedDisk, bit: int) -> None:
    store = founded(disk)
    log = entries(5)
    for entry in log:
        store.write(job(Write(entry.index, [entry]), state=State(synced=entry.index - 1)))
    (path,) = segments(disk)
    disk.flip(path, 8 * disk.read(path).index(log[2].body) + bit - 8 * RECORD_HEAD)
    found = opened(disk)
    assert found.entries in ([*log[:2], None, *log[3:]], log)  # it may have hit the record before
    assert len(found.findings) == found.entries.count(None)


def test_an_end_that_was_noted_and_is_damaged_makes_the_log_short(disk: SimulatedDisk) -> None:
    store = founded(disk)
    log = entries(4)
    store.write(job(Write(1, log)))
    store.write(job(state=State(synced=4)))
    (path,) = segments(disk)
    disk.cut(path, disk.read(path).index(log[2].body))
    found = opened(disk)
    assert found.entries == [*log[:2], None, None]
    assert found.state is not None
    assert not LogReplica(Outbox(found.state), found.entries).is_whole


def test_a_replacement_that_is_damaged_does_not_bring_back_what_it_replaced(
    disk: SimulatedDisk,
) -> None:
    store = founded(disk)
    log = entries(6)
    other = entries(1, log[3].mark, epoch=2)
    state = State(sealed=2, synced=4, committed=2)
    store.write(job(Write(1, log), state=State(committed=2)))
    store.write(job(Write(5, other), state=state, is_state_first=True))
    store.write(job(state=State(sealed=2, synced=5, committed=2)))
    (path,) = segments(disk)
    disk.cut(path, disk.read(path).index(other[0].body) - RECORD_HEAD)
    found = opened(disk)
    assert found.entries[:2] == log[:2]
    assert found.entries[2:] == [None, None, None]
    assert found.state is not None
    assert not LogReplica(Outbox(found.state), found.entries).is_whole


def test_what_a_lost_segment_may_have_replaced_is_missing_too(disk: SimulatedDisk) -> None:
    log = entries(9)
    other = entries(4, log[6].mark, epoch=2)
    write = founded(disk, segment_bytes=1)  # one for each job
    for first, last in ((0, 3), (3, 5), (5, 7), (7, 9)):
        write.write(job(Write(first + 1, log[first:last]), state=State(committed=first)))
    write.write(job(Write(8, other[:3]), state=State(committed=7), is_state_first=True))
    write.write(job(Write(11, other[3:]), state=State(committed=7)))
    middle, replacing = segments(disk)[1], segments(disk)[4]
    disk.remove(middle)  # entries of the same leader follow: what was before it stands
    assert opened(disk).entries == [*log[:3], None, None, *log[5:7], *other]
    disk.remove(replacing)  # one of another leader follows
    assert opened(disk).entries == [*log[:3], None, None, *log[5:7], None, None, None, other[3]]


def test_a_replacement_that_is_lost_does_not_have_what_it_replaced_given_out(
    disk: SimulatedDisk,
) -> None:
    log = entries(4)
    other = entries(3, log[2].mark, epoch=2)
    write = founded(disk, segment_bytes=1)
    write.write(job(Write(1, log)))
    write.write(job(Write(4, other), state=State(synced=3), is_state_first=True))
    write.write(job(state=State(synced=6, committed=6)))
    disk.remove(segments(disk)[-1])
    found = opened(disk)
    assert found.state is not None
    assert log[3] not in LogReplica(Outbox(found.state), found.entries).read(1, 6)


def test_segments_that_have_changed_places_are_missing(disk: SimulatedDisk) -> None:
    log = entries(4)
    write = founded(disk, segment_bytes=1)
    for entry in log:
        write.write(job(Write(entry.index, [entry]), state=State(committed=entry.index - 1)))
    _, second, third, _ = segments(disk)
    aside = third.replace("/log/", "/log/aside-")
    disk.rename(second, aside)
    disk.rename(third, second)
    disk.rename(aside, third)
    found = opened(disk)
    assert found.entries == [log[0], None, None, log[3]]
    assert sum("under another name" in finding for finding in found.findings) == 2


def test_a_lost_segment_in_the_middle_is_missing(disk: SimulatedDisk) -> None:
    log = entries(40)
    store = founded(disk, segment_bytes=10_000)
    for entry in log:
        store.write(job(Write(entry.index, [entry])))
    disk.lose(segments(disk)[0])
    found = opened(disk).entries
    missing = found.count(None)
    assert 0 < missing < 40
    assert found == [None] * missing + log[missing:]


@pytest.mark.parametrize("copy", ["state.0", "state.1"])
def test_one_copy_of_the_state_is_enough(disk: SimulatedDisk, copy: str) -> None:
    state = State(sealed=3)
    founded(disk).write(job(state=state))
    disk.flip(f"{PATH}/{copy}", 200)
    found = opened(disk)
    assert found.state == state
    assert copy in found.findings[0]
    assert opened(disk).findings == []  # it was written anew


def test_without_the_state_nobody_knows_what_was_promised(disk: SimulatedDisk) -> None:
    log = entries(1)
    founded(disk).write(job(Write(1, log)))
    for copy in ("state.0", "state.1"):
        disk.lose(f"{PATH}/{copy}")
    assert not GroupStore(disk, PATH).is_empty
    found = opened(disk)
    assert found.state is None
    assert "both copies" in found.findings[-1]


def test_a_disk_that_has_failed_is_asked_no_more(disk: SimulatedDisk) -> None:
    store = founded(disk)
    log = entries(2)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        store.write(job(Write(1, log[:1])))
    with pytest.raises(StorageError, match="cannot be written to"):
        store.write(job(Write(1, log)))


def test_real_files_hold_it_too(tmp_path: Path) -> None:
    path = str(tmp_path / "group")
    log = entries(200)
    store = GroupStore(OsDisk(), path, segment_bytes=20_000)
    store.found(SELF)
    for entry in log:
        store.write(job(Write(entry.index, [entry])))
    found = GroupStore(OsDisk(), path).open()  # as after kill -9: nothing was closed
    assert (found.entries, found.findings) == (log, [])
    store.close()


def has_space_for(store: GroupStore, job: DiskJob) -> bool:
    try:
        store.write(job)
    except DiskFullError:
        return False
    return True


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("part", ["entries", "state", "segment", "reset"])
def test_a_job_that_had_no_space_is_done_once_there_is(
    disk: SimulatedDisk, part: str, crashes: bool
) -> None:
    log = entries(30)
    store = founded(disk, segment_bytes=1500 if part == "segment" else 1 << 16)
    state = State(synced=20, committed=20)
    for entry in log[:20]:
        store.write(job(Write(entry.index, [entry]), state=state))
    next_job = job(Write(21, log[20:]), state=state)
    if part == "state":
        next_job = job(Write(21, log[20:]), state=State(sealed=7), is_state_first=True)
    elif part == "reset":
        base = log[19].mark
        next_job = DiskJob(1, [], State(base=base, synced=20, committed=20), False, True)
    disk.capacity = disk.used()
    while has_space_for(store, next_job):  # until all that was reserved is used up
        log += entries(40, log[-1].mark)
        next_job = job(Write(log[-40].index, log[-40:]), state=state)
    assert store.is_full
    disk.capacity = 1 << 40
    if crashes:
        disk.crash()
        done = len(log) - len(next_job.writes[0].entries) if next_job.writes else 20
        found = opened(disk).entries
        assert found == log[:done] or (part == "reset" and not found)
        return
    store.write(next_job)
    store.look_for_space()
    assert not store.is_full
    store.close()
    found = opened(disk).entries
    assert found == (log if part != "reset" else [])


def test_a_disk_counts_as_full_while_a_little_is_left(disk: SimulatedDisk) -> None:
    log = entries(40)
    store = founded(disk, segment_bytes=1 << 16)
    store.write(job(Write(1, log[:1])))
    disk.capacity = disk.used()
    store.write(job(Write(2, log[1:20])))
    assert store.is_full
    store.write(job(Write(21, log[20:])))
    store.look_for_space()
    assert store.is_full
    disk.capacity = 1 << 40
    store.look_for_space()
    assert not store.is_full
    store.close()
    assert opened(disk).entries == log


class StoredLog(LogDisk):
    """The disk of a simulated server, with files under it that tear."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.files = SimulatedDisk(random)
        self.store = GroupStore(self.files, PATH, segment_bytes=2000)
        self.store.found(SELF)
        self.is_open = False

    def open(self) -> tuple[State | None, list[Entry | None]]:
        self.store = GroupStore(self.files, PATH, segment_bytes=2000)
        found = self.store.open()
        self.state = found.state
        self.entries = found.entries
        self.base = found.state.base if found.state else BEGINNING
        return found.state, list(found.entries)

    def finish(self) -> DiskJob:
        done = super().finish()  # what it should have, which `damage` looks at
        self.store.write(done)
        return done

    def crash(self, random: Random) -> None:
        under_way = self.jobs[0] if self.jobs else None
        self.jobs.clear()
        if under_way is not None:
            operation = random.choice(("append", "pwrite", "sync", "reserve"))
            self.files.fail(operation, random.randint(1, 3))
            try:
                self.store.write(under_way)
            except (OSError, StorageError, CrashedError):
                pass
        self.files.crash()

    def damage(self, random: Random) -> None:
        synced = self.state.synced if self.state else 0
        index = random.randint(max(1, synced - 5), synced) if synced else 0
        place = index - self.base.index - 1
        entry = self.entries[place] if 0 <= place < len(self.entries) else None
        if entry is None:
            return
        body = entry.body or entry.chain.to_bytes(4, "little")
        places = [
            (path, at)
            for path in self.files.files()
            if "/log/" in path and (at := self.files.read(path).find(body)) >= 0
        ]
        if places:
            path, at = random.choice(places)
            self.files.flip(path, 8 * (at + random.randint(-20, len(body) - 1)))


class FullLog(StoredLog):
    """The same, with too little space for some jobs at first."""

    def finish(self) -> DiskJob:
        done = LogDisk.finish(self)
        if not self._has_space_for(done):
            self.store.write(done)
        return done

    def _has_space_for(self, done: DiskJob) -> bool:
        if self.files.random.random() < 0.5:
            return False  # which is found out later
        self.files.capacity = self.files.used() + self.files.random.randrange(900)
        try:
            self.store.write(done)
        except DiskFullError:
            return False
        finally:
            self.files.capacity = 1 << 40
        return True

    def crash(self, random: Random) -> None:
        if self.jobs and random.random() < 0.5 and self._has_space_for(self.jobs[0]):
            LogDisk.finish(self)
        super().crash(random)


@pytest.mark.parametrize("first", range(50, 70, 5))
@pytest.mark.parametrize("trims", [False, True])
def test_full_disks_under_a_group_cost_nothing(first: int, trims: bool) -> None:
    for seed in range(first, first + 5):
        SimulatedGroup(seed, 3, False, FullLog, trims, fills=True).run(4)


@pytest.mark.parametrize("first", range(0, 30, 5))
@pytest.mark.parametrize("damage", [False, True])
@pytest.mark.parametrize("trims", [False, True])
def test_a_group_on_files_keeps_what_it_has_answered(first: int, damage: bool, trims: bool) -> None:
    for seed in range(first, first + 5):
        SimulatedGroup(seed, 3, damage, StoredLog, trims).run(4)


class ForgettingLog(FullLog):
    """A bug: a job that had no space counts as done."""

    def finish(self) -> DiskJob:
        done = LogDisk.finish(self)
        self._has_space_for(done)
        return done


def test_a_store_that_forgets_what_had_no_space_is_found_out() -> None:
    def plant() -> None:
        for seed in range(60):
            SimulatedGroup(seed, 3, False, ForgettingLog).run(4)

    with pytest.raises(ViolationError):
        plant()


def test_a_store_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to be synced and is not goes with a crash, which the simulator sees."""
    monkeypatch.setattr(SimulatedFile, "sync", lambda file: None)

    def plant() -> None:
        for seed in range(60):
            group = SimulatedGroup(seed, 3, False, StoredLog)
            group.crash_amid_writing(0.01)
            group.run(6)

    with pytest.raises((ViolationError, AssertionError)):
        plant()


def test_a_promise_that_comes_with_entries_is_in_both_copies_of_the_state(
    disk: SimulatedDisk,
) -> None:
    store = founded(disk)
    log = entries(2)
    store.write(job(Write(1, log[:1])))
    state = State(sealed=7)
    store.write(job(Write(2, log[1:]), state=state))
    (path,) = segments(disk)
    disk.lose(path)
    disk.flip(f"{PATH}/state.0", 200)
    assert opened(disk).state == state


def trim(log: list[Entry], index: int) -> DiskJob:
    return job(state=State(synced=len(log), committed=len(log), base=log[index - 1].mark))


def filled(disk: SimulatedDisk, count: int = 60) -> tuple[GroupStore, list[Entry]]:
    """A store with entries in several segments."""
    store, log = founded(disk, segment_bytes=10_000), entries(count)
    for entry in log:
        store.write(job(Write(entry.index, [entry]), state=State(synced=entry.index - 1)))
    return store, log


def test_a_log_that_is_trimmed_gives_back_its_segments(disk: SimulatedDisk) -> None:
    store, log = filled(disk)
    before = segments(disk)
    store.write(trim(log, 50))
    assert 0 < len(segments(disk)) < len(before)
    disk.crash()
    found = opened(disk)
    assert found.state is not None
    assert (found.state.base, found.entries, found.findings) == (log[49].mark, log[50:], [])


@pytest.mark.parametrize("operation", ["pwrite", "sync", "remove", "sync_dir"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_crash_amid_trimming_leaves_a_store_that_opens(
    disk: SimulatedDisk, operation: str, times: int
) -> None:
    store, log = filled(disk)
    disk.fail(operation, times)
    with contextlib.suppress(OSError, StorageError, CrashedError):
        store.write(trim(log, 50))
    disk.crash()
    found = opened(disk)
    assert found.state is not None
    base = found.state.base.index
    assert base in (0, 50)
    assert found.entries == log[base:]


@pytest.mark.parametrize("back", range(3))
def test_segments_that_are_back_after_a_crash_do_not_count(disk: SimulatedDisk, back: int) -> None:
    store, log = filled(disk)
    before = {path: disk.read(path) for path in segments(disk)}
    store.write(trim(log, 50))
    gone = sorted(before.keys() - set(segments(disk)))
    path = gone[back % len(gone)]
    file = disk.open(path)
    file.append(before[path])
    file.sync()
    disk.sync_dir(f"{PATH}/log")
    found = opened(disk)
    assert (found.entries, found.findings) == (log[50:], [])
    assert path not in segments(disk)


def test_damage_before_the_base_is_none(disk: SimulatedDisk) -> None:
    store, log = filled(disk, 10)
    store.write(trim(log, 8))
    (path,) = segments(disk)
    disk.flip(path, 8 * disk.read(path).index(log[3].body))
    found = opened(disk)
    assert (found.entries, found.findings) == (log[8:], [])


@pytest.mark.parametrize("operation", ["", "pwrite", "append", "sync", "remove", "sync_dir"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_reset_leaves_nothing_of_before(disk: SimulatedDisk, operation: str, times: int) -> None:
    store, log = filled(disk)
    base = Mark(2, 30, 77)
    state = State(sealed=2, synced=30, committed=30, base=base)
    if operation:
        disk.fail(operation, times)
    with contextlib.suppress(OSError, StorageError, CrashedError):
        store.write(DiskJob(1, [], state, False, True))
    disk.crash()
    store = GroupStore(disk, PATH)
    found = store.open()
    if found.state != state:
        assert (operation != "", found.entries) == (True, log)
        return
    assert found.entries == []
    new = entries(2, base, epoch=2)
    store.write(job(Write(31, new), state=state))
    disk.crash()
    assert opened(disk).entries == new
