"""Messages between servers of a group as frames: length, checksum, payload.

The checksum is keyed (AES-256-GMAC, 16 bytes; NIST SP 800-38D) and counts frames, so it finds what
was damaged, and those that somebody without the secret has put in, left out or sent again. Each
direction of each connection has a key of its own (`handshake`), so that a count comes once under a
key. An empty payload is a sign of life.

Of what is sent to a server that was away for long this is the dearest part, if it is slow: BLAKE2b
from Python's library took a third of the machine.
"""

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from slipstream.errors import ProtocolError

_LENGTH = struct.Struct("<I")
_TAG_SIZE = 16
HEAD_SIZE = _LENGTH.size + _TAG_SIZE


class FrameWriter:
    """Makes the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def head(self, payload: bytes) -> bytes:
        """What goes before a payload, which is the next one to leave."""
        tag = self._cipher.encrypt(_nonce(self._count), b"", payload)
        self._count += 1
        return _LENGTH.pack(len(payload)) + tag

    def frame(self, payload: bytes) -> bytes:
        """The payload as a frame."""
        return self.head(payload) + payload


class FrameReader:
    """Finds the frames of one direction."""

    def __init__(self, key: bytes, payload_max: int) -> None:
        self._cipher = AESGCM(key)
        self._payload_max = payload_max
        self._count = 0
        self._begun = bytearray()  # of a frame that is not whole yet
        self._needed = 0  # bytes of it, so that more can be said

    def feed(self, data: bytes) -> list[memoryview]:
        """The payloads that are whole now. Raises `ProtocolError`."""
        if self._begun:
            self._begun += data
            if len(self._begun) < self._needed:
                return []
            data, self._begun = bytes(self._begun), bytearray()
        view = memoryview(data)
        found: list[memoryview] = []
        at = 0
        while at < len(data):
            end = self._end_of_frame(data, at)
            if end > len(data):
                self._begun += view[at:]
                self._needed = end - at
                break
            start = at + HEAD_SIZE
            self._check(view[at + _LENGTH.size : start], view[start:end])
            found.append(view[start:end])
            at = end
        return found

    def _end_of_frame(self, data: bytes, at: int) -> int:
        """Where the frame at `at` ends; where its head does, as long as that is not whole."""
        start = at + HEAD_SIZE
        if start > len(data):
            return start
        (size,) = _LENGTH.unpack_from(data, at)
        if size > self._payload_max:
            raise ProtocolError(f"a frame of {size} bytes, more than {self._payload_max}")
        return start + int(size)

    def _check(self, tag: memoryview, payload: memoryview) -> None:
        try:
            self._cipher.decrypt(_nonce(self._count), tag, payload)
        except InvalidTag as error:
            raise ProtocolError("the checksum of a frame is wrong") from error
        self._count += 1


def _nonce(count: int) -> bytes:
    return count.to_bytes(12, "little")
