"""Files that are copied to another server: while entries go on, without those that it holds, and on
from where an earlier copy has broken."""

import contextlib
import errno
from pathlib import Path
from random import Random

import pytest

from slipstream.errors import CorruptionError, DiskFullError
from slipstream.log.disk import OsDisk
from slipstream.server.replica import store_copy
from slipstream.server.replica.operations import (
    Kind,
    Operation,
    decode_operations,
    encode_operations,
)
from slipstream.server.replica.store_copy import (
    PIECE_BYTES,
    Changes,
    Held,
    NotHeldError,
    decode_held,
    encode_held,
)
from slipstream.server.replica.store_directory import StoreDirectory
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.server.replica.histories import History

ROOT = "group/store"
SMALL = 300  # bytes of a piece, where there are to be many


def files_below(path: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(path)): one.read_bytes().rstrip(b"\0")
        for one in path.rglob("*")
        if one.is_file()
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_made_while_entries_go_on_becomes_the_same(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    history = History(random, 120)
    here = StoreDirectory(OsDisk(), f"{tmp_path}/here", 0)
    entries = iter(enumerate(history.entries, 1))

    def go_on(count: int) -> None:
        for index, body in [next(entries) for _ in range(count)]:
            here.apply(index, body)

    go_on(40)
    snapshot = here.snapshot()
    assert snapshot.index == 40
    there = StoreDirectory(OsDisk(), f"{tmp_path}/there", 0)
    there.apply(1, encode_operations([Operation(Kind.CREATE, "of before")]))
    there.begin_install(40)
    for pieces, piece in enumerate(snapshot.pieces()):
        there.take(piece)
        if pieces % 4 == 0 and here.applied < 80:
            go_on(1)
    go_on(120 - here.applied)
    there.install()
    snapshot.close()
    assert not list((tmp_path / "here" / "checkpoint").iterdir())
    for index in range(41, 121):
        there.apply(index, history.entries[index - 1])
    wanted = {path: data.rstrip(b"\0") for path, data in history.states[-1].items()}
    assert files_below(tmp_path / "there" / "files") == wanted
    assert files_below(tmp_path / "here" / "files") == wanted
    assert StoreDirectory(OsDisk(), f"{tmp_path}/there", 120).applied >= 40


def test_a_copy_has_the_zeros_at_the_end_of_a_file(tmp_path: Path) -> None:
    """They may be the end of a message."""
    here = StoreDirectory(OsDisk(), f"{tmp_path}/here", 0)
    data = b"head" + bytes(PIECE_BYTES * 3)
    here.apply(
        1, encode_operations([Operation(Kind.CREATE, "a"), Operation(Kind.WRITE, "a", data)])
    )
    there = StoreDirectory(OsDisk(), f"{tmp_path}/there", 0)
    there.begin_install(1)
    for piece in here.snapshot().pieces():
        there.take(piece)
    there.install()
    assert (tmp_path / "there" / "files" / "a").read_bytes() == data


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    below = f"{ROOT}/files/"
    return {
        path[len(below) :]: disk.read(path).rstrip(b"\0")
        for path in disk.files()
        if path.startswith(below)
    }


def create(path: str, data: bytes = b"") -> bytes:
    """An entry."""
    write = [Operation(Kind.WRITE, path, data)] if data else []
    return encode_operations([Operation(Kind.CREATE, path), *write])


class Pair:
    """Two stores of the same entries: one that goes on, and one that falls behind."""

    def __init__(self, *entries: bytes) -> None:
        self.entries = list(entries)
        self.disk = SimulatedDisk(Random(1))
        self.here = StoreDirectory(SimulatedDisk(Random(2)), ROOT, 0)
        self.there = StoreDirectory(self.disk, ROOT, 0)
        for index, body in enumerate(entries, 1):
            self.here.apply(index, body)
            self.there.apply(index, body)
        self.there.keep()

    def go_on(self, *entries: bytes) -> None:
        """Only one of them hears of these entries."""
        for body in entries:
            self.here.apply(self.here.applied + 1, body)

    def copy(self, pieces_max: int = 1000) -> list[tuple[Kind, str]]:
        """Copy the files, or so many pieces; what was sent."""
        sent: list[tuple[Kind, str]] = []
        snapshot = self.here.snapshot(decode_held(encode_held(self.there.held())))
        self.there.begin_install(snapshot.index)
        pieces = list(snapshot.pieces(100))
        for piece in pieces[:pieces_max]:
            sent += [(one.kind, one.path) for one in decode_operations(piece)]
            self.there.take(piece)
        if pieces_max >= len(pieces):
            self.there.install()
        return sent

    def is_same(self) -> bool:
        """Whether both have the same files."""
        disk = self.here._disk
        assert isinstance(disk, SimulatedDisk)
        return files_of(self.disk) == files_of(disk)


def test_files_that_no_entry_has_changed_since_are_not_sent() -> None:
    pair = Pair(create("a", b"1"), create("b", b"2"), create("c", b"3"))
    pair.go_on(encode_operations([Operation(Kind.WRITE, "b", b"22")]), create("d", b"4"))
    assert pair.copy() == [
        (Kind.HELD, "a"),
        (Kind.CREATE, "b"),
        (Kind.WRITE, "b"),
        (Kind.HELD, "c"),
        (Kind.CREATE, "d"),
        (Kind.WRITE, "d"),
    ]
    assert pair.is_same()
    assert pair.there.applied == 5
    assert all(kind is Kind.HELD for kind, _ in pair.copy())


def test_what_a_server_has_applied_and_not_kept_is_sent() -> None:
    """A sync that has failed may have lost it."""
    pair = Pair(create("a", b"1"))
    pair.go_on(create("b", b"2"))
    pair.there.apply(2, create("b", b"2"))
    assert pair.there.held() == Held(1)
    assert (Kind.CREATE, "b") in pair.copy()
    pair.disk.crash()
    assert pair.is_same()


def test_files_in_a_directory_with_a_new_name_are_sent() -> None:
    inside = [Operation(Kind.MAKE_DIRECTORY, "D"), Operation(Kind.MAKE_DIRECTORY, "D/E")]
    pair = Pair(encode_operations(inside), create("D/E/f", b"1"), create("D/g", b"2"))
    pair.go_on(
        encode_operations([Operation(Kind.RENAME, "D", other="X")]),
        encode_operations(inside),
        create("D/E/f", b"other"),
    )
    sent = pair.copy()
    assert not [path for kind, path in sent if kind is Kind.HELD]
    assert pair.is_same()


def test_a_copy_that_has_broken_goes_on_behind_the_files_that_came() -> None:
    names = "abcdefgh"
    pair = Pair(create("a", b"old"))
    pair.go_on(*(create(name, name.encode() * 40) for name in names))
    first = pair.copy(pieces_max=6)
    assert (Kind.WRITE, "c") in first
    changed = encode_operations([Operation(Kind.WRITE, "b", b"B")])
    pair.go_on(changed)
    second = pair.copy(pieces_max=9)
    assert (Kind.HELD, "a") in second
    assert (Kind.WRITE, "b") in second
    assert (Kind.WRITE, "e") in second
    third = pair.copy()
    assert [path for kind, path in third if kind is Kind.HELD] == ["a", "b", "c", "d"]
    assert pair.is_same()
    assert pair.disk.list(ROOT) == ["applied.0", "applied.1", "files"]


def test_a_copy_that_breaks_sooner_than_the_one_before_takes_nothing_away() -> None:
    pair = Pair()
    pair.go_on(*(create(name, name.encode() * 40) for name in "abcdefgh"))
    pair.copy(pieces_max=9)
    pair.copy(pieces_max=2)
    assert len([kind for kind, _ in pair.copy() if kind is Kind.HELD]) == 4
    assert pair.is_same()


def test_a_source_that_is_behind_what_came_before_sends_all() -> None:
    pair = Pair(create("a", b"1"))
    behind = StoreDirectory(SimulatedDisk(Random(3)), ROOT, 0)
    behind.apply(1, create("a", b"1"))
    pair.go_on(create("b", b"2"), create("c", b"3"))
    pair.copy(pieces_max=4)
    pieces = behind.snapshot(pair.there.held()).pieces()
    assert not [
        one for piece in pieces for one in decode_operations(piece) if one.kind is Kind.HELD
    ]


def test_a_store_that_is_damaged_is_sent_all_of_it_also_after_a_restart() -> None:
    pair = Pair(create("a", b"1"))
    pair.go_on(create("b", b"2"))
    pair.copy(pieces_max=3)
    pair.there.distrust()
    assert pair.there.held() == Held()
    pair.there = StoreDirectory(pair.disk, ROOT, 1)
    assert pair.there.held() == Held()
    assert not [path for kind, path in pair.copy() if kind is Kind.HELD]
    assert pair.is_same()
    assert pair.there.held() == Held(2)


def test_where_a_file_is_missing_all_is_asked_for() -> None:
    pair = Pair(create("a", b"1"))
    pair.go_on(create("b", b"2"))
    pair.disk.remove(f"{ROOT}/files/a")
    with pytest.raises(NotHeldError, match="a is not here"):
        pair.copy()
    assert (Kind.WRITE, "a") in pair.copy()
    assert pair.is_same()
    assert pair.there.held() == Held(2)


def test_names_that_find_no_space_are_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(create("a", b"1"))
    pair.go_on(create("b", b"2"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pair.disk, "link", fail)
        with pytest.raises(DiskFullError):
            pair.copy()
    assert (Kind.HELD, "a") in pair.copy()
    assert pair.is_same()


FAULTS = [
    (operation, nth)
    for operation in ("open", "pwrite", "sync", "sync_dir", "rename", "mkdir")
    for nth in range(1, 8)
]


@pytest.mark.parametrize(("operation", "nth"), FAULTS)
def test_a_crash_while_files_take_the_place_of_others_leaves_a_store(
    operation: str, nth: int
) -> None:
    pair = Pair(create("a", b"1"), create("b", b"2"))
    pair.go_on(encode_operations([Operation(Kind.WRITE, "b", b"3")]), create("c", b"4"))
    pair.disk.fail(operation, nth)
    with contextlib.suppress(OSError):
        pair.copy()
    pair.disk.heal()
    pair.disk.crash()
    pair.there = StoreDirectory(pair.disk, ROOT, 4)
    assert pair.there.applied in (2, 4)
    if pair.there.applied == 2:  # the files may be the new ones
        assert pair.there.held() in (Held(2), Held())
        pair.copy()
    assert pair.is_same()


@pytest.mark.parametrize(("operation", "nth"), FAULTS)
@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOSPC])
def test_a_copy_that_could_not_be_installed_is_made_once_more(
    operation: str, nth: int, code: int
) -> None:
    pair = Pair(create("a", b"1"), create("b", b"2"))
    pair.go_on(encode_operations([Operation(Kind.WRITE, "b", b"3")]), create("c", b"4"))
    pair.disk.fail(operation, nth, OSError(code, "it fails"))
    with contextlib.suppress(OSError, DiskFullError):
        pair.copy()
    pair.disk.heal()
    pair.copy()
    assert pair.is_same()
    pair.disk.crash()
    assert pair.is_same(), "what is noted as durable is"


