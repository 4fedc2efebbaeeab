"""S2, the framed compression of backups and links: what Snappy's framing is, with larger blocks.

A frame consists of chunks with a type (one byte), a size (3 bytes), and for data the masked CRC-32C
(4 bytes) of what is inside. No library for Python knows S2's blocks, which have up to 4 MB and may
repeat the offset of the last copy; the code for these is in `s2_block`. Snappy's frames can be
read, too.
"""

from collections.abc import Iterator

from google_crc32c import value as crc32c

from slipstream.archive.s2_block import decode_block, encode_block
from slipstream.errors import CorruptionError

BLOCK_BYTES = 1024 * 1024  # of what is written
BLOCK_BYTES_MAX = 4 * 1024 * 1024  # of what a chunk holds when it is decompressed
CHUNK_BYTES_MAX = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64  # the most that a block grows to
_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_HEAD = 4  # bytes of a chunk's type and size
_SKIPPED_FROM = 0x80  # chunks of these types may be left out by who does not know them
_NAMES = (b"S2sTwO", b"sNaPpY")
NAME = b"\xff\x06\x00\x00" + _NAMES[0]  # the chunk with which a stream begins
_NO_NAME = "this is no archive: s2 is expected, and not its name"


def _masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def chunks(data: bytes, is_packing: bool = True) -> list[bytes]:
    """The chunks with `data`, in parts: what stands behind the name in a stream of frames."""
    parts: list[bytes] = []
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        packed = encode_block(block) if is_packing else b""
        kind = _COMPRESSED if packed else _PLAIN
        packed = packed or block
        head = (len(packed) + 4) << 8 | kind
        parts.append(head.to_bytes(4, "little") + _masked(crc32c(block)).to_bytes(4, "little"))
        parts.append(packed)
    return parts


class S2Writer:
    """Compresses a stream that comes in pieces; without `is_packing` it has the frames alone."""

    def __init__(self) -> None:
        self.is_packing = True
        self._is_begun = False

    def write(self, data: bytes) -> bytes:
        """The chunks with `data`."""
        parts = [] if self._is_begun else [NAME]
        self._is_begun = True
        return b"".join(parts + chunks(data, self.is_packing))


class S2Reader:
    """Decompresses a stream of frames that comes in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()  # the beginning of a chunk
        self._needed = 0  # bytes of it without which nothing is to be done
        self._skipped = 0  # bytes to come that nobody looks at
        self._is_begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What `piece` completes, in order, a block at a time: all of them may be a thousand times
        as much. They have to be taken before the next piece. Raises `CorruptionError`.

        However small the pieces are, a chunk is copied twice."""
        data = piece
        if self._rest:
            self._rest += piece
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, self._skipped = self._skipped, max(self._skipped - len(data), 0)
        self._needed = _HEAD
        while len(data) - at >= _HEAD:
            size = int.from_bytes(data[at + 1 : at + 4], "little")
            kind = data[at]
            self._check(kind, size)
            start, end = at + _HEAD, at + _HEAD + size
            if _SKIPPED_FROM <= kind < _IDENTIFIER:
                self._skipped = max(end - len(data), 0)
            elif end > len(data):
                self._needed = _HEAD + size
                break
            else:
                block = self._chunk(kind, data, start, end)
                if block:
                    yield block
            at = end
        self._rest += data[at:]

    def finish(self) -> None:
        """The archive has ended. Raises `CorruptionError` if the last chunk is not whole."""
        if self._rest or self._skipped or not self._is_begun:
            raise CorruptionError("the archive is cut off")

    def _check(self, kind: int, size: int) -> None:
        if not self._is_begun and kind != _IDENTIFIER:
            raise CorruptionError("this is no archive: s2 is expected, and its first bytes are not")
        if kind == _IDENTIFIER and size != len(_NAMES[0]):
            raise CorruptionError(_NO_NAME)
        if size > CHUNK_BYTES_MAX and kind < _SKIPPED_FROM:
            raise CorruptionError("the archive is damaged: a chunk is larger than one can be")

    def _chunk(self, kind: int, data: bytes, start: int, end: int) -> bytes:
        if kind == _IDENTIFIER:
            if data[start:end] not in _NAMES:
                raise CorruptionError(_NO_NAME)
            self._is_begun = True
            return b""
        if kind > _PLAIN or end - start < 4:
            raise CorruptionError("the archive is damaged: it has a chunk of an unknown type")
        expected = int.from_bytes(data[start : start + 4], "little")
        if kind == _COMPRESSED:
            block = decode_block(data, start + 4, end, BLOCK_BYTES_MAX)
        else:
            block = data[start + 4 : end]
        if _masked(crc32c(block)) != expected:
            raise CorruptionError("the archive is damaged: a checksum does not match")
        return block
