"""Reading what `recorder.c` has written: the changes and syncs of a server's files, in order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

_HEAD = struct.Struct("<QIIIIiIIIqQ")


class Kind(IntEnum):
    """What a record is about; the numbers are those of `recorder.c`."""

    OPEN = 1
    WRITE = 2
    ZEROS = 3
    RESIZE = 4
    ALLOCATE = 5
    RENAME = 6
    UNLINK = 7
    MKDIR = 8
    RMDIR = 9
    LINK = 10
    SYNC_BEGIN = 11
    SYNC_END = 12
    DUPLICATE = 13
    UNKNOWN = 14


class Flag(IntFlag):
    """More of it."""

    CREATED = 1  # the file was not there before it was opened
    IS_DIRECTORY = 2
    WHOLE_FILE_SYSTEM = 4  # syncfs
    FAILED = 8  # the sync


@dataclass(slots=True)
class Record:
    """One change or sync."""

    time: int  # ns of the machine's monotonic clock; see `recorder.c`
    kind: Kind
    flags: Flag
    process: int
    thread: int
    fd: int
    number: int  # of a sync
    offset: int
    size: int
    path: str  # absolute
    other: str
    data: bytes  # of a write


class TraceError(Exception):
    """The trace is not whole, or has something that the model does not know."""


def read_trace(path: Path, was_killed: bool = False) -> Iterator[Record]:
    """Its records, in order. Of a server that `was_killed` the system may have written half of the
    last one. Raises `TraceError`."""
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            rest = b""
            wanted = 0
            if len(head) == _HEAD.size:
                (
                    time,
                    kind,
                    flags,
                    process,
                    thread,
                    fd,
                    path_size,
                    other_size,
                    number,
                    offset,
                    size,
                ) = _HEAD.unpack(head)
                data_size = size if kind == Kind.WRITE else 0
                wanted = path_size + other_size + data_size
                rest = file.read(wanted)
            if len(head) < _HEAD.size or len(rest) < wanted:
                if was_killed:
                    return
                raise TraceError(f"{path} ends within a record")
            name = rest[:path_size].decode("utf-8", "surrogateescape")
            other = rest[path_size : path_size + other_size].decode("utf-8", "surrogateescape")
            data = rest[path_size + other_size :]
            if kind == Kind.UNKNOWN:
                raise TraceError(f"the server has used what the model does not know: {name}")
            yield Record(
                time, Kind(kind), Flag(flags), process, thread, fd, number, offset, size,
                name, other, data,
            )  # fmt: skip
