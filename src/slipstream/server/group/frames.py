"""Messages between servers of a group as frames: length, checksum, payload.

The checksum is keyed (BLAKE2b, 16 bytes) and counts frames, so it finds what was damaged, and
those that somebody without the secret has put in, left out or sent again. An empty payload is a
sign of life.
"""

import struct
from hashlib import blake2b

from slipstream.errors import ProtocolError

_LENGTH = struct.Struct("<I")
_TAG_SIZE = 16
HEAD_SIZE = _LENGTH.size + _TAG_SIZE


class FrameWriter:
    """Makes the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def frame(self, payload: bytes) -> bytes:
        """The payload as a frame."""
        tag = _tag(self._key, self._count, payload)
        self._count += 1
        return _LENGTH.pack(len(payload)) + tag + payload


class FrameReader:
    """Finds the frames of one direction."""

    def __init__(self, key: bytes, payload_max: int) -> None:
        self._key = key
        self._payload_max = payload_max
        self._count = 0
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are whole now. Raises `ProtocolError`."""
        self._data += data
        found = []
        at = 0
        while len(self._data) - at >= HEAD_SIZE:
            (size,) = _LENGTH.unpack_from(self._data, at)
            if size > self._payload_max:
                raise ProtocolError(f"a frame of {size} bytes, more than {self._payload_max}")
            start = at + HEAD_SIZE
            if len(self._data) < start + size:
                break
            payload = bytes(self._data[start : start + size])
            if self._data[at + _LENGTH.size : start] != _tag(self._key, self._count, payload):
                raise ProtocolError("the checksum of a frame is wrong")
            self._count += 1
            at = start + size
            found.append(payload)
        del self._data[:at]
        return found


def _tag(key: bytes, count: int, payload: bytes) -> bytes:
    found = blake2b(count.to_bytes(8, "little"), digest_size=_TAG_SIZE, key=key)
    found.update(payload)
    return found.digest()
