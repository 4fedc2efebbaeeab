"""The files of a store on their way from one server to another.

A server that was away has most of what it needs: segments that were full when it left are the same
everywhere, since all servers apply the same entries. So it says up to which entry its files are
those of the group, and is sent what later entries have changed, and the names of all else.

    source                                     server that is behind
    Changes    the last entry of each file     Held       with what it asks
    Snapshot   the files as they are           Arriving   until all are there

Pieces are operations as entries have them: who has led and all directories, then the files in the
order of their paths. `HELD` is a file that the other one holds already; all others are created and
written to. The order lets a copy that has broken go on: who asks again says which files it had
whole, and of which entry they are.

**Files that are ahead.** A server that has started anew may have files with some of what later
entries say, since a process before it had applied these and not noted it. They are sent all the
same, because those entries may have to wait for the very server that asks: where the others are
gone, no majority has them before it does. `AHEAD` says up to which entry that may be so, and who
gets the files applies these as after a crash of its own. Such a copy has all files: one that is
held may lack the new name that a file in the copy has had from then on.
"""

import errno
import os
from collections.abc import Iterator
from typing import Protocol

import msgspec

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.disk import Disk
from slipstream.log.durability import Touched
from slipstream.log.os_file import full_or
from slipstream.server.replica.operations import (
    Kind,
    Operation,
    decode_operations,
    encode_operations,
)

PIECE_BYTES = 512 * 1024  # of a file, at a time, and of a piece as a rule
CHANGES_MAX = 100_000  # files whose last change is remembered
_ZEROS = bytes(PIECE_BYTES)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_HEAD_BYTES = 64  # of an operation in a piece, beside its path and its data, at most


class CopyingDisk(Disk, Protocol):
    """A disk whose files can have second names, under which they are copied."""

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""

    def link(self, old: str, new: str) -> None:
        """Give a file another name. Raises OSError."""


class NotHeldError(StorageError):
    """A file that this server was to have has to be sent."""


class Held(msgspec.Struct, array_like=True, frozen=True):
    """What a server that asks for a copy has already: files as they were at entry `index`; those
    before `end`, in the order of paths, as they were at the later entry `arrived`."""

    index: int = 0  # 0: no file that can be relied on
    arrived: int = 0
    end: bytes = b""  # a path as bytes, see `path_key`

    def at(self, key: bytes) -> int:
        """The entry that a file was held at."""
        return self.arrived if key < self.end else self.index

    @property
    def latest(self) -> int:
        """The last entry that anything is of."""
        return max(self.index, self.arrived)


def path_key(path: str) -> bytes:
    """Paths in the order of these bytes: the order of files in a copy."""
    return path.encode("utf-8", "surrogateescape")


