"""However many files there are, only so many are open; the others open again when they must."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import pytest

from slipstream.log.disk import File, OsDisk
from slipstream.log.open_files import TRIED_AT_ONCE
from slipstream.log.os_file import OsFile
from slipstream.log.stream_store import Store
from slipstream.testing.driver import Driver

OPEN = "/proc/self/fd"


def descriptors(directory: Path) -> int:
    """How many this process has open below `directory`; other tests' come and go meanwhile."""
    return sum(path.startswith(f"{directory}/") for path in map(_opened, os.listdir(OPEN)))


def _opened(number: str) -> str:
    try:
        return os.readlink(f"{OPEN}/{number}")
    except FileNotFoundError:  # closed meanwhile
        return ""


def write_in_turns(disk: OsDisk, directory: Path) -> Sequence[File]:
    """Ten files, each written to and synced three times in turn."""
    files = [disk.open(str(directory / f"{i}")) for i in range(10)]
    for turn in range(3):
        for i, file in enumerate(files):
            file.reserve((turn + 1) * 10_000)
            file.append(b"%d%d" % (i, turn))
            file.sync()
            disk.sync_dir(str(directory))
    return files


def assert_all_is_there(files: Sequence[File]) -> None:
    for i, file in enumerate(files):
        assert file.pread(0, 6) == b"%d0%d1%d2" % (i, i, i)


def test_the_least_recently_used_file_rests_and_goes_on_where_it_was(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=2)
    files = write_in_turns(disk, tmp_path)
    assert len(disk.open_files) <= 2
    assert 0 < descriptors(tmp_path) <= 4  # two for each
    assert_all_is_there(files)
    for file in files:
        file.close()
    assert descriptors(tmp_path) == 0


@pytest.mark.parametrize("end", [OsFile.sync, OsFile.flush, OsFile.close])
def test_a_file_that_rests_with_something_to_write_writes_it(
    tmp_path: Path, end: Callable[[OsFile], None]
) -> None:
    disk = OsDisk(open_files_max=1)
    file = disk.open(str(tmp_path / "a"))
    file.reserve(10_000)
    file.append(b"kept")
    assert file.rest()
    for i in range(20):
        disk.open(str(tmp_path / f"other{i}"))
    end(file)
    assert (tmp_path / "a").read_bytes()[:4] == b"kept"


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files may be open below `tmp_path`, as if something else had all others; its one
    number may be changed."""
    most = [4]
    really_open = os.open

    def open_if_there_is_room(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith(str(tmp_path)) and descriptors(tmp_path) >= most[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", open_if_there_is_room)
    return most


def test_where_others_have_all_descriptors_files_give_theirs_up_for_each_other(
    tmp_path: Path, room: list[int]
) -> None:
    disk = OsDisk(open_files_max=100)
    files = write_in_turns(disk, tmp_path)
    disk.sync_all([str(tmp_path / "1")], [str(tmp_path)])
    assert_all_is_there(files)
    assert descriptors(tmp_path) <= room[0]


def test_a_file_that_gets_one_of_two_descriptors_asks_for_both_again(
    tmp_path: Path, room: list[int]
) -> None:
    disk = OsDisk(open_files_max=100)
    file = disk.open(str(tmp_path / "a"))
    file.reserve(10_000)
    file.append(b"kept")
    assert file.rest()
    room[0] = 1
    with pytest.raises(OSError, match="Too many open files"):
        file.sync()
    room[0] = 2
    file.sync()
    assert (tmp_path / "a").read_bytes()[:4] == b"kept"


def test_threads_that_share_few_descriptors_never_read_anothers_bytes(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=2)
    files = [disk.open(str(tmp_path / f"{i}")) for i in range(8)]
    for i, file in enumerate(files):
        file.append(b"%d" % i * 5000)
    wrong: list[int] = []

    def read(start: int) -> None:
        for turn in range(400):
            i = (start + turn * 3) % len(files)
            if files[i].pread(turn * 10, 10) != b"%d" % i * 10:
                wrong.append(i)

    threads = [Thread(target=read, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_streams_live_on_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = Driver(OsDisk(open_files_max=5)).start()
    client = driver.client()
    for i in range(40):
        client.api(f"STREAM.CREATE.S{i}", {"name": f"S{i}"})
    for turn in range(3):
        for i in range(40):
            assert client.store(f"S{i}", b"%d" % turn)["seq"] == turn + 1
    assert 0 < descriptors(tmp_path) <= 10
    assert client.api("STREAM.MSG.GET.S7", {"seq": 2})["message"]["data"] == "MQ=="
    driver.stop()
    store = Store(OsDisk(open_files_max=5), "store")
    assert len(list(store.streams("$G"))) == 40
    again = Driver(OsDisk(open_files_max=5)).start()
    assert descriptors(tmp_path) <= 10
    assert again.client().store("S39")["seq"] == 4
    again.stop()


def test_files_that_were_closed_while_threads_began_to_use_them_keep_no_others_open(
    tmp_path: Path,
) -> None:
    most = 2 * TRIED_AT_ONCE
    disk = OsDisk(open_files_max=most)
    for n in range(most):
        file = disk.open(str(tmp_path / f"closed{n}"))
        file.close()
        disk.open_files.used(file)  # as a thread says that had begun before
    opened = [disk.open(str(tmp_path / f"{n}")) for n in range(5 * most)]
    assert descriptors(tmp_path) <= most
    for file in opened:
        file.close()
