"""Reading what `recorder.c` has written: the changes and syncs of a server's files, in order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import BinaryIO

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
            try:
                yield _read_record(head, file)
            except EOFError:
                if was_killed:
                    return
                raise TraceError(f"{path} ends within a record") from None


def _read_record(head: bytes, file: BinaryIO) -> Record:
    if len(head) < _HEAD.size:
        raise EOFError
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
    name = _read_whole(file, path_size).decode("utf-8", "surrogateescape")
    other = _read_whole(file, other_size).decode("utf-8", "surrogateescape")
    data = _read_whole(file, size if kind == Kind.WRITE else 0)
    if kind == Kind.UNKNOWN:
        raise TraceError(f"the server has used what the model does not know: {name}")
    return Record(
        time, Kind(kind), Flag(flags), process, thread, fd, number, offset, size,
        name, other, data,
    )  # fmt: skip


def _read_whole(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
