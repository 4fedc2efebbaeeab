"""The index of a stream in nats-server's file store: what is gone where no block says so.

`msgs/index.db` begins with 11 and a version. Then, as variable-length numbers: messages, bytes, the
first sequence and its time, the last sequence and its time; the subjects, each with its count and
its first and last block (up to version 3 only the first where the count is 1); the blocks, each
with its number, bytes, first and last sequence with their times, and how many sequences between
these are gone. From version 2 on follows how many messages have a TTL, from version 3 on how many
are schedules. Then comes the set of what is gone.

A set begins with 22 and 2, the number of nodes and of sequences (u32). A node has its first
sequence (u64), a bit for each of 2048 sequences, and its height (u16). All is little-endian.

The index may be older than the blocks. What was gone stays gone, so it is true all the same.
"""

import struct
from dataclasses import dataclass, field

from slipstream.archive.numbers import Numbers
from slipstream.errors import CorruptionError

_MAGIC = 11
_SET_HEAD = struct.Struct("<BBII")
_SET_MAGIC, _SET_VERSION = 22, 2
_NODE = struct.Struct("<Q256sH")
_VERSIONS = range(1, 5)
_WITH_TTLS, _WITH_SCHEDULES, _WITH_LAST_BLOCKS = 2, 3, 4
_TAIL = 8  # a checksum over the rest


@dataclass
class StoreIndex:
    """What the index says of the messages that are gone."""

    first_seq: int = 0  # what lies below is gone
    last_seq: int = 0  # the last sequence that was given out ...
    last_ts: int = 0  # ... and when, in ns since the epoch
    removed: set[int] = field(default_factory=set)  # these are gone, too


def read_index(data: bytes) -> StoreIndex:
    """The content of an `index.db`. Raises `CorruptionError`, also for an unknown version."""
    if len(data) < 2 + _TAIL or data[0] != _MAGIC or data[1] not in _VERSIONS:
        raise CorruptionError("the index of a stream has an unknown format")
    version = data[1]
    numbers = Numbers(data[:-_TAIL], "the index of a stream", 2)
    messages = numbers.unsigned()
    numbers.skip(1)
    index = StoreIndex(numbers.unsigned())
    numbers.skip(1)
    index.last_seq = numbers.unsigned()
    index.last_ts = numbers.signed()
    for _ in range(numbers.unsigned()):
        size = numbers.unsigned()
        numbers.at += size
        has_last = numbers.unsigned() > 1 or version >= _WITH_LAST_BLOCKS
        numbers.skip(1 + has_last)
    live = 0
    for _ in range(numbers.unsigned()):
        numbers.skip(2)
        first = numbers.unsigned()
        numbers.skip(1)
        last = numbers.unsigned()
        numbers.skip(1)
        gone = numbers.unsigned()
        numbers.skip((version >= _WITH_TTLS) + (version >= _WITH_SCHEDULES))
        live += max(last - first + 1, 0) - gone
        if gone:
            _read_set(numbers, gone, index.removed)
    if live != messages:
        raise CorruptionError("the index of a stream contradicts itself")
    return index


def _read_set(numbers: Numbers, size: int, removed: set[int]) -> None:
    """Add the sequences of a set, of which there are `size`."""
    try:
        magic, version, nodes, count = _SET_HEAD.unpack_from(numbers.data, numbers.at)
        if (magic, version, count) != (_SET_MAGIC, _SET_VERSION, size):
            raise CorruptionError("the index of a stream has an unknown set")
        numbers.at += _SET_HEAD.size
        found = 0
        for _ in range(nodes):
            base, bits, _ = _NODE.unpack_from(numbers.data, numbers.at)
            numbers.at += _NODE.size
            for at, byte in enumerate(bits):
                if byte:
                    ones = [bit for bit in range(8) if byte >> bit & 1]
                    removed.update(base + 8 * at + bit for bit in ones)
                    found += len(ones)
    except struct.error as error:
        raise CorruptionError("the index of a stream is cut off") from error
    if found != size:
        raise CorruptionError("the index of a stream contradicts itself")
