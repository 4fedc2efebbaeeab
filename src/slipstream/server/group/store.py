"""What a member of a group keeps on its disk: its log, and its state beside it.

    state.0, state.1   who it is, its `State`, and where its log ends; both hold the same
    log/<number>       segments of records, one behind the other (`records`)

A job is appended to the last segment and synced with one fdatasync; nothing is overwritten there.
What changes of the state with each job, how far the log has come, goes with it. The copies of the
state are written when a promise changes, when a job has nothing else, and when the log must not be
written to before (`DiskJob.is_state_first`): each copy is synced before the other one is touched.

A store that was opened has on the disk what it found: a crash of the process alone leaves entries
in the system's memory, which a member would take for synced.

The log begins behind the base that the state names. Once both copies have a new one, segments with
nothing behind it are removed, the oldest first. A crash may leave some of them, in any number: what
they hold is left out. A job that resets the log has the copies name the base as its end, too, so
that nothing of before counts, whatever of it is left.

A full disk is not final. Room for a job is reserved before anything of it is written, or what was
written of it is cut, so the job may be done again once there is space. More is reserved than is
needed (`SPARE_PART`): where that cannot be had, the disk counts as full (`is_full`), and what frees
space has room still.

Calls block.
"""

import re
import struct
from contextlib import suppress

import msgspec

from slipstream.errors import DiskFullError, StorageError
from slipstream.group import DiskJob, Entry, State
from slipstream.group.messages import BEGINNING
from slipstream.log.disk import Disk, File
from slipstream.log.os_file import full_or
from slipstream.server.group.records import (
    HEADER_SIZE,
    RECORD_HEAD,
    Kind,
    batch_record,
    cut_record,
    entry_record,
    header,
    read_header,
    read_records,
)
from slipstream.server.group.replay import UNKNOWN, Replay
from slipstream.wire.checksum import crc32

SEGMENT_BYTES = 64 * 1024 * 1024
SPARE_PART = 8  # of a segment's bytes: as many stay free for what is written on a full disk
KEEP_EVERY = 4096  # entries after which the copies of the state say where the log ends
_READ_BYTES = 1024 * 1024
_BLOCK = 4096
_MAGIC = b"SLSTATE1"
_NAME = re.compile("[0-9a-f]{16}")
_STATE_HEAD = struct.Struct("<8sII")  # magic, size, checksum


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """Whose store it is. Under another name nothing that it has promised would hold."""

    cluster: str
    name: str
    members: tuple[str, ...]  # sorted
    is_outside: bool = False  # whether its register is


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """What a copy of the state holds."""

    job: int  # before which the log ended ...
    index: int  # ... here
    chain: int
    identity: Identity
    state: State


class Stored(msgspec.Struct):
    """What was found. `state` None: nobody knows what this server has promised."""

    identity: Identity | None
    state: State | None
    entries: list[Entry | None]  # behind the base of the state
    findings: list[str]  # what is damaged, for people


