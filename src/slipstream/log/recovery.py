"""Opening a log: footers are read, what has none is scanned, and damage costs what it must.

* A closed segment with a whole footer is described by it; its records are not read.
* Any other segment is scanned. Records check out one by one; after a damaged one the next whole
  one is looked for, and what lies between is set aside in `damaged/` and counted as lost.
* In the last segment, bytes after the last whole record are a torn write: they are set aside too,
  and cut off. Nothing acknowledged lies there: an acknowledgement waits for the fdatasync.
* Removals are believed where a COMMIT record, a footer or the record of the log's end says that
  they were durable, and after that up to the last COMMIT before the first hole. The others were
  written by batches that a crash tore, perhaps for a message that the hole has swallowed: they
  remove nothing, and are made void. What such a batch stored and can be read stays, unless it
  belongs to a group (see `groups`) of which something is missing.
* A hole with a sector that was never written, behind all that is known to be durable, is a torn
  write too: nobody was answered for what lay there. A void record takes its place, and nothing
  counts as lost.
* What the record of the log's end says was there, or a reference of the commit log, and is not,
  counts as lost.
* Nothing is deleted because something else could not be read.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.log import damage
from slipstream.log.ahead import SPARE
from slipstream.log.block_cache import BlockCache
from slipstream.log.columns import GONE
from slipstream.log.disk import Disk, File
from slipstream.log.durability import Touched
from slipstream.log.end_record import Copies, EndRecord
from slipstream.log.file_log import SEGMENT_BYTES, FileLog, end_of
from slipstream.log.groups import torn_groups
from slipstream.log.record import (
    COMMIT,
    COMMIT_SIZE,
    END,
    ERASED,
    FIXED_SIZE,
    FRONT,
    MESSAGE,
    SKIP,
    TOMBSTONE,
    VOID,
    Record,
    RunCounts,
    decode,
    encode,
    length_at,
    next_whole,
    read_run,
)
from slipstream.log.segment import (
    HEADER_SIZE,
    PLACES_MAX,
    RANGE,
    SEQUENCE_MAX,
    Footer,
    Segment,
    check_columns,
    decode_header,
    encode_header,
    erased,
    first_format_salt,
    may_remove,
    read_footer,
    read_trailer,
)
from slipstream.log.segment_bytes import Reference
from slipstream.log.written_again import Repeated
from slipstream.wire.buffer import OutBuffer

UNCUT_MAX = 512 * 1024  # bytes of a segment that are written again sooner than it is cut
SECTOR = 512  # bytes that a disk writes together, or a part of that
EDGE = 16  # bytes beside unwritten sectors, of which not all are zeros
_ZEROS = bytes(4096)
_SEGMENT_NAME = re.compile(r"\d{20}\.seg", re.ASCII)  # whatever else lies there is not the log's


class JointSync:
    """What the openings of several logs have written again, and one sync makes durable."""

    def __init__(self) -> None:
        self._rewritten: dict[str, _Rewritten] = {}  # by the log's directory

    def add(self, directory: str, rewritten: "_Rewritten") -> None:
        """Take in a segment of the log in `directory`. Any thread may call."""
        self._rewritten[directory] = rewritten

    def run(self, disk: Disk) -> set[str]:
        """Make all of it durable; the directories of the logs for which that has failed. Blocks."""
        touched = Touched()
        for directory, one in self._rewritten.items():
            touched.files[one.path] = None
            touched.directories[directory] = None
        try:
            touched.sync(disk)
        except (OSError, StorageError):
            for one in self._rewritten.values():
                one.refused()
            return set(self._rewritten)
        failed = set()
        for directory, one in self._rewritten.items():
            try:
                _go_on_at(one.file, one.end)
            except (OSError, StorageError):
                failed.add(directory)
        return failed


@dataclass
class _Rewritten:
    """A segment that was written again, and has something after its end until that is durable."""

    path: str
    file: File
    end: int
    torn: bytes  # what lay after that, and is zeros now

    def cut(self) -> None:
        """All of it is durable: nothing is to say any more that it was not. Raises OSError."""
        self.file.truncate(self.end)

    def refused(self) -> None:
        """A sync has failed: the zeros may be in the system's memory alone. Who opens it next has
        to find what the disk may have there. Never raises."""
        if self.torn:
            with suppress(OSError, StorageError):
                self.file.pwrite(self.end, self.torn)


def _go_on_at(file: File, end: int) -> None:
    """Have a segment that is durable up to `end` go on there. It is cut, so that nothing says any
    more that it may not be, unless it costs the next start less to write it again. Raises
    OSError."""
    if end > UNCUT_MAX:
        file.truncate(end)
    else:
        file.go_on_at(end)


def open_log(
    disk: Disk,
    directory: str,
    cache: BlockCache | None = None,
    first_seq: int = 1,
    segment_bytes: int = SEGMENT_BYTES,
    copies: Copies | None = None,
    has_first_format: bool = True,
    references: Sequence[Reference] = (),
    joint: JointSync | None = None,
    repeated: Repeated | None = None,
) -> FileLog:
    """Open the log in `directory`, or begin one there with `first_seq`. Blocks.

    `copies` keep where the log ends; without them damage at the end goes unnoticed. A log that is
    known to be younger than the first format of segments is not `has_first_format`. `references`
    are to what the commit log knows to be durable, and `repeated` is what this start has synced in
    the last segment. With `joint` the log may be used once that has run. Raises OSError,
    `StorageError`.
    """
    disk.makedirs(directory)
    log = FileLog(disk, directory, cache, first_seq, segment_bytes, copies)
    entries = disk.list(directory)
    if damage.DIRECTORY in entries:
        log.set_lost(damage.recall(disk, directory))
    for name in entries:
        if name.endswith((".new", SPARE)):  # of a compaction that did not end, or of no use yet
            disk.remove(f"{directory}/{name}")
    names = [name for name in entries if _is_segment(name)]
    while len(names) > 1 and _is_blank(disk, f"{directory}/{names[-1]}"):
        # Begun in a batch that the end of the segment before it was in, too, and that did not end:
        # nothing of either was said to be durable.
        disk.remove(f"{directory}/{names.pop()}")
    found = _Found(log, log.recall_end(), has_first_format, references, joint, repeated)
    for name, following in pairwise([*names, ""]):
        _open_segment(log, found, name, following)
    found.fill_log()
    return log


def _is_segment(name: str) -> bool:
    return bool(_SEGMENT_NAME.fullmatch(name)) and int(name[:20]) <= SEQUENCE_MAX


@dataclass
class _Torn:
    """A hole that a crash seems to have left: its bytes, and the messages that it cost if it proves
    to be damage after all. Where it cost others, too, behind some that can be read, a second entry
    without bytes has these."""

    start: int
    data: bytes
    place: int  # of the next message before it
    first: int  # ... sequences that went with it; the last is less where none did
    last: int
    is_end: bool  # the segment did not come to its end, and the next one begins after `last`


@dataclass
class _Scan:
    """What may have been torn in a segment: all after the first `durable` bytes, which a COMMIT
    record or the record of the log's end calls durable."""

    log: FileLog
    segment: Segment
    durable: int = 0  # 0 if nothing says so of any byte
    removals: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    # ... offset, kind, body, place
    commits: list[int] = field(default_factory=list)  # where the record ends
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    # ... offset, first and last sequence that went with it; the last is less where none did
    torn: list[_Torn] = field(default_factory=list)  # of these, what looks so
    distrusted: bool = False  # something behind it has been damaged: nothing is taken for torn
    damaged: bool = False  # something in what was durable: no torn write
    groups: bool = False  # whether there are messages of groups
    erased: int = SEQUENCE_MAX  # where the first message is that was destroyed
    ended: bool = False  # whether the segment was closed
    damage_at: int = 0  # where the damage is behind which the next whole record was looked for
    before: int = 0  # ... and where the last message before that begins
    copies_end: int = 0  # up to here records may be copies, in the body of a message

    def search(self, at: int, found: int) -> None:
        """The next whole record after the damage at `at` was looked for, and is at `found`.

        That may be a copy in the body of a message whose beginning is damaged. The records that
        were copied lie before that message, and behind the last one that is whole: copies of
        earlier ones are not taken. So all copies that are taken are shorter together than what lies
        between. What is no copy of these may stand between them: each time that such bytes were
        passed, copies may reach further.
        """
        segment = self.segment
        assert segment.ids is not None
        assert segment.offsets is not None
        if at >= self.copies_end:
            self.damage_at = at
            place = segment.ids.size - 1
            self.before = segment.offsets.get(place) if place >= 0 else HEADER_SIZE
        self.copies_end = found + (found - self.before)

    def take_gap(self, at: int, first: int, last: int) -> None:
        """The record at `at` shows that the sequences from `first` to `last` have none. If copies
        may end there, these went with the damage before the copies; else they were skipped."""
        if last < first or at >= self.copies_end:
            return
        start = self.damage_at
        if self.torn and self.torn[0].start <= start:
            self.torn.append(_Torn(start, b"", 0, first, last, is_end=False))
        else:
            _set_aside(self.log, self.segment, b"", [(start, start)], first, last)

    def prove(self, durable: int) -> None:
        """A COMMIT record says that `durable` bytes of the segment were durable."""
        if durable <= self.durable:
            return
        self.durable = durable
        self.believe(durable)
        self.report(durable)
        self.holes = [hole for hole in self.holes if hole[0] >= durable]
        self.commits = [end for end in self.commits if end > durable]

    def believe(self, end: int) -> None:
        """What was removed by the records before `end` is removed."""
        for _, kind, body, _ in (removal for removal in self.removals if removal[0] < end):
            if kind == TOMBSTONE:
                self.segment.removed_ranges += body
            else:
                self.segment.front = max(self.segment.front, int.from_bytes(body, "little"))
        self.removals = [removal for removal in self.removals if removal[0] >= end]

    def report(self, end: int) -> None:
        """What is torn before `end` is damage."""
        for hole in (hole for hole in self.torn if hole.start < end):
            self.damaged = True
            where = [(0, len(hole.data))]
            _set_aside(self.log, self.segment, hole.data, where, hole.first, hole.last, hole.start)
        self.torn = [hole for hole in self.torn if hole.start >= end]

    def fill(self) -> None:
        """See to it that no later start finds what is torn, when that may count as damage."""
        segment = self.segment
        file = segment.file
        if not self.torn or file is None:
            return
        for hole in self.torn:
            if hole.last >= hole.first:
                self.log.lost.torn.append((hole.first, hole.last))
            if not hole.data and not hole.is_end:
                continue
            whole = [(0, len(hole.data))]
            _set_aside(self.log, segment, hole.data, whole, 1, 0, hole.start, is_torn=True)
            out = OutBuffer()
            if hole.is_end:
                kind, body = END, hole.last.to_bytes(8, "little")
                segment.last_seq = hole.last
            else:
                kind, body = VOID, bytes(len(hole.data) - FIXED_SIZE)
            encode(out, kind, segment.salt, hole.place, 0, b"", body, 0, 0, len(body))
            file.pwrite(hole.start, out.take())
            if hole.is_end:
                segment.written = segment.records_end = segment.referred = file.size()
        file.sync()
        self.torn = []

    def make_void(self) -> None:
        """See to it that no later start believes what is left. The records keep their places."""
        file = self.segment.file
        if not self.removals or file is None:
            return
        out = OutBuffer()
        for at, _, body, place in self.removals:
            encode(out, VOID, self.segment.salt, place, 0, b"", body, 0, 0, len(body))
            file.pwrite(at, out.take())
        file.sync()
        self.removals = []


