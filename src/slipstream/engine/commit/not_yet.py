"""Requests that need a job to have run before they can be answered, and ask again then."""

from collections.abc import Callable

Wait = Callable[[Callable[[], None]], None]


class NotYetError(Exception):
    """What is asked for takes a job on a thread first; nothing has changed. `wait` is given a
    callback, and calls it as part of a turn of the engine once the job has run."""

    def __init__(self, what: str, wait: Wait) -> None:
        super().__init__(f"{what} takes a job that has not run yet")
        self.wait = wait
