"""Which small files become one.

A commit a second makes a file a second. When a partition has `compact_files` files of similar size
(within a factor of eight) they are merged, so that a row is rewritten a few times at most, however
long the table grows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from slipstream.tables.options import TableOptions

T = TypeVar("T")
ROW_ORDER = [("_stream", "ascending"), ("_sequence", "ascending")]  # in a merged file
_TIER_BITS = 3


class File(msgspec.Struct, Generic[T], frozen=True):
    """A file as it is merged: its partition, its size in bytes, and what the format knows."""

    partition: str
    size: int
    known: T


def mergeable(files: Iterable[File[T]], options: TableOptions) -> Iterator[list[T]]:
    """Groups of files that are to become one each."""
    if not options.compact_files:
        return
    groups: defaultdict[tuple[str, int], list[File[T]]] = defaultdict(list)
    for file in files:
        if file.size < options.file_bytes:
            groups[file.partition, file.size.bit_length() // _TIER_BITS].append(file)
    for similar in groups.values():
        part: list[T] = []
        size = 0
        for file in similar:
            part.append(file.known)
            size += file.size
            if size >= options.file_bytes:
                yield part
                part, size = [], 0
        if len(part) >= options.compact_files:
            yield part
