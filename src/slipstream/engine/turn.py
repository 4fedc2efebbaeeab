"""What one turn of the loop leaves to finish: sessions to flush, streams to commit, consumers to
pump.

A turn is everything that one read (or one timer, or one finished fdatasync) sets off. Whoever has
something to finish adds itself once; `Engine.finish_turn` works the lists off. So the price of a
system call is paid for a batch and not for a message.
"""

from typing import Any, Protocol


class Committer(Protocol):
    """Makes streams durable: on the loop or on a thread, the owner of the loop decides."""

    def commit(self, stream: Any) -> None:
        """See to it that all that `stream` has appended is synced and `stream.synced` called."""

    def run_job(self, job: Any) -> None:
        """Run `job.run` where it may block, then `job.finish` on the loop."""


class Turn:
    """The lists of a turn. Members carry a flag of their own, so that adding is O(1)."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []  # ClientSession with output
        self.streams: list[Any] = []  # Stream with something to commit
        self.ready: list[Any] = []  # Consumer that may be able to deliver
        self.congested = False  # somebody whom we wrote to does not keep up
