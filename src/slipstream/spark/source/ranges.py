"""Ranges of sequences, and how they are cut into what one task reads.

A range is fixed by the stream's name and creation time and two sequences: reading it again gives
the same rows. It is cut by count, so that parts are equal where deletes have left holes, and by
bytes where messages of one end of it are larger than those of the other.
"""

import os

from pyspark.sql.datasource import InputPartition

from slipstream.spark.options import SourceOptions
from slipstream.spark.planning import StreamView
from slipstream.spark.source.sizes import spread_of

MESSAGES_PER_TASK_MIN = 10_000
BYTES_PER_TASK_MIN = 8 * 1024 * 1024
"""Below these a task of its own costs more than it saves."""


class Part(InputPartition):
    """What one task reads: sequences `start` to before `end` of a stream.

    The task publishes what it finds to be lost, as JSON of `loss.LossReport`, to `report_to`.
    """

    report_to = ""  # nobody listens

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
    size = count * view.message_bytes
    wanted = _parts_wanted(count, size, options)
    spread = None
    if wanted > 1 and size > options.fetch_bytes and not options.max_messages_per_partition:
        spread = await spread_of(view, max(start, view.first), end)
    parts: list[Part] = []
    taken = 0
    at = start
    for number in range(1, wanted):
        goal = count * number // wanted
        if spread is not None:
            goal = spread.count_for(spread.bytes * number / wanted)
        edge = await view.end_of(at, end, max(goal - taken, 1))
        if edge >= end:
            break
        parts.append(Part(view.name, view.created, at, edge, view.subjects))
        taken += await view.count(at, edge)
        at = edge
    parts.append(Part(view.name, view.created, at, end, view.subjects))
    return parts


def _parts_wanted(count: int, size: float, options: SourceOptions) -> int:
    if options.min_partitions:
        wanted = min(options.min_partitions, count)
    else:
        by_bytes = int(size // BYTES_PER_TASK_MIN)
        worth = max(-(-count // MESSAGES_PER_TASK_MIN), min(by_bytes, count))
        wanted = min(os.cpu_count() or 1, worth)
    if options.max_messages_per_partition:
        wanted = max(wanted, -(-count // options.max_messages_per_partition))
    return wanted
