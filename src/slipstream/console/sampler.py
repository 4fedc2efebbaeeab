"""What the server holds at the moment, and how it changed during the last minutes.

A `Sampler` looks at the server every few seconds through the user's own connection. Pages show its
latest look, or ask for a fresh one; plots show its series. Both are bounded: of very many consumers
only the first are watched, and `Look.is_partial` says so.
"""

import asyncio
from array import array
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from slipstream.cli.server.system import ask_connections
from slipstream.client.jetstream import AccountInfo, ConsumerInfo, StreamInfo
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import Error

POINTS_MAX = 240  # in each series
SERIES_MAX = 2000
STREAMS_WATCHED_MAX = 2000
CONSUMERS_WATCHED_MAX = 512  # two pages of the API


@dataclass(slots=True)
class Look:
    """One look at the server. `error` says why there is nothing to see."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    account: AccountInfo = field(default_factory=AccountInfo)
    streams: list[StreamInfo] = field(default_factory=list)
    consumers: list[ConsumerInfo] = field(default_factory=list)
    connections: list[dict[str, Any]] = field(default_factory=list)
    rtt: float = 0.0
    is_partial: bool = False
    error: str = ""

    @property
    def lag(self) -> int:
        """Messages that wait for the consumers which are watched."""
        return sum(one.num_pending for one in self.consumers)

    @property
    def consumers_total(self) -> int:
        """How many consumers there are, watched or not."""
        return sum(one.state.consumer_count for one in self.streams)

    @property
    def messages(self) -> int:
        """Messages in all streams."""
        return sum(one.state.messages for one in self.streams)


class Series:
    """Values at the sampler's times; nothing is known before `begin`."""

    __slots__ = ("begin", "values")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.values = array("d")


class History:
    """Series of numbers by name, all over the same times, the last `POINTS_MAX` of them."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=POINTS_MAX)
        self._count = 0
        self._series: dict[str, Series] = {}
        self._counters: dict[str, tuple[float, int]] = {}

    def begin(self, at: float) -> None:
        """The next values belong to this time (seconds since the epoch)."""
        self._times.append(at)
        self._count += 1

    def add(self, name: str, value: float) -> None:
        """The value of a series at the current time."""
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= SERIES_MAX:
                return
            series = self._series[name] = Series(self._count - 1)
        missing = self._count - 1 - series.begin - len(series.values)
        series.values.extend([float("nan")] * missing)
        series.values.append(value)
        surplus = len(series.values) - POINTS_MAX
        if surplus > 0:
            del series.values[:surplus]
            series.begin += surplus

    def add_rate(self, name: str, count: int, now: float) -> None:
        """How fast a counter grows, a second; nothing at its first look."""
        before = self._counters.get(name)
        self._counters[name] = (now, count)
        if before is not None and now > before[0]:
            self.add(name, max(count - before[1], 0) / (now - before[0]))

    def forget_unused(self) -> None:
        """Drop the series of what is gone."""
        oldest = self._count - POINTS_MAX // 4
        gone = [n for n, s in self._series.items() if s.begin + len(s.values) < oldest]
        for name in gone:
            del self._series[name]
            self._counters.pop(name, None)

    def times(self) -> list[float]:
        """Seconds since the epoch."""
        return list(self._times)

    def values(self, name: str) -> list[float | None]:
        """One value for each of `times`, None where nothing is known."""
        series = self._series.get(name)
        first = self._count - len(self._times)
        if series is None:
            return [None] * len(self._times)
        found: list[float | None] = [None] * max(series.begin - first, 0)
        found += [None if value != value else value for value in series.values]
        return found[-len(self._times) :] + [None] * (len(self._times) - len(found))

    def latest(self, name: str) -> float:
        """The last value; 0 where nothing is known."""
        series = self._series.get(name)
        return series.values[-1] if series is not None and series.values else 0.0


class Sampler:
    """Looks at a server again and again."""

    def __init__(self, js: JetStream, interval: float, fresh: float) -> None:
        self._js = js
        self._interval = interval
        self._fresh = fresh
        self._lock = asyncio.Lock()
        self._taken = self._noted = float("-inf")
        self._looks = 0
        self._wake: set[asyncio.Event] = set()
        self.look = Look()
        self.history = History()

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await self.refresh(self._interval / 2)
            for event in self._wake:
                event.set()
            await asyncio.sleep(self._interval)

    async def changed(self) -> Look:
        """The next look that the sampler takes by itself."""
        event = asyncio.Event()
        self._wake.add(event)
        try:
            await event.wait()
        finally:
            self._wake.discard(event)
        return self.look

    def stale(self) -> None:
        """Something was changed: the next page needs a look of its own."""
        self._taken = float("-inf")

    async def fresh(self) -> Look:
        """A look that is new enough for a page."""
        return await self.refresh(self._fresh)

    async def refresh(self, age_max: float) -> Look:
        """A look that is not older than `age_max` seconds."""
        async with self._lock:
            if monotonic() - self._taken > age_max:
                try:
                    look = await self._look()
                except Error as error:
                    look = Look(error=str(error))
                self.look = look
                self._taken = now = monotonic()
                if not look.error and now - self._noted >= self._interval / 2:
                    self._noted = now
                    self._note(look)
        return self.look

    async def _look(self) -> Look:
        began = monotonic()
        account = await self._js.account_info()
        look = Look(account=account, rtt=monotonic() - began)
        async for info in self._js.streams():
            look.streams.append(info)
            if len(look.streams) >= STREAMS_WATCHED_MAX:
                look.is_partial = True
                break
        look.streams.sort(key=lambda info: info.name)
        await self._consumers(look)
        look.connections = await ask_connections(self._js.connection)
        return look

    async def _consumers(self, look: Look) -> None:
        for info in look.streams:
            if not info.state.consumer_count:
                continue
            if len(look.consumers) >= CONSUMERS_WATCHED_MAX:
                look.is_partial = True
                return
            async for one in self._js.consumers(info.name):
                look.consumers.append(one)
                if len(look.consumers) >= CONSUMERS_WATCHED_MAX:
                    break
        look.is_partial = look.is_partial or len(look.consumers) < look.consumers_total

    def _note(self, look: Look) -> None:
        history, now = self.history, monotonic()
        history.begin(look.at.timestamp())
        for info in look.streams:
            history.add_rate(f"in {info.name}", info.state.last_seq, now)
        for one in look.consumers:
            name = f"{one.stream_name} {one.name}"
            history.add_rate(f"out {name}", one.delivered.consumer_seq, now)
            history.add(f"lag {name}", one.num_pending)
            history.add(f"acks {name}", one.num_ack_pending)
        history.add("lag", look.lag)
        if self._looks:  # a rate needs two
            history.add("in", sum(history.latest(f"in {info.name}") for info in look.streams))
            names = [f"out {one.stream_name} {one.name}" for one in look.consumers]
            history.add("out", sum(map(history.latest, names)))
        self._looks += 1
        history.forget_unused()
