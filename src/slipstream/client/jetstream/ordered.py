"""Ordered consumers: every message once and in order, whatever happens on the way.

Not a kind of consumer that servers know, but a way to use ephemeral ones without acknowledgements
(spec consumers.md section 8): when one has lost its place, another is made behind the last message
that was received. What has been taken is never given out twice.
"""

import asyncio
import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from slipstream.client.jetstream.consumer import FETCH_TIMEOUT
from slipstream.client.jetstream.consumer_config import OrderedConsumerConfig
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.document import to_seconds
from slipstream.client.jetstream.errors import (
    BadPullRequestError,
    ConsumeError,
    MaxBytesExceededError,
    OrderedBusyError,
    OrderedNotCreatedError,
)
from slipstream.client.jetstream.fetch import Fetch, MessageBatch
from slipstream.client.jetstream.info import ConsumerInfo
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.messages import ConsumeContext, Handler, Messages
from slipstream.client.jetstream.ordered_source import Incarnations, OrderedPull, OrderedPush
from slipstream.client.jetstream.pull_options import BATCH_UNBOUNDED, Pull, PullOptions
from slipstream.client.jetstream.source import ErrorHandler, MessageSource

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

HEARTBEAT_MAX = 5.0


class OrderedConsumer:
    """Reads a stream, or some of its subjects, in order; acknowledges nothing.

    Each `messages` and `consume` reads from the start that the configuration names. `fetch` and
    `next` go on where the last one ended. One of these is used at a time.
    """

    def __init__(self, js: "JetStream", stream: str, config: OrderedConsumerConfig) -> None:
        self._js = js
        self._stream = stream
        self._config = config
        self._serials = itertools.count(1)
        self._fetching: Incarnations | None = None
        self._latest: Incarnations | None = None
        self._expected = 1
        self._is_fetching = False

    @property
    def stream_name(self) -> str:
        """The name of the stream that it reads."""
        return self._stream

    @property
    def who(self) -> str:
        """How errors name it."""
        return f"ordered consumer of stream {self._stream!r}"

    @property
    def cached_info(self) -> ConsumerInfo:
        """The info of the consumer that it is on the server, as that was made.

        Of the one that began to read last. Raises `OrderedNotCreatedError` if there is none.
        """
        made = self._latest.info if self._latest is not None else None
        if made is None:
            raise OrderedNotCreatedError(
                f"info of the {self.who}: it is none on the server. Begin to read first"
            )
        return made

    async def info(self) -> ConsumerInfo:
        """The info as it is now. Raises `OrderedNotCreatedError`, `ConsumerNotFoundError`."""
        return await self._js.consumer_info(self._stream, self.cached_info.name)

    def messages(
        self,
        *,
        type: Any = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> Messages:
        """An endless iterator. `options` are for the pull-based kind."""
        js = self._js
        delivery = Delivery(js.connection.loop, js, type)
        incarnations = self._latest = Incarnations(js, self._stream, self._config, self._serials)
        source: MessageSource
        if self._config.push:
            if set(options) - {"stop_after"}:
                raise TypeError(f"{self.who} is of the push kind: only stop_after is an option")
            delivery.stop_after = options.get("stop_after", 0)
            beat = to_seconds(self._config.idle_heartbeat)
            source = OrderedPush(js, delivery, incarnations, self.who, beat, on_error)
        else:
            expires = to_seconds(options.get("expires", 30.0))
            pull = Pull.of(options, min(HEARTBEAT_MAX, expires / 2))
            source = OrderedPull(js, delivery, pull, incarnations, self.who, on_error)
        source.raise_on_missing_heartbeat = raise_on_missing_heartbeat
        return Messages(delivery, source, False)

    def consume(
        self,
        handler: Handler,
        *,
        type: Any = None,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> ConsumeContext:
        """Call `handler` for every message from now on, one after the other; see `messages`."""
        return ConsumeContext(self.messages(type=type, on_error=on_error, **options), handler)

    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        no_wait: bool = False,
        type: Any = None,
    ) -> MessageBatch:
        """The next messages, up to `count`; fewer, or none, after `timeout` seconds.

        With `no_wait`, those that are there now. `heartbeat` is 5 s, if the timeout is more than
        10 s, unless given. A consumer that has to be made first, by a server that does not answer,
        is waited for as long as the context's `timeout`. Raises `OrderedBusyError` while another
        fetch is under way.
        """
        if self._is_fetching:
            raise OrderedBusyError(f"{self.who}: it is fetching already; one fetch at a time")
        seconds = to_seconds(timeout)
        if count < 1 or seconds <= 0:
            raise ValueError(f"fetch {count} messages in {seconds} s: both are to be positive")
        beat = None if heartbeat is None else to_seconds(heartbeat)
        if beat is not None and not 0 <= beat <= seconds / 2:
            raise ValueError(f"heartbeat is at most half of the timeout ({seconds} s)")
        self._is_fetching = True
        try:
            return await self._fetch(count, seconds, beat, max_bytes, no_wait, type)
        finally:
            self._is_fetching = False

    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: Any = None,
    ) -> MessageBatch:
        """As many messages as fit in `max_bytes`; see `fetch`."""
        return await self.fetch(
            BATCH_UNBOUNDED, timeout=timeout, heartbeat=heartbeat, max_bytes=max_bytes, type=type
        )

    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: Any = None
    ) -> MessageBatch:
        """Up to `count` of the messages that are there now; see `fetch`."""
        timeout = self._js.timeout
        return await self.fetch(
            count, timeout=timeout, max_bytes=max_bytes, no_wait=True, type=type
        )

    async def next(
        self, *, timeout: "float | timedelta" = FETCH_TIMEOUT, type: Any = None
    ) -> JetStreamMessage | None:
        """The next message; None if there is none within `timeout` seconds."""
        found = await self.fetch(1, timeout=timeout, type=type)
        return found[0] if found else None

    async def close(self) -> None:
        """Let the server forget the consumer that `fetch` made; the next fetch makes another."""
        if self._fetching is not None:
            self._fetching.forget()

    async def _fetch(
        self,
        count: int,
        timeout: float,
        heartbeat: float | None,
        max_bytes: int,
        no_wait: bool,
        kind: Any,
    ) -> MessageBatch:
        loop = self._js.connection.loop
        deadline = loop.time() + timeout
        incarnations = self._fetching
        if incarnations is None:
            incarnations = self._fetching = Incarnations(
                self._js, self._stream, self._config, self._serials
            )
            self._latest = incarnations
        while True:
            if incarnations.info is None:
                # Not less than a request may take: or a short timeout would never get one made.
                patience = max(deadline, loop.time() + self._js.timeout)
                try:
                    async with asyncio.timeout_at(patience):
                        await incarnations.renew()
                except TimeoutError:
                    return MessageBatch()
                self._expected = 1
            left = deadline - loop.time()
            if left <= 0:
                return MessageBatch()
            try:
                found = await Fetch(
                    self._js.connection,
                    subject=incarnations.subject,
                    who=self.who,
                    context=self._js,
                    kind=kind,
                    count=count,
                    timeout=left,
                    max_bytes=max_bytes,
                    heartbeat=_heartbeat(heartbeat, left),
                    no_wait=no_wait,
                ).run()
            except asyncio.CancelledError:
                incarnations.forget()  # what it had received is lost to this consumer
                raise
            except (BadPullRequestError, MaxBytesExceededError):
                raise  # another consumer would refuse it too
            except ConsumeError:
                incarnations.forget()
                continue
            if self._accept(incarnations, found) or found:
                return found

    def _accept(self, incarnations: Incarnations, found: MessageBatch) -> bool:
        """Cut `found` where a message is missing; False if it was cut or ended in trouble."""
        for index, message in enumerate(found):
            if message.metadata.consumer_sequence != self._expected:
                del found[index:]
                incarnations.forget()
                return False
            self._expected += 1
            incarnations.last_sequence = message.metadata.stream_sequence
        if found.error is not None:
            incarnations.forget()
            return False
        return True


def _heartbeat(asked: float | None, left: float) -> float:
    """Seconds between heartbeats of a fetch that has `left` seconds."""
    if asked is not None:
        return min(asked, left / 2)
    return HEARTBEAT_MAX if left > 2 * HEARTBEAT_MAX else 0.0