class _Found:
    """What the segments say about the log as a whole."""

    def __init__(
        self,
        log: FileLog,
        end: EndRecord | None,
        has_first_format: bool,
        references: Sequence[Reference],
        joint: JointSync | None,
        repeated: Repeated | None,
    ) -> None:
        self.log = log
        self.joint = joint
        self.repeated = repeated
        self.rewritten: _Rewritten | None = None  # the last segment, if it waits for `joint`
        self.end = end
        self.durable = (0, 0)  # a segment's base, and how many of its bytes are durable
        if end is not None:
            self.durable = end.durable
            for one in references:
                end.last_seq = max(end.last_seq, one.last_seq)
                end.salts.setdefault(one.base, one.salt)
        for one in references:
            self.durable = max(self.durable, (one.base, one.end))
        self.has_first_format = has_first_format
        self.lost_before = log.lost.count
        self.front = log.first_seq
        self.last_seq = log.last_seq
        self.named_seq = 0  # the last one before a file that has nothing but its name, and goes
        self.last_ts = 0
        self.removed: list[tuple[int, int, int]] = []  # first, end, told by segment
        self.unfooted: list[Segment] = []
        self.scans: list[_Scan] = []  # of the segments after the last one with a footer

    def take(self, segment: Segment, last_ts: int) -> None:
        """What a segment's records say about others."""
        self.last_seq = max(self.last_seq, segment.last_seq)
        self.last_ts = max(self.last_ts, last_ts)
        self.log.blocks.append(segment)

    def prove_all(self) -> None:
        """What was read so far is durable: a later segment would not be as it is else."""
        for scan in self.scans:
            scan.believe(SEQUENCE_MAX)
            scan.report(SEQUENCE_MAX)
        self.scans = []

    def _decide(self) -> None:
        """Tell the removals that count from those of batches that a crash tore."""
        torn = False
        gone = self._said_to_be_gone() if any(scan.holes for scan in self.scans) else []
        for scan in self.scans:
            holes = [at for at, first, last in scan.holes if not _within(first, last, gone)]
            if not torn:
                hole = min(holes, default=SEQUENCE_MAX)
                ends = [end for end in scan.commits if end <= hole]
                # In the first format a batch has no end.
                plain = scan.segment.format == 1 and not scan.commits and not scan.durable
                scan.believe(SEQUENCE_MAX if plain else max(ends, default=0))
                torn = bool(holes)
            scan.make_void()
            self._drop_torn_groups(scan, holes)
            scan.fill()

    def _drop_torn_groups(self, scan: _Scan, holes: list[int]) -> None:
        """Remove what a crash left of groups, also for later starts: the records are erased. What a
        start that is cut short has erased shows the next one that the rest is torn."""
        segment = scan.segment
        file = segment.file
        if not scan.groups or file is None:
            return
        assert segment.ids is not None
        assert segment.offsets is not None
        start = max(scan.durable, HEADER_SIZE)
        data = file.pread(start, max(segment.records_end - start, 0))
        groups = torn_groups(data, start, segment, holes, scan.ended)
        record = Record()
        for first, last in groups:
            for place in range(first, last + 1):
                at = segment.offsets.get(place)
                if decode(data, at - start, segment.salt, 0, record) and record.seq == place:
                    if record.kind == MESSAGE:
                        file.pwrite(at, erased(segment, place, record))
            self.removed.append((segment.base + first, segment.base + last + 1, segment.base))
        if groups:
            file.sync()

    def _said_to_be_gone(self) -> list[tuple[int, int]]:
        """What removals speak of that count: a hole there is an erasure that was cut short."""
        gone = [(1, self.front - 1)]
        for segment in self.log.blocks:
            gone += [
                (first, first + count - 1)
                for first, count in RANGE.iter_unpack(segment.removed_ranges)
            ]
            gone.append((1, segment.front - 1))
        return _merged(gone)

    def fill_log(self) -> None:
        """Apply removals and fill in the log's state."""
        log = self.log
        self._decide()
        for segment in log.blocks:
            for first, count in RANGE.iter_unpack(segment.removed_ranges):
                self.removed.append((first, first + count, segment.base))
            self.front = max(self.front, segment.front)
        log.last_seq = log.durable_seq = self.last_seq
        log.last_ts = self.last_ts
        log.messages = sum(segment.live for segment in log.blocks)
        log.bytes = sum(segment.bytes for segment in log.blocks)
        uncovered = self._uncovered()
        known = 0 if self.end is None else self.end.last_seq
        missing = [(first, min(last, known)) for first, last in uncovered if first <= known]
        # Sequences were given out, and never durable, of which only the name of a segment tells:
        # one that is gone now, or one that will be durable, so that they would be missed.
        tells_more = 0 < self.named_seq == log.last_seq or any(
            last > known for _, last in uncovered
        )
        log.replaying = True
        self._find_first()
        log.drop_below(self.front)
        self._remove()
        log.replaying = False
        if missing or self._is_damaged() or log.last_seq >= log.active_base() + PLACES_MAX:
            self.settle()  # more follows in it, or is said of it
        log.recovered()
        for segment in self.unfooted:
            if segment.live:
                log.request_footer(segment, log.active_base())
        self._go_on(missing, tells_more)
        if self.rewritten is not None and self.joint is not None:
            self.joint.add(log.directory, self.rewritten)

    def make_durable(self, scan: _Scan, data: bytes, end: int, used: int, is_closed: bool) -> None:
        """See to it that a segment is durable up to `end`, now or with others, and has only zeros
        after that: there are more bytes up to `used`. `data` are what was read of it."""
        segment = scan.segment
        file, header = segment.file, encode_header(segment)
        assert file is not None
        if not is_closed and used == end and self._is_durable(scan, data, end):
            _go_on_at(file, end)
        elif file.size() != end or data[:HEADER_SIZE] != header:
            # It was not closed in order. What was read may be in the system's memory alone and,
            # after a sync that failed, taken for written: only writing it again makes it durable.
            # Until then it has something after its end, so that the next start does so if this one
            # fails.
            if file.size() == end:
                file.truncate(end + 1)
            # What is torn is zeros then, durably: a crash would leave it in the next batch.
            torn = data[end:used]
            file.pwrite(0, header + data[HEADER_SIZE:end] + bytes(len(torn)))
            self.rewritten = _Rewritten(segment.path, file, end, torn)
            if self.joint is None or is_closed:
                self.settle()

    def _is_durable(self, scan: _Scan, data: bytes, end: int) -> bool:
        """Whether the last segment, which has `data` up to `end` and nothing else, is durable
        without being written again.

        That is so where this start has synced the end of it, and all before that is called durable
        by a COMMIT record or the commit log. They speak of syncs that have succeeded; what a failed
        sync has left in the system's memory alone lies behind what they call so, unless it was
        written over a message to destroy it.
        """
        segment = scan.segment
        one = self.repeated
        if one is None or (one.path, one.salt) != (segment.path, segment.salt):
            return False
        if one.end != end or data[:HEADER_SIZE] != encode_header(segment):
            return False
        if scan.damaged or scan.holes or scan.torn:
            return False
        return one.start <= min(scan.durable, scan.erased)

    def settle(self) -> None:
        """Make durable what was written again. Blocks; raises OSError."""
        rewritten, self.rewritten = self.rewritten, None
        if rewritten is None:
            return
        try:
            rewritten.file.sync()
            self.log.disk.sync_dir(self.log.directory)
        except (OSError, StorageError):
            rewritten.refused()
            raise
        rewritten.cut()

    def _uncovered(self) -> list[tuple[int, int]]:
        """What no segment has, and nothing has removed, of the sequences that the record of the
        log's end knows and those up to the last one here. Without a record nothing is missed."""
        if self.end is None:
            return []
        end = replace(self.end, last_seq=max(self.end.last_seq, self.last_seq))
        covered = [(segment.base, end_of(segment)) for segment in self.log.blocks]
        covered += [(1, self.front - 1), *self.log.lost.ranges]
        covered += [(first, after - 1) for first, after, _ in self.removed]
        return end.missing(covered)

    def _go_on(self, missing: list[tuple[int, int]], tells_more: bool) -> None:
        """Count what is missing as lost, and give no sequence out again."""
        log = self.log
        for first, last in missing:
            damage.lose_range(log, first, last)
        is_damaged = self._is_damaged()
        last_seq = self._last_known()
        if last_seq > log.last_seq:
            log.go_on_after(last_seq)
        if is_damaged or tells_more:
            log.keep_end_at_once()
        elif log.blocks or self.end is not None:
            # A crash before that is saved finds what this start has found. With many streams to
            # open, the syncs would be what a start takes longest for.
            log.keep_end_later()

    def _is_damaged(self) -> bool:
        """Whether something was found to be lost."""
        log = self.log
        base, size = self.durable
        if any(segment.base == base and segment.records_end < size for segment in log.blocks):
            return True  # a torn batch that follows there must not pass for durable
        return log.lost.count != self.lost_before or self._last_known() > log.last_seq

    def _last_known(self) -> int:
        """The last sequence that was given out, as far as others than the segments know."""
        last_seq = max([last for _, last in self.log.lost.ranges], default=0)
        return last_seq if self.end is None else max(last_seq, self.end.last_seq)

    def _find_first(self) -> None:
        """The first message; the columns are read only if that is not the first one stored."""
        log = self.log
        first = next((segment for segment in log.blocks if segment.live), None)
        places = 0 if first is None else first.places if first.closed else first.ids.size
        if first is not None and first.live == places:
            log.first_seq = first.base
            log.note_first_ts(first.first_ts)
        else:
            log.first_seq = 0
            log.move_first(0)

    def _remove(self) -> None:
        """Remove what tombstones tell of, segment by segment, where it is not known already."""
        log = self.log
        self.removed.sort()
        at = 0
        for segment in list(log.blocks):
            after = segment.base + (segment.places if segment.closed else segment.ids.size)
            while at < len(self.removed) and self.removed[at][1] <= segment.base:
                at += 1
            n = at
            while n < len(self.removed) and self.removed[n][0] < after:
                first, last, told_by = self.removed[n]
                n += 1
                if told_by >= segment.as_of:
                    for seq in range(max(first, segment.base, log.first_seq), min(last, after)):
                        log.remove(seq, False)