def test_what_could_not_be_synced_is_sent_again() -> None:
    """A sync that is asked again finds nothing to do, and says that all is well."""
    pair = Pair()
    pair.go_on(create("a", b"1"), create("b", b"2"))
    pair.disk.fail("sync", 1)
    with pytest.raises(OSError, match="Input/output"):
        pair.copy()
    assert pair.there.held() == Held()
    assert (Kind.WRITE, "a") in pair.copy()
    pair.disk.crash()
    assert pair.is_same()


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("operation", ["sync_dir", "rename"])
def test_files_of_an_earlier_entry_than_is_noted_are_not_held(operation: str, nth: int) -> None:
    """A source that is behind has sent them, and the power failed before that was noted."""
    write = encode_operations([Operation(Kind.WRITE, "a", b"two")])
    pair = Pair(create("a", b"one"))
    pair.there.apply(2, write)
    pair.there.keep()
    pair.disk.fail(operation, nth)
    with contextlib.suppress(OSError):
        pair.copy()
    pair.disk.heal()
    pair.disk.crash()
    pair.there = StoreDirectory(pair.disk, ROOT, 2)
    pair.go_on(write)
    pair.copy()
    assert files_of(pair.disk) == {"a": b"two"}


def test_damage_that_is_found_while_a_copy_comes_is_not_kept_in_it() -> None:
    pair = Pair(create("a", b"1"))
    pair.go_on(create("b", b"2"))
    snapshot = pair.here.snapshot(pair.there.held())
    pair.there.begin_install(snapshot.index)
    for piece in snapshot.pieces():
        pair.there.take(piece)
    pair.there.distrust()
    with pytest.raises(NotHeldError, match="damaged"):
        pair.there.install()
    assert not [path for kind, path in pair.copy() if kind is Kind.HELD]
    assert not pair.there.is_doubtful
    assert pair.is_same()


