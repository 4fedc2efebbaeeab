"""The commit log alone: whatever happens between its steps, a start finds what was durable."""

import zlib
from collections.abc import Iterator
from random import Random

import pytest

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.log import commit_log
from slipstream.log.commit_entry import HEAD_SIZE, Head
from slipstream.log.commit_log import Checkpoint, CommitLog, EntryBatch, Removal
from slipstream.log.commit_replay import replay
from slipstream.log.durability import Touched
from slipstream.log.stream_store import ConfigurationFile, LeavingDirectory, TwinFile
from slipstream.testing.simulated_disk import SimulatedDisk

LOG_BYTES = 6_000 + HEAD_SIZE
FILES = tuple(f"root/{n}/state" for n in range(12))
STEPS = 300


class LostError(AssertionError):
    """A start found something else than what was durable or was kept later."""


class World:
    """A log, the files that it is applied to, and what is known of each of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed + 1))
        self.count = 0
        self.possible: dict[str, list[bytes]] = {path: [b""] for path in FILES}
        for path in FILES:
            self.disk.makedirs(path.rpartition("/")[0])
        self.start()

    def start(self) -> None:
        """What a server does at its start; then the files have what they are to have."""
        self.batches: list[tuple[EntryBatch, bool]] = []
        self.checkpoint: Checkpoint | None = None
        self.log = CommitLog(self.disk, "root", LOG_BYTES)
        found = self.log.open()
        self.files = {path: TwinFile(self.disk, path) for path in FILES}
        contents = {path: self._load(file) for path, file in self.files.items()}
        touched = Touched()
        for record in found.changes:
            self.files[f"root/{record.path}"].apply(record.content, touched)
            contents[f"root/{record.path}"] = record.content
        self.log.sync(touched)
        self.log.begin()
        for path, content in contents.items():
            if content not in self.possible[path]:
                raise LostError(f"{path} has {content[:9]!r}, not one of {self.possible[path]}")
            self.possible[path] = [content]
        if found.lost:
            raise LostError(f"entries {found.lost} are said to be lost")

    def _load(self, file: TwinFile) -> bytes:
        try:
            return file.load()
        except CorruptionError:
            return b""

    def run(self) -> None:
        """Let things happen."""
        moves = [self.keep] * 12 + [self.prepare] * 8 + [self.step] * 12
        moves += [self.begin_checkpoint] + [self.go_on] * 3 + [self.crash, self.stop]
        for _ in range(STEPS):
            self.random.choice(moves)()

    def keep(self) -> None:
        """A file is to have another content."""
        path = FILES[int(len(FILES) * self.random.random() ** 3)]  # some of them seldom
        self.count += 1
        content = b"%d:" % self.count + bytes(self.random.choice((0, 50, 700)))

        def done(error: Exception | None) -> None:
            if error is None:
                possible = self.possible[path]
                self.possible[path] = possible[possible.index(content) :]

        try:
            self.log.keep(self.files[path], content, done)
        except DiskFullError:
            return
        self.possible[path].append(content)

    def prepare(self) -> None:
        """At most two batches are on their way."""
        if len(self.batches) < 2:
            batch = self.log.prepare_sync()
            if batch is not None:
                self.batches.append((batch, False))

    def step(self) -> None:
        """The oldest batch gets further."""
        if self.batches:
            batch, ran = self.batches[0]
            if ran:
                del self.batches[0]
                self.log.finish_sync(batch)
            else:
                batch.run()
                self.batches[0] = (batch, True)

    def hand_over(self) -> None:
        """The system has an entry, and may have written it by the time that the power fails."""
        for batch, ran in self.batches[: self.random.randint(0, 2)]:
            if not ran:
                batch.flush()

    def begin_checkpoint(self) -> None:
        """One begins when no batch is under way."""
        if self.checkpoint is None and not self.batches:
            self.checkpoint = self.log.checkpoint(makes_room=self.random.random() < 0.5)

    def go_on(self) -> None:
        """A checkpoint applies a few more changes, or leaves the rest."""
        if self.checkpoint is None:
            return
        if self.random.random() < 0.1:
            self.checkpoint.leave_rest()
        self.checkpoint.run_some(self.random.randint(1, 3))
        if self.checkpoint.has_ended:
            self.log.ended(self.checkpoint)
            self.checkpoint = None

    def crash(self) -> None:
        """The power fails."""
        self.hand_over()
        self.disk.crash()
        self.start()

    def stop(self) -> None:
        """An orderly stop: what is on its way ends."""
        self.log.apply_all()
        assert self.log.is_applied()
        self.start()


@pytest.mark.parametrize("left_max", [commit_log.LEFT_MAX, 1000])
@pytest.mark.parametrize("seed", range(60))
def test_a_start_finds_what_was_durable_or_what_was_kept_later(
    seed: int, left_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "LEFT_MAX", left_max)
    monkeypatch.setattr(commit_log, "APPLIED_FIRST", 2)
    World(seed).run()


def test_an_orderly_stop_leaves_little_to_read() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a")
    log = CommitLog(disk, "root")
    log.open()
    log.begin()
    kept = TwinFile(disk, "root/a/state")
    content = bytes(commit_log.LEFT_MAX)
    log.keep(kept, content)
    log.apply_all()
    log.close()
    assert sum(len(disk.read(f"root/commit-log/{n}.log")) for n in (0, 1)) < commit_log.LEFT_MAX
    again = CommitLog(disk, "root")
    assert not again.open().changes
    assert TwinFile(disk, "root/a/state").load() == content


def found() -> bool:
    """Whether a few worlds come upon a loss."""
    for seed in range(40):
        try:
            World(seed).run()
        except (LostError, CorruptionError):
            return True
    return False


def test_a_file_that_is_used_again_while_it_is_needed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CommitLog, "_is_other_free", lambda log: True)
    assert found()


def test_a_sync_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryBatch, "run", lambda batch: None)
    assert found()


def test_a_checkpoint_that_begins_beside_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_checkpoint(world: World) -> None:
        if world.checkpoint is None:
            world.log._durable, durable = world.log._index, world.log._durable
            world.checkpoint = world.log.checkpoint()
            world.log._durable = durable

    monkeypatch.setattr(World, "begin_checkpoint", begin_checkpoint)
    assert found()


def test_content_that_is_left_out_where_it_should_be_repeated_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_log, "APPLIED_FIRST", 2)
    monkeypatch.setattr(CommitLog, "_repeat", lambda log, changes: True)
    assert found()


# -- damage ---------------------------------------------------------------------------------------


def written(count: int) -> tuple[SimulatedDisk, list[int]]:
    """A disk with a log of so many durable entries, and where each of them begins."""
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a")
    log = CommitLog(disk, "root")
    log.open()
    log.begin()
    ends = []
    file = TwinFile(disk, "root/a/state")
    for n in range(count):
        log.keep(file, b"content %d" % n)
        batch = log.prepare_sync()
        assert batch is not None
        batch.run()
        log.finish_sync(batch)
        ends.append(log._size)
    return disk, ends


def contents(disk: SimulatedDisk) -> tuple[list[bytes], list[int]]:
    """What a start applies, and which entries it calls lost."""
    outcome = replay([disk.read(f"root/commit-log/{n}.log") for n in (0, 1)])
    return [record.content for record in outcome.changes], outcome.lost


def test_every_bit_of_a_durable_entry_counts_and_costs_that_entry_alone() -> None:
    disk, ends = written(3)
    path = "root/commit-log/0.log"
    for bit in range(ends[0] * 8, ends[1] * 8):
        disk.flip(path, bit)
        assert contents(disk) == ([b"content 2"], [3])  # the first entry says what was applied
        disk.flip(path, bit)
    assert contents(disk) == ([b"content 2"], [])


def test_a_torn_end_is_cut_at_any_byte_and_nothing_is_called_lost() -> None:
    disk, ends = written(3)
    whole = disk.read("root/commit-log/0.log")
    other = disk.read("root/commit-log/1.log")
    for size in range(ends[1], ends[2]):
        outcome = replay([whole[:size] + bytes(100), other])
        assert [record.content for record in outcome.changes] == [b"content 1"]
        assert outcome.lost == []
        assert outcome.end == ends[1]


def test_a_log_of_a_later_version_is_refused() -> None:
    disk, _ = written(1)
    data = bytearray(disk.read("root/commit-log/0.log"))
    data[8] = 9
    data[24:28] = zlib.crc32(data[:24]).to_bytes(4, "little")
    with pytest.raises(StorageError, match="version 9"):
        replay([bytes(data), b""])


@pytest.mark.parametrize("sector", [0, 4096])
def test_a_bad_sector_at_the_beginning_of_a_file_costs_nothing(sector: int) -> None:
    disk, _ = written(3)
    disk.overwrite("root/commit-log/0.log", sector, bytes(4096))
    assert contents(disk) == ([b"content 2"], [])


def test_files_of_different_times_are_refused() -> None:
    disk, _ = written(2)
    data = disk.read("root/commit-log/0.log")
    stranger, _ = written(3)
    log = CommitLog(stranger, "root")
    log.open()
    log.begin()
    log._turn()
    log.keep(TwinFile(stranger, "root/a/state"), b"later")
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    first = Head.decode(stranger.read("root/commit-log/1.log"))
    assert first is not None
    assert first.first > 4
    assert data
    with pytest.raises(CorruptionError, match="not of one time"):
        replay(list(_spliced(stranger)))


def _spliced(disk: SimulatedDisk) -> Iterator[bytes]:
    """The files of a log of which the first one is of another log of the same length."""
    other = SimulatedDisk(Random(7))
    other.makedirs("root/a")
    log = CommitLog(other, "root")
    log.open()
    log.begin()
    for n in range(4):
        log.keep(TwinFile(other, "root/a/state"), b"different %d" % n)
        batch = log.prepare_sync()
        assert batch is not None
        batch.run()
        log.finish_sync(batch)
    yield other.read("root/commit-log/0.log")
    yield disk.read("root/commit-log/1.log")


def test_a_bad_sector_costs_what_is_in_it() -> None:
    disk, _ = written(3)
    disk.fail("pread")
    log = CommitLog(disk, "root")
    outcome = log.open()
    assert [record.content for record in outcome.changes] == [b"content 2"]


def test_a_removal_takes_what_was_kept_before_it_and_not_what_comes_after() -> None:
    disk, _ = written(1)
    log = CommitLog(disk, "root")
    log.open()
    log.keep(TwinFile(disk, "root/a/state"), b"before")
    log.remove(Removal(LeavingDirectory(disk, "root/a"), 0))
    log.keep(TwinFile(disk, "root/a/meta"), b"after")
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    outcome = CommitLog(disk, "root").open()
    assert [record.path for record in outcome.changes] == ["a", "a/meta"]


def test_one_who_waits_and_raises_takes_no_answer_from_the_others() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/0")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()
    heard: list[Exception | None] = []

    def raises(error: Exception | None) -> None:
        raise StorageError("the disk has failed meanwhile")

    log.keep(TwinFile(disk, "root/0/state"), b"one", raises)
    log.keep(TwinFile(disk, "root/0/meta"), b"two", heard.append)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    with pytest.raises(StorageError, match="meanwhile"):
        log.finish_sync(batch)
    assert heard == [None]
    assert log.unapplied == 2


def test_a_disk_that_cannot_say_whether_there_is_room_ends_the_log_in_order() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/0")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()
    log.keep(TwinFile(disk, "root/0/state"), b"one")
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    log.erase()
    disk.fail("reserve")
    assert log.checkpoint() is None
    assert "cannot be written any more" in log.failed
    with pytest.raises(StorageError, match="cannot be written any more"):
        log.apply_all()


def test_nothing_deep_in_a_directory_is_applied_before_the_removal_that_comes_first() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()
    log.remove(Removal(LeavingDirectory(disk, "root/a"), 1))
    below = ConfigurationFile(disk, "root/a/consumers/c/meta")
    below.stream_created = 2
    log.keep(below, b"of the next one")
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    disk.fail("rename")
    for refused in (2, 0):
        checkpoint = log.checkpoint()
        assert checkpoint is not None
        checkpoint.run()
        log.ended(checkpoint)
        assert len(checkpoint.refused) == refused
    assert ConfigurationFile(disk, "root/a/consumers/c/meta").load() == b"of the next one"


def test_a_removal_that_could_not_be_synced_leaves_alone_what_has_its_name_since() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a/of the one that goes")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()
    log.remove(Removal(LeavingDirectory(disk, "root/a"), 0))
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    for refused in (1, 0):
        checkpoint = log.checkpoint()
        assert checkpoint is not None
        while checkpoint.apply_next():
            pass
        if refused:
            disk.fail("sync_dir")
        checkpoint.sync()
        log.ended(checkpoint)
        assert len(checkpoint.refused) == refused
        if refused:
            disk.makedirs("root/a/of the next one")
    assert disk.list("root/a") == ["of the next one"]


def test_what_is_said_again_gives_way_to_a_newer_change_on_its_way_to_the_disk() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()

    def write(content: bytes) -> EntryBatch:
        log.keep(file, content)
        batch = log.prepare_sync()
        assert batch is not None
        return batch

    def finish(batch: EntryBatch) -> None:
        batch.run()
        log.finish_sync(batch)

    file = TwinFile(disk, "root/a/state")
    finish(write(b"older"))
    checkpoint = log.checkpoint()
    assert checkpoint is not None
    disk.fail("open")
    checkpoint.run()
    filler = TwinFile(disk, "root/a/filler")
    while not log.is_half_full():
        log.keep(filler, bytes(1000))
        batch = log.prepare_sync()
        assert batch is not None
        finish(batch)
    under_way = write(b"newer")
    log.ended(checkpoint)
    finish(under_way)
    last = log.prepare_sync()
    assert last is not None
    finish(last)
    outcome = CommitLog(disk, "root", LOG_BYTES).open()
    found = {record.path: record.content for record in outcome.changes}
    assert found["a/state"] == b"newer"


def test_a_name_that_is_made_free_is_another_directorys_from_then_on() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a/msgs")
    log = CommitLog(disk, "root", LOG_BYTES)
    log.open()
    log.begin()
    assert log.leaving("root/a") is None
    log.remove(Removal(LeavingDirectory(disk, "root/a", 7), 7))
    removal = log.leaving("root/a")
    assert removal is not None
    removal.free()
    assert not disk.exists("root/a")
    disk.makedirs("root/a/other")
    removal.free()  # once more does no harm
    log.apply_all()
    assert disk.list("root") == ["a", "commit-log"]
    assert disk.list("root/a") == ["other"]
    assert log.leaving("root/a") is None


def test_a_name_is_free_before_all_that_it_held_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("root/a/msgs")
    removal = Removal(LeavingDirectory(disk, "root/a", 7), 7)
    free: list[bool] = []
    remove_tree = SimulatedDisk.remove_tree

    def look(disk: SimulatedDisk, path: str) -> None:
        free.append(removal.is_free and not disk.exists("root/a"))
        remove_tree(disk, path)

    monkeypatch.setattr(SimulatedDisk, "remove_tree", look)
    removal.apply(b"", Touched())
    assert all(free)
    disk.makedirs("root/a")  # the next one of that name ...
    removal.apply(b"", Touched())  # ... stays, if what is left of this one has to be tried again
    assert disk.exists("root/a")