def _is_blank(disk: Disk, path: str, offset: int = 0) -> bool:
    """Whether there is nothing but reserved space in a file, from `offset` on."""
    file = disk.open(path)
    try:
        head = file.pread(offset, HEADER_SIZE)  # which decides nearly always
        return not head.strip(b"\0") and not file.pread(offset, file.size()).strip(b"\0")
    finally:
        file.close()


def is_unused(disk: Disk, path: str) -> bool:
    """Whether a file is a segment to which nothing was written but its header."""
    return _is_segment(path.rpartition("/")[2]) and _is_blank(disk, path, HEADER_SIZE)


def _within(first: int, last: int, gone: list[tuple[int, int]]) -> bool:
    """Whether there are sequences from `first` to `last`, and all lie in one of the ranges."""
    return first <= last and any(low <= first and last <= high for low, high in gone)


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The sequences of `ranges` in as few ranges as possible."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        elif first <= last:
            merged.append((first, last))
    return merged


def _open_segment(log: FileLog, found: _Found, name: str, following: str) -> None:
    is_last = not following
    path = f"{log.directory}/{name}"
    file = log.disk.open(path)
    data_end = file.data_end()  # before anything is read behind it, which would count as data then
    segment = Segment(int(name[:20]), path)
    whole = True
    try:
        header = decode_header(file.pread(0, HEADER_SIZE))
        segment.base, segment.salt, segment.format = header.base, header.salt, header.format
        segment.rewritten = header.rewritten
    except CorruptionError:
        whole = False  # the name says the base, too
        if is_last and file.size() < HEADER_SIZE:
            file.close()
            log.disk.remove(path)  # created, but nothing was ever written to it
            found.named_seq = segment.base - 1
            found.last_seq = max(found.last_seq, found.named_seq)
            return
    if segment.base != int(name[:20]) and segment.base <= found.last_seq:
        file.close()
        return  # somebody's copy of a segment
    if segment.base <= found.last_seq and not file.pread(HEADER_SIZE, file.size()).strip(b"\0"):
        file.close()
        log.disk.remove(path)  # begun in vain: the segment before it went on
        return
    segment.file = file
    if not whole:
        _find_salt(log, segment, found)
    found.last_seq = max(found.last_seq, segment.base - 1)
    try:
        if data_end < file.size():
            raise CorruptionError(f"{path} ends with zeros, and not with a footer")
        footer = read_footer(file, segment)
        _check_columns(file, footer)
    except CorruptionError:
        _Rebuild(log, found, segment, following, data_end).run()
        return
    footer.apply(segment)
    if footer.live:
        log.subjects.load_block(footer.names, footer.stats, segment.base)
    found.prove_all()
    found.take(segment, footer.last_ts)
    found.last_seq = max(found.last_seq, segment.base + footer.places - 1)
    log.compactor.watch(segment)
    segment.let_go()


