"""Opening a log: footers are read, what has none is scanned, and damage costs what it must.

* A closed segment with a whole footer is described by it; its records are not read.
* Any other segment is scanned. Records check out one by one; behind a damaged one the next whole
  one is looked for, and what lies between is set aside in `damaged/` and counted as lost.
* In the last segment, bytes behind the last whole record are a torn write: they are set aside too,
  and cut off. Nothing acknowledged lies there: an acknowledgement waits for the fdatasync.
* Nothing is deleted because something else could not be read.
"""

import re
import zlib
from itertools import pairwise

from slipstream.errors import CorruptionError, DiskFullError
from slipstream.log import damage
from slipstream.log.block_cache import BlockCache
from slipstream.log.columns import GONE
from slipstream.log.disk import Disk
from slipstream.log.file_log import SEGMENT_BYTES, FileLog
from slipstream.log.record import (
    END,
    ERASED,
    FRONT,
    MESSAGE,
    TOMBSTONE,
    Record,
    Tally,
    decode,
    gather,
    resync,
)
from slipstream.log.segment import (
    HEADER_SIZE,
    RANGE,
    Segment,
    decode_header,
    read_footer,
)

_SEGMENT_NAME = re.compile(r"\d{20}\.seg")  # whatever else lies there is not the log's


def open_log(
    disk: Disk,
    directory: str,
    cache: BlockCache | None = None,
    first_seq: int = 1,
    segment_bytes: int = SEGMENT_BYTES,
) -> FileLog:
    """Open the log in `directory`, or begin one there with `first_seq`. Blocks.

    Raises OSError, `StorageError`.
    """
    disk.makedirs(directory)
    log = FileLog(disk, directory, cache, first_seq, segment_bytes)
    log.set_lost(damage.recall(disk, directory))
    entries = disk.list(directory)
    for name in entries:
        if name.endswith(".new"):  # a compaction that did not come to its end
            disk.remove(f"{directory}/{name}")
    names = [name for name in entries if _SEGMENT_NAME.fullmatch(name)]
    while len(names) > 1 and _is_blank(disk, f"{directory}/{names[-1]}"):
        # Begun in a batch that the end of the segment before it was in, too, and that did not end:
        # nothing of either was said to be durable.
        disk.remove(f"{directory}/{names.pop()}")
    found = _Found(log)
    for name, following in pairwise([*names, ""]):
        _open_segment(log, found, name, following)
    for _, last in log.lost.ranges:  # what was lost at the end is nobody else's sequence
        found.last_seq = max(found.last_seq, last)
    if names:
        found.settle()
    return log


class _Found:
    """What the segments say about the log as a whole."""

    def __init__(self, log: FileLog) -> None:
        self.log = log
        self.front = log.first_seq
        self.last_seq = log.last_seq
        self.last_ts = 0
        self.removed: list[tuple[int, int, int]] = []  # first, behind the last, told by segment
        self.unfooted: list[Segment] = []

    def take(self, segment: Segment, last_ts: int) -> None:
        """What a segment's records say about others."""
        for first, count in RANGE.iter_unpack(segment.tombs):
            self.removed.append((first, first + count, segment.base))
        self.front = max(self.front, segment.front)
        self.last_seq = max(self.last_seq, segment.last_seq)
        self.last_ts = max(self.last_ts, last_ts)

    def settle(self) -> None:
        """Apply removals and fill in the log's state."""
        log = self.log
        log.last_seq = log.durable_seq = self.last_seq
        log.last_ts = self.last_ts
        log.messages = sum(segment.live for segment in log.blocks)
        log.bytes = sum(segment.bytes for segment in log.blocks)
        log.replaying = True
        self._find_first()
        log.drop_below(self.front)
        self._remove()
        log.replaying = False
        log.recovered()
        for segment in self.unfooted:
            if segment.live:
                log.request_footer(segment, log.active_base())

    def _find_first(self) -> None:
        """The first message; the columns are read only if that is not the first one stored."""
        log = self.log
        first = next((segment for segment in log.blocks if segment.live), None)
        if first is not None and first.closed and first.live == first.places:
            log.first_seq, log.first_ts = first.base, first.first_ts
        else:
            log.first_seq = 0
            log.move_first(0)

    def _remove(self) -> None:
        """Remove what tombstones tell of, segment by segment, where it is not known already."""
        log = self.log
        self.removed.sort()
        at = 0
        for segment in list(log.blocks):
            behind = segment.base + (segment.places if segment.closed else segment.ids.size)
            while at < len(self.removed) and self.removed[at][1] <= segment.base:
                at += 1
            n = at
            while n < len(self.removed) and self.removed[n][0] < behind:
                first, last, told_by = self.removed[n]
                n += 1
                if told_by >= segment.as_of:
                    for seq in range(max(first, segment.base, log.first_seq), min(last, behind)):
                        log.remove(seq, False)


