"""A store directory: accounts, their streams, their consumers (see docs/storage.md).

    <root>/jetstream/<account>/<stream>/created-<time>      which stream of that name it is
                                        meta.0, meta.1      the configuration, twice
                                        msgs/*.seg          the log
                                        end.0, end.1        where it ends
                                        letters.0, letters.1  which dead letters count
                                        consumers/<name>/meta.0, meta.1, state.0, state.1
                                        ephemeral/<name>/...

    <root>/commit-log/0.log, 1.log                          what changed last of the small ones
                                                            (or elsewhere, see `log_place`)

Small content that changes (a configuration, a position) goes into the commit log first, and from
there to its files. It is kept in two files, each with a generation and a checksum, so that one may
be damaged. There are two ways:

* A configuration (`ConfigurationFile`) is replaced by renaming, without a sync of its own: the
  commit log repeats it until both copies are durable. So a copy that is not whole after that has
  been damaged, and the other one may be older. In a group it is replaced in place (`CopiedDisk`):
  the group's log repeats what a crash has cut short.
* A position (`TwinFile`) is overwritten in place, which is cheap and works on a full disk, in two
  files in turn. A power failure may tear the one that is being written.

A new stream or consumer begins with its configuration in the commit log, which a start repeats: its
directory, which a stream has before that (see `stream_place`), needs no sync before a message is
stored in it. Until the configuration is in its files, the name of an empty directory says which
stream that is. What a crash leaves of a stream that was not durable is a directory without a
configuration and without messages. A directory that is removed is renamed before that. So both are
recognised, and go with the next start.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, unquote

import msgspec

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.ahead import SPARE, SpareFile, first_room
from slipstream.log.block_cache import BlockCache
from slipstream.log.commit_entry import KEEP, REMOVE, Record
from slipstream.log.commit_log import FILE_BYTES, CommitLog, Removal
from slipstream.log.disk import Disk, File, replace_file, report_damage, write_file
from slipstream.log.durability import Touched
from slipstream.log.file_log import SEGMENT_BYTES, FileLog
from slipstream.log.log_place import place_log
from slipstream.log.recovery import JointSync, is_unused, open_log
from slipstream.log.scrub import Recheck
from slipstream.log.segment_bytes import Reference
from slipstream.log.written_again import Repeated, UnwrittenSegment
from slipstream.wire.checksum import crc32

_MAGIC = b"SLIPMETA"
_FIRST_MAGIC = b"SLIPCONF"  # of a configuration whose first copy is always the newest
_CLOSED = 1 << 63  # in the generation: written by an orderly stop, in both copies alike
_TRASH = ".removed-"  # before the names of directories on their way out
_ASIDE = ".aside-"  # before the time when a stream was created that is about to be removed
_FRESH = ".new-"  # before the names of directories that are not complete yet
_CREATED = "created-"  # before the time when a stream was created (ns since the epoch)
_NAME_BYTES_MAX = 200  # of a name after such a prefix; a file name has at most 255 bytes
_KINDS = ("consumers", "ephemeral")  # directories of a stream with its consumers
_STREAM_PARTS = 2  # slashes in the path of a stream's directory, below the store's
WAITED_ALONE = 0.02  # seconds that one thread that opens logs waits for the disk before others do
_HEAD_SIZE = 24  # magic, generation (u64), CRC-32 of generation and content, length (u32)


class TwinFile:
    """Small content in two files in turn: the one that is known to be durable is never touched."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.stream_created = 0  # when its stream was created
        self.to_come: bytes | None = None  # what the commit log has for it, when it was opened
        self.written = 0  # the number of the change that was written last; see `commit_log`
        self._generation = 0  # of the newest content
        self._slot = 1  # where that is
        self._synced = True  # whether it is durable; if not, the other slot is
        self._unsure = False  # it was read, and may be in the system's memory alone
        self._named: set[int] = set()  # slots whose names are durable
        self._stands: dict[int, int] = {}  # slots that should be whole, and what they should have
        self.retired = False  # what it was for is deleted
        self.damaged = ""  # what `load` found wrong with a copy that no crash can have torn
        self.torn = ""  # what it found wrong where a crash may have done that

    def retire(self) -> None:
        """Write no more: a save that is still on its way comes too late."""
        self.retired = True

    @property
    def is_new(self) -> bool:
        """Whether nothing was written yet, nor read."""
        return self._generation == 0

    def is_begun(self) -> bool:
        """Whether there was any content, however damaged; a full disk may leave an empty file."""
        try:
            paths = [_slot(self.path, slot) for slot in (0, 1)]
            return any(self._disk.exists(path) and self._disk.read(path) for path in paths)
        except OSError:  # a bad sector
            return True

    def expect(self, content: bytes) -> None:
        """The commit log has this for it still: newer than what was read, whatever that is like."""
        self.to_come = content
        self.damaged = self.torn = ""

    def is_there(self) -> bool:
        """Whether there is any content, here or still in the commit log."""
        return self.to_come is not None or self.is_begun()

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none.

        `damaged` or `torn` says what is wrong with the other copy, "" for nothing.
        """
        if self.to_come is not None:
            return self.to_come
        copies = [_read_copy(self._disk, self.path, slot) for slot in (0, 1)]
        best = _newest(copies)
        if best is None:
            raise CorruptionError(f"{self.path} is missing or damaged in both of its copies")
        other = copies[1 - best.slot]
        if other.fault and best.generation & _CLOSED:
            self.damaged = f"the copy {other.name} is {other.fault}"
        elif other.fault and best.generation > 1:  # the first content ever has one copy
            self.torn = f"the copy {other.name} is {other.fault}"
        self._generation, self._slot = best.generation & ~_CLOSED, best.slot
        self._stands = {copy.slot: copy.generation for copy in copies if not copy.fault}
        self._unsure = True
        return best.content

    def recheck(self) -> Recheck:
        """Read the copies again from the device, to compare them with what was written. Blocks, on
        the thread that writes them; raises OSError."""
        return _recheck(self._disk, self.path, self._stands)

    def apply(self, content: bytes, touched: Touched) -> None:
        """Replace the content. Blocks; raises OSError, `StorageError`."""
        directory = os.path.dirname(self.path)
        if not self._disk.exists(directory):
            raise StorageError(f"there is no directory {directory} yet")
        self._unsure = False  # the commit log has what comes next, until that is durable
        self.save(content, sync=False)
        touched.files[_slot(self.path, self._slot)] = None
        if self._slot not in self._named:
            touched.directories[directory] = None

    def applied(self) -> bool:
        """What was saved last is durable."""
        self.to_come = None
        self._synced = True
        self._named.add(self._slot)
        return True

    def forgotten(self, _error: Exception) -> None:
        """What was applied last could not be synced."""
        self.written = 0
        self._stands.pop(self._slot, None)

    def save(self, content: bytes, sync: bool) -> None:
        """Replace the content. With `sync` it survives a power failure from then on; blocks.

        Raises OSError, `StorageError`; what was durable still is then.
        """
        if self.retired:
            return
        if self._unsure:
            # Where a sync has failed, another one alone would not make it durable. Only the first
            # sector changes, if any: the mark of an orderly stop goes.
            packed = _pack(self._generation, self._read(self._slot))
            self._write(self._slot, packed, sync=True)
            self._synced = True
            self._unsure = False
        slot = 1 - self._slot if self._synced else self._slot
        self._write(slot, _pack(self._generation + 1, content), sync)
        self._generation += 1
        self._slot = slot
        self._synced = sync

    def mark_closed(self, content: bytes, touched: Touched) -> None:
        """Have the other copy say the same, and that an orderly stop has left it; `content` was
        saved last and is durable. Raises OSError, `StorageError`."""
        self._write(1 - self._slot, _pack(self._generation | _CLOSED, content), sync=False)
        touched.files[_slot(self.path, 1 - self._slot)] = None
        touched.directories[os.path.dirname(self.path)] = None

    def mark_both(self, content: bytes) -> None:
        """Have the first copy say so too: its first sector changes. The other one is durable."""
        self._write(self._slot, _pack(self._generation | _CLOSED, content), sync=False)
        self._unsure = True

    def _read(self, slot: int) -> bytes:
        found = _unpack(self._disk.read(_slot(self.path, slot)))
        if found is None:
            raise CorruptionError(f"{_slot(self.path, slot)} was damaged after it was written")
        return found[1]

    def _write(self, slot: int, packed: bytes, sync: bool) -> None:
        """Replace what a slot holds; with `sync` durably, under its name."""
        self._stands.pop(slot, None)  # a write that fails may leave a part of it
        write_file(self._disk, _slot(self.path, slot), packed, sync)
        if sync and slot not in self._named:
            self._disk.sync_dir(os.path.dirname(self.path))
            self._named.add(slot)
        self._stands[slot] = _generation_of(packed)


class ConfigurationFile:
    """A configuration in two copies with the same content.

    The first copy is replaced before the second one, and the commit log repeats that until both are
    durable (`replace_file`). So the first copy is the newest one, and no crash leaves a part of a
    copy. If the first one is damaged or missing, the second one may be older: `doubt` says so until
    the next change.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.stream_created = 0  # when its stream was created
        self.to_come: bytes | None = None  # what the commit log has for it, when it was opened
        self.written = 0  # the number of the change that was written last; see `commit_log`
        self.content = b""  # as it was read or written last
        self._generation = 0
        self.retired = False  # what it was for is deleted
        self.doubt = ""  # why what was read may be older than what was saved last
        self.damaged = ""  # what is wrong with the second copy, the first one being whole
        # Whether the copies differ, or are of an earlier version, in which either may be newer.
        self.is_stale = False
        self._stands: dict[int, int] = {}  # slots that should be whole, and what they should have

    def retire(self) -> None:
        """Write no more."""
        self.retired = True

    def expect(self, content: bytes) -> None:
        """The commit log has this for it still: newer than what was read, whatever that is like."""
        self.to_come = content
        self.doubt = self.damaged = ""
        self.is_stale = False

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none."""
        if self.to_come is not None:
            return self.to_come
        copies = [_read_copy(self._disk, self.path, slot) for slot in (0, 1)]
        best = _newest(copies)
        if best is None:
            raise CorruptionError(f"{self.path} is missing or damaged in both of its copies")
        first, second = copies
        if first.fault:
            self.doubt = f"the copy {first.name} is {first.fault}"
        elif (
            not first.in_order
            and second.fault
            and (second.fault == "damaged" or best.generation > 1)
        ):
            self.doubt = f"the copy {second.name} is {second.fault}"
        elif second.fault == "damaged":
            self.damaged = f"the copy {second.name} is damaged"
        self._generation = best.generation
        self.content = best.content
        self._stands = {copy.slot: copy.generation for copy in copies if not copy.fault}
        same = second.content == best.content and first.in_order
        self.is_stale = not self.doubt and not same  # else the copies are evidence of damage
        return best.content

    def recheck(self) -> Recheck:
        """Read the copies again from the device, to compare them with what was written. Blocks, on
        the thread that writes them; raises OSError."""
        return _recheck(self._disk, self.path, self._stands)

    def create(self, content: bytes, path: str) -> None:
        """Write both copies at `path`, durably, from where they are to be renamed with their
        directory. Blocks; raises OSError, `StorageError`."""
        packed = _pack(1, content, _FIRST_MAGIC)
        for slot in (0, 1):
            write_file(self._disk, _slot(path, slot), packed)
        self._generation, self.content = 1, content

    def apply(self, content: bytes, touched: Touched) -> None:
        """Replace the content in both copies; make the directory if there is none. Blocks.

        Raises OSError, `StorageError`.
        """
        directory = os.path.dirname(self.path)
        above = os.path.dirname(directory)
        touched.directories[above] = None  # also if it is there: an earlier sync may have failed
        touched.directories[directory] = None
        packed = _pack(self._generation + 1, content, _FIRST_MAGIC)
        for slot in (0, 1):
            name = _slot(self.path, slot)
            self._stands.pop(slot, None)
            replace_file(self._disk, name, packed)
            touched.files[name] = None
            self._stands[slot] = self._generation + 1
        self._generation += 1
        self.content = content

    def applied(self) -> bool:
        """What was applied last is durable."""
        self.to_come = None
        self.doubt = self.damaged = ""
        self.is_stale = False
        return True

    def forgotten(self, _error: Exception) -> None:
        """What was applied last could not be synced."""
        self.written = 0
        self._stands = {}


def _slot(path: str, slot: int) -> str:
    return f"{path}.{slot}"


@dataclass
class _Copy:
    """One of two copies, as it was read."""

    slot: int
    name: str  # of the file, without its directory
    fault: str = ""  # "missing" or "damaged"
    generation: int = 0
    content: bytes = b""
    in_order: bool = False  # the first copy is written before the second one
    size: int = 0  # of the file


def _read_copy(disk: Disk, path: str, slot: int, from_device: bool = False) -> _Copy:
    name = _slot(path, slot)
    copy = _Copy(slot, os.path.basename(name))
    try:
        data = disk.read_stored(name) if from_device else disk.read(name)
    except (FileNotFoundError, NotADirectoryError):
        copy.fault = "missing"
        return copy
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        data = b""  # a bad sector
    copy.size = len(data)
    found = _unpack(data)
    if found is None:
        copy.fault = "damaged"
    else:
        copy.generation, copy.content = found
        copy.in_order = data.startswith(_FIRST_MAGIC)
    return copy


def _recheck(disk: Disk, path: str, stands: dict[int, int]) -> Recheck:
    """Compare copies with the generations that they should have, by slot."""
    found = Recheck()
    for slot, generation in list(stands.items()):
        copy = _read_copy(disk, path, slot, from_device=True)
        found.sizes.append(copy.size)
        if copy.fault:
            fault = f"it is {copy.fault}"
        elif copy.generation != generation:
            fault = "it does not have what was written last"
        else:
            fault = ""
        found.faults[_slot(path, slot)] = fault
    return found


def _newest(copies: list[_Copy]) -> _Copy | None:
    whole = [copy for copy in copies if not copy.fault]
    return max(whole, key=lambda copy: (copy.generation & ~_CLOSED, -copy.slot), default=None)


def _pack(generation: int, content: bytes, magic: bytes = _MAGIC) -> bytes:
    number = generation.to_bytes(8, "little")
    crc = crc32(content, crc32(number))
    return magic + number + crc.to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def _generation_of(packed: bytes) -> int:
    """The generation, with its mark, of what `_pack` has made."""
    return int.from_bytes(packed[8:16], "little")


def _unpack(data: bytes) -> tuple[int, bytes] | None:
    if data[:8] not in (_MAGIC, _FIRST_MAGIC):
        return None
    size = int.from_bytes(data[20:24], "little")
    content = data[_HEAD_SIZE : _HEAD_SIZE + size]  # a failed sync may have left more after it
    if len(content) != size:
        return None
    if crc32(content, crc32(data[8:16])) != int.from_bytes(data[16:20], "little"):
        return None
    return _generation_of(data), content


def _check_free(disk: Disk, path: str) -> None:
    """Raises `StorageError` if there is something in a directory that is to be made."""
    if disk.list(path):
        raise _occupied(path)


def _occupied(path: str) -> StorageError:
    return StorageError(
        f"{path} holds files that could not be read when the server started, and they are kept;"
        " move that directory away (docs/storage.md), or take another name"
    )


class LeavingDirectory:
    """A directory on its way out: a crash cannot leave half of it under its name. The commit log
    repeats what it says of that. That of a stream, which was created then (ns since the epoch), can
    be set aside before: where the log does not say that it goes, a start brings it back."""

    def __init__(self, disk: Disk, path: str, created: int = 0) -> None:
        above, name = os.path.split(path)
        self.path = path
        self._disk = disk
        self._created = created
        self._trash = f"{above}/{_TRASH}{created or name[:_NAME_BYTES_MAX]}"
        self._aside = f"{above}/{_ASIDE}{created}"
        self._is_aside = False
        self._is_out = False  # another one may have its name

    def set_aside(self) -> None:
        """Have its name be free. Raises OSError."""
        if not self._is_out and self._disk.exists(self.path):
            self._disk.rename(self.path, self._aside)
        self._is_aside = True

    def move_out(self) -> None:
        """Have its name be free, for good. Blocks; raises OSError."""
        there = self._aside if self._is_aside else self.path
        if not self._is_out and self._disk.exists(there):
            if not self._created:
                self._disk.remove_tree(self._trash)  # of an earlier one of this name
            self._disk.rename(there, self._trash)
        self._is_out = True

    def remove(self) -> None:
        """Remove it, which was moved out. Blocks; raises OSError."""
        if self._created and self._disk.exists(self._trash):
            # What is left of it under its name might not say whose it is.
            self._disk.sync_dir(os.path.dirname(self.path))
        self._disk.remove_tree(self._trash)


def _discard(disk: Disk, path: str, sync: bool = True) -> None:
    """Remove a directory in a way that a crash cannot leave half of it; durably with `sync`.
    Blocks. Raises OSError: then it is as it was."""
    above, name = os.path.split(path)
    trash = f"{above}/{_TRASH}{name[:_NAME_BYTES_MAX]}"
    disk.remove_tree(trash)
    if disk.exists(path):
        disk.rename(path, trash)
        try:
            if sync:
                disk.sync_dir(above)
        except OSError:
            disk.rename(trash, path)
            raise
        disk.remove_tree(trash)


def _entries(disk: Disk, path: str) -> Iterator[str]:
    """The names in `path`; what a crash left of removed and of incomplete directories goes."""
    entries = disk.list(path)
    leaving = [entry for entry in entries if entry.startswith((_TRASH, _FRESH))]
    if leaving:
        disk.sync_dir(path)  # or a power failure might bring them back under their names, in part
    for entry in leaving:
        disk.remove_tree(f"{path}/{entry}")
    yield from (entry for entry in entries if not entry.startswith("."))


class Late:
    """What the disk refused when the store was opened, or was not given then: it is in the commit
    log still."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._configurations: dict[str, ConfigurationFile] = {}  # that have something to come
        self._by_place: dict[str, list[ConfigurationFile]] = {}  # by where their owners lie
        self._positions: dict[str, TwinFile] = {}
        self.unwritten: dict[str, Exception] = {}  # logs of streams that lack bytes, and why
        # What the commit log knows to be durable in the logs of streams that were not opened yet.
        self.references: dict[str, list[Reference]] = {}
        # What this start has synced in the last segment of each, by the log's directory.
        self.repeated: dict[str, Repeated] = {}
        self._removals: dict[str, Removal] = {}  # of directories that are to go
        self.occupied: set[str] = set()  # directories of ephemeral consumers that could not go

    def configuration(self, path: str) -> ConfigurationFile:
        """The file at `path`, with what is to come to it."""
        found = self._configurations.get(path)
        return ConfigurationFile(self._disk, path) if found is None or found.retired else found

    def position(self, path: str) -> TwinFile:
        """The position of a consumer at `path`, with what is to come to it."""
        found = self._positions.get(path)
        return TwinFile(self._disk, path) if found is None or found.retired else found

    def expect(self, kept: TwinFile | ConfigurationFile, content: bytes) -> None:
        """A file is to have this content."""
        kept.expect(content)
        if isinstance(kept, TwinFile):
            self._positions[kept.path] = kept
        else:
            self._configurations[kept.path] = kept
            place = os.path.dirname(os.path.dirname(kept.path))
            self._by_place.setdefault(place, []).append(kept)

    def remove(self, removal: Removal) -> None:
        """A directory is to go."""
        self._removals[removal.path] = removal

    def is_removed(self, path: str) -> bool:
        """Whether a directory is to go, or one that it lies in, and has not yet."""
        if not self._removals:
            return False
        for going, removal in self._removals.items():
            if not removal.is_free and (path == going or path.startswith(going + "/")):
                return True
        return False

    def names_in(self, directory: str) -> Iterator[str]:
        """Directories that are to come in `directory`."""
        for configuration in self._by_place.get(directory, ()):
            if not configuration.retired and configuration.to_come:
                yield os.path.basename(os.path.dirname(configuration.path))


