"""The bytes of a link that is compressed: one stream of S2 in each direction."""

from collections import deque
from collections.abc import Iterator

from slipstream.archive.s2 import S2Reader, S2Writer
from slipstream.engine.leaf.compression import AUTO, UNCOMPRESSED, LinkCompression


class LinkBytes:
    """The bytes of a link in both directions, once both ends have agreed on `mode`."""

    def __init__(self, wanted: LinkCompression, mode: str, rtt: int) -> None:
        self.mode = mode
        self.level = mode
        self._wanted = wanted
        self._writer = S2Writer()
        self._reader = S2Reader()
        self._waiting: deque[bytes] = deque()  # came in, and was not looked at
        self._blocks: Iterator[bytes] = iter(())  # of what was
        self.measured(rtt)

    def measured(self, rtt: int) -> None:
        """The round trip took so many ns."""
        if self.mode == AUTO:
            self.level = self._wanted.level(rtt)
        self._writer.is_packing = self.level != UNCOMPRESSED

    def pack(self, data: bytes) -> bytes:
        """What goes over the link."""
        return self._writer.write(data)

    def feed(self, data: bytes) -> None:
        """What came over the link. Nothing of it is decompressed yet: it may be a thousand times
        as much."""
        self._waiting.append(data)

    def next_block(self) -> bytes:
        """The next bytes that the other end said; b"" if more has to come in. Raises
        `CorruptionError`."""
        while True:
            for block in self._blocks:
                return block
            if not self._waiting:
                return b""
            self._blocks = self._reader.feed(self._waiting.popleft())
