"""How often what has taken how long."""

_US, _MS, _S = 1_000, 1_000_000, 1_000_000_000
BOUNDS_NS = (
    10 * _US, 25 * _US, 50 * _US, 100 * _US, 250 * _US, 500 * _US,
    1 * _MS, 2_500 * _US, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS,
    1 * _S, 2_500 * _MS, 5 * _S, 10 * _S,
)  # fmt: skip


class Histogram:
    """How many durations lie in each of the ranges that `BOUNDS_NS` ends, and their sum in ns."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)  # the last is of those beyond every bound
        self.total = 0

    def add(self, duration: int, count: int = 1) -> None:
        """`count` things have taken `duration` ns each."""
        if duration < 0:  # the system's clock was set back
            duration = 0
        at = 0
        for bound in BOUNDS_NS:
            if duration <= bound:
                break
            at += 1
        self.counts[at] += count
        self.total += duration * count
