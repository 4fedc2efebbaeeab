"""A disk as the trace of a server describes it, and what a power cut may leave of it.

A file has the bytes that are durable and the changes since its last sync, a directory the names
that are durable and the changes since. A sync makes durable what was changed before it began, once
it has ended. A sync of a file says nothing of its name.

What a cut leaves is chosen at random, in one of several ways (`Loss`). Data is lost, kept or torn
at sectors of 512 bytes, in any order; a change of a file's length may or may not have happened. A
change of names happens as a whole. The changes of names in one directory happen in order, up to
some point of it, or (`Loss.JOURNAL`) those of all directories do, as with a journal.
"""

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random

from tests.power_cuts.trace import Flag, Kind, Record, TraceError

SECTOR = 512


class Loss(Enum):
    """What becomes of what was not synced."""

    ALL = "all is lost"
    NONE = "all is kept"
    SECTORS = "any sector is lost"
    WRITES = "any write is lost as a whole"
    ORDER = "each file and directory has a beginning of its changes, the last of them torn"
    JOURNAL = "names change in one order, sectors are lost"


@dataclass(slots=True)
class Change:
    """Of a file: bytes at `offset`, or, where `data` is None, its length."""

    number: int
    offset: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class File:
    """A file's bytes; `now` is what the server reads."""

    durable: bytearray = field(default_factory=bytearray)
    now: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        """The server changes it."""
        self.pending.append(change)
        _apply(self.now, change)

    def sync(self, before: int) -> None:
        """What has a lower number is durable."""
        kept = 0
        for change in self.pending:
            if change.number >= before:
                break
            _apply(self.durable, change)
            kept += 1
        del self.pending[:kept]

    def after_cut(self, random: Random, loss: Loss) -> bytearray:
        """The bytes that are left."""
        if loss is Loss.NONE:
            return bytearray(self.now)
        left = bytearray(self.durable)
        if loss is Loss.ALL or not self.pending:
            return left
        if loss is Loss.ORDER:
            whole = random.randint(0, len(self.pending))
            for change in self.pending[:whole]:
                _apply(left, change)
            if whole < len(self.pending):
                _tear(left, self.pending[whole], random, 0.5)
            return left
        sizes_kept = random.randint(0, len(self.pending))
        share = random.choice((0.1, 0.5, 0.9, 1.0))
        for n, change in enumerate(self.pending):
            if change.data is None:
                if n < sizes_kept:
                    _apply(left, change)
            elif n >= sizes_kept and change.offset >= len(left):
                continue  # behind the end of the file
            elif loss is Loss.WRITES:
                if random.random() < share:
                    _apply(left, change)
            else:
                _tear(left, change, random, share)
        return left


