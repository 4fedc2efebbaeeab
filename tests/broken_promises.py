"""What a judge has found, of what clients were told and what is there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

EXAMPLES = 3


@dataclass
class Verdict:
    """Counts of what is broken, by the name of the promise; and some of it in words."""

    counts: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def add(self, promise: str, found: Sequence[str]) -> None:
        """Note what breaks a promise."""
        if found:
            self.counts[promise] = self.counts.get(promise, 0) + len(found)
            self.words += [f"{promise}: {one}" for one in found[:EXAMPLES]]
