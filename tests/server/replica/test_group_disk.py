"""The leader's disk: what leaves as entries, in which order, and what happens when one fails."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from slipstream.errors import DiskFullError
from slipstream.log.disk import PUT_MAX, OsDisk, replace_file, report_damage, write_file
from slipstream.server.replica import group_disk
from slipstream.server.replica.group_disk import GroupDisk, GroupFile, LostLeadError
from slipstream.server.replica.operations import Operation, decode_operations
from slipstream.server.replica.store_directory import StoreDirectory


class Entries:
    """Entries that are applied at once, or kept until `apply`, to one store."""

    def __init__(self, path: Path) -> None:
        self.directory = StoreDirectory(OsDisk(), str(path), 0)
        self.root = self.directory.root
        self.waiting: list[tuple[bytes, Future[None]]] = []
        self.sizes: list[int] = []
        self.is_held = False
        self.lost = 0
        self.disk = GroupDisk(OsDisk(), self.root, self.submit, self._count_lost)

    def submit(self, body: bytes) -> "Future[None]":
        future: Future[None] = Future()
        self.sizes.append(len(body))
        self.waiting.append((body, future))
        if not self.is_held:
            self.apply()
        return future

    def apply(self) -> None:
        """All that wait, as each server of the group does."""
        while self.waiting:
            self.apply_next()

    def apply_next(self) -> None:
        body, future = self.waiting.pop(0)
        self.directory.apply(self.directory.applied + 1, body)
        future.set_result(None)

    def fail(self) -> None:
        """The first one that waits has failed."""
        _, future = self.waiting.pop(0)
        future.set_exception(LostLeadError("no majority"))

    def _count_lost(self) -> None:
        self.lost += 1

    @property
    def waiting_operations(self) -> list[Operation]:
        return [one for body, _ in self.waiting for one in decode_operations(body)]


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    return Entries(tmp_path)


def in_thread(action: Callable[[], object], is_begun: Callable[[], bool]) -> threading.Thread:
    """A thread that has come as far as `is_begun` says."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    while not is_begun():
        assert thread.is_alive()
        time.sleep(0)
    return thread


def test_what_is_written_while_a_file_is_renamed_goes_to_its_new_name(entries: Entries) -> None:
    """A batch gives a segment its name on a thread, while the next messages are appended to it."""
    file = entries.disk.open(f"{entries.root}/spare")
    file.append(b"before ")
    entries.is_held = True
    thread = in_thread(lambda: file.rename(f"{entries.root}/1.seg"), lambda: bool(entries.waiting))
    file.append(b"meanwhile")
    file.flush()
    assert [one.path for one in entries.waiting_operations if one.data] == ["spare", "1.seg"]
    entries.is_held = False
    entries.apply()
    thread.join()
    file.sync()
    assert file.pread(0, 100) == b"before meanwhile"
    assert (Path(entries.root) / "1.seg").read_bytes() == b"before meanwhile"


def test_who_opens_a_file_anew_reads_all_of_it_once_the_disk_is_settled(entries: Entries) -> None:
    path = f"{entries.root}/1.seg"
    file = entries.disk.open(path)
    entries.is_held = True
    file.append(b"on its way")
    file.flush()
    thread = in_thread(entries.disk.settle, lambda: bool(entries.waiting))
    entries.apply()
    thread.join()
    assert entries.disk.open(path).pread_near(0, 100) == b"on its way"


