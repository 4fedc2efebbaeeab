"""What lies in the files of a group's log: segments of records, written one behind the other.

    segment   header (twice, 4 KiB apart), records
    record    marker, checksum, kind, job, epoch, index, previous, chain, size; payload

The marker is the segment's random number, so that no body can pass for a record, and so that the
next whole record is found behind damaged bytes. The checksum covers the head alone: a damaged body
costs its own entry and nothing behind it. The checksum of a body is the chain of its entry.

    ENTRY    the entry at `index`; whatever the log had there and behind it goes
    REPAIR   the entry at `index`, in place of a damaged one; what is behind it stays
    CUT      the log ends before `index`
    BATCH    a job is whole: the log ends with `index` and its chain; the payload is the `State`
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

import msgspec

from slipstream.group import Entry
from slipstream.wire.checksum import crc32

HEADER_SIZE = 8192  # of both copies of a segment's header
_COPY_AT = 4096
_MAGIC = b"SLGROUP1"
_HEADER = struct.Struct("<8sQ4s")  # magic, number, marker; a checksum follows
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<BQIQIII")  # kind, job, epoch, index, previous, chain, size
_PREFIX = 8  # marker, checksum
RECORD_HEAD = _PREFIX + _HEAD.size  # bytes before the payload


class Kind(IntEnum):
    """What a record says."""

    ENTRY = 1
    REPAIR = 2
    CUT = 3
    BATCH = 4


class Record(msgspec.Struct, frozen=True):
    """One record, as it was found. Of a damaged payload the head is known for all that."""

    kind: Kind
    job: int
    index: int
    previous: int
    chain: int
    entry: Entry | None = None  # of ENTRY and REPAIR, if it is whole
    payload: bytes | None = None  # of BATCH, if it is whole


def header(number: int, marker: bytes) -> bytes:
    """What a segment begins with."""
    head = _HEADER.pack(_MAGIC, number, marker)
    copy = (head + _CRC.pack(crc32(head))).ljust(_COPY_AT, b"\0")
    return copy.ljust(HEADER_SIZE - _COPY_AT, b"\0") + copy


def read_header(data: bytes) -> tuple[int, bytes] | None:
    """A segment's number and marker; None if both copies of its header are damaged."""
    for at in (0, _COPY_AT):
        head = data[at : at + _HEADER.size]
        crc = data[at + _HEADER.size : at + _HEADER.size + _CRC.size]
        if len(crc) == _CRC.size and _CRC.pack(crc32(head)) == crc:
            magic, number, marker = _HEADER.unpack(head)
            if magic == _MAGIC:
                return number, marker
    return None


def entry_record(marker: bytes, kind: Kind, job: int, entry: Entry) -> tuple[bytes, bytes]:
    """An entry as a record, in two parts."""
    head = _HEAD.pack(
        kind, job, entry.epoch, entry.index, entry.previous, entry.chain, len(entry.body)
    )
    return marker + _CRC.pack(crc32(head)) + head, entry.body


def cut_record(marker: bytes, job: int, index: int) -> bytes:
    """The log ends before `index`."""
    head = _HEAD.pack(Kind.CUT, job, 0, index, 0, 0, 0)
    return marker + _CRC.pack(crc32(head)) + head


def batch_record(marker: bytes, job: int, end: tuple[int, int], payload: bytes) -> bytes:
    """A job is whole; `end` is the index and the chain of the last entry."""
    head = _HEAD.pack(Kind.BATCH, job, 0, end[0], end[1], crc32(payload), len(payload))
    return marker + _CRC.pack(crc32(head)) + head + payload


def read_records(data: bytes, marker: bytes) -> Iterator[tuple[int, Record]]:
    """The records of a segment that can be read, each with where it ends."""
    at = HEADER_SIZE
    while 0 <= at < len(data):
        found = _record_at(data, at, marker)
        if found is None:
            at = data.find(marker, at + 1)
        else:
            at = found[0]
            yield found


def _record_at(data: bytes, at: int, marker: bytes) -> tuple[int, Record] | None:
    start = at + RECORD_HEAD
    if start > len(data) or data[at : at + 4] != marker:
        return None
    head = data[at + _PREFIX : start]
    if _CRC.pack(crc32(head)) != data[at + 4 : at + _PREFIX]:
        return None
    number, job, epoch, index, previous, chain, size = _HEAD.unpack(head)
    body = data[start : start + size]
    end = min(start + size, len(data))  # of a torn end, its body is not whole
    kind = Kind(number)
    if kind is Kind.CUT:
        return end, Record(kind, job, index, previous, chain)
    if kind is Kind.BATCH:
        payload = body if len(body) == size and crc32(body) == chain else None
        return end, Record(kind, job, index, previous, chain, None, payload)
    entry = Entry(epoch, index, previous, chain, body)
    whole = entry if len(body) == size and entry.is_whole else None
    return end, Record(kind, job, index, previous, chain, whole)
