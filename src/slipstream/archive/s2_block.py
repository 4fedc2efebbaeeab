"""One block of S2.

A block is its size (a varint) and then literals and copies of earlier bytes. A copy whose offset is
zero repeats the last offset, which Snappy's format does not know.

The compiled build replaces this module by `s2_block.pyx`, which works on raw memory; this is its
plain twin and test oracle.
"""

from slipstream.errors import CorruptionError

_WHAT = "the archive is damaged: a block cannot be decompressed"


def encode_block(data: bytes) -> bytes:
    """Compress `data`, less than 16 MB; b"" if that makes it no smaller. The plain build does not
    compress: it would take a second for each megabyte."""
    if len(data) >= 1 << 24:
        raise ValueError("a block has less than 16 MB")
    return b""


def decode_block(data: bytes, start: int, end: int, size_max: int) -> bytes:
    """Decompress ``data[start:end]``. Raises `CorruptionError`, also for more than `size_max`
    bytes, and IndexError if it reaches outside of `data`."""
    if not 0 <= start <= end <= len(data):
        raise IndexError("a block outside of the data")
    data = data[start:end]
    try:
        size, at = _varint(data)
        if size > size_max:
            raise CorruptionError(_WHAT)
        out = _decode(data, at, size)
    except IndexError:
        raise CorruptionError(_WHAT) from None
    if len(out) != size:
        raise CorruptionError(_WHAT)
    return bytes(out)


def _varint(data: bytes) -> tuple[int, int]:
    value = 0
    for at in range(5):
        value |= (data[at] & 0x7F) << (7 * at)
        if data[at] < 0x80:
            return value, at + 1
    raise CorruptionError(_WHAT)


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise CorruptionError(_WHAT)
    return int.from_bytes(data[at : at + width], "little")


def _decode(data: bytes, at: int, size: int) -> bytearray:
    out = bytearray()
    offset = 0
    while at < len(data):
        tag = data[at]
        kind = tag & 3
        at += 1
        length = (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                width = length - 60
                length = _number(data, at, width) + 1
                at += width
            if length > len(data) - at or length > size - len(out):
                raise CorruptionError(_WHAT)
            out += data[at : at + length]
            at += length
            continue
        if kind == 1:
            length = (tag >> 2) & 7
            found = (tag & 0xE0) << 3 | data[at]
            at += 1
            if found:
                offset = found
            elif length >= 5:
                width = length - 4
                length = _number(data, at, width) + (4, 1 << 8, 1 << 16)[width - 1]
                at += width
            length += 4
        else:
            width = 2 if kind == 2 else 4
            offset = _number(data, at, width)
            at += width
        if not 0 < offset <= len(out) or length > size - len(out):
            raise CorruptionError(_WHAT)
        while length > 0:  # a copy may overlap with what it makes
            part = out[len(out) - offset : len(out) - offset + length]
            out += part
            length -= len(part)
    return out
