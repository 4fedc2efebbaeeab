"""What a leader reads of files that it has written to, before and after the group has it."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from slipstream.log.disk import OsDisk
from slipstream.server.replica.group_disk import GroupDisk, LostLeadError
from slipstream.server.replica.operations import Kind, decode_operations
from slipstream.server.replica.store_directory import StoreDirectory


class Held:
    """Applies entries to a directory: at once, or when it is told to."""

    def __init__(self, path: Path) -> None:
        self.directory = StoreDirectory(OsDisk(), str(path), 0)
        self.disk = GroupDisk(OsDisk(), self.directory.root, self._submit)
        self.bodies: list[bytes] = []
        self.waiting: list[Future[None]] = []
        self.is_held = False
        self.is_lost = False

    def path(self, name: str) -> str:
        return f"{self.directory.root}/{name}"

    def _submit(self, body: bytes) -> "Future[None]":
        future: Future[None] = Future()
        self.bodies.append(body)
        self.waiting.append(future)
        if not self.is_held:
            self.go_on()
        return future

    def go_on(self) -> None:
        while self.waiting:
            future = self.waiting.pop(0)
            if self.is_lost:
                future.set_exception(LostLeadError("another server leads"))
                continue
            index = self.directory.applied + 1
            self.directory.apply(index, self.bodies[index - 1])
            future.set_result(None)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def test_what_is_written_is_read_before_and_after_it_is_committed(held: Held) -> None:
    file = held.disk.open(held.path("f"))
    file.append(b"hello")
    file.append(b" world")
    file.pwrite(0, b"J")
    assert (file.size(), file.pread(0, 100), file.pread(6, 3)) == (11, b"Jello world", b"wor")
    assert file.pread_near(0, 5) is None
    assert OsDisk().read(held.path("f")) == b""
    file.sync()
    assert OsDisk().read(held.path("f")) == b"Jello world"
    assert file.pread_near(0, 5) in (b"Jello", None)
    file.append(b"!")
    assert file.pread(0, 100) == b"Jello world!"
    assert held.disk.read(held.path("f")) == b"Jello world!"


def test_a_sync_is_one_entry_of_all_files(held: Held) -> None:
    first, second = (held.disk.open(held.path(name)) for name in "ab")
    count = len(held.bodies)
    first.append(b"1")
    second.append(b"2")
    first.append(b"3")
    second.sync()
    assert len(held.bodies) == count + 1
    kinds = [(one.kind, one.path, one.data) for one in decode_operations(held.bodies[-1])]
    assert kinds == [(Kind.WRITE, "a", b"1"), (Kind.WRITE, "b", b"2"), (Kind.WRITE, "a", b"3")]
    first.sync()
    assert len(held.bodies) == count + 1


def test_a_file_that_is_cut_or_begun_anew_goes_on_there(held: Held) -> None:
    file = held.disk.open(held.path("f"))
    file.append(b"0123456789")
    file.truncate(4)
    assert (file.size(), file.pread(0, 100)) == (4, b"0123")
    file.append(b"xy")
    file.sync()
    file.rewind()
    file.append(b"AB")
    file.sync()
    assert file.pread(0, 100) == b"AB23xy"


def test_open_files_follow_a_rename_of_their_directory(held: Held) -> None:
    held.disk.mkdir(held.path("d.new"))
    file = held.disk.open(held.path("d.new/f"))
    file.append(b"1")
    held.disk.rename(held.path("d.new"), held.path("d"))
    file.append(b"2")
    file.sync()
    assert OsDisk().read(held.path("d/f")) == b"12"
    file.rename(held.path("d/g"))
    file.append(b"3")
    file.sync()
    assert OsDisk().read(held.path("d/g")) == b"123"
    assert held.disk.list(held.path("d")) == ["g"]


def test_a_leader_that_is_deposed_has_written_nothing(held: Held) -> None:
    file = held.disk.open(held.path("f"))
    file.append(b"before")
    file.sync()
    held.is_lost = True
    file.append(b" and after")
    with pytest.raises(LostLeadError):
        file.sync()
    with pytest.raises(LostLeadError):
        held.disk.mkdir(held.path("d"))
    assert OsDisk().read(held.path("f")) == b"before"
    assert not held.disk.exists(held.path("d"))
