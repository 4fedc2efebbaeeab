"""Checkpoints of the commit log that make room, or that others overtake: what was durable stays,
and nothing older takes its place."""

from random import Random

import pytest

from slipstream.log import commit_log
from slipstream.log.commit_entry import HEAD_SIZE, REMOVE
from slipstream.log.commit_log import Checkpoint, CommitLog, EntryBatch, Removal
from slipstream.log.durability import Touched
from slipstream.log.stream_store import LeavingDirectory, TwinFile
from slipstream.testing.simulated_disk import SimulatedDisk

LOG_BYTES = 20_000 + HEAD_SIZE
NAMES = [f"root/{n:02}" for n in range(40)]


class World:
    """A log and forty directories with a file each that it is about."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(1))
        for name in NAMES:
            self.disk.makedirs(name)
        self.files = {name: TwinFile(self.disk, f"{name}/state") for name in NAMES}
        self.log = CommitLog(self.disk, "root", LOG_BYTES)
        self.log.open()
        self.log.begin()

    def prepare(self) -> EntryBatch:
        batch = self.log.prepare_sync()
        assert batch is not None
        return batch

    def commit(self) -> None:
        batch = self.prepare()
        batch.run()
        self.log.finish_sync(batch)

    def keep(self, name: str, size: int = 250) -> None:
        """Durable content that begins with the name."""
        self.log.keep(self.files[name], name.encode() + bytes(size))
        self.commit()

    def begin_checkpoint(self, makes_room: bool) -> Checkpoint:
        checkpoint = self.log.checkpoint(makes_room)
        assert checkpoint is not None
        return checkpoint

    def end(self, checkpoint: Checkpoint) -> None:
        checkpoint.run()
        self.log.ended(checkpoint)

    def make_room(self) -> None:
        """A checkpoint that does so, with something of every directory in the log."""
        for name in NAMES:
            self.keep(name)
        assert self.log.is_half_full()
        self.end(self.begin_checkpoint(makes_room=self.log.is_short_of_room))

    def content(self, name: str) -> bytes:
        """What a file has, without what fills it up; empty if there is none."""
        path = f"{name}/state"
        found = TwinFile(self.disk, path)
        return found.load().rstrip(b"\0") if found.is_begun() else b""

    def contents_after_crash(self) -> dict[str, bytes]:
        """What the files have once a start has applied what the log holds."""
        self.disk.crash()
        changes = CommitLog(self.disk, "root", LOG_BYTES).open().changes
        found = {name: self.content(name) for name in NAMES}
        found.update({f"root/{one.path[:2]}": one.content.rstrip(b"\0") for one in changes})
        return found


def test_a_checkpoint_that_makes_room_applies_a_few_contents_and_repeats_the_others() -> None:
    world = World()
    log = world.log
    world.make_room()
    written = [name for name in NAMES if world.content(name)]
    assert commit_log.APPLIED_FIRST <= len(written) < len(NAMES)
    assert written == NAMES[: len(written)], "the oldest ones come first"
    world.commit()  # the entry with the others, and that what came before is not needed
    assert log.unapplied == len(NAMES) - len(written)
    assert not log.is_half_full()
    assert not log.is_short_of_room
    assert world.contents_after_crash() == {name: name.encode() for name in NAMES}


def test_what_a_torn_entry_repeats_is_not_gone_because_of_a_whole_one_behind_it() -> None:
    world = World()
    log = world.log
    world.make_room()
    repeats = world.prepare()
    log.keep(world.files[NAMES[0]], NAMES[0].encode() + b" again")
    behind = world.prepare()
    behind.run()  # both are written, and the power fails before the first one is there
    file = world.disk.open(f"root/commit-log/{log._active}.log")
    file.pwrite(HEAD_SIZE, bytes(repeats.end - HEAD_SIZE))
    file.sync()
    assert world.contents_after_crash() == {name: name.encode() for name in NAMES}


def test_what_is_repeated_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "APPLIED_FIRST", 2)
    world = World()
    for name in NAMES:
        world.keep(name)
    first = world.begin_checkpoint(makes_room=True)
    first.leave_rest()
    world.end(first)
    world.begin_checkpoint(makes_room=True)
    repeated = [change.path for change in world.prepare().changes]
    assert len(repeated) > 4
    assert repeated == sorted(repeated)


def test_what_is_newer_in_its_own_file_is_not_repeated_over_it() -> None:
    world = World()
    log, name = world.log, NAMES[25]
    for one in NAMES[:30]:
        world.keep(one, 200)
    checkpoint = world.begin_checkpoint(makes_room=False)
    checkpoint.run_some(8)
    file, touched, heard = world.files[name], Touched(), list[Exception | None]()
    number = log.next_number()
    file.apply(b"newer", touched)
    log.sync(touched)
    file.written = number
    file.applied()
    log.stands(file, heard.append)
    world.commit()
    assert heard == [None]
    checkpoint.leave_rest()
    world.end(checkpoint)
    while not log.is_half_full():
        world.keep(NAMES[39], 900)
    world.end(world.begin_checkpoint(makes_room=True))
    world.commit()
    assert world.contents_after_crash()[name] == b"newer"


def test_an_entry_that_says_what_was_applied_says_what_was_left_out_of_that() -> None:
    world = World()
    log, name = world.log, NAMES[30]
    for one in NAMES:
        world.keep(one)
    checkpoint = world.begin_checkpoint(makes_room=False)
    while not log.is_held():  # both files fill up meanwhile
        log.keep(world.files[NAMES[0]], NAMES[0].encode() + bytes(900))
        if not log.is_held():
            world.commit()
    log.remove(Removal(LeavingDirectory(world.disk, name), 0))
    world.files[name].retire()
    checkpoint.run()
    assert not world.content(name), "what is about to go is not written any more"
    log.ended(checkpoint)
    world.commit()
    changes = CommitLog(world.disk, "root", LOG_BYTES).open().changes
    assert [one.path for one in changes if one.kind == REMOVE] == [name.removeprefix("root/")]


def test_an_orderly_stop_goes_on_after_a_refusal_that_is_over() -> None:
    world = World()
    log = world.log
    for name in NAMES[:20]:
        world.keep(name)
    checkpoint = world.begin_checkpoint(makes_room=False)
    world.disk.fail("open")
    checkpoint.run_some(8)
    world.disk.heal()
    assert checkpoint.refused
    log.apply_all()
    assert log.is_applied()
    assert [world.content(name) for name in NAMES[:20]] == [one.encode() for one in NAMES[:20]]
