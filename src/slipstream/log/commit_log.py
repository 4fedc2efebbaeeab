"""The commit log while the server runs: configurations and positions, in one order, in two files.

    keep, remove ──> changes ──prepare_sync──> entry ──batch.run──> durable ──checkpoint──> files

A change goes into the next entry, which covers all that were made since the last one, of however
many streams and consumers, with one write and one sync. What is durable in the log is applied to
the files that it is about some time later, by a checkpoint; until then the log repeats it at each
start.

Two files take turns. Once one is half full, a checkpoint turns to the other one, applies all that
the first one holds, and leaves it free. So a start has at most two files to read, and the disk
writes into blocks that it has. If both are full, changes wait for the checkpoint under way, so one
that makes room is to be quick, and to write a file for each of a thousand configurations is not:
such content is repeated in the file that is turned to, as far as it is short, and applied later.

Batches that were synced in segments are referred to, and nobody waits for that: references go with
the next entry, or with one of their own. There is always room for some of them.

A write or sync that fails is final, as for messages. A full disk is not: a change is refused while
there is no room for it. What cannot be applied goes into a later entry once more.
"""

import errno
import os
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from slipstream.errors import DiskFullError, StorageError
from slipstream.log.commit_entry import (
    ENTRY_SIZE,
    HEAD_SIZE,
    KEEP,
    REFER,
    REFERS_SINCE,
    REMOVE,
    STANDS,
    VERSION,
    WRITE,
    WRITES_SINCE,
    Head,
    Record,
    encode_entry,
)
from slipstream.log.commit_replay import Replay, replay
from slipstream.log.disk import Disk, File, waits_for_space
from slipstream.log.durability import Done, Touched, call_all, is_final
from slipstream.log.log_place import DIRECTORY
from slipstream.log.scrub import CommitLogScrub
from slipstream.log.segment_bytes import EntryCopies, Reference, SegmentCopy, first_of_round

_FILES = ("0.log", "1.log")
FILE_BYTES = 16 * 1024 * 1024  # after which the other file is turned to
ROOM_MIN = 256 * 1024  # bytes that each file has from the beginning, also on a disk that fills up
LEFT_MAX = 1024 * 1024  # bytes of both that an orderly stop leaves to the next start
PATH_BYTES_MAX = 4096  # of a path with what stands before it
SPARE = HEAD_SIZE + 4 * ENTRY_SIZE  # kept free on a full disk, to say what was applied
REFERENCES_ROOM = 64 * 1024  # bytes of an entry that are kept for references ...
REFERENCES_SHARE = 16  # ... or so small a part of a small file
REFERENCES_MAX = 8  # times that: the most that may wait
REFERENCES_FEW = 4096  # bytes of them that have no entry of their own before their time
COPIES_ROOM = 64 * 1024  # bytes that copies are given room for at once
APPLIED_FIRST = 32  # contents that a checkpoint applies that makes room: the oldest ones
REPEATED_SHARE = 8  # the most that it repeats of the others, as a part of a file
SECTOR = 4096  # bytes that are lost together where a disk cannot be read


class Kept(Protocol):
    """What the log keeps until a checkpoint has written it to its files: small content, or what was
    appended to a segment."""

    path: str
    stream_created: int  # when its stream was created: another one may have had the name before
    retired: bool  # its owner was deleted: it is written no more
    written: int  # the number of the change that its files have

    def apply(self, content: bytes, touched: Touched) -> None:
        """Write it to its files, and note these. Blocks; raises OSError, `StorageError`."""

    def applied(self) -> bool:
        """What was applied last has been synced; False if it is not durable for all that."""

    def forgotten(self, error: Exception) -> None:
        """What was applied last could not be synced: `written` is 0 again. On any thread."""


class Leaving(Protocol):
    """A directory that is to go."""

    path: str

    def set_aside(self) -> None:
        """Have its name be free, if it is not. Raises OSError."""

    def move_out(self) -> None:
        """Have its name be free, for good. Blocks; raises OSError."""

    def remove(self) -> None:
        """Remove it, which was moved out. Blocks; raises OSError."""


class Removal:
    """The removal of a directory, which happens on a thread; its name is free before that if it is
    wanted."""

    def __init__(self, directory: Leaving, stream_created: int) -> None:
        self.path = directory.path
        self.stream_created = stream_created
        self.retired = False
        self.written = 0
        self.is_free = False  # the name
        self._directory = directory

    def free(self) -> None:
        """Have the name be free. Blocks, between checkpoints and on their thread: what is applied
        later sees that its owner was deleted. Raises OSError."""
        if not self.is_free:
            self._directory.set_aside()
            self.is_free = True

    def apply(self, _content: bytes, touched: Touched) -> None:
        """Remove it. Blocks; raises OSError."""
        self._directory.move_out()
        self.is_free = True
        self._directory.remove()
        touched.directories[os.path.dirname(self.path)] = None

    def applied(self) -> bool:
        """A removal is durable once it has happened."""
        return True

    def forgotten(self, _error: Exception) -> None:
        """Have the removal applied and synced once more."""
        self.written = 0


