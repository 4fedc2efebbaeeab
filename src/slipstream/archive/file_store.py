"""The directory of a stream as nats-server's file store has it (docs/protocol/file-store.md).

    meta.inf                  the configuration
    msgs/<n>.blk              messages, and what was removed since
    msgs/index.db             see `store_index`
    obs/<consumer>/meta.inf   a consumer's configuration
    obs/<consumer>/o.dat      its position

Up to version 2.14 a backup is a tar archive of that directory. A record of a block is its length
(u32, the highest bit says that there are headers), the sequence (u64), the time (i64, ns), the size
of the subject (u16), the subject, with headers their size (u32) and the headers, the body, and a
checksum of 8 bytes. The two highest bits of a sequence say that the message was erased, or that the
record is about the removal of another one. All numbers are little-endian.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from slipstream.archive.entries import may_be_subject
from slipstream.archive.messages import skip_to
from slipstream.archive.numbers import Numbers
from slipstream.archive.s2 import S2Reader
from slipstream.archive.store_index import StoreIndex, read_index
from slipstream.errors import CorruptionError
from slipstream.log.base import Log
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.model.durations import SECOND

_FIXED = struct.Struct("<IQqH")
_WITH_HEADERS = 1 << 31
_ERASED = 1 << 63
_TOMBSTONE = 1 << 62
_CHECKSUM_SIZE = 8
_PACKED = b"cmp\x01"  # how a block begins that is compressed by s2, before its size
_RECORD_BYTES_MAX = 1 << 30
# nats-server begins a new block after 8 MiB, and its largest message has 64 MiB. A compressed block
# of a few kilobytes may claim to hold gigabytes.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024
_INDEX = "msgs/index.db"
_BLOCK = re.compile(r"msgs/(\d{1,18})\.blk")
_CONSUMER = re.compile(r"obs/([^/]+)/meta\.inf")
_POSITION_MAGIC, _POSITION_VERSION = 22, 2


class StreamFiles(Protocol):
    """The files of one stream, by paths relative to its directory."""

    def names(self) -> list[str]:
        """The paths of all files."""

    def read(self, name: str) -> bytes:
        """The content of one. Raises OSError, `StorageError`."""


@dataclass
class StoredRecord:
    """A record of a block; the header block and the body are in ``data[header_start:end]``."""

    seq: int
    ts: int
    subject: bytes
    header_start: int
    body_start: int
    end: int
    is_erased: bool
    is_tombstone: bool


def unpacked(block: bytes, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """A block as it is before it is compressed. Raises `CorruptionError`, also for one that unpacks
    to more than `bytes_max`."""
    if not block.startswith(_PACKED):
        return block
    at = len(_PACKED)
    while at < len(block) and block[at] > 127:
        at += 1
    frames = S2Reader()
    whole = bytearray()
    for piece in frames.feed(block[at + 1 : -_CHECKSUM_SIZE]):
        whole += piece
        if len(whole) > bytes_max:
            raise CorruptionError("a compressed block holds more than a block can")
    frames.finish()
    return bytes(whole + block[-_CHECKSUM_SIZE:])


def records(data: bytes) -> Iterator[StoredRecord]:
    """The records of a block that is not compressed. Raises `CorruptionError`."""
    at = 0
    while at < len(data):
        if at + _FIXED.size + _CHECKSUM_SIZE > len(data):
            raise CorruptionError(f"a block ends within a record, at byte {at}")
        length, seq, ts, subject_size = _FIXED.unpack_from(data, at)
        size = length & ~_WITH_HEADERS
        start = at + _FIXED.size
        body_start = header_start = start + subject_size
        end = at + size - _CHECKSUM_SIZE
        if length & _WITH_HEADERS:
            header_start += 4
            header_size = int.from_bytes(data[header_start - 4 : header_start], "little")
            body_start = header_start + header_size
        if size > _RECORD_BYTES_MAX or at + size > len(data) or not start <= body_start <= end:
            raise CorruptionError(f"a block has a record that cannot be, at byte {at}")
        number = seq & ~(_ERASED | _TOMBSTONE)
        yield StoredRecord(
            number,
            ts,
            data[start : start + subject_size],
            header_start,
            body_start,
            end,
            bool(seq & _ERASED),
            bool(seq & _TOMBSTONE),
        )
        at += size


def blocks(files: StreamFiles) -> list[str]:
    """The paths of the blocks, in order."""
    found = [(int(match[1]), name) for name in files.names() if (match := _BLOCK.fullmatch(name))]
    return [name for _, name in sorted(found)]


def store_blocks(files: StreamFiles, log: Log, first_seq: int) -> Iterator[int]:
    """Append the messages from `first_seq` on to `log`, block by block; yields after each the last
    sequence that was given out, as far as it is known. The blocks do not say what limits have
    removed: the stream's state does of the front, and the index of the rest. Raises OSError,
    `StorageError`."""
    names = blocks(files)
    index = _index(files)
    removed = index.removed
    first_seq = max(first_seq, index.first_seq)
    for name in names:
        for record in records(unpacked(files.read(name))):
            if record.seq > SEQUENCE_MAX:
                raise CorruptionError(f"{name} names a sequence that cannot be")
            if record.is_tombstone:
                removed.add(record.seq)
        yield 0  # nothing is appended yet
    last_seq = 0
    for name in names:
        data = unpacked(files.read(name))
        for record in records(data):
            last_seq = max(last_seq, record.seq)
            if record.is_erased or record.is_tombstone or not record.subject:
                continue
            if record.seq >= first_seq and record.seq not in removed:
                _store(log, record, data)
        if not log.messages:  # what the records of gaps say is all that is known
            log.last_ts = index.last_ts
        yield last_seq
    log.last_ts = max(log.last_ts, index.last_ts)
    yield index.last_seq


def _index(files: StreamFiles) -> StoreIndex:
    """What the index says; without one that can be read, limits remove again what they had."""
    try:
        if _INDEX in files.names():
            return read_index(files.read(_INDEX))
    except CorruptionError:
        pass
    return StoreIndex()


def _store(log: Log, record: StoredRecord, data: bytes) -> None:
    if record.seq <= log.last_seq:
        raise CorruptionError(f"message {record.seq} is out of order in its block")
    if record.ts < 0 or not may_be_subject(record.subject):
        raise CorruptionError(f"message {record.seq} of a block has no valid subject")
    skip_to(log, record.seq - 1, record.ts)
    log.append(record.subject, data, record.header_start, record.body_start, record.end, record.ts)


# -- consumers -------------------------------------------------------------------------------------


def consumers(files: StreamFiles) -> Iterator[tuple[str, bytes]]:
    """Name and entry of each consumer, as `entries` has them. Raises OSError, `StorageError`."""
    there = set(files.names())
    for path in sorted(there):
        match = _CONSUMER.fullmatch(path)
        if match is None:
            continue
        name = match[1]
        try:
            config: dict[str, Any] = msgspec.json.decode(files.read(path), type=dict)
        except msgspec.MsgspecError as error:
            raise CorruptionError(f"{path} cannot be read: {error}") from error
        known = {key: value for key, value in config.items() if key not in ("Created", "Name")}
        position = f"obs/{name}/o.dat"
        state: dict[str, Any] = {}
        if position in there:
            state = read_position(files.read(position))
        yield name, msgspec.json.encode({"config": known, "state": state})


def read_position(data: bytes) -> dict[str, Any]:
    """An `o.dat` as the state of an archive's entry; empty for an empty file. Raises
    `CorruptionError`."""
    if not data:
        return {}
    if data[0] != _POSITION_MAGIC or data[1:2] != bytes((_POSITION_VERSION,)):
        raise CorruptionError("a consumer's position has an unknown format")
    numbers = Numbers(data, "a consumer's position", 2)
    floor = {"consumer_seq": numbers.unsigned(), "stream_seq": numbers.unsigned()}
    delivered = {"consumer_seq": numbers.unsigned(), "stream_seq": numbers.unsigned()}
    state: dict[str, Any] = {"delivered": delivered, "ack_floor": floor}
    pending: dict[str, Any] = {}
    count = numbers.unsigned()
    newest = numbers.signed() if count else 0  # seconds; the times stand before it
    for _ in range(count):
        seq = numbers.unsigned() + floor["stream_seq"]
        consumer_seq = numbers.unsigned() + floor["consumer_seq"]
        seconds = newest - numbers.signed()
        pending[str(seq)] = {"Sequence": consumer_seq, "Timestamp": seconds * SECOND}
    redelivered: dict[str, int] = {}
    for _ in range(numbers.unsigned()):
        seq = numbers.unsigned() + floor["stream_seq"]
        redelivered[str(seq)] = numbers.unsigned()
    if pending:
        state["pending"] = pending
    if redelivered:
        state["redelivered"] = redelivered
    return state