def test_a_snapshot_that_fails_leaves_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(create("a", b"1"), create("b", b"2"))
    disk = pair.disk
    link, count = disk.link, [0]

    def fail(old: str, new: str) -> None:
        count[0] += 1
        if count[0] == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        link(old, new)

    monkeypatch.setattr(disk, "link", fail)
    with pytest.raises(OSError, match="Too many"):
        pair.there.snapshot()
    assert disk.list(f"{ROOT}/checkpoint") == []


RENAME = encode_operations([Operation(Kind.RENAME, "t", other="a")])


def ahead_by_a_rename() -> Pair:
    """The source has crashed amid entry 3, whose new name is on its disk. The other one has noted
    the entry before, and its log ends there."""
    pair = Pair(create("a", b"old"), create("t", b"new"))
    source = SimulatedDisk(Random(3))
    pair.here = StoreDirectory(source, ROOT, 0)
    for body in pair.entries:
        pair.here.apply(pair.here.applied + 1, body)
        pair.here.keep()  # twice: both copies of what is noted are there
    source.fail("sync_dir", 1)
    with pytest.raises(OSError, match="Input/output error"):
        pair.go_on(RENAME)
    source.heal()
    pair.here = StoreDirectory(source, ROOT, 3)
    assert files_of(source) == {"a": b"new"}
    assert (pair.here.applied, pair.here.may_be_ahead) == (2, True)
    return pair


