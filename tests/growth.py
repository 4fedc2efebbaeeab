"""How work grows with what is asked for, in lines of Python that ran: no clock, no chance.

The plain build runs every line of the package; the compiled build runs those of its uncompiled
modules. What is compiled has the same source, so one build is enough to see a step that grows with
the square of its input.
"""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import slipstream

SOURCE = str(Path(slipstream.__file__).parent)
LINEAR_MAX = 2.8  # what twice as much again may add; 2 is linear, 4 is quadratic
NOISE_LINES = 2000  # work that does not depend on the size


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of the package run while `act` does; a turn of a loop within a line counts."""
    count = 0

    def within(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return within

    def entered(frame: FrameType, _event: str, _arg: Any) -> Any:
        return within if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # or what an earlier test has left behind would be given up just now
    sys.settrace(entered)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def assert_grows_linearly(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """What `prepare` returns for a size does work in proportion to it; what it does itself is not
    counted."""
    counts = [lines_run(prepare(size * times)) for times in (1, 2, 4)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert second <= LINEAR_MAX * max(first, 0) + NOISE_LINES, (
        f"{size}, {2 * size} and {4 * size} take {counts} lines"
    )
