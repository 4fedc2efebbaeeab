"""A tar archive that comes in pieces, kept until all of it is there."""

import io
from typing import TYPE_CHECKING, Any, Protocol

from slipstream.errors import CorruptionError

if TYPE_CHECKING:
    import tarfile


class Kept(Protocol):
    """Where the archive is kept."""

    def append(self, data: bytes) -> None:
        """Write at the end."""

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""


class _Reader(io.RawIOBase):
    """What is kept as Python's libraries read files."""

    def __init__(self, file: Kept, size: int) -> None:
        self._file = file
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.pread(self._at, min(len(buffer), max(self._size - self._at, 0)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class KeptInMemory:
    """For a stream that is in memory, too."""

    def __init__(self) -> None:
        self._data = bytearray()

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self._data += data

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        return bytes(self._data[offset : offset + size])


_FILE_BYTES_MAX = 1024 * 1024 * 1024


class TarFiles:
    """The files of a tar archive that is kept in `file`."""

    def __init__(self, file: Kept) -> None:
        self._file = file
        self.size = 0  # bytes that have come
        self._archive: tarfile.TarFile | None = None
        self._members: dict[str, tarfile.TarInfo] = {}

    def feed(self, data: bytes) -> None:
        """More of the archive. Raises OSError, `DiskFullError`."""
        self._file.append(data)
        self.size += len(data)

    def finish(self) -> None:
        """All of it is there. Raises OSError, `CorruptionError`."""
        import tarfile  # few servers ever need it

        reader = io.BufferedReader(_Reader(self._file, self.size))
        try:
            self._archive = tarfile.TarFile(fileobj=reader)
            self._members = {member.name: member for member in self._archive if member.isfile()}
        except (tarfile.TarError, ValueError) as error:
            raise CorruptionError(f"the archive is neither of a stream nor tar: {error}") from error

    def names(self) -> list[str]:
        """The paths of all members."""
        return list(self._members)

    def read(self, name: str) -> bytes:
        """The content of one file. Raises OSError, `CorruptionError`."""
        import tarfile

        assert self._archive is not None
        try:
            if self._members[name].size > _FILE_BYTES_MAX:  # a sparse file takes no room in it
                raise CorruptionError(f"{name} is larger than a file of a stream can be")
            file = self._archive.extractfile(self._members[name])
            data = file.read() if file is not None else b""
        except (tarfile.TarError, KeyError) as error:
            raise CorruptionError(f"{name} cannot be read from the archive") from error
        if len(data) != self._members[name].size:
            raise CorruptionError(f"{name} is cut off in the archive")
        return data
