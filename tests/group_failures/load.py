"""The clients of a round: publishers of numbered messages, and readers; all that they were told."""

import asyncio
import json
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import slipstream
from tests.group_failures.servers import Served

STREAM, SUBJECT = "S", "s"
PUBLISHERS = 6  # half of them with message ids, who try until they know
READERS = 2
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.02  # between two messages of one publisher
BODY_BYTES = 100


@dataclass(slots=True)
class Attempt:
    """A message that was published. Of one with an id there may have been several tries."""

    body: bytes
    has_id: bool
    began: float  # of the first try
    ended: float = 0.0
    sequence: int = 0  # 0: nobody has acknowledged it
    said_duplicate: bool = False


@dataclass(slots=True)
class Read:
    """The last sequence of the stream, as somebody was told."""

    began: float
    ended: float
    last: int
    server: str  # where the reader was connected


class Load:
    """Runs until `stop`."""

    def __init__(self, servers: list[Served], seed: int) -> None:
        self.attempts: list[Attempt] = []
        self.reads: list[Read] = []
        self.acknowledged = 0
        self._random = Random(f"{seed}/load")
        self._urls = [server.url for server in servers]
        self._connections: list[Any] = []
        self._is_stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, and begin."""
        for number in range(PUBLISHERS):
            nc = await self._connect()
            work = self._publish(nc, number, has_id=number % 2 == 0)
            self._tasks.append(asyncio.create_task(work))
        for _ in range(READERS):
            self._tasks.append(asyncio.create_task(self._read(await self._connect())))

    async def _connect(self) -> Any:
        urls = self._random.sample(self._urls, len(self._urls))
        nc = await connect(urls)
        self._connections.append(nc)
        return nc

    async def _publish(self, nc: Any, publisher: int, *, has_id: bool) -> None:
        js = nc.jetstream()
        number = 0
        filling = b"." * BODY_BYTES
        while not self._is_stopped:
            body = b"%d-%d" % (publisher, number)
            attempt = Attempt(body, has_id, time.monotonic())
            self.attempts.append(attempt)
            options = {"message_id": body.decode()} if has_id else {"retries": 0}
            while not self._is_stopped:
                try:
                    done = await js.publish(
                        f"{SUBJECT}.{publisher}", body + b" " + filling, timeout=ANSWER_SECONDS,
                        **options,
                    )  # fmt: skip
                    attempt.ended, attempt.sequence = time.monotonic(), done.sequence
                    attempt.said_duplicate = bool(done.duplicate)
                    self.acknowledged += 1
                    break
                except slipstream.Error:
                    await asyncio.sleep(PAUSE_SECONDS)
                    if not has_id:
                        break
            number += 1
            await asyncio.sleep(PAUSE_SECONDS * (0.5 + self._random.random()))

    async def _read(self, nc: Any) -> None:
        while not self._is_stopped:
            began = time.monotonic()
            try:
                answer = await nc.request(
                    f"$JS.API.STREAM.INFO.{STREAM}", b"", timeout=ANSWER_SECONDS
                )
                found = json.loads(answer.data)
            except slipstream.Error:
                found = {}
            if "state" in found:
                where = f"{nc.server_info.server_name}"
                last = found["state"]["last_seq"]
                self.reads.append(Read(began, time.monotonic(), last, where))
            await asyncio.sleep(PAUSE_SECONDS * 3)

    async def more(self, count: int, seconds_max: float) -> bool:
        """Wait until so many more are acknowledged; False when the time is over."""
        wanted = self.acknowledged + count
        deadline = time.monotonic() + seconds_max
        while self.acknowledged < wanted:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    async def stop(self) -> None:
        """Publish no more."""
        self._is_stopped = True
        await asyncio.gather(*self._tasks)
        for nc in self._connections:
            await nc.close()


async def connect(urls: list[str]) -> Any:
    """A client that goes on whoever leads."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return await slipstream.connect(
                urls, max_reconnect_attempts=-1, reconnect_wait=0.05, connect_timeout=2
            )
        except slipstream.Error:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
