"""How the bytes of a range are spread over it, estimated from samples.

The protocol tells the bytes of a stream as a whole, and nothing about a range. But one direct get
tells how large the message at a sequence is, so a few messages evenly apart are fetched. Sizes that
change along the stream show in them: then tasks get equal bytes. Sizes that change from message to
message are noise, and equal counts are the best cut: how far the means of slices are trusted
depends on how much more they differ from each other than chance would have it.
"""

import asyncio
from itertools import pairwise
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from slipstream.spark.planning import StreamView

SLICES = 8
SAMPLES = 4
"""Of each slice."""


class Spread(msgspec.Struct, frozen=True):
    """Slices of a range, from its front: messages in each, and bytes of a message on average."""

    counts: list[int]
    sizes: list[float]

    @property
    def bytes(self) -> float:
        """Bytes of the range."""
        return sum(count * size for count, size in zip(self.counts, self.sizes, strict=True))

    def count_for(self, wanted: float) -> int:
        """How many messages from the front hold so many bytes."""
        taken = 0
        for count, size in zip(self.counts, self.sizes, strict=True):
            if count * size >= wanted:
                return taken + int(wanted / size)
            wanted -= count * size
            taken += count
        return taken


async def spread_of(view: "StreamView", start: int, end: int) -> Spread | None:
    """The spread of a range; None where direct gets cannot tell it."""
    if not view.has_direct_get:
        return None
    edges = [start + (end - start) * number // SLICES for number in range(SLICES + 1)]
    behind = await asyncio.gather(*(view.count_from(edge) for edge in edges))
    counts = [more - less for more, less in pairwise(behind)]
    every = (end - start) / (SLICES * SAMPLES)
    at = [start + int((number + 0.5) * every) for number in range(SLICES * SAMPLES)]
    found = await asyncio.gather(*(view.size_at(sequence, end) for sequence in at))
    slices = [
        [size for size in found[first : first + SAMPLES] if size is not None]
        for first in range(0, len(found), SAMPLES)
    ]
    return Spread(counts, shrunk(slices)) if any(slices) else None


def shrunk(slices: list[list[int]]) -> list[float]:
    """The mean size of each slice, drawn to the mean of all as far as chance explains it."""
    known = [slice_ for slice_ in slices if slice_]
    mean = fmean(size for slice_ in known for size in slice_)
    means = [fmean(slice_) if slice_ else mean for slice_ in slices]
    chance = fmean(pvariance(slice_) / max(len(slice_) - 1, 1) for slice_ in known)
    seen = pvariance(means)
    trust = max(1 - chance / seen, 0.0) if seen else 0.0
    return [max(mean + trust * (one - mean), 1.0) for one in means]
