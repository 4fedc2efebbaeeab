"""A transport that keeps what is written until the connection ends."""

from collections.abc import Iterable
from typing import Any


class HeldTransport:
    """Stands before a `transport` of asyncio's. What was written goes out with the end of the
    stream, in one piece if it fits: who is answered sees the end before it can say more."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep it."""
        self._held.append(bytes(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Keep them."""
        self._held += map(bytes, parts)

    def get_write_buffer_size(self) -> int:
        """What is kept counts, too."""
        size: int = self._transport.get_write_buffer_size()
        return size + sum(map(len, self._held))

    def can_write_eof(self) -> bool:
        """What `write_eof` brings goes out in any case."""
        return True

    def write_eof(self) -> None:
        """Send all, and the end. Raises OSError."""
        if self._held and not self._transport.is_closing():
            self._transport.writelines(self._held)
        self._held.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
