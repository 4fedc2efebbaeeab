"""Files that entries are applied to: in order, again after a crash, and copied meanwhile."""

import errno
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.group import Entry
from slipstream.log.disk import OsDisk
from slipstream.server.replica import store_directory
from slipstream.server.replica.operations import Kind, Operation, encode_operations
from slipstream.server.replica.store_directory import SPACE_BYTES, StoreDirectory
from slipstream.testing.simulated_disk import SimulatedDisk, SimulatedFile
from tests.server.replica.histories import History

ROOT = "group/store"


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    """What the store holds."""
    below = f"{ROOT}/files/"
    return {path[len(below) :]: disk.read(path) for path in disk.files() if path.startswith(below)}


def beginning(seed: int) -> tuple[Random, History, SimulatedDisk]:
    """Entries to be applied, and an empty disk."""
    random = Random(seed)
    return random, History(random, 60), SimulatedDisk(random)


@pytest.mark.parametrize("seed", range(150))
def test_after_crashes_the_files_are_those_of_the_entries(seed: int) -> None:
    random, history, disk = beginning(seed)
    directory = StoreDirectory(disk, ROOT, 0)
    last = 0
    while directory.applied < len(history.entries):
        index = directory.applied + 1
        directory.apply(index, history.entries[index - 1])
        last = max(last, index)
        if index >= last:
            assert contents(disk) == history.states[index]
        if random.random() < 0.2:
            assert directory.keep() == directory.durable == directory.applied
        if random.random() < 0.1:
            durable = directory.durable
            disk.crash()
            directory = StoreDirectory(disk, ROOT, last)
            assert directory.applied >= durable
    assert contents(disk) == history.states[-1]


@pytest.mark.parametrize("seed", range(150))
def test_a_disk_that_fails_once_costs_nothing_after_a_restart(seed: int) -> None:
    random, history, disk = beginning(seed)
    directory = StoreDirectory(disk, ROOT, 0)
    last = 0
    while directory.applied < len(history.entries):
        if random.random() < 0.2:
            operation = random.choice(("open", "pwrite", "sync", "sync_dir", "rename", "mkdir"))
            disk.fail(operation, random.randint(1, 3))
        last = max(last, directory.applied + 1)
        try:
            directory.apply(directory.applied + 1, history.entries[directory.applied])
            if random.random() < 0.3:
                directory.keep()
        except (OSError, StorageError):
            disk.crash()
            directory = StoreDirectory(disk, ROOT, last)
    assert contents(disk) == history.states[-1]


def test_an_entry_out_of_order_or_about_what_is_not_there_is_refused() -> None:
    directory = StoreDirectory(SimulatedDisk(Random(1)), ROOT, 0)
    with pytest.raises(CorruptionError, match="to be applied after 0"):
        directory.apply(2, b"")
    for operation in (
        Operation(Kind.WRITE, "a", b"x"),
        Operation(Kind.TRUNCATE, "a"),
        Operation(Kind.RENAME, "a", other="b"),
    ):
        with pytest.raises(CorruptionError, match="not there"):
            directory.apply(1, encode_operations([operation]))


def test_a_rename_among_other_operations_is_refused() -> None:
    directory = StoreDirectory(SimulatedDisk(Random(1)), ROOT, 0)
    body = encode_operations([Operation(Kind.CREATE, "a"), Operation(Kind.RENAME, "a", other="b")])
    with pytest.raises(CorruptionError, match="does more than that"):
        directory.apply(1, body)


def test_a_damaged_note_counts_for_nothing_beside_a_whole_one() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    for index in (1, 2, 3):
        directory.apply(index, encode_operations([Operation(Kind.CREATE, f"f{index}")]))
        directory.keep()
    newer = max((f"{ROOT}/applied.{n}" for n in (0, 1)), key=lambda path: disk.read(path)[4:])
    disk.flip(newer, 50)
    assert StoreDirectory(disk, ROOT, 3).applied == 2
    for n in (0, 1):
        disk.overwrite(f"{ROOT}/applied.{n}", 0, b"\xff\xff")
    unknown = StoreDirectory(disk, ROOT, 3)
    assert unknown.is_unknown
    assert not unknown.held().index
    unknown.begin_install(3)
    for piece in directory.snapshot().pieces():
        unknown.take(piece)
    unknown.install()
    assert StoreDirectory(disk, ROOT, 3).applied == 3


def test_clients_find_who_has_led_also_after_a_restart() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    directory.apply(1, encode_operations([Operation(Kind.LEADS, "n1", b"h:4222")]))
    directory.keep()
    assert StoreDirectory(disk, ROOT, 1).clients == {"n1": "h:4222"}


def test_who_refuses_to_lead_over_damage_is_known_until_somebody_leads() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    for index, name in enumerate(["n1", "n2", "n1"], 1):
        directory.apply(index, encode_operations([Operation(Kind.REFUSES, name)]))
    assert directory.refusing == {"n1", "n2"}
    directory.keep()
    again = StoreDirectory(disk, ROOT, 3)
    assert again.refusing == {"n1", "n2"}
    again.apply(4, encode_operations([Operation(Kind.REFUSES, "")]))
    again.keep()
    assert not again.refusing
    assert not StoreDirectory(disk, ROOT, 4).refusing


def test_a_disk_that_was_full_has_space_once_a_file_could_have_room() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    assert directory.has_space()
    disk.capacity = disk.used() + SPACE_BYTES - 1
    assert not directory.has_space()
    disk.capacity += 1
    assert directory.has_space()
    assert disk.list(ROOT) == ["files"]


