"""Objects with messages and objects about runs, as bytes.

A part is an archive of messages alone: the format of `archive.entries` in a frame of `archive.s2`,
so that a message keeps its header block, its time and its sequence as they are.
"""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from slipstream.archive.entries import MAGIC, EntryReader, may_be_subject, put_end
from slipstream.archive.s2 import S2Reader, S2Writer
from slipstream.backups.manifest import Part, Run, digest
from slipstream.backups.stores import Store
from slipstream.client.jetstream.errors import BackupError
from slipstream.errors import CorruptionError
from slipstream.log.record import Record
from slipstream.wire.buffer import OutBuffer

PART_BYTES = 16 * 1024 * 1024  # of what one part holds, before it is compressed
_SEQUENCE_MAX = 2**63 - 1

Ranges = list[tuple[int, int]]
"""Stretches of sequences, first and last, in order and apart from each other."""


def ranges_of(sequences: Iterable[int]) -> Ranges:
    """Rising sequences as ranges."""
    found: Ranges = []
    first = last = -2
    for seq in sequences:
        if seq != last + 1:
            if first >= 0:
                found.append((first, last))
            first = seq
        last = seq
    if first >= 0:
        found.append((first, last))
    return found


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in any order, as they are after what touches is joined."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def without(wanted: tuple[int, int], ranges: Ranges) -> Ranges:
    """What of `wanted` is in none of `ranges`."""
    at, last = wanted
    left: Ranges = []
    for first, end in ranges:
        if first > last:
            break
        if end < at:
            continue
        if first > at:
            left.append((at, first - 1))
        at = end + 1
    if at <= last:
        left.append((at, last))
    return left


def common(some: Ranges, others: Ranges) -> int:
    """How many sequences are in both."""
    count = at = 0
    for first, last in some:
        while at < len(others) and others[at][1] < first:
            at += 1
        i = at
        while i < len(others) and others[i][0] <= last:
            count += min(last, others[i][1]) - max(first, others[i][0]) + 1
            i += 1
    return count


class Inside:
    """Says of rising sequences whether they are in `ranges`."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._at = 0

    def __contains__(self, seq: int) -> bool:
        ranges = self._ranges
        while self._at < len(ranges) and ranges[self._at][1] < seq:
            self._at += 1
        return self._at < len(ranges) and ranges[self._at][0] <= seq


class RunState(msgspec.Struct, kw_only=True):
    """A stream as a run has found it: what its object holds."""

    config: dict[str, Any]
    consumers: list[dict[str, Any]]  # `config`, `delivered`, `ack_floor`
    gaps: Ranges = []  # sequences from the first to the last message that have none
    first_seq: int
    last_seq: int
    last_ts: int


def new_name(folder: str, first_seq: int, last_seq: int) -> str:
    """A name that no other object has, also none of a run at the same time."""
    return f"{folder}/{first_seq:020}-{last_seq:020}-{secrets.token_hex(8)}"


def packed_part(content: bytes, first_seq: int, last_seq: int, last_ts: int, count: int) -> Any:
    """The object that holds `count` messages, entries of an archive, and its `Part`. Blocks."""
    out = OutBuffer()
    put_end(out)
    frames = S2Writer()
    data = frames.write(MAGIC + content + out.take())
    part = Part(
        name=new_name("parts", first_seq, last_seq),
        first_seq=first_seq,
        last_seq=last_seq,
        last_ts=last_ts,
        messages=count,
        content_bytes=len(content),
        size=len(data),
        sha256=digest(data),
    )
    return part, data


def messages(part: Part, data: bytes) -> Iterator[Record]:
    """The messages of a part, each in the same record. Raises `CorruptionError`."""
    frames, entries, record = S2Reader(), EntryReader(), Record()
    seq, count = 0, 0
    for block in frames.feed(data):
        entries.feed(block)
        while entries.next(record):
            if not max(seq + 1, part.first_seq) <= record.seq <= part.last_seq:
                raise CorruptionError(f"{part.name}: message {record.seq} is out of order")
            if record.ts < 0 or not may_be_subject(record.subject):
                raise CorruptionError(f"{part.name}: message {record.seq} has no valid subject")
            seq = record.seq
            count += 1
            yield record
    frames.finish()
    if not entries.ended or count != part.messages:
        raise CorruptionError(
            f"{part.name} is damaged: it has {count} messages, and should have {part.messages}"
        )


def packed_state(state: RunState) -> bytes:
    """The object about a run."""
    return S2Writer().write(msgspec.json.encode(state))


def unpacked_state(run: Run, data: bytes) -> RunState:
    """Read what `packed_state` has written. Raises `CorruptionError`."""
    frames = S2Reader()
    whole = b"".join(frames.feed(data))
    frames.finish()
    try:
        return msgspec.json.decode(whole, type=RunState)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"{run.name} is damaged: {error}") from error


async def fetch(store: Store, what: "Part | Run") -> bytes:
    """The object of a part or a run. Raises `BackupError`, `CorruptionError` if it is damaged."""
    data = await store.get(what.name)
    if len(data) != what.size or digest(data) != what.sha256:
        raise CorruptionError(f"{what.name} is damaged: its checksum does not match")
    return data


async def put(store: Store, name: str, data: bytes) -> None:
    """Store an object of a new name. Raises `BackupError`."""
    if not await store.put_new(name, data):
        raise BackupError(f"backup place {store}: {name} is there already")
