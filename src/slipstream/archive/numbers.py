"""Numbers of variable length as in Go's `binary.Varint`: seven bits a byte, lowest ones first."""

from dataclasses import dataclass

from slipstream.errors import CorruptionError


@dataclass
class Numbers:
    """Reads them from `data`, from `at` on."""

    data: bytes
    of: str  # what they are read from, for errors
    at: int = 0

    def unsigned(self) -> int:
        """The next one, without a sign. Raises `CorruptionError`."""
        value = shift = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise CorruptionError(f"{self.of} is damaged")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        """The next one, with a sign. Raises `CorruptionError`."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        """Pass over numbers, with or without a sign. Raises `CorruptionError`."""
        for _ in range(count):
            self.unsigned()
