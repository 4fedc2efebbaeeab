"""Bodies made smaller on disk, for streams with `compression`.

Clients name the algorithm that nats-server uses (s2), but never see its bytes, so any will do:
deflate is in the standard library. Each body stands for itself, so that reading one message costs
one body, and a damaged one costs one message. What does not shrink is stored as it is.
"""

import zlib

from slipstream.errors import CorruptionError
from slipstream.log.record import Record

PACK_MIN = 128  # bytes; shorter bodies hardly shrink
LEVEL = 1


def pack(data: bytes, header_start: int, body_start: int, end: int) -> bytes:
    """Header block, size of the body (u32) and the deflated body; b"" if that is no smaller."""
    body = data[body_start:end]
    small = zlib.compress(body, LEVEL)
    if len(small) + 4 >= len(body):
        return b""
    return data[header_start:body_start] + len(body).to_bytes(4, "little") + small


def unpack(record: Record) -> None:
    """Give the record the body that was published. Raises `CorruptionError`."""
    header = record.header()
    start = record.body_start
    size = int.from_bytes(record.data[start : start + 4], "little")
    body = inflate(record.data[start + 4 : record.end], size, f"the body of message {record.seq}")
    if len(body) != size:
        raise CorruptionError(f"the body of message {record.seq} is shorter than it says")
    record.data = header + body
    record.header_start = 0
    record.body_start = len(header)
    record.end = len(record.data)
    record.packed = False


def inflate(packed: bytes, size_max: int, what: str) -> bytes:
    """What zlib has packed, at most `size_max` bytes. Raises `CorruptionError`."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed, size_max + 1)  # 0 would be no bound
    except zlib.error as error:
        raise CorruptionError(f"{what} cannot be inflated") from error
    if len(data) > size_max or not stream.eof:
        raise CorruptionError(f"{what} cannot be inflated, or to more than it may have")
    return data
