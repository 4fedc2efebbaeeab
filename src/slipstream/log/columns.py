"""Columns of 32-bit numbers: for each sequence of a block, which subject it has, where it lies.

The compiled build replaces this module by `columns.pyx`, which works on raw memory; this is its
plain twin and test oracle. Scanning a column costs about a nanosecond for each message, which is
what lets a filtered consumer step over a block without an index of its own.
"""

import struct
from array import array

from slipstream.log.subject_index import SubjectFilter

GONE = 0xFFFFFFFF  # instead of a value: no message has this sequence (any more)


class Column:
    """A growing array of 32-bit numbers; `GONE` marks the unused places."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("I")

    @property
    def size(self) -> int:
        """How many places there are, used or not."""
        return len(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: int) -> None:
        """Add a place."""
        self._values.append(value)

    def get(self, i: int) -> int:
        """The value at place `i`; IndexError outside."""
        if i < 0:
            raise IndexError(i)
        return self._values[i]

    def set(self, i: int, value: int) -> None:
        """Replace the value at place `i`; IndexError outside."""
        if i < 0:
            raise IndexError(i)
        self._values[i] = value

    def next_used(self, i: int) -> int:
        """The first used place at or after `i`; -1 if there is none."""
        for at in range(max(i, 0), len(self._values)):
            if self._values[at] != GONE:
                return at
        return -1

    def next_of(self, i: int, matching: SubjectFilter) -> int:
        """The first place at or after `i` whose subject matches; -1 if there is none."""
        matching.refresh()
        for at in range(max(i, 0), len(self._values)):
            if self._values[at] != GONE and matching.accepts(self._values[at]):
                return at
        return -1

    def last_of(self, i: int, value: int) -> int:
        """The last place at or before `i` with `value`; -1 if there is none."""
        for at in range(min(i, len(self._values) - 1), -1, -1):
            if self._values[at] == value:
                return at
        return -1

    def count_of(self, start: int, stop: int, matching: SubjectFilter) -> int:
        """How many places in ``[start, stop)`` match."""
        matching.refresh()
        used = (value for value in self._values[max(start, 0) : max(stop, 0)] if value != GONE)
        return sum(1 for value in used if matching.accepts(value))

    def count_used(self, start: int, stop: int) -> int:
        """How many places in ``[start, stop)`` are used."""
        return sum(1 for value in self._values[max(start, 0) : max(stop, 0)] if value != GONE)

    def truncate(self, size: int) -> None:
        """Drop the places from `size` on; IndexError if that is below zero."""
        if size < 0:
            raise IndexError(size)
        del self._values[size:]

    def pack(self, width: int) -> bytes:
        """Little-endian numbers of 1, 2 or 4 bytes; `GONE` becomes the largest one."""
        mask = (1 << (8 * width)) - 1
        return b"".join((value & mask).to_bytes(width, "little") for value in self._values)

    @staticmethod
    def unpack(packed: bytes, width: int, names: list[int] | None = None) -> "Column":
        """The reverse of `pack`; with `names`, each number is replaced by ``names[number]``.

        Raises ValueError for a width other than 1, 2 and 4, and for a number without a name.
        """
        if width not in (1, 2, 4) or len(packed) % width:
            raise ValueError(f"a column cannot have {len(packed)} bytes of numbers of {width}")
        column = Column()
        gone = (1 << (8 * width)) - 1
        for at in range(0, len(packed), width):
            value = int.from_bytes(packed[at : at + width], "little")
            if value == gone:
                value = GONE
            elif names is not None:
                if value >= len(names):
                    raise ValueError("a packed column names an entry that does not exist")
                value = names[value]
            column.append(value)
        return column

    def translate(self) -> "tuple[Column, list[int]]":
        """Dense names for the values used: (column of names, list of values by name)."""
        names: dict[int, int] = {}
        dense = Column()
        for value in self._values:
            dense.append(GONE if value == GONE else names.setdefault(value, len(names)))
        return dense, list(names)

    def stats(self, names: int) -> bytes:
        """For each of `names` dense names: count, first and last place (three u32, packed)."""
        found = [[0, 0, 0] for _ in range(names)]
        for i, name in enumerate(self._values):
            if name != GONE:
                entry = found[name]
                if entry[0] == 0:
                    entry[1] = i
                entry[0] += 1
                entry[2] = i
        return struct.pack(f"<{3 * names}I", *(number for entry in found for number in entry))

    def bury(self, dead: bytearray) -> None:
        """Mark the places whose bits are set in `dead` as `GONE`."""
        for i in range(min(len(dead) * 8, len(self._values))):
            if dead[i >> 3] >> (i & 7) & 1:
                self._values[i] = GONE

    def pack_steps(self, start: int) -> bytes:
        """The differences from one value to the next, the first from `start` (u32, packed)."""
        before = [start, *self._values]
        steps = [value - below for value, below in zip(self._values, before, strict=False)]
        return struct.pack(f"<{len(steps)}I", *steps)

    @staticmethod
    def unpack_steps(packed: bytes, start: int) -> "Column":
        """The reverse of `pack_steps`."""
        column = Column()
        for (step,) in struct.iter_unpack("<I", packed):
            start += step
            column.append(start)
        return column
