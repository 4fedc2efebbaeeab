"""The codec of the log's records: both builds write the same, and read the same from any bytes."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, agree, outcome

DICTIONARY = [b"\xa5", b"\xa5\x01", b"\xa5\x11", b"\xa5\x03", b"\0\0\0\0", b"\xff\xff\xff\xff"]
RECORDS_MAX = 12


def seeds() -> list[bytes]:
    """A few records, whole and with something overwritten."""
    return [
        bytes([3, *([0, 1, 2, 3, 97, 98, 99, 4] * 4), 0]),
        bytes([5, *range(60), 2, 9, 8, 7, 6, 5]),
        bytes([8, *([1, 0, 1, 97, 5] * 12), 1, 30, 0, 0xA5]),
        bytes([1, 3, 0, 0, 200, 220, 240]),
    ]


class _Side:
    """One build's modules."""

    def __init__(self, build: Build) -> None:
        self.record = build("slipstream.log.record")
        self.columns = build("slipstream.log.columns")
        self.index = build("slipstream.log.subject_index")
        self.buffer = build("slipstream.wire.buffer")


def make(plain: Build, compiled: Build) -> OneInput:
    """Write records, spoil them, and read what there is."""
    sides = [_Side(build) for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        found = [_written(side, Choices(data)) for side in sides]
        agree("written records", found[0][0], found[1][0])
        stored, choices = _spoiled(bytes(found[0][1]), found[0][2])
        salt, base, at = choices.byte() % 2, choices.signed() % 2**63, choices.signed()
        read = [_read(side, stored, salt, base, at) for side in sides]
        agree("what is read", read[0], read[1])

    return one_input


def _written(side: _Side, choices: Choices) -> tuple[list[object], bytes, Choices]:
    out = side.buffer.OutBuffer()
    results: list[object] = []
    for place in range(1 + choices.byte() % RECORDS_MAX):
        kind = choices.pick((1, 1, 1, 1 | 0x20, 2, 3, 4, 5, 6))
        subject, data = choices.text(12), choices.text(40)
        edges = sorted(choices.byte() % (len(data) + 1) for _ in range(3))
        if choices.byte() == 255:
            edges = [choices.signed() % 2**40 - 2**39 for _ in range(3)]
        ts = choices.signed()
        encode = side.record.encode
        results.append(
            outcome(
                (IndexError, ValueError), encode, out, kind, 0, place, ts, subject, data, *edges
            )
        )
    taken = out.take()
    return [results, taken], taken, choices


def _spoiled(data: bytes, choices: Choices) -> tuple[bytes, Choices]:
    """The bytes, with some overwritten, cut out or repeated."""
    stored = bytearray(data)
    for _ in range(choices.below(6)):
        at = choices.below(len(stored) + 1)
        what = choices.below(4)
        if what == 0:
            new = choices.text(8)
            stored[at : at + len(new)] = new
        elif what == 1:
            del stored[at : at + choices.byte()]
        elif what == 2:
            stored[at:at] = choices.text(30)
        else:
            stored[at:at] = bytes(stored[at : at + choices.byte()])
    return bytes(stored), choices


def _read(side: _Side, data: bytes, salt: int, base: int, at: int) -> list[object]:
    record = side.record.Record()
    found: list[object] = []
    for start in sorted({0, 1, 24, max(0, len(data) - 24), len(data), at}):
        found.append(side.record.length_at(data, start))
        for end in (
            side.record.peek(data, start, base, record),
            side.record.decode(data, start, salt, base, record),
        ):
            found.append(end)
            if end:
                parts = record.header_start, record.body_start, record.end
                found.append((record.seq, record.ts, record.kind, record.packed, parts))
                found.append((record.subject, record.header(), record.body()))
        place = base % 64
        found.append(side.record.resync(data, start, salt, place))
        if start >= 0:
            found.append(side.record.next_whole(data, start, salt, place))
    found.append(_gathered(side, data, salt, base))
    return found


def _gathered(side: _Side, data: bytes, salt: int, base: int) -> list[object]:
    ids, offsets = side.columns.Column(), side.columns.Column()
    subjects, counts = side.index.SubjectIndex(), side.record.RunCounts()
    base %= 2**62
    ends = []
    at = 0
    while at >= 0:
        at = side.record.read_run(data, at, salt, subjects, base, ids, offsets, counts)
        ends.append(at)
        at = side.record.next_whole(data, at, salt, ids.size)
    if ids.size != offsets.size or ids.size != counts.messages:
        raise Finding("the columns of a run of records have different lengths")
    out = side.buffer.OutBuffer()
    for place in range(0, ids.size, 3):
        ids.set(place, 0xFFFFFFFF)
    fresh = side.record.copy_used(data, ids, offsets, out, 32)
    copied = [
        _copied(side, data[start:], start, salt, base, ids, offsets)
        for start in (0, len(data) // 3)
    ]
    for place in range(offsets.size):  # which need not be where the records are
        offsets.set(place, (offsets.get(place) * 7 + place) % (len(data) + 40))
    copied.append(_copied(side, data, 0, salt, base, ids, offsets))
    counted: list[Any] = [getattr(counts, name) for name in _COUNTED]
    places = [fresh.get(i) for i in range(fresh.size)]
    return [ends, places, out.take(), counted, subjects.live, copied]


def _copied(
    side: _Side, data: bytes, start: int, salt: int, base: int, ids: Any, offsets: Any
) -> list[object]:
    """Runs from each place, as far as they go, with bounds that some of them reach."""
    found: list[object] = []
    for first in range(-1, ids.size + 1):
        portion = side.record.Portion()
        portion.messages, portion.bytes, portion.size_max = 4, 100, 200
        portion.large, portion.end_seq = 30, base + 9
        out = side.buffer.OutBuffer()
        run = (data, start, salt, base, ids, offsets, first, None, portion, out)
        found.append((side.record.copy_run(*run), out.take(), portion.last_seq, portion.bytes))
    return found


_COUNTED = ("messages", "with_header", "text_bytes", "first_ts", "last_ts")