def test_what_is_written_to_a_file_that_was_removed_is_in_no_entry(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    file.append(b"there")
    file.sync()
    entries.disk.remove(f"{entries.root}/a")
    file.append(b" gone")
    file.sync()
    assert file.pread(0, 100) == b"there gone"
    assert entries.disk.list(entries.root) == []
    new = entries.disk.open(f"{entries.root}/a")
    file.append(b"!")
    file.truncate(0)
    file.sync()
    new.append(b"new")
    new.sync()
    assert (Path(entries.root) / "a").read_bytes() == b"new"


def test_a_file_that_was_removed_does_not_come_back_when_its_directory_moves(
    entries: Entries,
) -> None:
    disk, root = entries.disk, entries.root
    disk.mkdir(f"{root}/d")
    files = [disk.open(f"{root}/d/{name}") for name in ("closed", "open", "stays")]
    files[0].close()
    for name in ("closed", "open"):
        disk.remove(f"{root}/d/{name}")
    disk.rename(f"{root}/d", f"{root}/e")
    assert disk.list(f"{root}/e") == ["stays"]
    files[2].append(b"x")
    files[2].sync()
    assert (Path(root) / "e" / "stays").read_bytes() == b"x"


def test_a_file_made_in_a_directory_that_is_on_its_way_elsewhere_is_refused(
    entries: Entries,
) -> None:
    """The leader finds it, as a single server does; no entry has all servers fail."""
    disk, root = entries.disk, entries.root
    disk.mkdir(f"{root}/d")
    entries.is_held = True
    moving = in_thread(lambda: disk.rename(f"{root}/d", f"{root}/e"), lambda: bool(entries.waiting))
    found: list[Exception] = []

    def make() -> None:
        try:
            disk.open(f"{root}/d/spare")
        except OSError as error:
            found.append(error)

    making = threading.Thread(target=make, daemon=True)
    making.start()
    making.join(0.05)
    assert len(entries.waiting) == 1
    entries.is_held = False
    entries.apply()
    moving.join()
    making.join()
    assert [type(error) for error in found] == [FileNotFoundError]


def test_a_name_that_no_file_system_takes_is_refused_by_the_leader(entries: Entries) -> None:
    disk, root, long = entries.disk, entries.root, "x" * 256
    disk.open(f"{root}/a")
    for attempt in (
        lambda: disk.open(f"{root}/{long}"),
        lambda: disk.mkdir(f"{root}/{long}"),
        lambda: disk.rename(f"{root}/a", f"{root}/{long}"),
    ):
        with pytest.raises(OSError, match="File name too long"):
            attempt()
    assert disk.list(root) == ["a"]


def test_no_entry_leaves_after_one_that_has_failed(entries: Entries) -> None:
    """A sync waits for the last entry; one before it that has failed counts, too."""
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True
    file.append(b"first")
    file.flush()
    file.append(b"second")
    found: list[str] = []
    thread = in_thread(lambda: _sync(file, found), lambda: len(entries.waiting) == 2)
    entries.fail()
    entries.waiting.pop()[1].set_result(None)
    thread.join()
    assert found == ["no majority"]
    file.append(b"third")
    with pytest.raises(LostLeadError, match="no majority"):
        file.sync()
    with pytest.raises(LostLeadError, match="no majority"):
        entries.disk.open(f"{entries.root}/b")
    assert entries.waiting == []
    assert (entries.disk.is_lost, entries.lost) == (True, 1)


def _sync(file: GroupFile, into: list[str]) -> None:
    try:
        file.sync()
        into.append("")
    except LostLeadError as error:
        into.append(str(error))


def test_a_disk_that_is_left_stores_nothing_more(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    file.append(b"x")
    entries.disk.leave()
    with pytest.raises(LostLeadError, match="does not lead"):
        file.sync()
    assert (Path(entries.root) / "a").read_bytes() == b""


def test_what_is_larger_than_an_entry_makes_several(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_disk, "ENTRY_BYTES", 1000)
    monkeypatch.setattr(group_disk, "WHOLE_MAX", 1000)
    file = entries.disk.open(f"{entries.root}/a")
    data = bytes(range(256)) * 20
    file.append(data)
    for _ in range(200):  # small ones count with their names
        file.append(b"y")
    file.sync()
    assert max(entries.sizes) < 2200
    assert (Path(entries.root) / "a").read_bytes() == data + b"y" * 200


def test_what_is_appended_at_once_is_in_the_files_as_a_whole_or_not_at_all(
    entries: Entries,
) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    first, second = b"x" * (group_disk.ENTRY_BYTES - 1), b"y" * (2 * group_disk.ENTRY_BYTES)
    entries.is_held = True
    file.append(first)
    file.append(second)
    file.append(b"z")
    file.flush()
    found = []
    while entries.waiting:
        entries.apply_next()
        found.append((Path(entries.root) / "a").read_bytes())
    assert found[-1] == first + second + b"z"
    assert {*found} <= {b"", first, first + second, found[-1]}
    assert len(found) > 1


def test_who_writes_more_than_may_be_under_way_waits(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the group never has to refuse an entry because too much waits for a majority."""
    monkeypatch.setattr(group_disk, "ENTRY_BYTES", 1000)
    monkeypatch.setattr(group_disk, "UNDER_WAY_BYTES", 5000)
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True

    def write() -> None:
        for _ in range(20):
            file.append(b"x" * 1000)

    thread = in_thread(write, lambda: len(entries.waiting) == 4)
    thread.join(0.05)
    assert thread.is_alive()
    assert len(entries.waiting) == 4
    while thread.is_alive():
        entries.apply()
    entries.is_held = False
    entries.apply()
    file.sync()
    assert (Path(entries.root) / "a").stat().st_size == 20_000


def test_closing_the_disk_closes_its_files(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    entries.disk.close()
    with pytest.raises((OSError, ValueError)):
        file.pread(0, 1)


def test_what_was_synced_for_all_files_is_in_memory_no_more(entries: Entries) -> None:
    """Also of files that are never synced by themselves, since the commit log carries them."""
    file = entries.disk.open(f"{entries.root}/a")
    file.append(b"x")
    entries.disk.sync_all([file.path], [])
    (Path(entries.root) / "a").write_bytes(b"y")
    assert file.pread(0, 1) == b"y"


def test_two_threads_may_give_a_file_its_name(entries: Entries) -> None:
    """The loop does where it cannot wait for the batch that would."""
    file = entries.disk.open(f"{entries.root}/spare")
    entries.is_held = True
    failed: list[Exception] = []

    def rename() -> None:
        try:
            file.rename(f"{entries.root}/1.seg")
        except OSError as error:
            failed.append(error)

    first = in_thread(rename, lambda: bool(entries.waiting))
    second = threading.Thread(target=rename, daemon=True)
    second.start()
    second.join(0.05)
    entries.is_held = False
    entries.apply()
    first.join()
    second.join()
    assert failed == []
    assert entries.disk.list(entries.root) == ["1.seg"]


def test_damage_that_other_servers_can_mend_ends_the_lead_and_is_in_no_entry(
    tmp_path: Path,
) -> None:
    entries = Entries(tmp_path)
    lost: list[bool] = []
    disk = GroupDisk(
        OsDisk(),
        entries.root,
        entries.submit,
        lambda: lost.append(True),
        may_refuse=lambda: True,
    )
    file = disk.open(f"{entries.root}/1.seg")
    count = len(entries.sizes)
    with pytest.raises(LostLeadError, match="segment 1 is damaged"):
        report_damage(disk, "segment 1 is damaged")
    assert (disk.is_lost, disk.damage, lost) == (True, "segment 1 is damaged", [True])
    file.append(b"a message that counts as lost")
    with pytest.raises(LostLeadError):
        file.sync()
    assert len(entries.sizes) == count


def test_damage_that_nobody_can_mend_is_gone_on_with(entries: Entries) -> None:
    report_damage(entries.disk, "segment 1 is damaged")
    assert not entries.disk.is_lost


def test_a_batch_that_runs_ahead_is_done_once_it_is_applied(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True

    def write() -> None:
        file.append(b"ahead")
        file.sync()

    done = entries.disk.run_ahead(write)
    assert done is not None
    assert not done.done()
    assert file.pread(0, 100) == b"ahead"
    assert file.pread_near(0, 100) is None
    entries.apply()
    assert done.result(0) is None
    assert file.pread_near(0, 100) == b"ahead"
    assert (Path(entries.root) / "a").read_bytes() == b"ahead"


def test_a_batch_that_runs_ahead_is_told_that_the_lead_is_lost(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True
    file.append(b"first")
    file.flush()
    done = entries.disk.run_ahead(lambda: (file.append(b"second"), file.sync())[1])
    assert done is not None
    entries.fail()  # the first one: what follows may be applied nowhere
    entries.apply()
    assert isinstance(done.exception(0), LostLeadError)


def test_nothing_runs_ahead_where_it_might_have_to_wait(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_disk, "UNDER_WAY_BYTES", 100)
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True
    file.append(bytes(60))
    file.flush()
    assert entries.disk.run_ahead(lambda: None) is None
    entries.apply()


def test_a_full_disk_has_nothing_reserved(entries: Entries) -> None:
    told: list[str] = []
    is_full = True
    disk = GroupDisk(
        OsDisk(),
        entries.root,
        entries.submit,
        is_full=lambda: is_full,
        on_full=lambda: told.append("full"),
    )
    file = disk.open(f"{entries.root}/a")
    with pytest.raises(DiskFullError, match="no space left in the log of the group"):
        file.reserve(100)
    assert file.reserve_ahead(100) == 0
    is_full = False
    assert file.reserve(100) >= 100
    assert told == []  # the disk under the files has space


def test_what_is_gathered_leaves_as_one_entry_at_the_end(entries: Entries) -> None:
    disk, root = entries.disk, entries.root
    files = [disk.open(f"{root}/{name}") for name in "ab"]
    files[0].append(b"long before")
    files[0].sync()
    entries.is_held = True

    def run() -> None:
        for file in files:
            file.append(b"x")
            file.sync()
        files[0].truncate(4)
        disk.sync_all([f"{root}/a"], [root])
        assert entries.waiting == []

    done = disk.run_gathered(run)
    assert len(entries.waiting) == 1
    assert not done.done()
    entries.apply()
    assert done.result() is None
    assert [(Path(root) / name).read_bytes() for name in "ab"] == [b"long", b"x"]


def test_who_reads_what_is_gathered_has_all_of_it(entries: Entries) -> None:
    """What was cut, written again, opened anew or given a name is read as it will be."""
    disk, root = entries.disk, entries.root
    file = disk.open(f"{root}/a")
    file.append(b"before")
    file.sync()

    def run() -> None:
        file.truncate(2)
        file.append(b"st")
        again = disk.open(f"{root}/a")
        assert again.size() == 4
        assert again.pread_near(0, 10) is None
        assert again.pread(0, 10) == b"best"
        again.append(b"!")
        assert disk.read(f"{root}/a") == b"best!"
        file.truncate(1)
        assert file.pread(0, 10) == b"b"
        file.append(b"y")
        disk.rename(f"{root}/a", f"{root}/c")
        assert disk.read_stored(f"{root}/c") == b"by"

    assert disk.run_gathered(run).result() is None
    assert disk.list(root) == ["c"]


def test_what_is_gathered_when_the_lead_is_lost_is_told_so(entries: Entries) -> None:
    file = entries.disk.open(f"{entries.root}/a")
    entries.is_held = True
    done = entries.disk.run_gathered(lambda: file.append(b"x"))
    entries.fail()
    with pytest.raises(LostLeadError, match="no majority"):
        done.result()


def test_entries_are_applied_while_a_thread_waits_for_room_for_more(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches that run ahead are finished on the thread that applies."""
    monkeypatch.setattr(group_disk, "UNDER_WAY_BYTES", 4 * group_disk.ENTRY_BYTES)
    disk = entries.disk
    file = disk.open(f"{entries.root}/a")
    entries.is_held = True
    ahead = [disk.run_ahead(lambda: (file.append(b"small"), file.sync())) for _ in range(3)]
    writing = threading.Thread(
        target=lambda: [file.append(b"x" * group_disk.ENTRY_BYTES) for _ in range(6)], daemon=True
    )
    writing.start()
    while len(entries.waiting) < 5 or not disk._lock.locked():  # until it waits
        writing.join(0.001)

    def apply() -> None:
        while writing.is_alive() or entries.waiting:
            entries.apply()

    threading.Thread(target=apply, daemon=True).start()
    assert all(one is not None and one.result(10) is None for one in ahead)
    writing.join(10)
    assert not writing.is_alive()


def test_small_content_of_many_files_is_one_entry_and_waits_for_nothing(entries: Entries) -> None:
    entries.is_held = True
    for name in ("a", "b"):
        for slot in (0, 1):
            path = f"{entries.root}/consumers/{name}/meta.{slot}"
            entries.disk.put(path, name.encode() * 9, makes_directory=True)
    assert not entries.waiting
    assert entries.disk.exists(f"{entries.root}/consumers/b/meta.1")
    assert entries.disk.exists(f"{entries.root}/consumers/b")
    thread = in_thread(lambda: entries.disk.sync_all([], []), lambda: bool(entries.waiting))
    assert len(entries.waiting) == 1
    entries.apply()
    thread.join()
    assert (Path(entries.root) / "consumers" / "b" / "meta.1").read_bytes() == b"b" * 9


def test_content_that_is_put_takes_the_place_of_longer_and_shorter_content(
    entries: Entries,
) -> None:
    path = f"{entries.root}/a"
    for content in (b"long content", b"short", b"the longest content"):
        entries.disk.put(path, content)
        assert entries.disk.read(path) == content
    file = entries.disk.open(path)
    entries.disk.put(path, b"other")
    assert (file.size(), file.pread(0, 100)) == (5, b"other")


def test_no_directory_is_made_for_content_that_comes_too_late(entries: Entries) -> None:
    path = f"{entries.root}/gone/state.0"
    with pytest.raises(FileNotFoundError):
        entries.disk.put(path, b"x")
    entries.disk.put(path, b"x", makes_directory=True)
    entries.disk.remove_tree(f"{entries.root}/gone")
    with pytest.raises(FileNotFoundError):
        entries.disk.put(path, b"y")
    assert not entries.disk.exists(f"{entries.root}/gone")


def test_names_that_are_on_their_way_are_there_for_whoever_changes_names(entries: Entries) -> None:
    root, disk = entries.root, entries.disk

    def put(path: str) -> None:
        disk.put(f"{root}/{path}", path.encode(), makes_directory=True)

    put("d/a")
    assert disk.list(f"{root}/d") == ["a"]
    put("d/b")
    disk.rename(f"{root}/d", f"{root}/e")
    assert sorted(disk.list(f"{root}/e")) == ["a", "b"]
    assert not disk.exists(f"{root}/d/b")
    put("f/c")
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{root}/f")
    disk.makedirs(f"{root}/f/g")
    put("f/h")
    disk.remove(f"{root}/f/h")
    assert not disk.exists(f"{root}/f/h")
    put("f/i")
    assert disk.open(f"{root}/f/i").pread(0, 9) == b"f/i"
    put("f/j")
    disk.remove_tree(f"{root}/f")
    assert disk.list(root) == ["e"]


def test_a_name_that_is_too_long_is_put_nowhere(entries: Entries) -> None:
    with pytest.raises(OSError, match="too long"):
        entries.disk.put(f"{entries.root}/{'x' * 300}", b"x")
    entries.disk.put(f"{entries.root}/a", b"x")
    entries.disk.settle()
    assert entries.disk.list(entries.root) == ["a"]


def test_what_is_put_is_lost_with_the_lead(entries: Entries) -> None:
    entries.is_held = True
    entries.disk.put(f"{entries.root}/a", b"x")
    thread = in_thread(lambda: entries.disk.hand_on(), lambda: bool(entries.waiting))
    thread.join()
    entries.fail()
    with pytest.raises(LostLeadError):
        entries.disk.settle()


def test_a_file_that_is_too_large_to_be_put_makes_several_entries(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as what a crash has torn off, and is set aside: one entry with all of it is taken by no
    group, whoever leads."""
    monkeypatch.setattr(group_disk, "ENTRY_BYTES", 1024 * 1024)
    monkeypatch.setattr(group_disk, "WHOLE_MAX", 1024 * 1024)
    large = b"x" * (PUT_MAX * 3 + 1)
    for write in (write_file, replace_file):
        path = f"{entries.root}/{write.__name__}"
        write(entries.disk, path, large)
        entries.disk.settle()
        assert Path(path).read_bytes() == large
    assert max(entries.sizes) < 2 * PUT_MAX
    with pytest.raises(AssertionError):
        entries.disk.put(f"{entries.root}/a", large)


def test_who_writes_to_a_file_that_is_put_waits_for_nobody(entries: Entries) -> None:
    path = f"{entries.root}/a"
    file = entries.disk.open(path)

    def write() -> None:
        for _ in range(2000):
            file.append(b"x")

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    for _ in range(2000):
        entries.disk.put(path, b"y")
    thread.join(20)
    assert not thread.is_alive()