Key = tuple[int, str]  # when the stream was created that a change is about, and the path


class Change:
    """One change on its way."""

    __slots__ = ("kept", "key", "number", "path", "record")

    def __init__(self, number: int, kept: Kept, record: Record) -> None:
        self.number = number  # of two changes of one file the later one has the higher one
        self.path = kept.path
        # Of two changes with one key the later one counts.
        self.key = (record.stream_created, kept.path)
        self.kept = kept
        self.record = record  # what the log says of it

    def apply(self, touched: Touched) -> None:
        """Write it where it belongs, unless something newer is there. Blocks; raises OSError,
        `StorageError`."""
        kept = self.kept
        if not kept.retired and self.number > kept.written:
            kept.apply(self.record.content, touched)
            kept.written = self.number

    @property
    def is_wanted(self) -> bool:
        """Whether its file has not gone meanwhile."""
        return not self.kept.retired

    def synced(self) -> bool:
        """The change has been synced in its file; False if it is to be written once more."""
        if self.kept.applied():
            return True
        self.kept.forgotten(StorageError("the disk has failed meanwhile"))
        return False


class EntryBatch:
    """An entry on its way to the disk; `error` says why it is not durable."""

    def __init__(
        self,
        index: int,
        floor: int,
        changes: list[Change],
        segments: list[SegmentCopy],
        done: list[Done],
        file: File,
    ) -> None:
        self.index = index
        self.floor = floor
        self.changes = changes
        self.segments = segments  # of which it has copies
        self.done = done
        self.error: Exception | None = None
        self.finished = False
        self.salt = 0  # of the file ...
        self.end = 0  # ... and where the entry ends in it
        self._file = file

    def run(self) -> None:
        """Block until the disk has it. Never raises."""
        if self.error is not None:
            return
        try:
            self._file.sync()
        except (OSError, StorageError) as error:
            self.error = error

    def flush(self) -> None:
        """Hand it to the operating system. Blocks. Never raises."""
        try:
            self._file.flush()
        except (OSError, StorageError) as error:
            self.error = error