class ConsumerStore:
    """One consumer's files. They are made when its configuration is applied."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        late: Late,
        stream_created: int = 0,
        is_ephemeral: bool = False,
    ) -> None:
        self._disk = disk
        self._late = late
        self.path = path
        self.is_ephemeral = is_ephemeral
        self.meta = late.configuration(f"{path}/meta")
        self.state = late.position(f"{path}/state")
        self.meta.stream_created = self.state.stream_created = stream_created

    def check_free(self) -> None:
        """Raises `StorageError` if the start of the server has left files that a new consumer of
        this name would take for its own. No call of the disk."""
        if self.path in self._late.occupied or self._late.is_removed(self.path):
            raise _occupied(self.path)

    def drop(self) -> None:
        """Remove what an ephemeral consumer has left; what the disk does not let go has its name
        until the next start. Blocks."""
        self.retire()  # nor does anything come of it
        try:
            self.discard()
        except OSError:
            if self._disk.exists(self.path):
                self._late.occupied.add(self.path)

    def retire(self) -> None:
        """Write no more: a change that is still on its way comes too late."""
        self.meta.retire()
        self.state.retire()

    def leaving(self) -> LeavingDirectory:
        """Its directory, to be removed."""
        return LeavingDirectory(self._disk, self.path)

    def discard(self, sync: bool = True) -> None:
        """Remove everything; durably with `sync`. Blocks. Raises OSError: then it is as it was."""
        _discard(self._disk, self.path, sync)


class Closing:
    """The positions of consumers as the last ones of an orderly stop: a copy that the next start
    finds damaged or missing was not torn then. All share two syncs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._durable: list[tuple[TwinFile, bytes]] = []
        self._touched = Touched()

    def add(self, store: ConsumerStore, state: bytes) -> None:
        """Save a position. Blocks; raises OSError, `StorageError`: then it is as it was."""
        store.state.apply(state, self._touched)
        if not store.is_ephemeral:
            self._durable.append((store.state, state))

    def run(self) -> None:
        """Make all durable, in both copies. Blocks; raises OSError, `StorageError`."""
        self._sync()
        for file, state in self._durable:
            file.applied()
            file.mark_closed(state, self._touched)
        self._sync()
        for file, state in self._durable:
            file.mark_both(state)

    def _sync(self) -> None:
        touched, self._touched = self._touched, Touched()
        touched.sync(self._disk)


