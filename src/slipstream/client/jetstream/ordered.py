"""Ordered consumers: every message once and in order, whatever is lost on the way.

An ordered consumer is not a kind of consumer that servers know, but a way to use ephemeral ones
without acknowledgements (docs/protocol/consumers.md#ordered-consumers). Each delivery has a
consumer sequence. If one is missing, if heartbeats are missing, if the consumer is gone or the
connection was another one in between, then another consumer is made, which starts after the last
message that was received. A message that has been taken is never given out twice.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, overload

from slipstream.client.codecs import Kind
from slipstream.client.errors import ConnectionClosedError
from slipstream.client.jetstream.api import delete_in_background, new_name
from slipstream.client.jetstream.consumer import FETCH_TIMEOUT
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import (
    ApiError,
    BadPullRequestError,
    ConsumeError,
    JetStreamError,
    MaxBytesExceededError,
    NoHeartbeatError,
    OrderedBusyError,
    OrderedGapError,
    OrderedNotCreatedError,
    OrderedResetError,
    StreamNotFoundError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.messages import (
    ConsumeContext,
    ErrorHandler,
    Handler,
    Messages,
    MessageSource,
)
from slipstream.client.jetstream.pull import (
    BATCH_UNBOUNDED,
    Fetch,
    MessageBatch,
    Pull,
    PullOptions,
    PullSource,
)
from slipstream.client.jetstream.push import PushSource
from slipstream.client.message import Message
from slipstream.client.value_types import Given
from slipstream.errors import Error
from slipstream.model.configurations import ConsumerConfig
from slipstream.model.documents import Document, Seconds
from slipstream.model.durations import to_seconds
from slipstream.model.header_names import NATS_LAST_CONSUMER
from slipstream.model.infos import ConsumerInfo
from slipstream.model.policies import DeliverPolicy, ReplayPolicy

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

PUSH_ACK_WAIT = 22 * 3600.0
RESET_WAIT_FIRST = 0.25
RESET_WAIT_MAX = 10.0


class OrderedConsumerConfig(Document, kw_only=True):
    """What an ordered consumer reads; the rest of its configuration is fixed
    (docs/protocol/consumers.md#ordered-consumers).

    `max_reset_attempts` bounds the attempts at recreating the consumer after one loss (-1: no
    bound). `inactive_threshold` is when the server may forget it. `push` chooses a push consumer
    with flow control in place of a pull consumer.
    """

    filter_subjects: list[str] = []
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None
    replay_policy: ReplayPolicy = "instant"
    headers_only: bool = False
    inactive_threshold: Seconds = 300.0
    max_reset_attempts: int = -1
    metadata: dict[str, str] = {}
    name_prefix: str = ""
    push: bool = False
    idle_heartbeat: Seconds = 5.0


class EphemeralConsumers:
    """The consumers that an ordered consumer is on the server, one after the other.

    Each starts after `last_sequence`, the last message that was received.
    """

    def __init__(
        self,
        js: "JetStream",
        stream: str,
        config: OrderedConsumerConfig,
        serials: Iterator[int],
    ) -> None:
        self._js = js
        self._stream = stream
        self._config = config
        self._prefix = config.name_prefix or new_name()
        self._serials = serials  # of all that the handle makes: no name comes twice
        self._was_made = False
        self.info: ConsumerInfo | None = None
        self.last_sequence = 0
        self._new_after: int | None = None  # where "new" began, for the next one to begin there

    @property
    def name(self) -> str:
        """The current one's name; "" if there is none."""
        return self.info.name if self.info else ""

    @property
    def subject(self) -> str:
        """Where to pull from the current one."""
        return f"{self._js.api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self.name}"

    async def renew(self, listen: Callable[[], str] | None = None) -> ConsumerInfo:
        """Make the next one; `listen` gives the subject that it is to send to, for each attempt.

        Raises `StreamNotFoundError`, `OrderedResetError` after too many attempts, and
        `ConnectionClosedError`.
        """
        self.forget()
        wait, attempts = RESET_WAIT_FIRST, 0
        while True:
            attempts += 1
            name = f"{self._prefix}_{next(self._serials)}"
            deliver_subject = "" if listen is None else listen()
            try:
                made = await self._js.create_consumer_raw(
                    self._stream, self.config(name, deliver_subject)
                )
            except (StreamNotFoundError, ConnectionClosedError):
                raise
            except asyncio.CancelledError:
                delete_in_background(self._js, self._stream, name, is_being_made=True)
                raise
            except (Error, TimeoutError) as error:
                if not isinstance(error, ApiError):
                    delete_in_background(self._js, self._stream, name, is_being_made=True)
                self._check_attempts(attempts, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, RESET_WAIT_MAX)
                continue
            self.info = made
            self._was_made = True
            if self._config.deliver_policy == "new" and self._new_after is None:
                self._new_after = made.delivered.stream_seq
            return made

    def _check_attempts(self, attempts: int, error: Exception) -> None:
        code = getattr(error, "code", 503)
        bound = self._config.max_reset_attempts
        if code in (400, 500) and not self._was_made:
            raise error  # the first one ever is refused: the configuration is wrong
        if 0 <= bound <= attempts:
            raise OrderedResetError(
                f"ordered consumer of stream {self._stream!r}: {attempts} attempts at recreating "
                f"it failed, the last one with: {error}"
            ) from error

    def advance(self, sequence: int) -> None:
        """The message of this sequence was received."""
        self.last_sequence = max(self.last_sequence, sequence)

    def forget(self) -> None:
        """Delete the current one; whether that works is of no interest, it would fade away."""
        if self.info is not None:
            delete_in_background(self._js, self._stream, self.info.name)
        self.info = None

    def config(self, name: str, deliver_subject: str) -> ConsumerConfig:
        """The configuration of the next one."""
        asked = self._config
        made = ConsumerConfig(
            name=name,
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=asked.inactive_threshold,
            replay_policy=asked.replay_policy,
            headers_only=asked.headers_only,
            metadata=dict(asked.metadata),
            deliver_policy=asked.deliver_policy,
            opt_start_seq=asked.opt_start_seq,
            opt_start_time=asked.opt_start_time,
        )
        filters = asked.filter_subjects
        if len(filters) == 1:
            made.filter_subject = filters[0]
        else:
            made.filter_subjects = list(filters)
        if asked.deliver_policy == "last_per_subject" and not filters:
            made.filter_subject = ">"
        start_after = self.last_sequence or self._new_after
        if start_after is not None:
            made.deliver_policy = "by_start_sequence"
            made.opt_start_seq = start_after + 1
            made.opt_start_time = None
        if deliver_subject:
            made.deliver_subject = deliver_subject
            made.flow_control = True
            made.idle_heartbeat = asked.idle_heartbeat
            made.ack_wait = PUSH_ACK_WAIT
        return made


class Recreation:
    """What an ordered source does when it has lost its place: one renewal at a time."""

    def __init__(
        self,
        source: MessageSource,
        consumers: EphemeralConsumers,
        begin: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._consumers = consumers
        self._begin = begin
        self._task: asyncio.Task[None] | None = None
        self._making: asyncio.Task[ConsumerInfo] | None = None

    async def renew(self, listen: Callable[[], str] | None = None) -> None:
        """Make the next consumer; until it is there nobody else starts to.

        Returns without one if the source is closed meanwhile: a task that waits here goes on.
        """
        making = self._making = asyncio.ensure_future(self._consumers.renew(listen))
        try:
            await making
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not self._source.is_closed or waiting is None or waiting.cancelling():
                raise
        finally:
            self._making = None

    def start(self, error: Exception | None) -> None:
        """Renew, unless that is under way."""
        source = self._source
        if source.is_closed or self._making is not None:
            return
        if self._task is not None and not self._task.done():
            return
        source.drop_route()
        source.delivery.forget_requests()
        if error is not None:
            source.report(error)
        self._task = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        source, consumers = self._source, self._consumers
        consumers.advance(source.delivery.last_sequence)
        try:
            await self._begin()
        except ConnectionClosedError as error:
            source.on_failure(error)
        except Exception as error:
            source.end(error)

    def stop(self) -> None:
        """Give up renewing, and the consumer on the server."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._making is not None:
            self._making.cancel()
        self._consumers.forget()


class RecreatingSource(MessageSource):
    """A source that recreates its consumer when that may have lost its place."""

    _recreation: Recreation

    def on_gap(self, message: JetStreamMessage) -> None:
        """A message is missing."""
        self._recreation.start(
            OrderedGapError(
                f"{self.who}: delivery {message.metadata.consumer_sequence} came where "
                f"{self.delivery.expected} was expected; reading the missing messages again"
            )
        )

    def on_missing_heartbeat(self, error: NoHeartbeatError) -> None:
        """Start over."""
        self._recreation.start(None)

    def on_reconnect(self) -> None:
        """The server may have restarted: messages may have been lost on the way."""
        self._recreation.start(None)

    def close(self) -> None:
        """End, and let the server forget the consumer."""
        super().close()
        self._recreation.stop()


class OrderedPull(RecreatingSource, PullSource):
    """Pulls from one ephemeral consumer after the other."""

    def __init__(
        self,
        js: "JetStream",
        delivery: Delivery,
        pull: Pull,
        consumers: EphemeralConsumers,
        who: str,
        on_error: ErrorHandler | None,
    ) -> None:
        super().__init__(js.connection, delivery, pull, subject="", who=who, on_error=on_error)
        delivery.ordered = True
        delivery.last_sequence = consumers.last_sequence
        self._consumers = consumers
        self._recreation = Recreation(self, consumers, self.start)

    async def start(self) -> None:
        """Make a consumer and ask it."""
        # An inbox of its own, so that nothing which was meant for the last one comes here; and
        # already now, so that the end of the connection is noticed. A task that takes what is held
        # meanwhile asks no consumer: the last consumer would send what the next one sends again.
        self.subject = ""
        self._inbox = self.connection.new_inbox()
        self.open(self._inbox)
        await self._recreation.renew()
        self.delivery.expected = 1
        self.subject = self._consumers.subject
        self.begin()

    def on_fatal(self, error: JetStreamError) -> None:
        """The consumer is gone."""
        self._recreation.start(error)

    def on_lost(self, message: Message, error: JetStreamError) -> None:
        """The request is lost; the consumer may be too."""
        self._recreation.start(error)


class OrderedPush(RecreatingSource, PushSource):
    """Receives from one ephemeral consumer after the other."""

    def __init__(
        self,
        js: "JetStream",
        delivery: Delivery,
        consumers: EphemeralConsumers,
        who: str,
        heartbeat: float,
        on_error: ErrorHandler | None,
    ) -> None:
        super().__init__(
            js.connection,
            delivery,
            subject="",
            queue="",
            who=who,
            heartbeat=heartbeat,
            on_error=on_error,
        )
        delivery.ordered = True
        delivery.last_sequence = consumers.last_sequence
        self._consumers = consumers
        self._recreation = Recreation(self, consumers, self.start)

    async def start(self) -> None:
        """Make a consumer that sends to a fresh inbox."""
        await self._recreation.renew(self._listen)
        self.watch()

    def _listen(self) -> str:
        """Subscribe to a fresh inbox, where no consumer of an earlier attempt sends."""
        self._consumers.advance(self.delivery.last_sequence)
        self.delivery.expected = 1
        self.subject = self.connection.new_inbox()
        self.open(self.subject)
        return self.subject

    def on_heartbeat(self, message: Message) -> None:
        """Besides: the sequence of the last delivery shows whether one is missing."""
        super().on_heartbeat(message)
        last = message.header(NATS_LAST_CONSUMER) or ""
        if last.isdigit() and int(last) != self.delivery.expected - 1:
            self._recreation.start(
                OrderedGapError(
                    f"{self.who}: {int(last) - self.delivery.expected + 1} messages were lost on "
                    "the way; reading them again"
                )
            )


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
        self._fetching: EphemeralConsumers | None = None
        self._latest: EphemeralConsumers | None = None
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
                f"info of the {self.who}: no consumer was made on the server. Begin to read first"
            )
        return made

    async def info(self) -> ConsumerInfo:
        """The info as it is now. Raises `OrderedNotCreatedError`, `ConsumerNotFoundError`."""
        return await self._js.consumer_info(self._stream, self.cached_info.name)

    @overload
    def messages(
        self,
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages[Given]": ...
    @overload
    def messages(
        self,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages": ...
    def messages(
        self,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages":
        """An endless iterator. `options` are for the pull-based kind."""
        js = self._js
        delivery = Delivery(js.connection.loop, js, type)
        consumers = self._latest = EphemeralConsumers(js, self._stream, self._config, self._serials)
        source: MessageSource
        if self._config.push:
            if set(options) - {"stop_after"}:
                raise TypeError(f"{self.who} is of the push kind: only stop_after is an option")
            delivery.stop_after = options.get("stop_after", 0)
            beat = to_seconds(self._config.idle_heartbeat, "idle_heartbeat")
            source = OrderedPush(js, delivery, consumers, self.who, beat, on_error)
        else:
            expires = to_seconds(options.get("expires", 30.0), "expires")
            pull = Pull.of(options, min(HEARTBEAT_MAX, expires / 2))
            source = OrderedPull(js, delivery, pull, consumers, self.who, on_error)
        source.raise_on_missing_heartbeat = raise_on_missing_heartbeat
        return Messages(delivery, source, False)

    @overload
    def consume(
        self,
        handler: "Handler[Given]",
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext": ...
    @overload
    def consume(
        self,
        handler: Handler,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext": ...
    def consume(
        self,
        handler: Handler,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext":
        """Call `handler` for every message from now on, one after the other; see `messages`."""
        return ConsumeContext(self.messages(type=type, on_error=on_error, **options), handler)

    @overload
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        no_wait: bool = False,
        type: "Kind[Given] | None" = None,
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        no_wait: bool = False,
        type: object,
    ) -> "MessageBatch": ...
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        no_wait: bool = False,
        type: object = None,
    ) -> "MessageBatch":
        """The next messages, up to `count`; fewer, or none, after `timeout` seconds.

        With `no_wait`, those that are there now. `heartbeat` is 5 s, if the timeout is more than
        10 s, unless given. A consumer that has to be made first, by a server that does not answer,
        is waited for as long as the context's `timeout`. Raises `OrderedBusyError` while another
        fetch is under way.
        """
        if self._is_fetching:
            raise OrderedBusyError(f"{self.who}: it is fetching already; one fetch at a time")
        seconds = to_seconds(timeout, "timeout")
        if count < 1 or seconds <= 0:
            raise ValueError(f"fetch {count} messages in {seconds} s: both are to be positive")
        beat = None if heartbeat is None else to_seconds(heartbeat, "heartbeat")
        if beat is not None and not 0 <= beat <= seconds / 2:
            raise ValueError(f"heartbeat is at most half of the timeout ({seconds} s)")
        self._is_fetching = True
        try:
            return await self._fetch(count, seconds, beat, max_bytes, no_wait, type)
        finally:
            self._is_fetching = False

    @overload
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: "Kind[Given] | None" = None,
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object,
    ) -> "MessageBatch": ...
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object = None,
    ) -> "MessageBatch":
        """As many messages as fit in `max_bytes`; see `fetch`."""
        return await self.fetch(
            BATCH_UNBOUNDED, timeout=timeout, heartbeat=heartbeat, max_bytes=max_bytes, type=type
        )

    @overload
    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: "Kind[Given] | None" = None
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: object
    ) -> "MessageBatch": ...
    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: object = None
    ) -> "MessageBatch":
        """Up to `count` of the messages that are there now; see `fetch`."""
        timeout = self._js.timeout
        return await self.fetch(
            count, timeout=timeout, max_bytes=max_bytes, no_wait=True, type=type
        )

    @overload
    async def next(
        self, *, timeout: "float | timedelta" = FETCH_TIMEOUT, type: "Kind[Given] | None" = None
    ) -> "JetStreamMessage[Given] | None": ...
    @overload
    async def next(
        self, *, timeout: "float | timedelta" = FETCH_TIMEOUT, type: object
    ) -> "JetStreamMessage | None": ...
    async def next(
        self, *, timeout: "float | timedelta" = FETCH_TIMEOUT, type: object = None
    ) -> "JetStreamMessage | None":
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
        consumers = self._fetching
        if consumers is None:
            consumers = self._fetching = EphemeralConsumers(
                self._js, self._stream, self._config, self._serials
            )
            self._latest = consumers
        while True:
            if consumers.info is None:
                # Not less than a request may take: or a short timeout would never get one made.
                give_up_at = max(deadline, loop.time() + self._js.timeout)
                try:
                    async with asyncio.timeout_at(give_up_at):
                        await consumers.renew()
                except TimeoutError:
                    return MessageBatch()
                self._expected = 1
            left = deadline - loop.time()
            if left <= 0:
                return MessageBatch()
            try:
                found = await Fetch(
                    self._js.connection,
                    subject=consumers.subject,
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
                consumers.forget()  # what it had received is lost to this consumer
                raise
            except (BadPullRequestError, MaxBytesExceededError):
                raise  # another consumer would refuse it too
            except ConsumeError:
                consumers.forget()
                continue
            if self._accept(consumers, found) or found:
                return found

    def _accept(self, consumers: EphemeralConsumers, found: MessageBatch) -> bool:
        """Cut `found` where a message is missing; False if it was cut or ended in trouble."""
        for index, message in enumerate(found):
            if message.metadata.consumer_sequence != self._expected:
                del found[index:]
                consumers.forget()
                return False
            self._expected += 1
            consumers.last_sequence = message.metadata.stream_sequence
        if found.error is not None:
            consumers.forget()
            return False
        return True


def _heartbeat(asked: float | None, left: float) -> float:
    """Seconds between heartbeats of a fetch that has `left` seconds."""
    if asked is not None:
        return min(asked, left / 2)
    return HEARTBEAT_MAX if left > 2 * HEARTBEAT_MAX else 0.0
