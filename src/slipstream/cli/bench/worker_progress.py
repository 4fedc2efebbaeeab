"""How far the workers of a benchmark are, told across processes at next to no cost.

A file of eight bytes for each worker, mapped into every process: a worker writes its own eight,
the one that draws the progress bars reads all of them.
"""

import mmap
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.cli.progress import count_bar

WIDTH = 8
BARS_MAX = 8  # more workers share one bar
REDRAW_SECONDS = 0.1


class WorkerProgress:
    """One worker's count. `path` may be "", when nobody looks."""

    def __init__(self, path: str, worker: int) -> None:
        self._slot: memoryview[int] | None = None
        if path:
            with open(path, "r+b") as file:
                self._slot = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self._worker = worker

    def add(self, count: int) -> None:
        """Count `count` more that are done."""
        if self._slot is not None:
            self._slot[self._worker] += count


@contextmanager
def drawn(title: str, shares: list[int], wanted: bool) -> Iterator[str]:
    """Draw the workers' progress on a terminal; gives the path for `WorkerProgress`, "" without
    one."""
    bar = count_bar(title)
    if bar.disable or not wanted:
        yield ""
        return
    with tempfile.TemporaryDirectory() as directory, bar:
        path = Path(directory, "progress")
        path.write_bytes(bytes(WIDTH * len(shares)))
        each = len(shares) <= BARS_MAX
        totals = shares if each else [sum(shares)]
        tasks = [bar.add_task("", total=total) for total in totals]

        def draw() -> None:
            counts = memoryview(path.read_bytes()).cast("Q").tolist()
            for task, count in zip(tasks, counts if each else [sum(counts)], strict=True):
                bar.update(task, completed=count)

        over = threading.Event()

        def redraw() -> None:
            while not over.wait(REDRAW_SECONDS):
                draw()

        thread = threading.Thread(target=redraw, name="progress of bench")
        thread.start()
        try:
            yield str(path)
        finally:
            over.set()
            thread.join()
            draw()