class StreamStore:
    """One stream's directory."""

    def __init__(
        self, disk: Disk, path: str, cache: BlockCache, segment_bytes: int, late: Late
    ) -> None:
        self._disk = disk
        self._late = late
        self._cache = cache
        self._segment_bytes = segment_bytes
        self.path = path
        self.meta = late.configuration(f"{path}/meta")
        self.letters = late.position(f"{path}/letters")  # which dead letters count
        self._found: frozenset[str] | None = None  # names in it at a start, until it is served

    def belongs_to(self, created: int) -> None:
        """Note that the directory is of the stream that was created then (ns since the epoch)."""
        self.meta.stream_created = self.letters.stream_created = created

    def make(self) -> None:
        """Make the directory of a new stream, whose configuration is on its way to the commit log;
        neither is durable. Raises OSError, `StorageError`.

        One of this name that could not be read is replaced if it has no messages and no consumers.
        """
        self._check_late()
        self._make_free()
        self._disk.makedirs(os.path.dirname(self.path))
        self._disk.mkdir(self.path)
        self._disk.mkdir(f"{self.path}/{_CREATED}{self.meta.stream_created}")
        self._disk.mkdir(f"{self.path}/msgs")

    def create(self, meta: bytes) -> None:
        """Make the stream, durable at once, with `meta` in its files: without the commit log.

        Blocks; raises OSError, `StorageError`.
        """
        self.make()
        touched = Touched()
        self.meta.apply(meta, touched)
        touched.sync(self._disk)

    def _make_free(self) -> None:
        """Remove what is left of a stream of this name that holds nothing. Raises OSError;
        `StorageError` if there is more."""
        if not self.is_begun() or not self._holds_anything():
            _discard(self._disk, self.path, sync=False)
        _check_free(self._disk, self.path)

    def _holds_anything(self) -> bool:
        """Whether there may be messages or consumers."""
        if any(not name.endswith(SPARE) for name in self._disk.list(f"{self.path}/msgs")):
            return True
        if self._awaits_consumers():
            return True
        return any(self._disk.list(f"{self.path}/{kind}") for kind in _KINDS)

    def _awaits_consumers(self) -> bool:
        """Whether files of consumers are still to come."""
        return any(True for kind in _KINDS for _ in self._late.names_in(f"{self.path}/{kind}"))

    def leaving(self) -> LeavingDirectory:
        """Its directory, to be removed."""
        return LeavingDirectory(self._disk, self.path, self.meta.stream_created)

    def stage(self, id: str, created: int) -> "StreamStore":
        """A directory for a stream that is to come to this place by `adopt`, and that a crash
        removes until then. Blocks; raises OSError, `StorageError`."""
        above = os.path.dirname(self.path)
        path = f"{above}/{_FRESH}{id}"
        self._disk.makedirs(above)
        self._disk.mkdir(path)
        self._disk.mkdir(f"{path}/msgs")
        late = Late(self._disk)
        staged = StreamStore(self._disk, path, BlockCache(), self._segment_bytes, late)
        staged.belongs_to(created)
        return staged

    def spool(self) -> File:
        """A file of a staged directory that is of no use once that is adopted."""
        return self._disk.open(f"{self.path}/spool")

    def put_consumer(
        self, name: str, is_ephemeral: bool, meta: bytes, state: bytes, touched: Touched
    ) -> None:
        """Write a consumer's files; `touched` is to be synced. Blocks; raises OSError,
        `StorageError`."""
        store = self.consumer(name, is_ephemeral)
        store.meta.apply(meta, touched)
        store.state.apply(state, touched)

    def sync(self, touched: Touched) -> None:
        """Make durable what was written to it. Blocks; raises OSError."""
        touched.sync(self._disk)

    def adopt(self, staged: "StreamStore", meta: bytes) -> None:
        """Have the directory of `staged`, whose log is closed, at this place with `meta`; durable.
        Blocks; raises OSError, `StorageError`: then it is where it was."""
        self._make_free()
        staged.meta.create(meta, f"{staged.path}/meta")
        self._disk.remove(f"{staged.path}/spool")
        for part in (f"{staged.path}/msgs", staged.path):
            self._disk.sync_dir(part)
        self._disk.rename(staged.path, self.path)
        try:
            self._disk.sync_dir(os.path.dirname(self.path))
        except OSError:
            self._disk.rename(self.path, staged.path)
            raise

    def is_found(self) -> bool:
        """As `is_begun`, at a start: until its consumers are there, nothing new comes into it."""
        self._found = frozenset(self._disk.list(self.path))
        return self._is_begun_with(self._found)

    def is_begun(self) -> bool:
        """Whether there is more than a directory that is to go, or that a crash cut short when it
        was made or removed."""
        return self._is_begun_with(self._disk.list(self.path))

    def _is_begun_with(self, names: Collection[str]) -> bool:
        if self._late.is_removed(self.path):
            return False
        if any(name != "msgs" and not name.startswith(_CREATED) for name in names):
            return True
        if self._awaits_consumers():
            return True
        path = f"{self.path}/msgs"
        files = [name for name in self._disk.list(path) if not name.endswith(SPARE)]
        return any(not is_unused(self._disk, f"{path}/{name}") for name in files)

    def open_log(
        self,
        first_seq: int = 1,
        cache: BlockCache | None = None,
        joint: JointSync | None = None,
    ) -> FileLog:
        """Open the stream's log; see `recovery`. Blocks; raises OSError, `StorageError`. On another
        thread than the server's it needs a `cache` of its own, and `share_cache` afterwards. With
        `joint` it may be used, and `opened` says so, once that has run."""
        self._check_late()
        path = f"{self.path}/msgs"
        end = TwinFile(self._disk, f"{self.path}/end")
        used = cache or self._cache
        is_young = self._disk.exists(f"{self.path}/{_CREATED}{self.meta.stream_created}")
        references = self._late.references.get(path, [])
        log = open_log(
            self._disk, path, used, first_seq, self._segment_bytes, end, not is_young, references,
            joint, self._late.repeated.get(path),
        )  # fmt: skip
        if joint is None:
            self.opened()
        log.stream_created = self.meta.stream_created
        log.looks_ahead = True
        log.look_ahead()
        return log

    def opened(self) -> None:
        """The log is open: what the commit log has referred to in it is settled."""
        self._late.references.pop(f"{self.path}/msgs", None)
        self._late.repeated.pop(f"{self.path}/msgs", None)

    def _check_late(self) -> None:
        """Raises `StorageError` if the commit log still has something for the directory that the
        disk has refused."""
        if self._late.is_removed(self.path):
            raise StorageError(
                f"{self.path} holds files of a deleted stream that could not be removed; look "
                "after the disk and restart the server"
            )
        path = f"{self.path}/msgs"
        if path in self._late.unwritten:
            raise StorageError(
                f"what the commit log has for {path} could not be written: "
                f"{self._late.unwritten[path]}; look after the disk and restart the server"
            )

    def begin_log(self, first_seq: int = 1) -> FileLog:
        """The log of a stream that was just made: its first batch makes the directories durable. No
        call of the disk."""
        path = f"{self.path}/msgs"
        self.opened()  # so was an earlier one of its name
        end = TwinFile(self._disk, f"{self.path}/end")
        log = FileLog(self._disk, path, self._cache, first_seq, self._segment_bytes, end)
        log.unsynced_above = [self.path, os.path.dirname(self.path)]
        log.stream_created = self.meta.stream_created
        log.looks_ahead = True
        return log

    def first_file(self) -> SpareFile:
        """A file for the log's first segment, to be made."""
        return SpareFile(self._disk, f"{self.path}/msgs", first_room(self._segment_bytes))

    def share_cache(self, log: FileLog) -> None:
        """Have `log` use the server's cache."""
        log.reader.use(self._cache)

    def consumer(self, name: str, is_ephemeral: bool = False) -> ConsumerStore:
        """The files of the consumer with this name, there or not."""
        kind = "ephemeral" if is_ephemeral else "consumers"
        path = f"{self.path}/{kind}/{_escape(name)}"
        return ConsumerStore(self._disk, path, self._late, self.meta.stream_created, is_ephemeral)

    def consumers(self) -> Iterator[tuple[str, ConsumerStore]]:
        """Name and files of every consumer that has left any, ephemeral ones last."""
        found, self._found = self._found, None
        for is_ephemeral in (False, True):
            kind = "ephemeral" if is_ephemeral else "consumers"
            path = f"{self.path}/{kind}"
            entries = _entries(self._disk, path) if found is None or kind in found else ()
            there = [entry for entry in entries if self._is_begun(path, entry)]
            for entry in dict.fromkeys([*there, *self._late.names_in(path)]):
                yield unquote(entry), self.consumer(unquote(entry), is_ephemeral)

    def _is_begun(self, path: str, entry: str) -> bool:
        """Whether there is more than a directory that is to go, or that a crash cut short."""
        directory = f"{path}/{entry}"
        return not self._late.is_removed(directory) and bool(self._disk.list(directory))

    def discard(self, sync: bool = True) -> None:
        """Remove everything; durably with `sync`. Blocks. Raises OSError: then it is as it was."""
        _discard(self._disk, self.path, sync)

    def discard_own(self) -> None:
        """Remove everything, unless another stream has the name by now. Blocks. Raises OSError:
        then it is as it was."""
        if self._disk.exists(f"{self.path}/{_CREATED}{self.meta.stream_created}"):
            _discard(self._disk, self.path, sync=False)

    def discard_unused(self) -> None:
        """Remove what a stop or a crash has left of a stream that was not durable, unless the
        commit log still has something for it. Blocks. Never raises: whoever takes the name replaces
        it."""
        if self._late.is_removed(self.path) or f"{self.path}/msgs" in self._late.unwritten:
            return
        with suppress(OSError):
            if self._disk.list(self.path):  # else it is no directory, or an empty one of others
                _discard(self._disk, self.path, sync=False)