def _check_columns(file: File, footer: Footer) -> None:
    """Raises `CorruptionError` if the second part of a footer is damaged: then a scan has to count
    anew, because the first part counts without what only the second part knows to be removed."""
    try:
        check_columns(file, footer)
    except OSError:
        pass  # a bad sector: a reader of what is there gets the error


def _find_salt(log: FileLog, segment: Segment, found: _Found) -> None:
    """The header is damaged: learn the salt from where else it is kept.

    Without that, the salt is the one of the first format if the first record says so, which no
    client has placed, or if there is no record of the log's end, which the second format always
    has. Otherwise records cannot be told from other bytes, and are lost.
    """
    assert segment.file is not None
    end = found.end
    if end is not None and segment.base in end.salts:
        segment.salt = end.salts[segment.base]
        first = first_format_salt(segment.base)
        segment.format = 1 if segment.salt == first else segment.format
        return
    try:
        trailer = read_trailer(segment.file)
        segment.format, segment.salt = trailer.format, trailer.salt
    except CorruptionError:
        segment.format = 1
    if segment.format == 1:
        segment.salt = first_format_salt(segment.base)
        data = segment.file.pread(0, segment.file.size())
        is_second = end is not None or not found.has_first_format
        if is_second and not decode(data, HEADER_SIZE, segment.salt, 0, Record()):
            segment.format = Segment(segment.base, "").format
            segment.salt = int.from_bytes(log.disk.random_bytes(4), "little")