class Changes:
    """Which entry was the last to change each file; of those up to `since` nothing is known."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._last: dict[str, int] = {}

    def note(self, index: int, path: str) -> None:
        """An entry changes a file; or a directory, and so all that is in it."""
        self._last[path] = index
        if len(self._last) > CHANGES_MAX:  # the earlier half is as if it were not known
            self._since = sorted(self._last.values())[CHANGES_MAX // 2]
            self._last = {one: at for one, at in self._last.items() if at > self._since}

    def forget(self, path: str) -> None:
        """A file is gone; what takes its name is noted anew."""
        self._last.pop(path, None)

    def copy(self) -> "Changes":
        """As it is now."""
        other = Changes(self._since)
        other._last = dict(self._last)
        return other

    def last(self, path: str) -> int:
        """The last entry that may have changed a file, or given it or what it lies in its name."""
        last = max(self._since, self._last.get(path, 0))
        while path := os.path.dirname(path):
            last = max(last, self._last.get(path, 0))
        return last


class Snapshot:
    """The files of a store as they were at an entry: `index`, under names of their own below
    `path`. `held` is what their receiver has."""

    def __init__(
        self,
        disk: CopyingDisk,
        path: str,
        index: int,
        leads: list[Operation],
        changes: Changes,
        held: Held,
        ahead: int = 0,
    ) -> None:
        self.index = index
        self._disk = disk
        self._path = path
        self._leads = leads  # of who has led
        self._changes = changes
        self._ahead = ahead  # index up to which entries may be in the files in part, if it is later
        # What is of a later entry than this snapshot may have files that are not there yet.
        self._held = held if held.latest <= index and ahead <= index else Held()

    def pieces(self, bytes_max: int = PIECE_BYTES) -> Iterator[bytes]:
        """All of it, for `Arriving.take`, in pieces with little more than so many bytes. Blocks."""
        piece: list[Operation] = []
        size = 0
        for operation in self._operations(bytes_max):
            more = len(operation.data) + len(operation.path) + len(operation.other) + _HEAD_BYTES
            if piece and size + more > bytes_max:
                yield encode_operations(piece)
                piece, size = [], 0
            piece.append(operation)
            size += more
        yield encode_operations(piece)

    def _operations(self, bytes_max: int) -> Iterator[Operation]:
        yield from self._leads
        if self._ahead > self.index:
            yield Operation(Kind.AHEAD, "", offset=self._ahead)
        found: list[str] = []
        for below, directories, files in _walk(self._disk, self._path):
            inside = f"{below}/" if below else ""
            for name in directories:
                yield Operation(Kind.MAKE_DIRECTORY, inside + name)
            found += [inside + name for name in files]
        for name in sorted(found, key=path_key):
            if self._is_held(name):
                yield Operation(Kind.HELD, name)
            else:
                yield Operation(Kind.CREATE, name)
                yield from self._content_of(name, bytes_max)

    def _is_held(self, name: str) -> bool:
        at = self._held.at(path_key(name))
        return at > 0 and self._changes.last(name) <= at

    def _content_of(self, name: str, bytes_max: int) -> Iterator[Operation]:
        """What a file holds. Of zeros, which were reserved as a rule, the last one is sent alone:
        they may be of a message, too, whose end would be missing."""
        file = self._disk.open(f"{self._path}/{name}")
        try:
            offset = 0
            ends_in_zeros = False
            while data := file.pread(offset, bytes_max):
                ends_in_zeros = data == _ZEROS[: len(data)]  # which the first other byte decides
                if not ends_in_zeros:
                    yield Operation(Kind.WRITE, name, data, offset)
                offset += len(data)
            if ends_in_zeros:
                yield Operation(Kind.WRITE, name, b"\0", offset - 1)
        finally:
            file.close()

    def close(self) -> None:
        """It is needed no more. Blocks."""
        self._disk.remove_tree(self._path)


class Arriving:
    """Files that come from another server, as they were at entry `index`, in a directory of their
    own, which is made anew. `root` has those that are held, or `earlier` those that came before."""

    def __init__(
        self, disk: CopyingDisk, path: str, index: int, held: Held, root: str, earlier: str
    ) -> None:
        self.index = index
        self.ahead = 0  # index up to which entries may be in the files in part, if it is later
        self.end = b""  # files before this one are whole, in the order of paths
        self.has_held = held.index > 0  # some may be those of `root`
        self.leads: list[Operation] = []
        self._disk = disk
        self._path = path
        self._held = held
        self._root = root
        self._earlier = earlier
        self._touched = Touched()
        disk.makedirs(path)
        self._touched.directories[path] = None

    def take(self, piece: bytes) -> None:
        """A piece of a `Snapshot` has come. Raises `DiskFullError`, OSError, `StorageError`."""
        for operation in decode_operations(piece):
            path = f"{self._path}/{operation.path}"
            if operation.kind is Kind.LEADS:
                self.leads.append(operation)
            elif operation.kind is Kind.AHEAD:
                self.ahead = operation.offset
            elif operation.kind is Kind.MAKE_DIRECTORY:
                self._disk.mkdir(path)
                self._touched.directories[path] = None
            else:
                self.end = path_key(operation.path)
                try:
                    self._take_file(operation, path)
                except OSError as error:
                    raise full_or(error, "installing the files of another server") from error
                self._touched.files[path] = None

    def _take_file(self, operation: Operation, path: str) -> None:
        if operation.kind is Kind.HELD:
            self._link(operation.path, path)
            return
        if operation.kind not in (Kind.CREATE, Kind.WRITE):
            raise CorruptionError(f"a copy of a store does not say {operation.kind.name}")
        file = self._disk.open(path)
        try:
            if operation.kind is Kind.WRITE:
                file.pwrite(operation.offset, operation.data)
        finally:
            file.close()

    def _link(self, name: str, path: str) -> None:
        below = self._earlier if self.end < self._held.end else self._root
        try:
            self._disk.link(f"{below}/{name}", path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NotHeldError(f"{name} is not here, or cannot have two names: {error}") from error

    def sync(self) -> None:
        """Make all of it durable. Blocks; raises OSError."""
        self._touched.sync(self._disk)


def _walk(disk: CopyingDisk, root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each directory of a tree, by its path below `root`, with the names of the directories and of
    the files in it; those above others come first."""
    left = [""]
    while left:
        below = left.pop()
        inside = f"{below}/" if below else ""
        names = disk.list(f"{root}/{below}" if below else root)
        directories = [one for one in names if disk.is_directory(f"{root}/{inside}{one}")]
        known = set(directories)
        yield below, directories, [one for one in names if one not in known]
        left += [inside + one for one in reversed(directories)]


def link_tree(disk: CopyingDisk, source: str, target: str) -> None:
    """The same files under other names. Raises OSError, and `StorageError` where the file system
    has no links."""
    disk.makedirs(target)
    for below, directories, files in _walk(disk, source):
        inside = f"{below}/" if below else ""
        for name in directories:
            disk.mkdir(f"{target}/{inside}{name}")
        try:
            for name in files:
                disk.link(f"{source}/{inside}{name}", f"{target}/{inside}{name}")
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StorageError(
                f"the file system of {source} has no hard links, which a copy for a server of "
                f"the group needs: {error}"
            ) from error


def decode_held(data: bytes) -> Held:
    """What another server holds; nothing where it does not say so, or cannot be understood."""
    if not data:
        return Held()
    try:
        return msgspec.msgpack.decode(data, type=Held)
    except msgspec.MsgspecError:
        return Held()


def encode_held(held: Held) -> bytes:
    """For another server."""
    return msgspec.msgpack.encode(held) if held.latest else b""