def _apply(data: bytearray, change: Change) -> None:
    if change.data is None:
        _resize(data, change.offset)
        return
    end = change.offset + len(change.data)
    if end > len(data):
        _resize(data, end)
    data[change.offset : end] = change.data


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _tear(data: bytearray, change: Change, random: Random, share: float) -> None:
    """Apply each sector of a change or none of it, by chance."""
    if change.data is None:
        if random.random() < share:
            _apply(data, change)
        return
    at, end = change.offset, change.offset + len(change.data)
    while at < end:
        stop = min(end, at // SECTOR * SECTOR + SECTOR)
        if random.random() < share:
            piece = change.data[at - change.offset : stop - change.offset]
            _apply(data, Change(change.number, at, piece))
        at = stop


@dataclass(slots=True)
class Names:
    """A change of names, in one directory or two: what each name means from now on."""

    number: int
    entries: list[tuple["Directory", str, "File | Directory | None"]]
    is_durable: bool = False


@dataclass(slots=True, eq=False)
class Directory:
    """Names; `now` is what the server sees."""

    durable: dict[str, "File | Directory"] = field(default_factory=dict)
    now: dict[str, "File | Directory"] = field(default_factory=dict)
    pending: list[Names] = field(default_factory=list)


class DiskModel:
    """The directory at `root`, empty at first, or as `load` has read it."""

    def __init__(self, root: Path) -> None:
        self._prefix = str(root.resolve())
        self.root = Directory()
        self._open: dict[tuple[int, int], File | Directory] = {}
        self._syncs: dict[tuple[int, int], tuple[int, File | Directory | None]] = {}
        self._number = 0
        self.syncs = 0  # how many have succeeded

    # -- what the server does ----------------------------------------------------------------------

    def play(self, record: Record) -> None:
        """The next record. Raises `TraceError`."""
        self._number += 1
        kind = record.kind
        key = (record.process, record.fd)
        if kind in (Kind.WRITE, Kind.ZEROS):
            data = record.data if kind is Kind.WRITE else bytes(record.size)
            self._file(key).change(Change(self._number, record.offset, data))
        elif kind is Kind.SYNC_BEGIN:
            whole = Flag.WHOLE_FILE_SYSTEM in record.flags
            target = None if whole else self._opened(key)
            self._syncs[record.process, record.number] = self._number, target
        elif kind is Kind.SYNC_END:
            begin, synced = self._syncs.pop((record.process, record.number))
            if Flag.FAILED in record.flags:
                raise TraceError("a sync has failed, which the model does not know")
            self.syncs += 1
            self._sync(synced, begin)
        elif kind is Kind.RESIZE:
            self._file(key).change(Change(self._number, record.offset, None))
        elif kind is Kind.ALLOCATE:
            file, end = self._file(key), record.offset + record.size
            if end > len(file.now):
                file.change(Change(self._number, end, None))
        elif kind is Kind.DUPLICATE:
            self._open[record.process, record.offset] = self._opened(key)
        elif kind is Kind.OPEN:
            self._opening(record, key)
        else:
            self._rename(record)

    def _opening(self, record: Record, key: tuple[int, int]) -> None:
        if Flag.CREATED in record.flags:
            above, name = self._place(record.path)
            self._change((above, name, File()))
        found = self._find(record.path)
        if found is None:
            raise TraceError(f"{record.path} was there, and nobody had made it")
        self._open[key] = found

    def _rename(self, record: Record) -> None:
        above, name = self._place(record.path)
        if record.kind is Kind.MKDIR:
            self._change((above, name, Directory()))
        elif record.kind in (Kind.UNLINK, Kind.RMDIR):
            self._change((above, name, None))
        else:
            node = above.now[name]
            target, new_name = self._place(record.other)
            entries = [(target, new_name, node)]
            if record.kind is Kind.RENAME:
                entries.insert(0, (above, name, None))  # type: ignore[arg-type]
            self._change(*entries)

    def _change(self, *entries: tuple[Directory, str, "File | Directory | None"]) -> None:
        names = Names(self._number, list(entries))
        for directory, name, node in entries:
            _set(directory.now, name, node)
            if names not in directory.pending:
                directory.pending.append(names)

    def _opened(self, key: tuple[int, int]) -> "File | Directory":
        try:
            return self._open[key]
        except KeyError:
            raise TraceError(f"process {key[0]} used descriptor {key[1]} without opening") from None

    def _file(self, key: tuple[int, int]) -> File:
        found = self._opened(key)
        if not isinstance(found, File):
            raise TraceError(f"descriptor {key[1]} is a directory, and was written to")
        return found

    def _place(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        directory = self._find(above)
        if not isinstance(directory, Directory):
            raise TraceError(f"there is no directory {above}")
        return directory, name

    def _find(self, path: str) -> "File | Directory | None":
        node: File | Directory | None = self.root
        for name in path.removeprefix(self._prefix).split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, Directory):
                return None
            node = node.now.get(name)
        return node

    # -- what is durable ---------------------------------------------------------------------------

    def _sync(self, target: "File | Directory | None", before: int) -> None:
        if isinstance(target, File):
            target.sync(before)
        elif target is not None:
            _sync_names(target, before)
        else:
            for node in _all(self.root):
                if isinstance(node, File):
                    node.sync(before)
                else:
                    _sync_names(node, before)

    # -- the cut -----------------------------------------------------------------------------------

    def write_after_cut(self, to: Path, random: Random, loss: Loss) -> None:
        """Make a directory that is what a power cut now may leave."""
        to.mkdir()
        if loss is Loss.JOURNAL:
            pending = {names.number for node in _all(self.root) for names in _pending(node)}
            last = random.choice([0, *sorted(pending)])
            happened = {number for number in pending if number <= last}
        else:
            happened = set()
        _write(self.root, to, random, loss, happened)

    def write_now(self, to: Path) -> None:
        """Make a directory that is as the server sees it."""
        self.write_after_cut(to, Random(0), Loss.NONE)

    def load(self, directory: Path) -> None:
        """Begin with what is in a directory; all of it is durable."""
        self.root = _loaded(directory)


def _set(names: dict[str, File | Directory], name: str, node: File | Directory | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _sync_names(directory: Directory, before: int) -> None:
    """A change in two directories is durable in both: it is one."""
    for names in [names for names in directory.pending if names.number < before]:
        for at, name, node in names.entries:
            _set(at.durable, name, node)
            if names in at.pending:
                at.pending.remove(names)


def _all(directory: Directory) -> "list[File | Directory]":
    """All that is durable or seen, each once."""
    found: dict[int, File | Directory] = {id(directory): directory}
    stack = [directory]
    while stack:
        at = stack.pop()
        changed = [node for names in at.pending for _, _, node in names.entries]
        for node in [*at.durable.values(), *at.now.values(), *changed]:
            if node is not None and id(node) not in found:
                found[id(node)] = node
                if isinstance(node, Directory):
                    stack.append(node)
    return list(found.values())


def _pending(node: File | Directory) -> list[Names]:
    return node.pending if isinstance(node, Directory) else []


def _left(
    directory: Directory, random: Random, loss: Loss, happened: set[int]
) -> dict[str, File | Directory]:
    if loss is Loss.NONE:
        return directory.now
    names = dict(directory.durable)
    if loss is Loss.ALL:
        return names
    count = random.randint(0, len(directory.pending))
    for n, change in enumerate(directory.pending):
        # A change in two directories is chosen by its number alone, so that both agree.
        in_two = len({id(at) for at, _, _ in change.entries}) > 1
        if loss is Loss.JOURNAL or in_two:
            if change.number not in happened:
                continue
        elif n >= count:
            continue
        for at, name, node in change.entries:
            if at is directory:
                _set(names, name, node)
    return names


def _write(directory: Directory, to: Path, random: Random, loss: Loss, happened: set[int]) -> None:
    for name, node in sorted(_left(directory, random, loss, happened).items()):
        path = to / name
        if isinstance(node, Directory):
            path.mkdir(mode=0o700)
            _write(node, path, random, loss, happened)
        else:
            data = node.after_cut(random, loss)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                _write_sparse(fd, data)
            finally:
                os.close(fd)


def _write_sparse(fd: int, data: bytearray) -> None:
    """Zeros at the end, as reserved space has them, need not be written."""
    end = len(data.rstrip(b"\0"))
    done = 0
    with memoryview(data) as view:
        while done < end:
            done += os.write(fd, view[done:end])
    os.ftruncate(fd, len(data))


def _loaded(path: Path) -> Directory:
    directory = Directory()
    for entry in path.iterdir():
        node: File | Directory
        if entry.is_dir():
            node = _loaded(entry)
        else:
            data = entry.read_bytes()
            node = File(bytearray(data), bytearray(data))
        directory.durable[entry.name] = directory.now[entry.name] = node
    return directory