class CommitLog:
    """See the module's text. `open`, then apply what that returns, then `begin`."""

    def __init__(
        self, disk: Disk, root: str, file_bytes: int = FILE_BYTES, directory: str = ""
    ) -> None:
        self._disk = disk
        self._root = root + "/"  # before the paths that the log has
        self._directory = directory or f"{root}/{DIRECTORY}"  # which may be on another disk
        self._file_bytes = file_bytes
        self._references_room = min(REFERENCES_ROOM, (file_bytes - HEAD_SIZE) // REFERENCES_SHARE)
        self._files: list[File] = []
        self._read: list[bytes] = []  # what was in them
        self._active = 0  # which of them is written to
        self._salt = 0  # of that one
        self._version = VERSION  # ... which says what it may have
        self._size = 0  # ... bytes used
        self._synced = 0  # ... of which so many are known to be durable
        self._other_last = 0  # index of the last entry in the other one
        self._index = 0  # of the last entry
        self._crc = 0  # ... its checksum
        self._durable = 0  # index of the last durable entry
        self._applied = 0  # index of the last entry of those that were applied
        self._floor = 0  # a durable entry says that those before this one were applied
        self._changed = 0  # index of the last entry with changes
        self._batches: list[EntryBatch] = []  # prepared and not finished, in order
        self._number = 0  # of the last change
        self._changes: dict[Key, Change] = {}  # for the next entry
        self._waiting: list[Done] = []  # for that entry
        self._bytes = 0  # of its changes, at the most
        # Durable changes that whatever entry is next repeats, so that what was said before is free.
        self._repeated: list[Change] = []
        self._repeated_bytes = 0
        # Copies of what was appended to segments go with it, or with one of their own if a
        # checkpoint has to make room for the changes.
        self.copies = EntryCopies(self._root, self._make_room_for_copy)
        self._copies_waiting: list[Done] = []
        # To batches that were synced in segments: they go with the next entry of whatever kind.
        self._references: list[Reference] = []
        self._referred = 0  # bytes of these, at the most
        self._refers_now = False  # they do not wait for others
        self._owes_floor = False  # whether it is to say anew what was applied
        self._erases = False  # copies of bytes that were destroyed may be in the files ...
        self._erases_copies = False  # ... or among those that wait ...
        self._empties = False  # ... and the other one is to be emptied once it is free
        self._unapplied: dict[Key, Change] = {}  # durable, and not applied ...
        self._round = 1  # ... by the next checkpoint, which begins another round
        self._removals: dict[str, Removal] = {}  # that may not have happened, by path
        self._checkpoint: Checkpoint | None = None  # under way
        # What has become newer in its own file than what that one has for it: the change's number.
        self._stood: dict[Key, int] = {}
        self.failed = ""  # why nothing can be written any more

    def open(self) -> Replay:
        """Read what is there. Blocks. Raises OSError, `StorageError`, `CorruptionError`."""
        self._disk.makedirs(self._directory)
        paths = [f"{self._directory}/{name}" for name in _FILES]
        self._files = [self._disk.open(path) for path in paths]
        for file in self._files:
            file.hold()
        self._read = [_read(file) for file in self._files]
        outcome = replay(self._read)
        self._index, self._crc = outcome.index, outcome.crc
        self._changed = outcome.index
        self._floor = outcome.floor
        self._active, self._salt = outcome.active, outcome.salt
        self._version = outcome.version
        self._size, self._other_last = outcome.end, outcome.other_last
        self._erases = bool(outcome.writes)  # there was no time for that, perhaps
        return outcome

    def may_repeat(self, records: Iterable[Record]) -> bool:
        """Whether the first entry has room for the contents among what was read, so that they may
        be `retain`ed."""
        return self._fits(sum(record.size for record in records if record.kind == KEEP))

    def begin(self) -> None:
        """All that the log held is applied, unless something was `retain`ed: say so in it, durably;
        on a full disk, once there is space. Blocks; raises OSError, `StorageError`."""
        self._durable = self._index
        file = self._files[self._active]
        if not self._size:
            self._salt = self._new_salt()
            self._version = VERSION
        file.truncate(self._size)  # what may be torn after it goes
        repeats = self._repeat_retained()
        if self.failed:
            raise StorageError(self.failed)
        if self._unapplied and not repeats:
            self._applied = self._floor - 1
            self._write_again()
            self._read = []
            self._reserve_early()
            return
        if self._size:  # as `_write_again` says; of what follows, nothing is needed any more
            file.pwrite(0, self._read[self._active][:HEAD_SIZE])
        self._read = []
        self._applied = self._index
        self._owes_floor = True
        if not self._reserve(file, self._size + SPARE + self._bytes):
            return
        batch = self._take_entry()
        batch.run()
        self.finish_sync(batch)
        if self.failed:
            raise StorageError(self.failed)
        self._disk.sync_dir(self._directory)
        self._reserve_early()
        if self._version < VERSION and self._is_other_free():
            self._turn()

    def _repeat_retained(self) -> bool:
        """Have the first entry repeat what was retained, so that nothing before it is needed; False
        if there is more than contents, or no room for them."""
        changes = list(self._unapplied.values())
        if not changes:
            return True
        if any(one.record.kind != KEEP for one in changes) or not self._repeat(changes):
            return False
        self._unapplied = {}
        return True

    def _write_again(self) -> None:
        """What was read may be in the system's memory alone and, after a sync that failed, taken
        for written: only writing it again makes it durable. Blocks; raises OSError."""
        for number, (file, data) in enumerate(zip(self._files, self._read, strict=True)):
            kept = data[: self._size] if number == self._active else data
            if kept:
                file.pwrite(0, kept)
                file.sync()

    def _reserve_early(self) -> None:
        for file in self._files:
            self._reserve(file, ROOM_MIN)

    def _reserve(self, file: File, size: int) -> bool:
        """Whether a file has, or could be given, room for so many bytes. Raises OSError."""
        try:
            file.reserve(size)
        except DiskFullError:
            return False
        return True

    def _has_space(self, file: File, size: int) -> bool:
        """Whether `file` can hold `size` bytes; a disk that cannot say so has failed."""
        try:
            return self._reserve(file, size)
        except OSError as error:
            self._fail(error)
            return False

    def retain(self, kept: Kept, record: Record) -> None:
        """What the log has of an earlier process was not applied: a checkpoint sees to it."""
        _put(self._unapplied, Change(self.next_number(), kept, record))

    # -- changes ---------------------------------------------------------------------------------

    def keep(self, kept: Kept, content: bytes, done: Done | None = None) -> None:
        """Have `content` kept; `done` is called once that is durable or cannot be.

        Raises `DiskFullError`, `StorageError`: nothing has changed then.
        """
        self._take(KEEP, kept, content, done)

    def when_carried(self, done: Done) -> None:
        """Call `done` as `keep` does, for what was put into `copies`."""
        self._copies_waiting.append(done)

    def _make_room_for_copy(self, size: int) -> bool:
        """Whether there is room for a copy of so many bytes in the next entry; for some that
        follow, if it can be. False also if there is none before a checkpoint has ended."""
        if self.failed or self._version < WRITES_SINCE:  # an earlier build sees a torn end
            return False
        size += self.unwritten()
        more = size + COPIES_ROOM
        file = self._files[self._active]
        if self._fits(more) and self._has_space(file, self._need(more)):
            self.copies.room = more - self._bytes - self._repeated_bytes
            return True
        if not self._fits(size) and not self._is_other_free():
            return False
        try:
            self._make_room(size)
        except StorageError:
            return False
        self.copies.room = size - self._bytes - self._repeated_bytes
        return True

    def refer(self, references: Sequence[Reference]) -> None:
        """Note batches that were synced in segments, in the order in which that has happened."""
        if self.failed or self._version < REFERS_SINCE:  # an earlier build takes it for a torn end
            return
        for one in references:
            if not self._references or not self._references[-1].take_in(one):
                self._add_reference(one)
        if self._referred > max(REFERENCES_MAX * self._references_room, REFERENCES_FEW):
            self._forget_turns()

    def _add_reference(self, one: Reference) -> None:
        self._references.append(one)
        self._referred += self._reference_record(one).size

    def _forget_turns(self) -> None:
        """The disk has not taken an entry for long: of each segment one reference is kept."""
        last = {(one.path, one.salt): one for one in self._references}
        first: dict[tuple[str, int], int] = {}
        for one in self._references:
            first.setdefault((one.path, one.salt), one.start)
        self._references, self._referred = [], 0
        for key, one in last.items():
            one.start = first[key]
            self._add_reference(one)

    def _reference_record(self, one: Reference) -> Record:
        path = one.path.removeprefix(self._root)
        return Record(REFER, one.stream_created, path, one.encode())

    @property
    def has_references(self) -> bool:
        """Whether references wait for an entry."""
        return bool(self._references)

    @property
    def refers_much(self) -> bool:
        """Whether so many references wait that it is time for an entry."""
        return self._referred > max(self._references_room // 2, REFERENCES_FEW)

    def refer_now(self) -> None:
        """Have the references be written, whether or not something else is to be."""
        self._refers_now = True

    def remove(self, removal: Removal) -> None:
        """Have a directory removed, with all that was kept in it. Raises as `keep`."""
        self._take(REMOVE, removal, b"", None)
        self._removals[removal.path] = removal

    def leaving(self, path: str) -> Removal | None:
        """The directory with this path that may be on its way out, so that its name can be had
        before it has gone: by `Removal.free`, on the thread of the checkpoints."""
        return self._removals.get(path)

    def is_removed(self, path: str) -> bool:
        """Whether a directory that may be there is about to be removed."""
        return path in self._removals

    def stands(self, kept: Kept, done: Done | None = None) -> None:
        """What was just written to a file, durably, is newer than what the log says of it. Raises
        as `keep`."""
        self._take(STANDS, kept, b"", done)

    def sync(self, touched: Touched) -> None:
        """Make durable what was written otherwise. Blocks; raises OSError."""
        touched.sync(self._disk)

    def next_number(self) -> int:
        """The number of a change that is written to its files, and not to the log."""
        self._number += 1
        return self._number

    def _take(self, kind: int, kept: Kept, content: bytes, done: Done | None) -> None:
        record = Record(kind, kept.stream_created, kept.path.removeprefix(self._root), content)
        self._make_room(self.unwritten() + record.size)
        change = Change(self.next_number(), kept, record)
        if change.key in self._changes:
            self._bytes -= self._changes[change.key].record.size
        _put(self._changes, change)
        self._bytes += record.size
        self.copies.room = 0  # there may be less
        if done is not None:
            self._waiting.append(done)

    def make_room(self, size: int) -> None:
        """See to room for so many bytes of changes beside those that wait. Raises as `keep`."""
        self._make_room(self.unwritten() + size)
        if not self._fits(self.unwritten() + size):
            raise DiskFullError("the commit log waits for the disk to take what it holds")

    def _make_room(self, size: int) -> None:
        """See to room for an entry with so many bytes of changes. Raises `DiskFullError`,
        `StorageError`."""
        if self.failed:
            raise StorageError(self.failed)
        if HEAD_SIZE + ENTRY_SIZE + size + self._references_room > self._file_bytes:
            raise DiskFullError(
                "the commit log is full and waits for the disk to take what it holds; try again"
            )
        try:
            need = self._need(size)
            if self._fits(size) and self._reserve(self._files[self._active], need):
                return
            if not self._fits(size) or self._is_other_free():
                self._files[1 - self._active].reserve(self._need(size) - self._size)
            else:
                self._files[self._active].reserve(need)  # raises what is wrong
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # nothing was written: it may pass
                raise StorageError(f"the commit log could not be opened: {error}") from error
            raise self._fail(error) from error
        if self._is_other_free():
            self._turn()

    @property
    def share(self) -> int:
        """Bytes of changes that one of those who share an entry may have without crowding it."""
        return (self._file_bytes - HEAD_SIZE) // REPEATED_SHARE

    def bytes_of(self, kept: Kept, size: int) -> int:
        """What content of so many bytes takes in an entry, at the most."""
        return Record(KEEP, kept.stream_created, kept.path, b"").size + size

    def has_room(self, size: int) -> bool:
        """Whether a change with `size` bytes of content fits into the next entry."""
        size += self.unwritten() + self._references_room
        return HEAD_SIZE + ENTRY_SIZE + size + PATH_BYTES_MAX <= self._file_bytes

    def _need(self, size: int) -> int:
        """How large the file has to be for an entry with so many bytes of changes."""
        return self._size + SPARE + self._references_room + size

    def is_on_its_way(self, kept: Kept) -> bool:
        """Whether what was given to `keep` last is in no durable entry yet."""
        key = (kept.stream_created, kept.path)
        if key in self._changes:
            return True
        return any(change.key == key for batch in self._batches for change in batch.changes)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for an entry that is not prepared yet."""
        return bool(self._waiting)

    def when_durable(self, done: Done) -> None:
        """Call `done` once all that was changed so far is durable, or cannot be."""
        if self.failed:
            done(StorageError(self.failed))
        elif self.has_changes:
            self._waiting.append(done)
        elif self._batches:
            self._batches[-1].done.append(done)
        else:
            done(None)

    # -- entries ---------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether something waits for an entry."""
        return bool(self._changes or self._repeated or self.copies.size)

    def unwritten(self) -> int:
        """Bytes of changes that the next entry will have, at the most."""
        return self._bytes + self._repeated_bytes + self.copies.size

    def prepare_sync(self) -> EntryBatch | None:
        """The entry of all that was changed since the last one; None if there is nothing to say, or
        no room before a checkpoint has ended (`is_held`)."""
        if self.failed:
            return None
        if self.is_held():
            size = self._repeated_bytes + _bytes_of(self._waiting_removals()) + self.copies.size
            if self.copies.size and self._fits(size):
                return self._entry(self._take_removals(), [])
            return self._floor_entry()  # what was applied may be said: that makes room
        if not self.has_changes:
            return self._floor_entry() or self._reference_entry()
        if self._is_full():
            self._turn()
        return self._take_entry()

    def _floor_entry(self) -> EntryBatch | None:
        """An entry that says what was applied; None if that is known, or a full disk has no
        room."""
        size = self._size + self._repeated_bytes + _bytes_of(self._waiting_removals()) + SPARE
        if self._owes_floor and self._has_space(self._files[self._active], size):
            return self._entry(self._take_removals(), [])
        return None

    def _waiting_removals(self) -> list[Change]:
        return [one for one in self._changes.values() if one.record.kind == REMOVE]

    def _take_removals(self) -> list[Change]:
        """The removals that wait, for an entry without the other changes. It may say that all was
        applied, which is not so of what is about to go: a crash must not bring that back as it was
        long ago. What was to be kept there goes with them."""
        removals = self._waiting_removals()
        if removals:
            stay = [one for one in self._changes.values() if one.record.kind != REMOVE]
            self._changes = {one.key: one for one in stay if one.is_wanted}
            self._bytes = _bytes_of(self._changes.values())
        return removals

    def _reference_entry(self) -> EntryBatch | None:
        """An entry of references alone; None if they may wait, or there is no room for them."""
        is_due, self._refers_now = self._refers_now, False
        if not is_due or not self._references:
            return None
        other = self._files[1 - self._active]
        if self._is_full() and self._has_space(other, SPARE + self._references_room):
            self._turn()
        return self._entry([], []) if self._has_room_to_refer(0) else None

    def _take_entry(self) -> EntryBatch:
        changes, self._changes, self._bytes = self._changes, {}, 0
        waiting, self._waiting = self._waiting, []
        return self._entry(list(changes.values()), waiting)

    def _entry(self, changes: list[Change], waiting: list[Done]) -> EntryBatch:
        """The next entry, with what it repeats and all copies that wait, handed to the file that is
        written to."""
        changes = [*self._repeated, *changes]  # those that were made since count
        self._repeated, self._repeated_bytes = [], 0
        waiting, self._copies_waiting = [*waiting, *self._copies_waiting], []
        self._erases_copies = False
        copied = self.copies.size
        segments, encoded = self.copies.take()
        file = self._files[self._active]
        head = b"" if self._size else Head(self._salt, self._index + 1).encode()
        floor = self._applied + 1
        size = _bytes_of(changes) + len(encoded)
        records = self._take_references(size)
        records += [change.record for change in changes]
        data, self._crc = encode_entry(
            self._index + 1, floor, self._durable, self._crc, self._salt, records, encoded
        )
        self._owes_floor = False
        self._index += 1
        if changes or segments:
            self._changed = self._index
        self._size += len(head) + len(data) + len(encoded)
        batch = EntryBatch(self._index, floor, changes, segments, waiting, file)
        batch.salt, batch.end = self._salt, self._size
        if len(encoded) != copied:  # such as for want of memory: nothing may be called durable
            batch.error = StorageError("copies for the commit log were encoded in part")
        try:
            file.append(head + data)
            if encoded:
                file.append(encoded)
        except (OSError, StorageError) as error:
            batch.error = error
        self._batches.append(batch)
        return batch

    def _take_references(self, size: int) -> list[Record]:
        """The records of the references, for the next entry; there are none if they would take
        room from what has to be said, which has so many bytes."""
        if not self._references or not self._has_room_to_refer(size):
            return []
        records = [self._reference_record(one) for one in self._references]
        self._references, self._referred, self._refers_now = [], 0, False
        return records

    def _has_room_to_refer(self, size: int) -> bool:
        """Whether the references fit beside so many bytes of changes."""
        size += self._referred
        if self._size + ENTRY_SIZE + size > self._file_bytes:
            return False
        return self._has_space(self._files[self._active], self._size + SPARE + size)

    def _fits(self, size: int) -> bool:
        """Whether the file has room for an entry with so many bytes of changes."""
        size += self._references_room
        return (self._size or HEAD_SIZE) + ENTRY_SIZE + size <= self._file_bytes

    def _is_full(self) -> bool:
        return not self._fits(self.unwritten())

    def waits_for_space(self) -> bool:
        """Whether entries wait for space that others have not got, in a group."""
        return waits_for_space(self._disk)

    def is_held(self) -> bool:
        """Whether changes wait for a checkpoint, because both files are full."""
        return self._is_full() and not self._is_other_free()

    def finish_sync(self, batch: EntryBatch) -> None:
        """A batch has run: those who waited for it are called."""
        if batch.finished:  # by `settle`
            return
        batch.finished = True
        self._batches.remove(batch)
        if batch.error is not None or self.failed:
            error = self._fail(batch.error or OSError())
            call_all(batch.done, error)
            return
        self._durable = batch.index
        if batch.salt == self._salt:
            self._synced = batch.end
        self._floor = batch.floor
        if self._empties and self._is_other_free():
            self._empties = not self._empty(self._files[1 - self._active])
        for change in batch.changes:
            if change.record.kind == STANDS:
                self._unapplied.pop(change.key, None)
                if self._checkpoint is not None:
                    self._stood[change.key] = change.number
            else:
                _put(self._unapplied, change)
        self._apply_segments_later(batch.segments)
        call_all(batch.done, None)

    def _apply_segments_later(self, segments: list[SegmentCopy]) -> None:
        """Have the next checkpoint apply what was copied of segments: of each all of it at once."""
        for segment in first_of_round(segments, self._round):
            record = Record(WRITE, segment.stream_created, segment.path.removeprefix(self._root))
            _put(self._unapplied, Change(self.next_number(), segment, record))

    def let_down(self) -> None:
        """The log has failed: those who wait for an entry that will not be are told."""
        waiting, self._waiting = [*self._waiting, *self._copies_waiting], []
        self._copies_waiting = []
        self._changes, self._repeated, self._references = {}, [], []
        self._bytes = self._repeated_bytes = self._referred = 0
        self.copies.clear()
        call_all(waiting, StorageError(self.failed))

    def erase(self) -> None:
        """Bytes that the log may have copies of were destroyed: its files lose them with the next
        checkpoint."""
        self._erases = True
        self._erases_copies = self.copies.size > 0

    @property
    def is_erasing(self) -> bool:
        """Whether that is still to come."""
        return self._erases

    @property
    def owes_floor(self) -> bool:
        """Whether an entry is to say what was applied."""
        return self._owes_floor

    def _begin_anew(self) -> None:
        """Go on in the other file, and have nothing of before in it. The file of until now is
        emptied when a durable entry says that all of it was applied."""
        if not self._is_other_free() or not self._empty(self._files[1 - self._active]):
            return
        if not self._has_space(self._files[1 - self._active], SPARE + self.unwritten()):
            return
        if not self._unapplied:
            self._applied = self._index
        self._turn()
        self._erases = self._erases_copies  # which come into this file
        self._empties = True
        self._owes_floor = True

    def _empty(self, file: File) -> bool:
        """Have a file hold nothing, but space for what a full disk must not refuse."""
        try:
            file.truncate(0)
            return self._reserve(file, ROOM_MIN)
        except OSError as error:
            self._fail(error)
            return False

    def _fail(self, error: Exception) -> StorageError:
        if not self.failed:
            self.failed = (
                f"the commit log in {self._directory} cannot be written any more: {error}; what "
                "was answered is safe, look after the disk and restart the server"
            )
            self.copies.room = 0
        return StorageError(self.failed)

    # -- the two files ---------------------------------------------------------------------------

    def _is_other_free(self) -> bool:
        """Whether a durable entry says that all entries of the other file were applied."""
        return self._floor > self._other_last

    def _turn(self) -> None:
        """Go on in the other file, which is free."""
        assert self._is_other_free(), "a file of the commit log is used while it is needed"
        self._other_last = self._index
        self._active = 1 - self._active
        self._files[self._active].rewind()
        self._salt = self._new_salt()
        self._version = VERSION
        self._size = self._synced = self.copies.room = 0

    def _new_salt(self) -> int:
        return int.from_bytes(self._disk.random_bytes(4), "little")

    # -- reading again ---------------------------------------------------------------------------

    def scrub(self) -> CommitLogScrub | None:
        """The file that is written to, as far as it is known to be durable, to be read again. The
        other one holds nothing that is needed, but for the time until a checkpoint has ended."""
        if self.failed or not self._synced:
            return None
        path = f"{self._directory}/{_FILES[self._active]}"
        return CommitLogScrub(self._files[self._active], path, self._salt, self._synced)

    def is_as_it_was(self, scrub: CommitLogScrub) -> bool:
        """Whether the file that was read again has not been begun anew meanwhile."""
        return not self.failed and scrub.salt == self._salt

    # -- checkpoints -----------------------------------------------------------------------------

    @property
    def unapplied(self) -> int:
        """How many changes are durable in the log alone."""
        return len(self._unapplied)

    def is_applied(self) -> bool:
        """Whether a start would find nothing to apply, and knows it."""
        return not self.has_changes and self._floor > self._changed

    def is_half_full(self) -> bool:
        """Whether the file that is written to is half full, so that it is time for a checkpoint."""
        return (self._size - HEAD_SIZE) * 2 > self._file_bytes - HEAD_SIZE

    @property
    def is_short_of_room(self) -> bool:
        """Whether a checkpoint is to make room: the other file is in use, or is about to be."""
        return self.is_half_full() or not self._is_other_free()

    def checkpoint(self, makes_room: bool = False) -> "Checkpoint | None":
        """Begin to apply all that is durable; or, to make room, what has to be, and have the next
        entry repeat the rest. None if there is nothing to apply, or the last checkpoint has not
        ended. No batch may be under way."""
        if self.failed or self._checkpoint is not None:
            return None
        if not self._unapplied and not self._erases:
            return None
        assert self._durable == self._index, "a checkpoint began while a batch was under way"
        other = self._files[1 - self._active]
        if self._erases:
            self._begin_anew()
        elif (
            self._is_other_free()
            and self.is_half_full()
            and self._has_space(other, SPARE + self.unwritten())
        ):
            self._turn()
        if not self._unapplied or self.failed:
            return None
        if makes_room:
            self._repeat_contents()
        for change in self._unapplied.values():
            if isinstance(change.kept, SegmentCopy):
                change.kept.hand_over()
        changes, self._unapplied = deque(self._unapplied.values()), {}
        self._round += 1
        self._checkpoint = Checkpoint(self._disk, self._index, changes)
        return self._checkpoint

    def _repeat_contents(self) -> None:
        """Have the next entry repeat contents instead of applying them: the last ones, so that what
        makes the directories for others stays before these."""
        contents = [one for one in self._unapplied.values() if one.record.kind == KEEP]
        repeated: list[Change] = []
        size = 0
        for change in reversed(contents[APPLIED_FIRST:]):
            size += change.record.size
            if size * REPEATED_SHARE > self._file_bytes:
                break
            repeated.append(change)
        repeated.reverse()
        if self._repeat(repeated):
            for change in repeated:
                del self._unapplied[change.key]

    def _repeat(self, changes: list[Change]) -> bool:
        """Have the next entry repeat durable changes; False if there is no room for that. Before it
        no entry says that they were applied."""
        wanted = [change for change in changes if change.is_wanted]
        size = _bytes_of(wanted)
        if not self._fits(self.unwritten() + size):
            return False
        if not self._has_space(self._files[self._active], self._need(self.unwritten() + size)):
            return False
        # Those that wait already are younger, and may lie in directories that these make.
        self._repeated = [*wanted, *self._repeated]
        self._repeated_bytes += size
        self.copies.room = 0  # there may be less
        return True

    def pass_over(self) -> None:
        """Go on in the other file if this one is half full and there is nothing to apply. No batch
        may be under way."""
        if self.failed or self._checkpoint is not None or self._unapplied:
            return
        if self._batches or not self.is_half_full():
            return
        if self._is_other_free() and self._has_space(
            self._files[1 - self._active], self._need(self.unwritten()) - self._size
        ):
            self._turn()
        elif self._is_other_free():
            return
        self._applied = self._index
        self._owes_floor = True

    def ended(self, checkpoint: "Checkpoint") -> None:
        """A checkpoint has come to its end. What it has left, and what the disk did not take, is
        for the next one. Where the log needs its room, the latter goes into the next entry once
        more."""
        self._checkpoint = None
        for path in [path for path, one in self._removals.items() if one.is_free]:
            del self._removals[path]
        checkpoint.finish()
        stood, self._stood = self._stood, {}
        refused, left = (
            [one for one in changes if one.is_wanted and one.number > stood.get(one.key, 0)]
            for changes in (checkpoint.refused, checkpoint.left)
        )
        if left or (refused and not self._say_again(refused)):
            newer, self._unapplied = self._unapplied, {}
            self._round += 1
            for change in (*refused, *left, *newer.values()):
                _put(self._unapplied, change)
            return
        self._applied = checkpoint.index
        self._owes_floor = True

    def _say_again(self, refused: list[Change]) -> bool:
        """Have the next entry, which says that all was applied, repeat what was not; False if there
        is room in the log, or no room for that."""
        if any(change.record.kind in (REMOVE, WRITE) for change in refused):
            return False  # it would remove what was kept since; it is about other bytes than these
        if not self.is_half_full():
            return False
        newer = {change.key for batch in self._batches for change in batch.changes}
        newer.update(self._changes, self._unapplied)
        return self._repeat([change for change in refused if change.key not in newer])

    def apply_all(self) -> None:
        """Make all durable, apply it, and leave an empty log. Nobody else may work on it. Blocks;
        raises `StorageError`.

        What the disk does not take stays in the log, for the next start.
        """
        self._refers_now = True
        while not self.is_applied():
            self.write_all()
            if self.failed:
                raise StorageError(self.failed)
            begun = self._checkpoint  # what it met may be over by now: there is another one then
            checkpoint = begun or self.checkpoint()
            if checkpoint is not None:
                checkpoint.run()
                self.ended(checkpoint)
                if begun is None and any(change.is_wanted for change in checkpoint.refused):
                    raise StorageError(f"the commit log could not be applied: {checkpoint.error}")
            if not self._unapplied:
                self._applied = self._index
                if self._owes_floor and not self._batches and checkpoint is None:
                    raise StorageError("the disk has no space for the end of the commit log")
                self._owes_floor = True
        # A start reads the files whole, also where nothing in them counts any more.
        is_long = sum(file.size() for file in self._files) > LEFT_MAX
        if (self._erases or is_long) and not self.failed:
            self._begin_anew()
            self.write_all()

    def write_all(self) -> None:
        """Make durable what waits for an entry, as far as there is room. Nobody else may work on
        it. Blocks. Never raises: `failed` says what the disk did not take."""
        while self._batches or not self.failed:
            batch = self._batches[0] if self._batches else self.prepare_sync()
            if batch is None:
                return
            batch.run()
            self.finish_sync(batch)

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            file.close()


def _read(file: File) -> bytes:
    """What is in a file, with zeros where it cannot be read."""
    size = file.size()
    try:
        return file.pread(0, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    pieces = []
    for at in range(0, size, SECTOR):
        try:
            pieces.append(file.pread(at, SECTOR))
        except OSError:
            pieces.append(bytes(min(SECTOR, size - at)))
    return b"".join(pieces)


def _bytes_of(changes: Iterable[Change]) -> int:
    """What they take in an entry."""
    return sum(change.record.size for change in changes)


def _put(changes: dict[Key, Change], change: Change) -> None:
    """Have a change take the place of an earlier one of the same file. What is about another file
    of that name, which was removed meanwhile, is followed by the removal, and that by this one."""
    earlier = changes.get(change.key)
    if earlier is not None and earlier.kept is not change.kept:
        del changes[change.key]
    changes[change.key] = change


class Checkpoint:
    """Applies changes to their files, then syncs these all at once."""

    def __init__(self, disk: Disk, index: int, changes: deque[Change]) -> None:
        self.index = index  # of the last entry that it applies
        self.refused: list[Change] = []  # what the disk did not take
        self.error: Exception | None = None  # why not
        self.is_final = False  # a sync has failed: segments among it take no more messages
        self._disk = disk
        self._changes = changes
        self.left: list[Change] = []  # what it has not come to, in order
        self.has_ended = False
        self._has_begun = False
        self._applied: list[Change] = []
        self._unremoved: set[str] = set()  # directories that the disk did not let go
        self._touched = Touched()

    def run(self) -> None:
        """Do it, or what is left of it. Blocks. Never raises."""
        while not self.has_ended:
            self.run_some(len(self._changes) + 1)

    def run_some(self, most: int) -> None:
        """Apply up to so many changes, and sync after the last one. Blocks. Never raises."""
        try:
            if not self._has_begun:
                self._has_begun = True
                self.flush()
            for _ in range(most):
                if not self.apply_next():
                    self.sync()
                    self.has_ended = True
                    return
        except Exception as error:  # such as for want of memory
            self._refuse_rest(error)
            self.has_ended = True

    def leave_rest(self) -> None:
        """Come to an end with what was applied so far. It may not be running."""
        self.left = list(self._changes)
        self._changes.clear()

    def _refuse_rest(self, error: Exception) -> None:
        """Leave what was not synced to the next checkpoint."""
        self.error = error
        for change in self._applied:
            change.kept.forgotten(error)
        self.refused += [*self._applied, *self._changes]
        self._applied = []
        self._changes.clear()

    def flush(self) -> None:
        """Hand to the system what segments were given, of all of them in one go. Blocks."""
        segments = [one.kept for one in self._changes if isinstance(one.kept, SegmentCopy)]
        for segment in segments:
            segment.begin_flush()
        errors = self._disk.flush_all([segment.file for segment in segments])
        for segment, error in zip(segments, errors, strict=True):
            segment.flushed(error)

    def apply_next(self) -> bool:
        """Apply one change; False if there are no more. Blocks."""
        if not self._changes:
            return False
        change = self._changes.popleft()
        if self._is_in_unremoved(change.path):  # a removal has to come first
            self.refused.append(change)
            return True
        try:
            change.apply(self._touched)
            self._applied.append(change)
        except (OSError, StorageError) as error:
            self.error = error
            self.refused.append(change)
            if isinstance(change.kept, Removal) and not change.kept.is_free:
                self._unremoved.add(change.path)
        return True

    def _is_in_unremoved(self, path: str) -> bool:
        """Whether a path lies in a directory that the disk did not let go, however deep."""
        return any(path.startswith(f"{directory}/") for directory in self._unremoved)

    def sync(self) -> None:
        """Make durable what was applied. Blocks."""
        try:
            self._touched.sync(self._disk)
        except OSError as error:
            self.error = error
            for change in self._applied:
                change.kept.forgotten(error)
            self.refused += self._applied
            segments = any(change.record.kind == WRITE for change in self.refused)
            self.is_final = segments and is_final(error)
            self._applied = []

    def finish(self) -> None:
        """Tell the owners of synced files, once the checkpoint and all jobs before it have run."""
        lost = [change for change in self._applied if not change.synced()]
        if lost:
            self.error = self.error or StorageError("the disk has failed meanwhile")
            self.refused += lost