def _is_blank(disk: Disk, path: str) -> bool:
    """Whether there is nothing but reserved space in a file."""
    file = disk.open(path)
    try:
        head = file.pread(0, HEADER_SIZE)
        return not head.strip(b"\0") and not file.pread(0, file.size()).strip(b"\0")
    finally:
        file.close()


def _open_segment(log: FileLog, found: _Found, name: str, following: str) -> None:
    is_last = not following
    path = f"{log.directory}/{name}"
    file = log.disk.open(path)
    try:
        base = decode_header(file.pread(0, HEADER_SIZE))
    except CorruptionError:
        base = int(name.split(".")[0])  # the name tells it too; the records check themselves
        if is_last and file.size() < HEADER_SIZE:
            file.close()
            log.disk.remove(path)  # created, but nothing was ever written to it
            found.last_seq = max(found.last_seq, base - 1)
            return
    if base != int(name.split(".")[0]) and base <= found.last_seq:
        file.close()
        return  # somebody's copy of a segment
    if base <= found.last_seq and not file.pread(HEADER_SIZE, file.size()).strip(b"\0"):
        file.close()
        log.disk.remove(path)  # begun in vain: the segment before it went on
        return
    segment = Segment(base, path)
    segment.file = file
    found.last_seq = max(found.last_seq, base - 1)
    try:
        footer = read_footer(file)
    except (CorruptionError, zlib.error):
        _scan_segment(log, found, segment, following)
        return
    footer.apply(segment)
    if footer.live:
        log.subjects.load_block(footer.names, footer.stats, base)
    found.take(segment, footer.last_ts)
    found.last_seq = max(found.last_seq, base + footer.places - 1)
    log.blocks.append(segment)
    log.compactor.watch(segment)
    segment.let_go()


def _scan_segment(log: FileLog, found: _Found, segment: Segment, following: str) -> None:
    """Rebuild a segment's columns from its records."""
    assert segment.file is not None
    assert segment.ids is not None
    assert segment.offsets is not None
    ids = segment.ids
    data = segment.file.pread(0, segment.file.size())
    record = Record()
    tally = Tally()
    end = HEADER_SIZE
    regions: list[tuple[int, int]] = []  # damaged, since the last whole record
    last_ts = 0
    ended = False
    while True:
        at = end
        end = gather(
            data, at, segment.salt, log.subjects, segment.base, ids, segment.offsets, tally
        )
        if end > at and regions:
            _set_aside(log, segment, data, regions, 0, 0)
        at = end
        end = decode(data, at, segment.salt, segment.base, record)
        if not end:
            end = resync(data, at + 1, segment.salt)
            if end < 0:
                break
            regions.append((at, end))
        elif record.kind in (MESSAGE, ERASED):
            if regions:
                lost = (segment.base + ids.size, record.seq - 1)
                _set_aside(log, segment, data, regions, *lost)
            end = _take_place(segment, record, at, end)
        else:
            # Its place says how many there were: what has no record was skipped, or is lost.
            if regions:
                _set_aside(log, segment, data, regions, segment.base + ids.size, record.seq - 1)
            _fill_places(segment, record.seq, at)
            _take_control(segment, record)
            ended = record.kind == END
            last_ts = max(last_ts, record.ts)
    _settle_segment(log, segment, tally)
    _end_segment(log, segment, data, at, "" if ended else following)
    found.take(segment, max(last_ts, tally.last_ts))
    found.last_seq = max(found.last_seq, segment.base + ids.size - 1)
    segment.written = segment.records_end = at
    if len(data) != at:
        # It was not closed in order. What was read may be in the system's memory alone and, after a
        # sync that failed, taken for written: only writing it again makes it durable.
        segment.file.truncate(at)
        segment.file.pwrite(0, data[:at])
        segment.file.sync()
        log.disk.sync_dir(log.directory)
    log.blocks.append(segment)
    if not following:
        log.resume(segment)
        return
    segment.places = ids.size
    segment.closed = True
    found.unfooted.append(segment)


