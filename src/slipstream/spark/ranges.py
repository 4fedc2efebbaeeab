"""Ranges of sequences, and how they are cut into what one task reads.

A range is fixed by the stream's name and creation time and two sequences: reading it again gives
the same rows. It is cut by count, so that parts are equal where deletes have left holes.
"""

import os

from pyspark.sql.datasource import InputPartition

from slipstream.spark.options import SourceOptions
from slipstream.spark.streams import StreamView

MESSAGES_PER_TASK_MIN = 10_000
"""Below this a task of its own costs more than it saves."""


class Part(InputPartition):
    """What one task reads: sequences `start` to before `end` of a stream."""

    def __init__(self, stream: str, created: str, start: int, end: int, subjects: list[str]):
        self.stream = stream
        self.created = created
        self.start = start
        self.end = end
        self.subjects = subjects

    def __repr__(self) -> str:
        return f"Part({self.stream} {self.start}..{self.end - 1})"


async def cut(view: StreamView, start: int, end: int, options: SourceOptions) -> list[Part]:
    """The parts of a range; none if it holds no message."""
    start = max(start, 1)
    if start >= end:
        return []
    count = await view.count(start, end)
    if count == 0:
        # Nothing is wanted there now: one task looks whether something was lost.
        return [Part(view.name, view.created, start, end, view.subjects)]
    wanted = _parts_wanted(count, options)
    parts: list[Part] = []
    left = count
    at = start
    for number in range(wanted, 1, -1):
        edge = await view.end_of(at, end, max(left // number, 1))
        if edge >= end:
            break
        parts.append(Part(view.name, view.created, at, edge, view.subjects))
        left -= await view.count(at, edge)
        at = edge
    parts.append(Part(view.name, view.created, at, end, view.subjects))
    return parts


def _parts_wanted(count: int, options: SourceOptions) -> int:
    if options.min_partitions:
        wanted = min(options.min_partitions, count)
    else:
        wanted = min(os.cpu_count() or 1, -(-count // MESSAGES_PER_TASK_MIN))
    if options.max_messages_per_partition:
        wanted = max(wanted, -(-count // options.max_messages_per_partition))
    return wanted
