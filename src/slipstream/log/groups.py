"""Groups of messages that count together: after a crash all of them are there, or none.

The messages of a group lie one after the other in one segment and in one batch. Each says whether
the next message belongs to its group (`MORE`), and whether the one before it does (`AFTER`). So a
group that a crash tore is known by what is left of it: a hole follows a message that promises
more, or comes before one that had others before it, or the log ends too early. What is left of it
was never acknowledged and is overwritten, as if it had been erased.

A record that was erased counts as a hole here. A message is erased for a client only once its whole
group is said to be durable, so this one was erased by a start that was cut short.
"""

from slipstream.log.columns import GONE
from slipstream.log.record import AFTER, ERASED, MORE
from slipstream.log.segment import Segment

_KIND_AT = 9  # where a record has its kind
_PLACE_AT, _PLACE_END = 12, 16  # ... and its place


def torn_groups(
    data: bytes, start: int, segment: Segment, holes: list[int], ended: bool
) -> list[tuple[int, int]]:
    """What is left of groups that a crash tore: the first and last place of each.

    `data` is the segment's file from offset `start` on, where what may be torn begins; `holes` are
    the offsets of damaged records, `ended` says that the segment was closed.
    """
    assert segment.ids is not None
    assert segment.offsets is not None
    found: list[tuple[int, int]] = []
    group: list[int] = []  # places of the group that goes on
    is_torn = False
    after_hole = False
    waiting = sorted((hole for hole in holes if hole >= start), reverse=True)
    for place in range(segment.ids.size):
        at = segment.offsets.get(place)
        if at < start or at - start + _PLACE_END > len(data):
            continue
        while waiting and waiting[-1] < at:
            after_hole = True
            waiting.pop()
        kind = data[at - start + _KIND_AT]
        if segment.ids.get(place) == GONE:  # used without a record, lost or erased
            own = data[at - start + _PLACE_AT : at - start + _PLACE_END]
            if kind & 0x0F == ERASED and own == place.to_bytes(4, "little"):
                after_hole = True
            continue
        is_torn = is_torn or (after_hole and bool(group))
        if group and not kind & AFTER:
            if is_torn:
                found.append((group[0], group[-1]))
            group, is_torn = [], False
        if kind & AFTER:
            is_torn = is_torn or after_hole
        if kind & (AFTER | MORE):
            group.append(place)
        after_hole = False
        if group and not kind & MORE:
            if is_torn:
                found.append((group[0], group[-1]))
            group, is_torn = [], False
    if group and (is_torn or after_hole or waiting or not ended):
        found.append((group[0], group[-1]))
    return found