def test_of_files_that_may_be_ahead_all_are_sent() -> None:
    """The one that is held has what its name stood for before the rename."""
    pair = ahead_by_a_rename()
    assert pair.there.held().index == 2
    assert pair.copy() == [(Kind.AHEAD, ""), (Kind.CREATE, "a"), (Kind.WRITE, "a")]
    pair.there.apply(3, RENAME)
    assert files_of(pair.disk) == {"a": b"new"}
    assert not pair.there.may_be_ahead


def test_that_files_may_be_ahead_is_known_after_a_crash_too() -> None:
    """The log of who got them ends behind no entry that they are ahead by."""
    pair = ahead_by_a_rename()
    pair.copy()
    pair.disk.crash()
    again = StoreDirectory(pair.disk, ROOT, 2)
    assert again.may_be_ahead
    again.apply(3, RENAME)
    again.apply(4, encode_operations([Operation(Kind.REMOVE, "a")]))
    with pytest.raises(CorruptionError, match="renames t, not there"):
        again.apply(5, RENAME)


def test_who_got_files_that_may_be_ahead_says_so_to_the_next_one() -> None:
    pair = ahead_by_a_rename()
    pair.copy()
    disk = SimulatedDisk(Random(4))
    pair.here, pair.there = pair.there, StoreDirectory(disk, ROOT, 0)
    assert pair.copy()[0] == (Kind.AHEAD, "")
    pair.there.apply(3, RENAME)
    assert files_of(disk) == {"a": b"new"}


def test_a_copy_of_files_that_may_be_ahead_is_not_gone_on_with() -> None:
    """What has come of it would be held."""
    pair = ahead_by_a_rename()
    pair.copy(pieces_max=2)
    pair.here.apply(3, RENAME)
    assert pair.there.held() == Held(2)
    pair.copy()
    assert files_of(pair.disk) == {"a": b"new"}