def _end_segment(log: FileLog, segment: Segment, data: bytes, end: int, following: str) -> None:
    """What lies behind the last whole record: zeros, a torn write, a damaged footer, or damage.

    With `following` the segment did not come to its end, and the next one begins there.
    """
    assert segment.ids is not None
    first, last = segment.base + segment.ids.size, 0
    if following:
        last = int(following.split(".")[0]) - 1
    behind = end + len(data[end:].rstrip(b"\0"))  # reserved space is zeros
    if last >= first or behind > end:
        _set_aside(log, segment, data, [(end, behind)], first, last)


def _fill_places(segment: Segment, seq: int, at: int) -> None:
    """Places without a record, up to that of `seq`."""
    assert segment.ids is not None
    assert segment.offsets is not None
    while segment.base + segment.ids.size < seq:
        segment.ids.append(GONE)
        segment.offsets.append(at)


def _take_place(segment: Segment, record: Record, at: int, end: int) -> int:
    """Fill the gap before a message that `gather` stopped at, so that it can go on; where it does.

    Sequences without a record were skipped or are lost.
    """
    assert segment.ids is not None
    if record.seq < segment.base + segment.ids.size:
        return end  # a stray copy: its place is taken
    _fill_places(segment, record.seq, at)
    if record.kind == MESSAGE:
        return at
    _fill_places(segment, record.seq + 1, at)
    return end


def _take_control(segment: Segment, record: Record) -> None:
    """What a record that is no message says about others."""
    body = record.body()
    if record.kind == TOMBSTONE:
        segment.tombs += body[: len(body) - len(body) % RANGE.size]
    elif record.kind == FRONT:
        segment.front = int.from_bytes(body, "little")
    else:
        segment.last_seq = int.from_bytes(body, "little")


def _settle_segment(log: FileLog, segment: Segment, tally: Tally) -> None:
    """Describe the segment by what was counted."""
    plain = log.size_of(0, 0, 0)
    segment.live = tally.messages
    segment.bytes = tally.text_bytes + tally.messages * plain
    segment.bytes += tally.with_header * (log.size_of(0, 1, 0) - 1 - plain)
    segment.first_ts = tally.first_ts
    segment.last_ts = tally.last_ts
    segment.has_headers = tally.with_header > 0


def _set_aside(
    log: FileLog,
    segment: Segment,
    data: bytes,
    regions: list[tuple[int, int]],
    first: int,
    last: int,
) -> None:
    """Keep damaged bytes, and count the messages from `first` to `last` that went with them."""
    lost = log.lost
    for start, end in regions:
        if last < first:
            first = last = 0
        part = data[start:end]
        try:
            is_new = damage.set_aside(
                log.disk, log.directory, segment.base, start, part, first, last
            )
        except DiskFullError:  # what can be read is worth more than what can not
            is_new = True
        if is_new:
            if first:
                lost.add(first, last, len(part))
            else:
                lost.bytes += len(part)
        last = 0
        first = 1
    regions.clear()