class _Rebuild:
    """Fills a segment's columns from its records. It has only zeros from `data_end` on, which may
    be the end of a record."""

    def __init__(
        self, log: FileLog, found: _Found, segment: Segment, following: str, data_end: int
    ) -> None:
        assert segment.file is not None
        assert segment.ids is not None
        assert segment.offsets is not None
        self._log = log
        self._found = found
        self._segment = segment
        self._following = following  # the name of the next segment
        self._limit = int(following[:20]) if following else SEQUENCE_MAX  # where that begins
        self._file = segment.file
        self._ids, self._offsets = segment.ids, segment.offsets
        self._data_end = data_end
        self._data = segment.file.pread(0, data_end)
        self._scan = _Scan(log, segment)
        base, durable = found.durable
        if base >= segment.base:
            self._scan.durable = durable if base == segment.base else SEQUENCE_MAX
        self._record = Record()
        self._counts = RunCounts()
        self._regions: list[tuple[int, int]] = []  # damaged, since the last whole record
        self._place_before = 0  # of the next message before these
        self._last_ts = 0  # of a record that is no message
        self._ended = False  # whether the last one of these says that the segment was closed

    def run(self) -> None:
        """Go through the records, and tell what was found."""
        at = HEADER_SIZE
        after: int | None = at
        while after is not None:
            at = self._take_run(after)
            after = self._take_one(at)
        self._settle(at)

    def _take_run(self, at: int) -> int:
        """Take in messages that follow one another, and what says that they are durable; where the
        first record is that is another one."""
        segment, counts = self._segment, self._counts
        end = read_run(
            self._data, at, segment.salt, self._log.subjects, segment.base, self._ids,
            self._offsets, counts,
        )  # fmt: skip
        if end > at and self._regions:
            self._set_aside(1, 0)
        if counts.committed > at:
            self._scan.commits.append(counts.committed)
            self._scan.prove(counts.durable)
        return end

    def _take_one(self, at: int) -> int | None:
        """Take in the record at `at`, or pass it over; where to go on, None if nothing follows."""
        segment, record = self._segment, self._record
        end = decode(self._data, at, segment.salt, segment.base, record)
        if not end:
            return self._pass_damage(at)
        if not self._may_be_here(at):
            if at < self._scan.copies_end:
                self._scan.search(at, end)
            return self._pass_over(at, end)
        self._close_gap(at)
        if record.kind in (MESSAGE, ERASED):
            return _take_place(self._scan, record, at, end)
        # Its place says how many there were: what has no record was skipped, or is lost.
        _fill_places(segment, record.seq, at)
        if record.kind == COMMIT:
            return at  # `read_run` takes it in, now that its place is the next one
        _take_control(self._scan, record, at)
        self._ended = record.kind == END
        self._last_ts = max(self._last_ts, record.ts)
        return end

    def _may_be_here(self, at: int) -> bool:
        """Whether the record at `at` says what can be, behind those before it."""
        segment, record = self._segment, self._record
        is_next = self._ids.size <= record.seq - segment.base <= PLACES_MAX
        return is_next and _may_be(segment, record, at, self._limit)

    # -- damage ----------------------------------------------------------------------------------

    def _pass_damage(self, at: int) -> int | None:
        """There is no whole record at `at`: where the next one is, None if there is none."""
        scan, data = self._scan, self._data
        end = next_whole(data, at, self._segment.salt, self._ids.size)
        if end < 0:
            if _end_of_bytes(data, at) == at or self._data_end == self._file.size():
                return None
            self._data_end = self._file.size()  # zeros may not be all that follows
            self._data = self._file.pread(0, self._data_end)
            return at
        # The original of a copy lies in the damage, with the first bytes of what carries it.
        may_be_copy = end - at >= length_at(data, end) + FIXED_SIZE
        is_believed = end == at + length_at(data, at)
        if at < scan.copies_end or (may_be_copy and not is_believed):
            scan.search(at, end)
        return self._pass_over(at, end)

    def _pass_over(self, at: int, end: int) -> int:
        """Count what lies from `at` up to `end` as damaged; the latter."""
        if not self._regions:
            self._place_before = self._ids.size
        self._regions.append((at, end))
        return end

    def _close_gap(self, at: int) -> None:
        """The record at `at` follows damage, or others than the one before it."""
        first, last = self._segment.base + self._ids.size, self._record.seq - 1
        if self._regions:
            self._set_aside(first, last)
        else:
            self._scan.take_gap(at, first, last)

    def _set_aside(self, first: int, last: int) -> None:
        """What was damaged has cost the messages from `first` to `last`, or was torn."""
        scan, regions, data = self._scan, self._regions, self._data
        start, after = regions[0][0], regions[-1][1]
        scan.damaged = scan.damaged or start < scan.durable
        scan.holes += [(start, first, last) for start, _ in regions if start >= scan.durable]
        may_be_torn = start >= scan.durable and not scan.distrusted
        if may_be_torn and _has_unwritten(data, start, after):
            part = data[start:after]
            place = self._place_before
            scan.torn.append(_Torn(start, part, place, first, last, is_end=False))
            regions.clear()
            return
        if start >= scan.durable:  # a crash does not leave that: nor what looks like it
            scan.distrusted = True
            scan.report(SEQUENCE_MAX)
        _set_aside(self._log, self._segment, data, regions, first, last)

    # -- the end ---------------------------------------------------------------------------------

    def _settle(self, end: int) -> None:
        """The records end at `end`: describe the segment, and see to it that it is durable."""
        log, found, segment, scan = self._log, self._found, self._segment, self._scan
        _settle_segment(log, segment, self._counts)
        used = _end_of_bytes(self._data, end)
        following = "" if self._ended else self._following
        if _end_segment(scan, self._data, end, used, following) and not self._ended:
            scan.holes.append((end, 1, 0))
        scan.groups = self._counts.groups
        scan.ended = self._ended
        if scan.durable:
            found.prove_all()
        found.scans.append(scan)
        found.take(segment, max(self._last_ts, self._counts.last_ts))
        found.last_seq = max(found.last_seq, segment.base + self._ids.size - 1)
        segment.written = segment.records_end = segment.referred = end
        # A footer keeps damage from being found again.
        ends = self._ended or scan.damaged or segment.format == 1
        is_closed = bool(self._following) or (end_of(segment) >= segment.base and ends)
        found.make_durable(scan, self._data, end, used, is_closed)
        if is_closed:
            segment.places = self._ids.size
            segment.closed = True
            found.unfooted.append(segment)
        else:
            log.resume(segment)


def _may_be(segment: Segment, record: Record, at: int, limit: int) -> bool:
    """Whether a record that checks out says what can be."""
    place = record.seq - segment.base
    body = record.body()
    if record.kind in (MESSAGE, ERASED):
        return place < PLACES_MAX and record.seq < limit
    if record.kind in (TOMBSTONE, FRONT, SKIP):
        if segment.format == 1:  # these were written before a jump that they speak of
            return record.kind == TOMBSTONE or int.from_bytes(body, "little") <= SEQUENCE_MAX
        return may_remove(record, segment.base, place)
    if record.kind == END:
        return segment.base + place - 1 <= int.from_bytes(body, "little") < limit
    if record.kind == COMMIT:
        return record.end - at == COMMIT_SIZE and int.from_bytes(body, "little") <= at
    return True


def _end_of_bytes(data: bytes, start: int) -> int:
    """Where the zeros begin that `data` ends with, such as reserved space, at `start` at least."""
    end = len(data)
    while end - start >= len(_ZEROS) and data.endswith(_ZEROS, 0, end):
        end -= len(_ZEROS)  # `rstrip` looks at each byte by itself
    return start + len(data[start:end].rstrip(b"\0"))


def _has_unwritten(data: bytes, start: int, end: int) -> bool:
    """Whether a hole has sectors of zeros, or what it has of them, and zeros begin and end with
    them. That is what a crash leaves, since space is zeros before it is written; the zeros of a
    message lie anywhere."""
    if end - start < FIXED_SIZE:
        return False
    begins = False  # whether sectors of zeros lie before `at`, and what is before them is not
    in_zeros = False
    at = start
    while at < end:
        after = min(at - at % SECTOR + SECTOR, end)
        if (after == end or after % SECTOR == 0) and not data[at:after].strip(b"\0"):
            if not in_zeros:
                before = data[max(at - EDGE, start) : at]
                begins = not before or bool(before.strip(b"\0"))
            in_zeros = True
        else:
            if in_zeros and begins and data[at : at + EDGE].strip(b"\0"):
                return True
            in_zeros = False
        at = after
    return in_zeros and begins


def _end_segment(scan: _Scan, data: bytes, end: int, used: int, following: str) -> bool:
    """What lies after the last whole record: zeros, a torn write, a damaged footer, or damage; from
    `used` on there are zeros. Whether something is not as it should be.

    With `following` the segment did not come to its end, and the next one begins there.
    """
    segment = scan.segment
    assert segment.ids is not None
    first, last = segment.base + segment.ids.size, 0
    if following:
        last = int(following[:20]) - 1
    if last >= first and end >= scan.durable:
        part = data[end:used]
        scan.torn.append(_Torn(end, part, segment.ids.size, first, last, is_end=True))
    elif last >= first or used > end:
        _set_aside(scan.log, segment, data, [(end, used)], first, last)
    return bool(following) or used > end


def _fill_places(segment: Segment, seq: int, at: int) -> None:
    """Places without a record, up to that of `seq`."""
    assert segment.ids is not None
    assert segment.offsets is not None
    while segment.base + segment.ids.size < seq:
        segment.ids.append(GONE)
        segment.offsets.append(at)


def _take_place(scan: _Scan, record: Record, at: int, end: int) -> int:
    """Fill the gap before a message that `read_run` stopped at; where that is to go on.

    Sequences without a record were skipped or are lost.
    """
    segment = scan.segment
    _fill_places(segment, record.seq, at)
    if record.kind == MESSAGE:
        return at
    scan.erased = min(scan.erased, at)
    _fill_places(segment, record.seq + 1, at)
    return end