def test_files_of_another_server_that_find_no_space_leave_none_of_it_taken() -> None:
    there = StoreDirectory(SimulatedDisk(Random(1)), ROOT, 0)
    body = encode_operations(
        [Operation(Kind.CREATE, "a"), Operation(Kind.WRITE, "a", bytes(range(256)) * 400)]
    )
    there.apply(1, body)
    disk = SimulatedDisk(Random(2))
    here = StoreDirectory(disk, ROOT, 0)
    before, enough = disk.used(), disk.capacity
    disk.capacity = before + 50_000

    def take_all() -> None:
        here.begin_install(1)
        for piece in there.snapshot().pieces():
            here.take(piece)

    with pytest.raises(DiskFullError):
        take_all()
    here.give_up_install()
    assert disk.used() == before
    disk.capacity = enough
    take_all()
    here.install()
    assert disk.read(f"{ROOT}/files/a") == bytes(range(256)) * 400


def test_a_system_without_space_for_files_of_another_server_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = StoreDirectory(SimulatedDisk(Random(1)), ROOT, 0)
    here.begin_install(1)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SimulatedFile, "pwrite", fail)
    with pytest.raises(DiskFullError, match="no space left on the disk while installing"):
        here.take(encode_operations([Operation(Kind.WRITE, "a", b"x")]))


def test_nobody_waits_for_a_snapshot_to_apply_an_entry_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StoreDirectory(OsDisk(), f"{tmp_path}/here", 0)
    entry = Entry(1, 1, 0, 0, encode_operations([Operation(Kind.CREATE, "a")]))
    answers = []

    def link_tree(disk: object, source: str, target: str) -> None:
        with ThreadPoolExecutor(1) as other:
            answers.append(other.submit(directory.apply_here, [entry]).result())

    monkeypatch.setattr(store_directory, "link_tree", link_tree)
    assert directory.snapshot().index == 0
    assert answers == [False]
    assert directory.apply_here([entry])
    assert directory.applied == 1


def test_what_is_noted_right_after_a_rename_has_the_rename() -> None:
    """Else it would be made once more after a crash, or by who gets a copy of the files."""
    directory = StoreDirectory(SimulatedDisk(Random(1)), ROOT, 0)
    noted: list[int] = []

    before = directory._note_lock

    class Lock:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            directory._note_lock = before  # of another thread, which takes it now
            noted.append(directory.keep())

        directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))

    directory._note_lock = Lock()  # type: ignore[assignment]
    directory.apply(2, encode_operations([Operation(Kind.RENAME, "a", other="b")]))
    assert noted == [2]


def test_a_lack_of_descriptors_is_not_a_disk_that_fails() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    sync_all, refused = disk.sync_all, OSError(errno.EMFILE, "Too many open files")

    def refuse(files: Sequence[str], directories: Sequence[str]) -> None:
        disk.sync_all = sync_all  # type: ignore[method-assign]
        raise refused

    disk.sync_all = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Too many"):
        directory.keep()
    assert directory.keep() == 1
    disk.crash()
    assert contents(disk) == {"a": b""}


def test_a_rename_that_lacked_descriptors_is_gone_on_with() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    directory.keep()
    sync_dir = disk.sync_dir

    def refuse(path: str) -> None:
        disk.sync_dir = sync_dir  # type: ignore[method-assign]
        raise OSError(errno.EMFILE, "Too many open files")

    rename = encode_operations([Operation(Kind.RENAME, "a", other="b")])
    for _ in range(2):  # before the rename is made, and after it
        disk.sync_dir = refuse  # type: ignore[method-assign]
        with pytest.raises(OSError, match="Too many"):
            directory.apply(2, rename)
    directory.apply(2, rename)
    disk.crash()
    assert contents(disk) == {"b": b""}


def test_names_may_be_ahead_after_a_crash_until_what_the_log_had_is_applied() -> None:
    """Such as of a rename whose sync has failed: a copy would have it, and the index before it."""
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    rename = encode_operations([Operation(Kind.RENAME, "a", other="b")])
    disk.fail("sync_dir", 2)
    with pytest.raises(OSError, match="Input/output error"):
        directory.apply(2, rename)
    disk.heal()
    again = StoreDirectory(disk, ROOT, 2)
    assert again.applied == 1
    assert again.may_be_ahead
    again.apply(2, rename)
    assert not again.may_be_ahead
    assert contents(disk) == {"b": b""}


def test_no_copy_is_made_where_an_entry_was_applied_in_part() -> None:
    disk = SimulatedDisk(Random(1))
    directory = StoreDirectory(disk, ROOT, 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    both = encode_operations(
        [
            Operation(Kind.WRITE, "a", b"1"),
            Operation(Kind.REMOVE, "a"),
            Operation(Kind.CREATE, "b"),
            Operation(Kind.WRITE, "b", b"2" * 10_000),
        ]
    )
    disk.capacity = disk.used() + 100
    with pytest.raises(DiskFullError):
        directory.apply(2, both)
    with pytest.raises(StorageError, match="entry 2 of the group's log is applied in part"):
        directory.snapshot()
    disk.capacity = 1 << 30
    directory.apply(2, both)
    assert contents(disk) == {"b": b"2" * 10_000}
    assert directory.snapshot().index == 2