class Store:
    """The store directory of a server; `cache_bytes_max` bounds the memory that reading takes,
    `log_bytes` each of the commit log's two files. That is in `log_dir`, or in the store directory.
    So many `threads` open logs.

    What the commit log holds is applied first. Of small files, of which thousands take seconds,
    these are `applied_first`, unless that is None; the first checkpoint sees to the others. Blocks;
    raises OSError, `StorageError`.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        cache_bytes_max: int = 16 * 1024 * 1024,
        segment_bytes: int = SEGMENT_BYTES,
        log_bytes: int = FILE_BYTES,
        log_dir: str = "",
        threads: int = 1,
        applied_first: int | None = None,
    ) -> None:
        self.disk = disk
        self._threads = threads
        self.root = f"{root}/jetstream"
        self._cache = BlockCache(cache_bytes_max)
        self._segment_bytes = segment_bytes
        disk.makedirs(self.root)
        place = place_log(disk, root, log_dir)
        self.commit_log = CommitLog(disk, root, log_bytes, place)
        replayed = self.commit_log.open()
        self.lost = replayed.lost  # numbers of entries of the log that damage has taken
        if self.lost:
            report_damage(disk, f"{len(self.lost)} entries of the commit log are damaged")
        self._late = Late(disk)
        self._left_to_apply = len(replayed.changes)
        if applied_first is not None and self.commit_log.may_repeat(replayed.changes):
            self._left_to_apply = applied_first
        touched = Touched()
        known: dict[str, int] = {}
        self._bring_back(replayed.changes, touched)
        for record in sorted(replayed.changes, key=self._order):
            path = f"{root}/{record.path}"
            if self._is_creation(path, record, known) or self._is_of_that_stream(
                path, record, known
            ):
                self._apply(path, record, touched)
                if record.kind == REMOVE and not self._late.is_removed(path):
                    known.pop(path, None)
        writes: dict[str, list[Record]] = {}
        for records in replayed.writes:
            path = f"{root}/{records[-1].path}"
            if self._is_of_that_stream(path, records[-1], known):
                writes.setdefault(path, []).extend(records)
        self._write_all(writes)
        for record in replayed.references:
            path = f"{root}/{record.path}"
            if self._is_of_that_stream(path, record, known):
                one = Reference.decode(path, record.stream_created, record.content)
                self._late.references.setdefault(os.path.dirname(path), []).append(one)
        touched.sync(disk)
        self.commit_log.begin()

    def _order(self, record: Record) -> tuple[bool, bool, int, bool]:
        """Streams go and come before their consumers, directories go before others of their names
        come, and configurations come before positions."""
        parts = record.path.count("/")
        is_consumer = parts > _STREAM_PARTS + (record.kind != REMOVE)
        return is_consumer, record.kind != REMOVE, parts, record.path.endswith("/state")

    def _bring_back(self, records: list[Record], touched: Touched) -> None:
        """Streams that were set aside to be removed have their names again, unless `records` of the
        commit log say that they go. Raises OSError."""
        for account in self.disk.list(self.root):
            above = f"{self.root}/{account}"
            for entry in self.disk.list(above):
                number = entry.removeprefix(_ASIDE)
                if number == entry or not number.isdecimal():
                    continue
                touched.directories[above] = None
                created = int(number)
                path = self._place_of(f"{above}/{entry}", created, records)
                if path and not self._stream_at(path).is_begun():
                    _discard(self.disk, path, sync=False)
                    self.disk.rename(f"{above}/{entry}", path)
                else:
                    try:
                        self.disk.rename(f"{above}/{entry}", f"{above}/{_TRASH}{created}")
                    except OSError:
                        self._remove_later(f"{above}/{entry}", created)

    def _place_of(self, aside: str, created: int, records: list[Record]) -> str:
        """Where the directory `aside` of a stream belongs; "" if it is to go. Raises OSError: what
        cannot be read now is not removed."""
        above = os.path.dirname(aside)
        for record in records:
            path = f"{os.path.dirname(self.root)}/{record.path}"
            directory = self._stream_of(path)
            if record.stream_created == created and os.path.dirname(directory) == above:
                if path == directory:
                    return ""  # its removal
                if path == f"{directory}/meta":
                    return directory
        try:
            meta = msgspec.json.decode(ConfigurationFile(self.disk, f"{aside}/meta").load())
            return f"{above}/{_escape(meta['config']['name'])}"
        except (StorageError, msgspec.MsgspecError, KeyError, TypeError):
            return ""  # it was not durable

    def _stream_at(self, path: str) -> StreamStore:
        return StreamStore(self.disk, path, self._cache, self._segment_bytes, self._late)

    def _apply(self, path: str, record: Record, touched: Touched) -> None:
        """Apply what the commit log held of an earlier process. What the disk does not take now, or
        is not given, stays in the log, and counts when it is loaded."""
        if record.kind == REMOVE:
            created = record.stream_created if path == self._stream_of(path) else 0
            removal = Removal(LeavingDirectory(self.disk, path, created), record.stream_created)
            try:
                removal.apply(b"", touched)
            except (OSError, StorageError):
                self._late.remove(removal)
                self.commit_log.retain(removal, record)
            return
        late = self._late
        is_position = path.endswith(("/state", "/letters"))
        kept = late.position(path) if is_position else late.configuration(path)
        directory = os.path.dirname(path)
        if path.endswith("/state") and not self._is_to_be(directory):
            return
        try:
            kept.load()
        except CorruptionError:
            pass  # what takes its place is newer than any
        try:
            if late.is_removed(directory):
                raise StorageError(f"{directory} has to be removed first")
            if directory == self._stream_of(path):
                self._make_durable(directory, record.stream_created, touched)
            self._left_to_apply -= 1
            if self._left_to_apply < 0:
                raise StorageError(f"{path} is left to a checkpoint")
            kept.apply(record.content, touched)
        except (OSError, StorageError):
            late.expect(kept, record.content)
            kept.stream_created = record.stream_created
            self.commit_log.retain(kept, record)

    def _is_to_be(self, directory: str) -> bool:
        """Whether a consumer has a directory, or is to have one: configurations come first. An
        ephemeral one whose configuration was damaged has been dropped by an earlier start."""
        expected = self._late.configuration(f"{directory}/meta").to_come
        return expected is not None or self.disk.exists(directory)

    def _make_durable(self, directory: str, created: int, touched: Touched) -> None:
        """Have the directory of a stream, which its log takes for durable from then on. Raises
        OSError, `StorageError`."""
        if not self.disk.exists(directory):
            stream = self._stream_at(directory)
            stream.belongs_to(created)
            stream.make()
        touched.directories[os.path.dirname(directory)] = None
        touched.directories[directory] = None

    def _remove_later(self, path: str, created: int) -> None:
        """The disk does not let go of the directory of a stream that was created then: a checkpoint
        tries again, and until then the commit log keeps what it has."""
        removal = Removal(LeavingDirectory(self.disk, path, created), created)
        self._late.remove(removal)
        below = path[len(os.path.dirname(self.root)) + 1 :]
        self.commit_log.retain(removal, Record(REMOVE, created, below, b""))

    def _write_all(self, writes: dict[str, list[Record]]) -> None:
        """Write to segments what they may lack, durably: with one sync, unless that fails."""
        touched = Touched()
        self.disk.read_ahead(list(writes))
        written = {path: self._write(path, writes[path], touched) for path in writes}
        try:
            touched.sync(self.disk)
        except OSError:  # of one stream, perhaps: the others are served
            for path, missing in written.items():
                if missing is not None:
                    written[path] = self._write(path, writes[path], None)
        if self.lost:
            return  # of what came before, it does not have all
        for path, missing in sorted(written.items()):
            if missing is not None and missing.repeated is not None:
                self._late.repeated[os.path.dirname(path)] = missing.repeated

    def _write(
        self, path: str, records: list[Record], touched: Touched | None
    ) -> UnwrittenSegment | None:
        """Write to a segment what it may lack; `touched` is to be synced, None: it is durable on
        return. What the disk does not take now stays in the log, and its stream is not opened:
        None."""
        last = records[-1]
        contents = [record.content for record in records]
        missing = UnwrittenSegment(self.disk, path, last.stream_created, contents)
        if self._late.is_removed(self._stream_of(path)):
            return None
        try:
            if touched is None:
                alone = Touched()
                missing.apply(b"", alone)
                alone.sync(self.disk)
            else:
                missing.apply(b"", touched)
        except (OSError, StorageError) as error:
            self._late.unwritten[os.path.dirname(path)] = error
            self.commit_log.retain(missing, last)
            return None
        return missing

    def _is_creation(self, path: str, record: Record, known: dict[str, int]) -> bool:
        """Whether a record is the configuration of a stream that is not there, or that is younger
        than the one of its name which is: that one was deleted before it came, and goes now.

        `known` is as below.
        """
        directory = self._stream_of(path)
        if record.kind != KEEP or path != f"{directory}/meta":
            return False
        created = self._created_at(directory) if self.disk.exists(directory) else 0
        if created > record.stream_created:
            return False
        if created != record.stream_created and not self._late.is_removed(directory):
            if created or not self._stream_at(directory).is_begun():
                try:
                    _discard(self.disk, directory, sync=False)
                except OSError:
                    self._remove_later(directory, created)
        known[directory] = record.stream_created
        return True

    def _is_of_that_stream(self, path: str, record: Record, known: dict[str, int]) -> bool:
        """Whether the stream is there that a record is about, and not another one that has taken
        its name. What cannot be read may be mended by the record, and is not removed.

        `known` says when the streams were created that were looked at, by directory.
        """
        directory = self._stream_of(path)
        if directory not in known:
            created = record.stream_created
            if created and self.disk.exists(f"{directory}/{_CREATED}{created}"):
                known[directory] = created  # as nearly always, and quicker than a look at all names
            elif self.disk.exists(directory):
                known[directory] = self._created_at(directory)
            else:
                return False
        if not known[directory]:
            return record.kind != REMOVE
        return known[directory] == record.stream_created

    def _created_at(self, directory: str) -> int:
        """When the stream was created that a directory is of; 0 if that cannot be read."""
        for name in self.disk.list(directory):
            number = name.removeprefix(_CREATED)
            if number != name and number.isdecimal() and int(number):
                return int(number)
        try:
            meta = msgspec.json.decode(ConfigurationFile(self.disk, f"{directory}/meta").load())
            return int(meta["created"])
        except (StorageError, OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
            return 0

    def _stream_of(self, path: str) -> str:
        """The directory of the stream that a path lies in."""
        account, stream = path[len(self.root) + 1 :].split("/")[:2]
        return f"{self.root}/{account}/{stream}"

    def stream(self, account: str, name: str) -> StreamStore:
        """The directory of a stream, there or not."""
        path = f"{self.root}/{_escape(account)}/{_escape(name)}"
        return self._stream_at(path)

    def open_logs(self, streams: list[tuple[StreamStore, int]]) -> list[FileLog | Exception]:
        """Open the logs of streams, each with its first sequence. What they write again after a
        crash becomes durable with one sync, unless that fails. In the place of one that cannot be
        opened stands why. See `StreamStore.open_log`; blocks."""

        def opened(
            stream: StreamStore, first_seq: int, joint: JointSync | None
        ) -> FileLog | Exception:
            try:
                return stream.open_log(first_seq, BlockCache(), joint)
            except Exception as error:  # whatever it is, the other streams are served
                return error

        joint = JointSync()
        logs = self._open_each(streams, lambda one: opened(*one, joint))
        failed = joint.run(self.disk)
        for n, ((stream, first_seq), log) in enumerate(zip(streams, logs, strict=True)):
            if isinstance(log, FileLog) and log.directory in failed:  # others may have failed it
                log.delete()
                logs[n] = log = opened(stream, first_seq, None)
            if isinstance(log, FileLog):
                stream.opened()
                stream.share_cache(log)
        return logs

    def _open_each(
        self,
        streams: list[tuple[StreamStore, int]],
        opened: Callable[[tuple[StreamStore, int]], FileLog | Exception],
    ) -> list[FileLog | Exception]:
        """Call `opened` for each, one after the other while the system has in memory what they
        read: threads would take turns. Where the disk has to be waited for, they do so together."""
        logs: list[FileLog | Exception] = []
        begin, busy_before = _times_of_thread()
        for n, one in enumerate(streams):
            now, busy = _times_of_thread()
            computed = busy - busy_before
            waited = now - begin - computed
            if self._threads > 1 and waited > max(WAITED_ALONE, computed):
                rest = streams[n:]
                with ThreadPoolExecutor(min(self._threads, len(rest))) as threads:
                    return [*logs, *threads.map(opened, rest)]
            logs.append(opened(one))
        return logs

    def streams(self, account: str) -> Iterator[tuple[str, StreamStore]]:
        """Name and directory of every stream of an account that has left any."""
        path = f"{self.root}/{_escape(account)}"
        for entry in dict.fromkeys([*_entries(self.disk, path), *self._late.names_in(path)]):
            store = self.stream(account, unquote(entry))
            if store.is_found() or store.meta.to_come is not None:
                yield unquote(entry), store
            else:
                store.discard_unused()


def _times_of_thread() -> tuple[float, float]:
    """Seconds that have passed, and how many of them this thread was computing."""
    return time.perf_counter(), time.thread_time()


def _escape(name: str) -> str:
    """A name as a file name: anything but letters, digits and a few signs is percent-encoded."""
    escaped = quote(name, safe="$-_@=+ ", errors="surrogateescape") or "%00"
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped
