"""Damaged bytes, kept aside for inspection, and the list of what they cost.

    <directory>/damaged/<base>-<offset>                         bytes that were no whole record, or
                                                                none where a file is missing, or
                                                                copies of others stand for them
                        <base>-<offset>.lost-<first>-<last>     ... and the messages lost with them
                        <base>-<offset>-2...                    ... damaged there another time

The names are the list: it outlives restarts, and ends when an operator removes the files (see
docs/storage.md).
"""

import re
from typing import TYPE_CHECKING

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.log.columns import GONE
from slipstream.log.disk import Disk, report_damage, write_file
from slipstream.log.durability import Lost
from slipstream.log.record import Record
from slipstream.log.segment import SEQUENCE_MAX, Segment

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog
    from slipstream.log.segment_reader import Remains

DIRECTORY = "damaged"  # beside the segments
# What cannot be read is kept aside in one go, and told by one name: each costs two syncs, and the
# server does nothing else meanwhile.
RUN_MESSAGES_MAX = 1024
RUN_BYTES_MAX = 1024 * 1024
_NAME = re.compile(
    r"(?P<place>\d{20}-\d+)(?:-\d+)?(?:\.lost-(?P<first>\d{1,19})-(?P<last>\d{1,19}))?", re.ASCII
)


def set_aside(
    disk: Disk,
    directory: str,
    base: int,
    offset: int,
    data: bytes,
    first: int = 0,
    last: int = 0,
    is_torn: bool = False,
) -> bool:
    """Keep `data`, found at `offset` of segment `base`; with it `first` to `last` were lost (0:
    nothing). False if these bytes were kept before. What a crash has left (`is_torn`) is no damage.
    Durable on return. Raises OSError, `StorageError`.
    """
    aside = f"{directory}/{DIRECTORY}"
    place = f"{base:020d}-{offset}"
    loss = f".lost-{first}-{last}" if first else ""
    found = [_NAME.fullmatch(name) for name in disk.list(aside)]
    before = [match for match in found if match is not None and match["place"] == place]
    for match in before:
        if match[0].endswith(loss) if loss else disk.read(f"{aside}/{match[0]}") == data:
            return False
    if not is_torn:
        report_damage(disk, f"segment {base} of {directory} is damaged at byte {offset}")
    if before:  # a torn write was cut off here, and what took its place is damaged now
        place += f"-{1 + len(before)}"
    disk.makedirs(aside)
    write_file(disk, f"{aside}/{place}{loss}", data)
    disk.sync_dir(aside)
    return True


def kept_aside(disk: Disk, directory: str, base: int, offset: int, size: int) -> bool:
    """Whether these bytes of a segment are known to be damaged: all of them were set aside."""
    found = []
    aside = f"{directory}/{DIRECTORY}"
    for name in disk.list(aside):
        match = _NAME.fullmatch(name)
        if match is not None and int(match["place"][:20]) == base:
            length = len(disk.read(f"{aside}/{name}"))
            found.append((int(match["place"][21:]), length))
    at = offset
    for start, length in sorted(found):
        if start <= at:
            at = max(at, start + length)
    return at >= offset + size


def lose(log: "FileLog", segment: Segment, seq: int) -> None:
    """Go on without message `seq`, which cannot be read, nor those right behind it that cannot be
    read either: all are kept aside as one. Say so, unless `seq` was erased."""
    i = seq - segment.base
    if segment.ids is None:
        log.reader.load(segment)
    run = _unreadable(log, segment, i)
    if not run[0].erased and not log.replaying:
        last = seq + len(run) - 1
        data = b"".join(found.data for found in run)
        log.lost.add(seq, last, len(data))
        try:
            set_aside(log.disk, log.directory, segment.base, run[0].offset, data, seq, last)
        except (OSError, StorageError):
            pass  # it is still where it was
    for place, found in enumerate(run, i):
        _take_out(log, segment, place, found.size)


def _unreadable(log: "FileLog", segment: Segment, i: int) -> "list[Remains]":
    """What is left of the message at place `i`, and of live ones that follow it without another
    between them, as far as none can be read and their bytes are one piece, or are not there."""
    ids = segment.ids
    assert ids is not None
    run = [log.reader.examine(segment, i)]
    if log.replaying:  # which of them are told already is known for each alone
        return run
    size = len(run[0].data)
    record = Record()
    while not run[-1].erased and len(run) < RUN_MESSAGES_MAX and size < RUN_BYTES_MAX:
        i += 1
        if i >= ids.size or ids.get(i) == GONE:
            break
        try:
            log._fill(segment, i, record)
            break
        except CorruptionError:
            found = log.reader.examine(segment, i)
        except (OSError, StorageError):  # it may be readable another time
            break
        is_next = found.offset == run[0].offset + size or not (size or found.data)
        if found.erased or not is_next:
            break
        run.append(found)
        size += len(found.data)
    return run


def _take_out(log: "FileLog", segment: Segment, i: int, size: int) -> None:
    """The message at place `i` is no more; its `size` as clients count it."""
    ids = segment.ids
    assert ids is not None
    seq = segment.base + i
    size = min(size, segment.bytes)
    log._forgotten(segment, i, False)
    log.subjects.removed(ids.get(i), seq)
    ids.set(i, GONE)
    segment.live -= 1
    if segment.live == 0:
        size = segment.bytes
    segment.bytes -= size
    log.messages -= 1
    log.bytes -= size
    if segment.live == 0:
        log._drop_if_done(segment)
    if seq == log.first_seq:
        log.move_first(seq + 1)


def lose_range(log: "FileLog", first: int, last: int) -> None:
    """Count the messages from `first` to `last` as lost, of which there are no bytes. Durable on
    return, unless the disk is full. Raises OSError, `StorageError`."""
    try:
        is_new = set_aside(log.disk, log.directory, first, 0, b"", first, last)
    except DiskFullError:  # what can be read is worth more
        is_new = True
    if is_new:
        log.lost.add(first, last, 0)


def recall(disk: Disk, directory: str) -> Lost:
    """What was lost so far."""
    lost = Lost()
    aside = f"{directory}/{DIRECTORY}"
    for name in disk.list(aside):
        found = _NAME.fullmatch(name)
        if found is None:
            continue
        try:
            file = disk.open(f"{aside}/{name}")
        except (OSError, StorageError):
            continue
        size = file.size()
        file.close()
        first, last = int(found["first"] or 0), int(found["last"] or 0)
        if 0 < first <= last <= SEQUENCE_MAX:
            lost.add(first, last, size)
        else:
            lost.bytes += size
    return lost
