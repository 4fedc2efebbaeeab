"""What the commit log held when the server ended, as the changes that it comes to.

Two files take turns. Of both together the entries from the highest `floor` on count; what lies
before was applied. A torn end is cut: nobody was answered for it. An entry that was durable and is
damaged is lost, and reported; those after it are whole, and count.
"""

from dataclasses import dataclass, field

from slipstream.errors import CorruptionError
from slipstream.log.commit_entry import (
    HEAD_SIZE,
    REFER,
    REMOVE,
    STANDS,
    VERSION,
    WRITE,
    Entry,
    Head,
    Record,
    next_entry,
)


@dataclass
class Replay:
    """The outcome: what is to be applied, in this order, and where the log goes on."""

    changes: list[Record] = field(default_factory=list)
    # Bytes of segments, after that: what is of one segment of one stream together, in its order.
    writes: list[list[Record]] = field(default_factory=list)
    references: list[Record] = field(default_factory=list)  # bytes that segments have durably
    lost: list[int] = field(default_factory=list)  # indices of entries that damage has taken
    floor: int = 1  # the first entry that counts
    index: int = 0  # of the last entry
    crc: int = 0  # its checksum
    active: int = 0  # the file that was written last
    salt: int = 0  # of that file
    version: int = VERSION  # ... which says what it may have
    end: int = 0  # bytes of it that count; 0: it has not been begun
    other_last: int = 0  # index of the last entry that the other file may have


@dataclass
class _Place:
    """An entry, and where it begins."""

    entry: Entry
    file: int
    at: int


def replay(files: list[bytes]) -> Replay:
    """Read the files of a log. Raises `StorageError`, for a log of a later version, and
    `CorruptionError` if the files do not belong together."""
    heads = [Head.decode(data) for data in files]
    begun = [(head, number) for number, head in enumerate(heads) if head is not None]
    if not begun:
        return Replay()
    newest, active = max(begun, key=lambda item: item[0].first)
    found: dict[int, _Place] = {}
    paths: dict[bytes, str] = {}
    for head, number in begun:
        for place in _entries(head, files[number], number, paths):
            found[place.entry.index] = place
    outcome = Replay(
        index=newest.first - 1,
        active=active,
        salt=newest.salt,
        version=newest.version,
        end=HEAD_SIZE,
        other_last=newest.first - 1,
    )
    _gather(found, newest, outcome)
    return outcome


def _entries(head: Head, data: bytes, number: int, paths: dict[bytes, str]) -> list[_Place]:
    """The whole entries of a file, in order; `paths` are those that were met."""
    found = []
    at = HEAD_SIZE
    least = head.first
    while (there := next_entry(data, at, head.salt, paths)) is not None:
        at, entry = there
        if entry.index >= least:
            found.append(_Place(entry, number, at))
            least = entry.index + 1
        at += entry.size
    return found


def _gather(found: dict[int, _Place], newest: Head, outcome: Replay) -> None:
    durable = max((place.entry.durable for place in found.values()), default=0)
    end = durable
    while end + 1 in found:
        end += 1
    # What follows one that was torn does not count, nor what it says was applied: that one may have
    # repeated some of it.
    floors = [place.entry.floor for index, place in found.items() if index <= end]
    floor = max(floors, default=newest.first)
    outcome.floor = floor
    records: list[Record] = []
    before: Entry | None = None
    for index in range(floor, max(found, default=0) + 1):
        place = found.get(index)
        if place is None:
            if index > durable:
                break  # torn: what follows had not been waited for either
            outcome.lost.append(index)
            outcome.index = max(outcome.index, index)
            before = None
            continue
        entry = place.entry
        if before is not None and entry.previous != before.crc:
            raise CorruptionError(
                f"entry {index} of the commit log does not follow the one before it: its files are "
                "not of one time. Restore both from one backup, or move the folder commit-log away "
                "to go on without what was changed last"
            )
        before = entry
        outcome.index, outcome.crc = index, entry.crc
        if place.file == outcome.active:
            outcome.end = place.at + entry.size
        records += entry.records
    if outcome.index < newest.first - 1:  # torn before the newer file begins: it has no entries
        outcome.end = 0
    _take_last_of_each(records, outcome)


def _take_last_of_each(records: list[Record], outcome: Replay) -> None:
    """The records that count: the last one about each small file, all about bytes of segments,
    nothing from before its directory went. What is of another stream_created of a stream is about
    something else."""
    found = []
    writes: dict[tuple[int, str], list[Record]] = {}  # the last one first
    references = []
    settled: set[tuple[int, str]] = set()  # nothing earlier about these paths counts
    gone: set[tuple[int, str]] = set()  # ... nor about what lies in these
    for record in reversed(records):
        key = (record.stream_created, record.path)
        if key in settled or (gone and _is_in(key, gone)):
            continue
        kind = record.kind
        if kind == WRITE:
            of_segment = writes.get(key)
            if of_segment is None:
                writes[key] = [record]
            else:
                of_segment.append(record)
            continue
        if kind == REFER:
            references.append(record)
            continue
        settled.add(key)
        if kind == REMOVE:
            gone.add(key)
        if kind != STANDS:
            found.append(record)
    outcome.changes = found[::-1]
    outcome.writes = [of_segment[::-1] for of_segment in writes.values()][::-1]
    outcome.references = references[::-1]


def _is_in(key: tuple[int, str], gone: set[tuple[int, str]]) -> bool:
    """Whether a path is one of those that are gone, or lies in one."""
    own, path = key
    while path:
        if (own, path) in gone:
            return True
        path = path.rpartition("/")[0]
    return False
