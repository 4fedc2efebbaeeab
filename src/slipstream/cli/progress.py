"""Progress bars, on a terminal's stderr only; Rich, which draws them, is loaded only there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


class Bar(Protocol):
    """What commands use of a progress bar."""

    @property
    def disable(self) -> bool:
        """Whether nothing is drawn."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> None: ...
    def add_task(self, description: str, *, total: float | None, visible: bool = True) -> Any: ...
    def update(
        self, task_id: Any, *, total: float | None = None, completed: float | None = None
    ) -> None: ...
    def advance(self, task_id: Any, advance: float = 1) -> None: ...


class _NoBar:
    """Where there is no terminal."""

    disable = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def add_task(self, description: str, **about: Any) -> int:
        return 0

    def update(self, task_id: Any, **change: Any) -> None:
        pass

    def advance(self, task_id: Any, advance: float = 1) -> None:
        pass


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """What the server does in one go, with the time it takes."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with _drawn(SpinnerColumn(), TextColumn(what), TimeElapsedColumn()) as bar:
        bar.add_task("", total=None)
        yield


def count_bar(what: str, wanted: bool = True) -> Bar:
    """A progress bar of things."""
    if not wanted or not sys.stderr.isatty():
        return _NoBar()
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    return _drawn(TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def bytes_bar(what: str, wanted: bool = True) -> Bar:
    """A progress bar of bytes."""
    if not wanted or not sys.stderr.isatty():
        return _NoBar()
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return _drawn(TextColumn(what), BarColumn(), *columns)


def _drawn(*columns: "ProgressColumn") -> "Progress":
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)