class GroupStore:
    """See the module's text."""

    def __init__(self, disk: Disk, path: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.path = path
        self._disk = disk
        self._log_path = f"{path}/log"
        self._segment_bytes = segment_bytes
        self._spare = segment_bytes // SPARE_PART
        self._identity: Identity | None = None
        self._state = State()  # as the copies have it
        self._job = 0
        self._end = (0, UNKNOWN)  # index and chain
        self._kept_end = 0  # index, as the copies have it
        self._base = BEGINNING
        self._chains = Replay((0, 0, 0)).chains  # of the entries behind the base
        self._copies: list[File] = []
        self._segment: File | None = None
        self._number = 0  # of the segment
        self._last: dict[int, int] = {}  # the highest index in each segment, the oldest first
        self._marker = b""
        self._broken = ""
        self.is_full = False  # whether there is less space than is to be spare

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever kept here."""
        return not self._disk.list(self._log_path) and not any(
            name.startswith("state.") for name in self._disk.list(self.path)
        )

    # -- the beginning ---------------------------------------------------------------------------

    def found(self, identity: Identity) -> None:
        """Begin with an empty log, for a server that has never promised anything. Raises
        `StorageError`, OSError."""
        if not self.is_empty:
            raise StorageError(f"{self.path} holds the log of a group: name another directory")
        self._identity = identity
        self._disk.makedirs(self._log_path)
        self._open_copies()
        self._keep(State())
        self._disk.sync_dir(self.path)

    def open(self) -> Stored:
        """Read what is there, and have it synced. Raises `StorageError`, OSError."""
        findings: list[str] = []
        kept = self._load_state(findings)
        expected = (kept.job, kept.index, kept.chain) if kept else (0, 0, 0)
        self._base = kept.state.base if kept else BEGINNING
        replay = Replay(expected, self._base)
        self._load_log(replay, findings)
        replay.finish()
        state = kept.state if kept else State()
        if kept and replay.state is not None and replay.state[0] >= kept.job:
            state = msgspec.structs.replace(
                replay.state[1], base=self._base, is_installing=state.is_installing
            )
        replay.settle(state)
        self._chains = replay.chains
        self._end = self._end_of_chains()
        lost = sum(entry is None for entry in replay.entries)
        if lost:
            behind = f" behind entry {self._base.index}" if self._base.index else ""
            total = len(replay.entries)
            findings.append(f"{lost} of {total} entries of its log are missing{behind}")
        if kept is None:
            findings.append(f"both copies of the state in {self.path} are missing or damaged")
            self.close()
            return Stored(None, None, replay.entries, findings)
        self._identity = kept.identity
        self._job = max(kept.job, replay.job) + 1  # of the copies, which are written anew
        self._open_copies()
        self._keep(state)
        self._remove_segments()
        return Stored(kept.identity, state, replay.entries, findings)

    def _load_state(self, findings: list[str]) -> Kept | None:
        found = []
        for name in ("state.0", "state.1"):
            try:
                found.append(decode_copy(self._disk.read(f"{self.path}/{name}")))
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                findings.append(f"{self.path}/{name} cannot be read: {error}")
        return max(found, key=lambda kept: kept.job) if found else None

    def _load_log(self, replay: Replay, findings: list[str]) -> None:
        self._disk.makedirs(self._log_path)
        names = [name for name in self._disk.list(self._log_path) if _NAME.fullmatch(name)]
        for name in names:
            path = f"{self._log_path}/{name}"
            data = self._read(path, findings)
            head = read_header(data)
            self._number = max(self._number, int(name, 16))
            self._last[int(name, 16)] = 0
            if head is None:
                if data.strip(b"\0"):
                    findings.append(f"{path} has no header that can be read")
                continue
            if head[0] != int(name, 16):
                findings.append(f"{path} is segment {head[0]:016x} under another name")
                continue
            at = end = HEADER_SIZE
            last = 0
            for end, record in read_records(data, head[1]):
                replay.apply(record)
                if record.kind in (Kind.ENTRY, Kind.REPAIR):
                    last = max(last, record.index)
                at = end
            self._last[int(name, 16)] = last
            if name == names[-1]:
                self._go_on(path, at, data, head[1])

    def _go_on(self, path: str, end: int, data: bytes, marker: bytes) -> None:
        """Append to the last segment, unless something else than zeros follows its last record."""
        file = self._disk.open(path)
        if data.count(0, end) < len(data) - end:
            file.sync()
            file.close()
            return
        file.truncate(end)
        file.sync()
        self._segment, self._marker = file, marker

    def _read(self, path: str, findings: list[str]) -> bytes:
        """A whole file, with zeros where the disk cannot read it."""
        file = self._disk.open(path)
        parts = []
        try:
            size = file.size()
            for at in range(0, size, _READ_BYTES):
                count = min(_READ_BYTES, size - at)
                try:
                    part = file.pread(at, count)
                except OSError as error:
                    findings.append(f"{path} cannot be read at {at}: {error}")
                    part = b"".join(self._block(file, at + n) for n in range(0, count, _BLOCK))
                parts.append(part[:count].ljust(count, b"\0"))
        finally:
            file.close()
        return b"".join(parts)

    def _block(self, file: File, at: int) -> bytes:
        try:
            return file.pread(at, _BLOCK).ljust(_BLOCK, b"\0")
        except OSError:
            return bytes(_BLOCK)

    # -- jobs ------------------------------------------------------------------------------------

    def write(self, job: DiskJob) -> None:
        """Do a job; it is durable after that. Raises `DiskFullError`: nothing of it counts, and it
        is to be done again before any other. Raises `StorageError`, OSError: it may be there or
        not, and nothing more can be written."""
        if self._broken:
            raise StorageError(f"the log of the group cannot be written to: {self._broken}")
        try:
            self._write(job)
        except DiskFullError:
            self._job -= 1
            self.is_full = True
            raise
        except BaseException as error:
            self._broken = str(error) or repr(error)
            raise

    def is_small(self, job: DiskJob, bytes_max: int) -> bool:
        """Whether a job is one write and one sync, of so many bytes at the most."""
        size = sum(len(entry.body) for write in job.writes for entry in write.entries)
        return size <= bytes_max and not job.is_reset and not self._has_state(job)

    def _has_state(self, job: DiskJob) -> bool:
        """Whether the copies of the state are to be written, too."""
        is_due = self._end[0] >= self._kept_end + KEEP_EVERY
        return job.is_state_first or not job.writes or is_due or self._promises_other(job.state)

    def _write(self, job: DiskJob) -> None:
        self._job += 1
        if job.is_reset:
            self._reset(job.state)
        if self._has_state(job):
            self._keep(job.state)
        if job.writes:
            self._append(job)
        if job.state.base.index > self._base.index:
            del self._chains[: job.state.base.index - self._base.index]
            self._base = job.state.base
            self._remove_segments()

    def _reset(self, state: State) -> None:
        """Nothing that the log has had counts any more; it is empty behind the base."""
        self._base = state.base
        del self._chains[:]
        self._end = (state.base.index, state.base.chain)
        self._keep(state)
        self._begin_segment(is_needed=True)
        self._last = dict.fromkeys(self._last, state.base.index)  # what is there is of before
        self._remove_segments()

    def _append(self, job: DiskJob) -> None:
        if self._segment is None or self._segment.size() >= self._segment_bytes:
            self._begin_segment()
        assert self._segment is not None
        self._reserve(self._segment, self._size_of(job))
        end = self._end
        try:
            self._segment.append(self._records(job))
        except DiskFullError:
            self._end = end
            raise
        self._segment.sync()

    def _size_of(self, job: DiskJob) -> int:
        """Bytes that the records of a job take, at most."""
        bodies = [entry.body for write in job.writes for entry in write.entries]
        count = len(bodies) + len(job.writes) + 1
        payload = len(msgspec.msgpack.encode(job.state))
        return RECORD_HEAD * count + sum(map(len, bodies)) + payload

    def _reserve(self, segment: File, size: int) -> None:
        """Have room for so many bytes more. Raises `DiskFullError`."""
        end = segment.size() + size
        try:
            segment.reserve(end + self._spare)
            self.is_full = False
        except DiskFullError:
            self.is_full = True
            segment.reserve(end)

    def look_for_space(self) -> None:
        """See whether a disk that was full has space again. Raises OSError."""
        if self.is_full and self._segment is not None and not self._broken:
            with suppress(DiskFullError):
                self._reserve(self._segment, 0)

    def _records(self, job: DiskJob) -> bytes:
        marker, number, chains, base = self._marker, self._job, self._chains, self._base.index
        parts: list[bytes] = []
        for write in job.writes:
            if write.is_end:
                del chains[write.first - base - 1 :]
                if not write.entries:
                    parts.append(cut_record(marker, number, write.first))
            kind = Kind.ENTRY if write.is_end else Kind.REPAIR
            for entry in write.entries:
                parts += entry_record(marker, kind, number, entry)
                if write.is_end:
                    chains.append(entry.chain)
                else:
                    chains[entry.index - base - 1] = entry.chain
            if write.entries:
                last = self._last[self._number]
                self._last[self._number] = max(last, write.entries[-1].index)
        self._end = self._end_of_chains()
        parts.append(batch_record(marker, number, self._end, msgspec.msgpack.encode(job.state)))
        return b"".join(parts)

    def _end_of_chains(self) -> tuple[int, int]:
        """The index and the chain of the last entry."""
        chains, base = self._chains, self._base
        return base.index + len(chains), chains[-1] if chains else base.chain

    def _remove_segments(self) -> None:
        """Remove those with nothing behind the base, up to the first one that has something; one
        of which nothing could be read (0) with the next one after it."""
        numbers = list(self._last)
        count = 0
        for place, (number, last) in enumerate(self._last.items()):
            if last > self._base.index or number == self._number:
                break
            if last:
                count = place + 1
        for number in numbers[:count]:
            self._disk.remove(f"{self._log_path}/{number:016x}")
            del self._last[number]
        if count:
            self._disk.sync_dir(self._log_path)

    def _begin_segment(self, is_needed: bool = False) -> None:
        """Go on in a new segment; on a full disk in the one that there is, unless a new one
        `is_needed`.
        Raises `DiskFullError`, OSError."""
        number = self._number + 1
        marker = b"\xff" + self._disk.random_bytes(3)  # never found among zeros
        path = f"{self._log_path}/{number:016x}"
        try:
            segment = self._make_segment(path, header(number, marker))
        except DiskFullError:
            self._disk.remove(path)
            self.is_full = True
            if self._segment is None or is_needed:
                raise
            return
        if self._segment is not None:
            self._segment.truncate(self._segment.size())
            self._segment.sync()
            self._segment.close()
        self._number, self._marker, self._segment = number, marker, segment
        self._last[number] = 0

    def _make_segment(self, path: str, head: bytes) -> File:
        segment = self._disk.open(path)
        try:
            segment.append(head)
        except BaseException:
            segment.close()
            raise
        segment.sync()
        self._disk.sync_dir(self._log_path)
        return segment

    # -- the state -------------------------------------------------------------------------------

    def _promises_other(self, state: State) -> bool:
        """Whether more is different than how far the log has come."""
        old = self._state
        return state != msgspec.structs.replace(old, synced=state.synced, committed=state.committed)

    def _open_copies(self) -> None:
        self._copies = [self._disk.open(f"{self.path}/state.{number}") for number in (0, 1)]
        self._disk.sync_dir(self.path)

    def _keep(self, state: State) -> None:
        """Write the state to both copies, and where the log ends."""
        assert self._identity is not None
        kept = Kept(self._job, self._end[0], self._end[1], self._identity, state)
        content = msgspec.msgpack.encode(kept)
        data = _STATE_HEAD.pack(_MAGIC, len(content), crc32(content)) + content
        for copy in self._copies:
            _overwrite(copy, data)
            copy.sync()
        self._state, self._kept_end = state, self._end[0]

    def close(self) -> None:
        """Release the files."""
        if self._segment is not None:
            if not self._broken:
                self._segment.truncate(self._segment.size())  # gives back what was reserved
            self._segment.close()
        for copy in self._copies:
            copy.close()
        self._segment, self._copies = None, []


def _overwrite(copy: File, data: bytes) -> None:
    """Write a copy of the state anew. The other one is whole meanwhile, so this may be done again
    where a full disk has taken half of it. Raises `DiskFullError`, OSError."""
    try:
        copy.pwrite(0, data)
    except OSError as error:
        raise full_or(error, "keeping the state of the group") from error


def decode_copy(data: bytes) -> Kept:
    """A copy of the state. Raises ValueError, `msgspec.MsgspecError`."""
    if len(data) < _STATE_HEAD.size:
        raise ValueError("it is too short")
    magic, size, crc = _STATE_HEAD.unpack_from(data)
    content = data[_STATE_HEAD.size : _STATE_HEAD.size + size]
    if magic != _MAGIC or crc32(content) != crc:
        raise ValueError("its checksum is wrong")
    return msgspec.msgpack.decode(content, type=Kept)
