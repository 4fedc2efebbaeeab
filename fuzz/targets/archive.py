"""Archives of streams: both builds take any bytes apart alike, or refuse them."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, OneInput, agree

DICTIONARY = [
    b"\xff\x06\x00\x00S2sTwO", b"sNaPpY", b"NATSARC1", b"\x0astate.json", b"consumers/", b"\x00",
    b"\x01\x00\x00\x00", b"\x15\x00", b"\x19\x00", b"\x1d\x00", b"\xff\xff\xff\xff\x7f", b"cmp\x01",
]  # fmt: skip


def seeds() -> list[bytes]:
    """A block with a copy and repeats, entries, records of a file store's block."""
    block = bytes.fromhex("f0a2040c6162636401041d00641100")
    entries = (
        b"NATSARC1\x0a\x02\x00\x00\x02state.json{}\x03\x02\x01\x00\x01s.1x\x00\x00\x00\x00\x00"
    )
    record = bytes.fromhex("290000000100000000000000d67f6afaf877ea180300") + b"a.b" + bytes(16)
    return [bytes([kind]) + data for kind, data in enumerate((block, entries, record))]


class _Side:
    """One build's modules."""

    def __init__(self, build: Build) -> None:
        self.block = build("slipstream.archive.s2_block")
        self.entries = build("slipstream.archive.entries")
        self.store = build("slipstream.archive.file_store")
        self.record = build("slipstream.log.record")
        self.refused = build("slipstream.errors").CorruptionError


def make(plain: Build, compiled: Build) -> OneInput:
    """Take the input for a block of S2, for entries, or for a block of a file store."""
    sides = [_Side(build) for build in (plain, compiled)]
    ways = (_block, _entries, _records)

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        way = ways[choices.byte() % len(ways)]
        found = [way(side, data[1:]) for side in sides]
        agree(f"what is read {way.__name__}", found[0], found[1])

    return one_input


def _block(side: _Side, data: bytes) -> list[Any]:
    found: list[Any] = []
    try:
        found.append(side.block.decode_block(data, 0, len(data), 1 << 20))
    except side.refused as error:
        found.append(str(error))
    packed = side.block.encode_block(data)
    whole = side.block.decode_block(packed, 0, len(packed), len(data)) if packed else data
    found.append(whole == data)
    return found


def _entries(side: _Side, data: bytes) -> list[Any]:
    reader, record = side.entries.EntryReader(), side.record.Record()
    found: list[Any] = []
    step = len(data) // 3 + 1
    try:
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while reader.next(record):
                found.append(
                    (record.seq, record.ts, record.subject, record.header(), record.body())
                )
    except side.refused as error:
        found.append(str(error))
    return found


def _records(side: _Side, data: bytes) -> list[Any]:
    found: list[Any] = []
    for read in (side.store.read_position, lambda one: list(map(repr, side.store.records(one)))):
        try:
            found.append(read(data))
        except side.refused as error:
            found.append(str(error))
    return found
