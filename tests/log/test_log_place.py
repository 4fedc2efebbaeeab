"""The commit log on another disk than the store: moved, found or refused, never left behind."""

from pathlib import Path
from random import Random

import pytest

from slipstream.errors import StorageError
from slipstream.log.commit_log import CommitLog
from slipstream.log.disk import OsDisk
from slipstream.log.log_place import find_log, place_log
from slipstream.log.stream_store import TwinFile
from slipstream.testing.simulated_disk import OPERATIONS, SimulatedDisk

PLACES = ("", "/fast", "/other")
ROOT = "/store"
PATH = f"{ROOT}/jetstream/$G/S/state"


def keep(disk: SimulatedDisk, place: str, content: bytes) -> None:
    """Have a log say durably what a file is to have; it is not applied."""
    log = CommitLog(disk, ROOT, directory=place)
    log.open()
    log.begin()
    log.keep(TwinFile(disk, PATH), content)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    log.close()


def kept(disk: SimulatedDisk, place: str) -> list[bytes]:
    """What a start finds in the log."""
    log = CommitLog(disk, ROOT, directory=place)
    try:
        return [record.content for record in log.open().changes]
    finally:
        log.close()


@pytest.mark.parametrize("old", PLACES)
@pytest.mark.parametrize("new", PLACES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_while_the_log_moves_leaves_it_in_one_place(
    old: str, new: str, operation: str
) -> None:
    for nth in range(1, 12):
        disk = SimulatedDisk(Random(nth))
        disk.makedirs(ROOT)
        keep(disk, place_log(disk, ROOT, old), b"what was answered")
        disk.fail(operation, nth)
        try:
            place_log(disk, ROOT, new)
        except OSError:
            pass
        disk.heal()
        disk.crash()
        assert kept(disk, find_log(disk, ROOT)) == [b"what was answered"]
        for place in (new, *PLACES):
            assert kept(disk, place_log(disk, ROOT, place)) == [b"what was answered"]


def test_a_start_without_the_directory_of_the_log_is_refused(tmp_path: Path) -> None:
    disk, root = OsDisk(), str(tmp_path / "store")
    place = place_log(disk, root, str(tmp_path / "fast"))
    (tmp_path / "fast").rename(tmp_path / "unplugged")
    for log_dir in ("", str(tmp_path / "fast"), str(tmp_path / "new")):
        with pytest.raises(StorageError, match=f"lies in {place}, and is not there"):
            place_log(disk, root, log_dir)
    assert not (tmp_path / "new").exists()


def test_the_log_of_another_store_is_refused(tmp_path: Path) -> None:
    disk = OsDisk()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    place = place_log(disk, first, str(tmp_path / "fast"))
    (Path(place) / "0.log").write_bytes(b"")
    with pytest.raises(StorageError, match=f"has the commit log of a store in {first}"):
        place_log(disk, second, str(tmp_path / "fast"))
    assert find_log(disk, second) == f"{second}/commit-log"


def test_an_empty_store_does_not_take_the_log_of_one_that_is_not_mounted(tmp_path: Path) -> None:
    disk, root = OsDisk(), str(tmp_path / "store")
    place = place_log(disk, root, str(tmp_path / "fast"))
    (Path(place) / "0.log").write_bytes(b"answered")
    (tmp_path / "store").rename(tmp_path / "unmounted")
    with pytest.raises(StorageError, match="is not the store that"):
        place_log(disk, root, str(tmp_path / "fast"))
    assert (Path(place) / "0.log").read_bytes() == b"answered"


def test_a_log_of_which_nothing_says_whose_it_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fast" / "commit-log").mkdir(parents=True)
    (tmp_path / "fast" / "commit-log" / "1.log").write_bytes(b"")
    with pytest.raises(StorageError, match="nothing says of which store"):
        place_log(OsDisk(), str(tmp_path / "store"), str(tmp_path / "fast"))


def test_a_copy_of_the_store_does_not_take_its_log(tmp_path: Path) -> None:
    disk = OsDisk()
    place_log(disk, str(tmp_path / "store"), str(tmp_path / "fast"))
    (tmp_path / "store").rename(tmp_path / "copy")
    with pytest.raises(StorageError, match="if the store was moved, put its new place into"):
        place_log(disk, str(tmp_path / "copy"), str(tmp_path / "fast"))


@pytest.mark.parametrize("name", ["store/commit-log/elsewhere", "fast/commit-log/owner"])
def test_a_damaged_note_of_the_place_is_refused(tmp_path: Path, name: str) -> None:
    disk = OsDisk()
    place_log(disk, str(tmp_path / "store"), str(tmp_path / "fast"))
    (tmp_path / name).write_bytes(b"\0\0\0")
    with pytest.raises(StorageError, match=f"{name} is damaged"):
        place_log(disk, str(tmp_path / "store"), "")


def test_an_earlier_version_refuses_a_store_whose_log_is_elsewhere(tmp_path: Path) -> None:
    disk, root = OsDisk(), str(tmp_path / "store")
    place_log(disk, root, str(tmp_path / "fast"))
    with pytest.raises(StorageError, match="start the server version that wrote it"):
        CommitLog(disk, root).open()  # which is where an earlier version looks
