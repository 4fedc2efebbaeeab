"""Whether the disk is quick enough for a loop to wait for a small write and its sync.

Where a sync takes a fraction of a millisecond, two hand-overs between threads would cost more than
they hide. How long small writes took says so: one that takes `LONG_SECONDS` is enough to have all
that follow it go to a thread, until those there take less on average.
"""

INLINE_SECONDS_MAX = 0.0005  # a disk that is slower than this, on average, is not waited for
PROBE_EVERY = 256  # after so many writes on a thread, one is tried on the loop again
PROBED_SECONDS_MAX = 0.005  # ... unless they take longer than this, on average
_COUNTED_SECONDS_MAX = 0.01  # what takes longer counts as this, so that it is forgotten again
_WEIGHT = 0.1
LONG_SECONDS = INLINE_SECONDS_MAX / _WEIGHT


class QuickDisk:
    """See the module's text. One object for each loop, used there alone."""

    def __init__(self) -> None:
        self._seconds = 0.0  # what a small write takes, averaged
        self._since_probe = 0

    def is_quick(self) -> bool:
        """Whether the next small write may run on the loop."""
        if self._seconds <= INLINE_SECONDS_MAX:
            return True
        self._since_probe += 1
        if self._since_probe >= PROBE_EVERY and self._seconds < PROBED_SECONDS_MAX:
            self._since_probe = 0
            return True
        return False

    def note(self, seconds: float) -> None:
        """A write and its sync have taken so long."""
        self._seconds += (min(seconds, _COUNTED_SECONDS_MAX) - self._seconds) * _WEIGHT