class Lagging:
    """Three servers of which one at a time needs a copy, of another one that may be behind it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.history = History(random, 120)
        self.disks = [SimulatedDisk(random) for _ in range(3)]
        self.servers = [StoreDirectory(disk, ROOT, 0) for disk in self.disks]
        self.last = [0, 0, 0]  # entries that may have been applied
        self.lacking: int | None = None
        self.committed = 0

    def run(self) -> None:
        entries = self.history.entries
        while self.committed < len(entries) or any(
            number == self.lacking or server.applied < len(entries)
            for number, server in enumerate(self.servers)
        ):
            self.committed = min(len(entries), self.committed + self.random.randint(0, 6))
            for number in range(3):
                self.apply(number, self.random.choice((0, 1, 3, 10)))
                if self.random.random() < 0.05:
                    self.crash(number)
            if self.lacking is None and self.random.random() < 0.5:
                self.lacking = self.random.randrange(3)
            if self.lacking is not None:
                self.copy(self.lacking)
        wanted = {path: data.rstrip(b"\0") for path, data in self.history.states[-1].items()}
        for disk in self.disks:
            assert files_of(disk) == wanted

    def apply(self, number: int, count: int) -> None:
        server = self.servers[number]
        if number == self.lacking:
            return
        for body in self.history.entries[server.applied : self.committed][:count]:
            self.last[number] = max(self.last[number], server.applied + 1)
            server.apply(server.applied + 1, body)
        if self.random.random() < 0.3:
            server.keep()

    def crash(self, number: int) -> None:
        self.disks[number].heal()
        self.disks[number].crash()
        self.servers[number] = StoreDirectory(self.disks[number], ROOT, self.last[number])

    def copy(self, number: int) -> None:
        random, server, disk = self.random, self.servers[number], self.disks[number]
        source = random.choice([one for one in range(3) if one != number])
        held = server.held()
        snapshot = self.servers[source].snapshot(held)
        if random.random() < 0.5:
            operation = random.choice(("open", "pwrite", "sync", "sync_dir", "rename", "mkdir"))
            code = random.choice((errno.EMFILE, errno.ENOSPC, errno.EIO))
            disk.fail(operation, random.randint(1, 12), OSError(code, "it fails"))
        try:
            server.begin_install(snapshot.index)
            for piece in snapshot.pieces(random.choice((200, 1000, PIECE_BYTES))):
                if random.random() < 0.04:
                    break
                server.take(piece)
                self.apply(source, random.choice((0, 0, 1, 2)))
            else:
                server.install()
                self.lacking = None
                self.last[number] = snapshot.index
        except DiskFullError:
            server.give_up_install()
        except NotHeldError:
            pass  # the source does not know yet that it is removed: all is asked for
        except OSError:
            if random.random() < 0.5:
                self.crash(number)
        disk.heal()
        snapshot.close()


@pytest.mark.parametrize("seed", range(150))
def test_copies_of_servers_that_lag_end_with_the_same_files(seed: int) -> None:
    """Also where the disk fails or is full at any step, and whatever server is asked next."""
    Lagging(seed).run()


@pytest.mark.parametrize("seed", range(200))
def test_copies_that_break_end_with_the_same_files(seed: int) -> None:
    """Of a server that falls behind again and again, and crashes; entries go on meanwhile."""
    random = Random(seed)
    history = History(random, 200)
    disks = [SimulatedDisk(random), SimulatedDisk(random)]
    here, there = [StoreDirectory(disk, ROOT, 0) for disk in disks]

    def apply(directory: StoreDirectory, count: int) -> None:
        for body in history.entries[directory.applied : directory.applied + count]:
            directory.apply(directory.applied + 1, body)

    last = 0  # that the one behind may have applied
    while here.applied < len(history.entries) or there.applied < here.applied:
        apply(here, random.randint(1, 20))
        if random.random() < 0.2:  # the source starts anew
            here.keep()
            disks[0].crash()
            here = StoreDirectory(disks[0], ROOT, here.applied)
        snapshot = here.snapshot(there.held())
        there.begin_install(snapshot.index)
        is_whole = True
        for piece in snapshot.pieces(random.choice((SMALL, PIECE_BYTES))):
            if random.random() < 0.05:
                is_whole = False
                break
            there.take(piece)
            apply(here, random.choice((0, 0, 1)))
        snapshot.close()
        if not is_whole:
            continue
        there.install()
        apply(there, random.randint(0, here.applied - there.applied))
        last = max(last, there.applied)
        if random.random() < 0.5:
            there.keep()
        if random.random() < 0.3:
            disks[1].crash()
            there = StoreDirectory(disks[1], ROOT, last)
        if there.applied == here.applied:
            assert files_of(disks[1]) == files_of(disks[0])
    wanted = {path: data.rstrip(b"\0") for path, data in history.states[-1].items()}
    assert files_of(disks[0]) == files_of(disks[1]) == wanted


def test_of_many_changes_the_earlier_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_copy, "CHANGES_MAX", 10)
    changes = Changes(0)
    for index in range(1, 12):
        changes.note(index, f"f{index}")
    assert changes.last("f11") == 11
    assert changes.last("f1") == changes.last("never changed") == 6


def test_what_another_server_says_it_holds_is_taken_for_nothing_if_it_cannot_be_read() -> None:
    for data in (b"", b"\xc1", b"\x93\x01\xa1a\xc4\x00", b"\x90" * 30):
        assert decode_held(data) == Held()
    assert decode_held(encode_held(Held(7, 9, b"a/b"))) == Held(7, 9, b"a/b")


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.REMOVE_TREE, Kind.RENAME, Kind.TRUNCATE])
def test_a_copy_says_nothing_but_what_files_hold(kind: Kind) -> None:
    pair = Pair(create("a", b"1"))
    pair.there.begin_install(1)
    with pytest.raises(CorruptionError, match=f"does not say {kind.name}"):
        pair.there.take(encode_operations([Operation(kind, "a", other="b")]))


def test_an_entry_does_not_say_that_a_file_is_held() -> None:
    pair = Pair(create("a", b"1"))
    with pytest.raises(CorruptionError, match="does not say HELD"):
        pair.here.apply(2, encode_operations([Operation(Kind.HELD, "a")]))
    assert pair.is_same()
