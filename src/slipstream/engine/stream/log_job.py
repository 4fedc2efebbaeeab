"""Background work of a stream's log on its way: what it leaves to be done follows."""

from typing import Protocol

from slipstream.log.durability import Job


class Working(Protocol):
    """A stream whose log has work to be done."""

    def run_jobs(self) -> None:
        """Have it done."""


class LogJob:
    """A job of the log of `stream`."""

    __slots__ = ("_stream", "job")

    def __init__(self, stream: Working, job: Job) -> None:
        self._stream = stream
        self.job = job

    def run(self) -> None:
        """Do the blocking part. Never raises."""
        self.job.run()

    def finish(self) -> None:
        """Take over the result, on the loop, and go on."""
        try:
            self.job.finish()
        finally:
            self._stream.run_jobs()
