"""Opening a log: footers are read, what has none is scanned, and damage costs what it must.

* A closed segment with a whole footer is described by it; its records are not read.
* Any other segment is scanned. Records check out one by one; behind a damaged one the next whole
one
  is looked for, and what lies between is set aside in `damaged/` and counted as lost.
* In the last segment, bytes behind the last whole record are a torn write: they are cut off.
Nothing
  acknowledged lies there, because an acknowledgement waits for the fdatasync that covers it.
* Nothing is deleted because something else could not be read.
"""

import zlib

from slipstream.errors import CorruptionError
from slipstream.log.block_cache import BlockCache
from slipstream.log.columns import GONE
from slipstream.log.disk import Disk
from slipstream.log.file_log import FileLog
from slipstream.log.record import (
    ERASED,
    FRONT,
    MESSAGE,
    SKIP,
    TOMBSTONE,
    Record,
    Tally,
    decode,
    gather,
    resync,
)
from slipstream.log.segment import (
    HEADER_SIZE,
    Segment,
    decode_header,
    read_footer,
)


def open_log(
    disk: Disk, directory: str, cache: BlockCache | None = None, first_seq: int = 1
) -> FileLog:
    """Open the log in `directory`, or begin one there with `first_seq`. Blocks."""
    disk.makedirs(directory)
    log = FileLog(disk, directory, cache, first_seq)
    names = [name for name in disk.list(directory) if name.endswith(".seg")]
    found = _Found(log)
    for name, following in zip(names, names[1:] + [""] * bool(names), strict=True):
        _open_segment(log, found, name, following)
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
        self.removed: list[tuple[int, int]] = []

    def settle(self) -> None:
        """Apply removals and fill in the log's state."""
        log = self.log
        log.last_seq = log.durable_seq = self.last_seq
        log.last_ts = self.last_ts
        log.messages = sum(segment.live for segment in log.blocks)
        log.bytes = sum(segment.bytes for segment in log.blocks)
        log.replaying = True
        log.first_seq = 0
        log.move_first(0)
        log.drop_below(self.front)
        for first, count in self.removed:
            for seq in range(max(first, log.first_seq), first + count):
                log.remove(seq, False)
        log.replaying = False
        log.recovered()


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
    segment.tombs = footer.tombs
    segment.written = footer.records_end
    found.removed.extend(footer.tombs)
    segment.front = footer.front
    segment.last_seq = footer.last_seq
    found.front = max(found.front, footer.front)
    found.last_seq = max(found.last_seq, footer.last_seq, base + footer.places - 1)
    found.last_ts = max(found.last_ts, footer.last_ts)
    log.blocks.append(segment)
    file.close()
    segment.file = None


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
    damaged = False
    while True:
        at = end
        end = gather(
            data, at, segment.salt, log.subjects, segment.base, ids, segment.offsets, tally
        )
        damaged = damaged and end == at
        at = end
        end = decode(data, at, segment.salt, segment.base, record)
        if not end:
            end = resync(data, at + 1, segment.salt)
            if end < 0:
                break
            _set_aside(log, segment, data, at, end)
            damaged = True
        elif record.kind in (MESSAGE, ERASED):
            if damaged:
                log.note_lost(list(range(segment.base + ids.size, record.seq)), 0)
                damaged = False
            end = _take_place(segment, record, at, end)
        else:
            _take_control(found, segment, record)
            found.last_ts = max(found.last_ts, record.ts)
    _settle_segment(log, segment, tally)
    end = at
    if data[end:] != bytes(len(data) - end):
        _set_aside(log, segment, data, end, len(data))
        if following:
            behind = int(following.split(".")[0])
            log.note_lost(list(range(segment.base + ids.size, behind)), 0)
    found.last_ts = max(found.last_ts, tally.last_ts)
    found.front = max(found.front, segment.front)
    found.last_seq = max(found.last_seq, segment.last_seq, segment.base + ids.size - 1)
    _resume(log, segment, end, is_last=not following)


def _take_place(segment: Segment, record: Record, at: int, end: int) -> int:
    """Fill the gap before a message that `gather` stopped at, so that it can go on; where it does.

    Sequences without a record were skipped or are lost.
    """
    assert segment.ids is not None
    assert segment.offsets is not None
    place = record.seq - segment.base
    if place < segment.ids.size:
        return end  # a stray copy: its place is taken
    while segment.ids.size < place:
        segment.ids.append(GONE)
        segment.offsets.append(at)
    if record.kind == MESSAGE:
        return at
    segment.ids.append(GONE)
    segment.offsets.append(at)
    return end


def _take_control(found: _Found, segment: Segment, record: Record) -> None:
    """What a record that is no message says about others."""
    body = record.body()
    if record.kind == TOMBSTONE:
        entry = (int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little"))
        segment.tombs.append(entry)
        found.removed.append(entry)
    elif record.kind == FRONT:
        segment.front = int.from_bytes(body, "little")
    elif record.kind == SKIP:
        segment.last_seq = int.from_bytes(body, "little")


def _settle_segment(log: FileLog, segment: Segment, tally: Tally) -> None:
    """Describe the segment by what was counted."""
    plain = log.size_of(0, 0, 0)
    segment.live = tally.messages
    segment.bytes = tally.text_bytes + tally.messages * plain
    segment.bytes += tally.with_header * (log.size_of(0, 1, 0) - 1 - plain)
    segment.first_ts = tally.first_ts
    segment.last_ts = tally.last_ts


def _set_aside(log: FileLog, segment: Segment, data: bytes, start: int, end: int) -> None:
    """Keep damaged bytes for whoever wants to look at them."""
    aside = f"{log.directory}/damaged"
    log.disk.makedirs(aside)
    file = log.disk.open(f"{aside}/{segment.base:020d}-{start}")
    try:
        if file.size() == 0:
            file.append(data[start:end])
    finally:
        file.close()


def _resume(log: FileLog, segment: Segment, end: int, is_last: bool) -> None:
    """Go on writing in the last segment; give an older one the footer that it lacks."""
    assert segment.ids is not None
    assert segment.file is not None
    segment.written = segment.records_end = end
    segment.file.truncate(end)
    log.blocks.append(segment)
    if is_last:
        log.resume(segment)
        return
    segment.places = segment.ids.size
    segment.closed = True
    log.request_footer(segment)
