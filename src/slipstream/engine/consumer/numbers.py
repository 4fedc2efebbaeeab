"""Rows of numbers with 64 bits.

The compiled build replaces this module by `numbers.pyx`, on raw memory: whoever compiles against it
uses `data` as a C array, whose bounds nobody checks.
"""

from array import array


class Numbers:
    """So many numbers, all 0 at first. Raises MemoryError."""

    def __init__(self, size: int) -> None:
        self.data = array("q", bytes(8 * size))
        self.size = size

    def take(self, packed: bytes) -> None:
        """Begin with those of `packed`. Raises ValueError if there are more than `size`."""
        count = len(packed) // 8
        if count > self.size:
            raise ValueError("more numbers than there is room for")
        self.data[:count] = array("q", packed[: 8 * count])

    def pack(self) -> bytes:
        """All of them as bytes."""
        return self.data.tobytes()
