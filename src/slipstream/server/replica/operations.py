"""What happens to the files of a store, as bytes: the entries of a group's log.

    body        magic "SLOP1", operations
    operation   kind u8, length of the path u16, of the other path u16, of the data u32, offset u64,
                path, other path, data

All numbers are little-endian. Paths are relative to the store. An operation says what a file holds
afterwards and not how it got there, so the same operations once more, in the same order, change
nothing; a rename is the exception, which has an entry of its own.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from slipstream.errors import CorruptionError

_MAGIC = b"SLOP1"
_HEAD = struct.Struct("<BHHIQ")


class Kind(IntEnum):
    """What an operation does."""

    WRITE = 1  # data at an offset
    CREATE = 2  # an empty file
    MAKE_DIRECTORY = 3
    REMOVE = 4  # a file
    REMOVE_TREE = 5  # a directory and what is in it
    RENAME = 6  # to the other path
    TRUNCATE = 7  # to `offset` bytes
    # Who leads from here on; `data` says where clients find it, `other` is its token, with which
    # servers prove that they bring clients there.
    LEADS = 8
    # In copies alone, not in entries (`store_copy`):
    HELD = 9  # a file that their receiver has
    AHEAD = 10  # the files may have some of what the entries up to `offset` say
    # In entries: the server that `path` names does not lead, over damage in its files; with "" one
    # leads whose files can be read.
    REFUSES = 11


class Operation(NamedTuple):
    """One of them."""

    kind: Kind
    path: str
    data: bytes = b""
    offset: int = 0
    other: str = ""


def encode_operations(operations: Iterable[Operation]) -> bytes:
    """The body of an entry."""
    parts = [_MAGIC]
    for kind, path, data, offset, other in operations:
        first = path.encode("utf-8", "surrogateescape")
        second = other.encode("utf-8", "surrogateescape")
        parts += [_HEAD.pack(kind, len(first), len(second), len(data), offset), first, second, data]
    return b"".join(parts)


def decode_operations(body: bytes) -> list[Operation]:
    """The operations of an entry. Raises `CorruptionError` for what is none."""
    if not body.startswith(_MAGIC):
        raise CorruptionError(
            "an entry of the group's log is not about files: a later version of the server wrote "
            "it; start that version"
        )
    found: list[Operation] = []
    at = len(_MAGIC)
    try:
        while at < len(body):
            kind, first, second, size, offset = _HEAD.unpack_from(body, at)
            at += _HEAD.size
            ends = (at + first, at + first + second, at + first + second + size)
            if ends[2] > len(body):
                raise CorruptionError("an entry of the group's log ends in an operation")
            path, other = body[at : ends[0]], body[ends[0] : ends[1]]
            found.append(
                Operation(
                    Kind(kind),
                    _checked(path.decode("utf-8", "surrogateescape")),
                    body[ends[1] : ends[2]],
                    offset,
                    _checked(other.decode("utf-8", "surrogateescape")),
                )
            )
            at = ends[2]
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"an entry of the group's log cannot be read: {error}") from error
    return found


def is_rename(body: bytes) -> bool:
    """Whether an entry begins with a rename, which is one by itself then."""
    return body[len(_MAGIC) : len(_MAGIC) + 1] == bytes([Kind.RENAME])


def _checked(path: str) -> str:
    """A path within the store. Raises `CorruptionError`: no server of a group says another one."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise CorruptionError(f"an entry of the group's log names the path {path!r}")
    return path
