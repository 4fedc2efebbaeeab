"""Which compression a link has (docs/protocol/leaf.md#compression).

Each end says in INFO what it wants. The one that dials answers with an INFO of its own if both are
for it, and from then on all bytes are one stream of S2 in each direction.
"""

import msgspec

from slipstream.model.durations import MILLISECOND

OFF = "off"
ACCEPT = "accept"  # if the other end asks for it
AUTO = "s2_auto"  # by the round trip
UNCOMPRESSED = "s2_uncompressed"  # with S2's framing and checksums
FAST, BETTER, BEST = "s2_fast", "s2_better", "s2_best"  # alike here, where S2 has one level
LEVELS = (UNCOMPRESSED, FAST, BETTER, BEST)
MODES = (OFF, ACCEPT, AUTO, *LEVELS)


class LinkCompression(msgspec.Struct, kw_only=True):
    """What one end wants. With `AUTO`, a link whose round trip is at most the first of
    `rtt_thresholds` (ns, ascending) has the first of `LEVELS`, and so on."""

    mode: str = AUTO
    rtt_thresholds: list[int] = msgspec.field(
        default_factory=lambda: [10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND]
    )

    def agreed(self, other: str) -> str:
        """What holds if the other end wants `other`; `OFF` for a mode that is unknown here."""
        if self.mode == OFF or other not in MODES or other == OFF or other == self.mode == ACCEPT:
            return OFF
        if self.mode != ACCEPT:
            return self.mode
        return FAST if other == AUTO else other

    def level(self, rtt: int) -> str:
        """The level for a link with a round trip of so many ns."""
        at = sum(rtt > most for most in self.rtt_thresholds)
        return LEVELS[min(at, len(LEVELS) - 1)]