def _take_control(scan: _Scan, record: Record, at: int) -> None:
    """What a record that is no message says about others."""
    segment = scan.segment
    body = record.body()
    if record.kind in (TOMBSTONE, FRONT):
        scan.removals.append((at, record.kind, body, record.seq - segment.base))
        if at < scan.durable:
            scan.believe(scan.durable)
    elif record.kind in (SKIP, END):
        segment.last_seq = max(segment.last_seq, int.from_bytes(body, "little"))


def _settle_segment(log: FileLog, segment: Segment, counts: RunCounts) -> None:
    """Describe the segment by what was counted."""
    plain = log.size_of(0, 0, 0)
    segment.live = counts.messages
    segment.bytes = counts.text_bytes + counts.messages * plain
    segment.bytes += counts.with_header * (log.size_of(0, 1, 0) - 1 - plain)
    segment.first_ts = counts.first_ts
    segment.last_ts = counts.last_ts
    segment.has_headers = counts.with_header > 0


def _set_aside(
    log: FileLog,
    segment: Segment,
    data: bytes,
    regions: list[tuple[int, int]],
    first: int,
    last: int,
    offset: int = 0,
    is_torn: bool = False,
) -> None:
    """Keep damaged bytes, and count the messages from `first` to `last` that went with them. `data`
    begins at `offset` of the segment."""
    lost = log.lost
    for start, end in regions:
        if last < first:
            first = last = 0
        part = data[start:end]
        try:
            is_new = damage.set_aside(
                log.disk, log.directory, segment.base, offset + start, part, first, last, is_torn
            )
        except DiskFullError:  # what can be read is worth more than what cannot
            is_new = True
        if is_new:
            if first:
                lost.add(first, last, len(part))
            else:
                lost.bytes += len(part)
        last = 0
        first = 1
    regions.clear()
