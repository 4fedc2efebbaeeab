"""A growing byte buffer that frames and records are written into.

The compiled build replaces this module by `buffer.pyx`, which owns raw memory; this is its plain
twin and test oracle.
"""


class OutBuffer:
    """Bytes on their way out: put in pieces, taken in one."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def put(self, data: bytes) -> int:
        """Append `data` whole."""
        self._parts.append(data)
        self.size += len(data)
        return 0

    def put_slice(self, data: bytes, start: int, end: int) -> int:
        """Append ``data[start:end]`` without an object for the slice (compiled)."""
        self._parts.append(data[start:end])
        self.size += end - start
        return 0

    def put_int(self, value: int) -> int:
        """Append `value` in decimal."""
        return self.put(b"%d" % value)

    def take(self) -> bytes:
        """Everything put so far; the buffer is empty afterwards."""
        taken = b"".join(self._parts)
        self.clear()
        return taken

    def clear(self) -> int:
        """Forget everything put so far."""
        self._parts.clear()
        self.size = 0
        return 0
