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
from typing import TYPE_CHECKING, Any

from slipstream.errors import DiskFullError, StorageError
from slipstream.log.columns import GONE
from slipstream.log.disk import Disk, report_damage, write_file
from slipstream.log.durability import Lost
from slipstream.log.segment import SEQUENCE_MAX

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog

DIRECTORY = "damaged"  # beside the segments
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


def lose(log: "FileLog", segment: Any, seq: int) -> None:
    """Go on without message `seq`, which cannot be read; say so unless it was erased."""
    i = seq - segment.base
    if segment.ids is None:
        log.reader.load(segment)
    ids = segment.ids
    found = log.reader.examine(segment, i)
    if not found.erased and not log.replaying:
        log.lost.add(seq, seq, len(found.data))
        try:
            place = found.offset
            set_aside(log.disk, log.directory, segment.base, place, found.data, seq, seq)
        except (OSError, StorageError):
            pass  # it is still where it was
    size = min(found.size, segment.bytes)
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
