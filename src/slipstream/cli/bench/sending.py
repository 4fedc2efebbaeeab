"""What the workers of `slipstream bench` send, and how fast."""

import asyncio
import random
from collections.abc import Iterator
from itertools import cycle, islice, repeat
from time import perf_counter

import msgspec

from slipstream.model.header_names import NATS_MSG_ID


class Pace:
    """Holds a worker back to a rate, or makes it wait after each message."""

    def __init__(self, pause: float = 0.0, rate: float = 0.0) -> None:
        self._pause = pause
        self._rate = rate  # messages in a second; 0: no bound
        self._began = perf_counter()
        self._done = 0

    def __bool__(self) -> bool:
        return bool(self._pause or self._rate)

    async def wait(self) -> None:
        """After a message."""
        self._done += 1
        if self._pause:
            await asyncio.sleep(self._pause)
        if self._rate:
            ahead = self._done / self._rate - (perf_counter() - self._began)
            if ahead > 0:
                await asyncio.sleep(ahead)


class Sending(msgspec.Struct, kw_only=True):
    """The messages of all workers."""

    subject: str
    body: bytes
    headers: dict[str, str] = {}
    subjects: int = 0  # as many subjects, each with a number at its end; 0: the subject as it is
    is_random: bool = False
    ids: str = ""  # what message ids begin with; "": no ids
    pause: float = 0.0
    rate: float = 0.0  # of a worker

    def pace(self) -> Pace:
        """The pace of a worker that begins now."""
        return Pace(self.pause, self.rate)

    def messages(self, worker: int, count: int) -> Iterator[tuple[str, dict[str, str] | None]]:
        """Subject and headers of each message of a worker."""
        return zip(self._subjects(count), self._headers(worker, count), strict=True)

    def _subjects(self, count: int) -> Iterator[str]:
        if not self.subjects:
            return repeat(self.subject, count)
        width = len(str(self.subjects))
        numbered = [f"{self.subject}.{at:0{width}d}" for at in range(self.subjects)]
        if self.is_random:
            return (random.choice(numbered) for _ in range(count))
        return islice(cycle(numbered), count)

    def _headers(self, worker: int, count: int) -> Iterator[dict[str, str] | None]:
        if not self.ids:
            return repeat(self.headers or None, count)
        ids = (f"{self.ids}-{worker}-{at}" for at in range(count))
        return ({**self.headers, NATS_MSG_ID: one} for one in ids)
