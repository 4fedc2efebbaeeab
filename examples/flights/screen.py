"""Lines on the terminal that say how far things are."""

import sys
from time import perf_counter


def title(number: int, text: str) -> None:
    """The heading of an act."""
    print(f"\n{'─' * 78}\n{number}. {text}\n", flush=True)


class Progress:
    """One line that says how far a step is; where there is no terminal, how it ended."""

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = total
        self.begun = perf_counter()
        self._next = 0

    def show(self, done: int) -> float:
        """Show `done`, every twentieth of the way; how many a second it is by now."""
        rate = done / max(perf_counter() - self.begun, 1e-9)
        if done >= self._next or done >= self.total:
            self._next = done + self.total // 20
            line = f"  {self.label:<32} {done:>9,} of {self.total:,}  {rate:>9,.0f}/s"
            end = "\n" if done >= self.total else "\r"
            if sys.stdout.isatty() or done >= self.total:
                print(line, end=end, flush=True)
        return rate
