"""Where an ordered consumer's messages come from: one consumer on the server after the other.

Each delivery has a consumer sequence; if one is missing, if the server falls silent, if the
consumer is gone or the connection was another one in between, then the consumer is made anew to
start behind the last message that was received (spec consumers.md section 8).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from slipstream.client.errors import ConnectionClosedError
from slipstream.client.jetstream.consumer_config import ConsumerConfig, OrderedConsumerConfig
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import (
    ApiError,
    JetStreamError,
    NoHeartbeatError,
    OrderedGapError,
    OrderedResetError,
    StreamNotFoundError,
)
from slipstream.client.jetstream.farewell import forget_consumer
from slipstream.client.jetstream.info import ConsumerInfo
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.names import new_name
from slipstream.client.jetstream.pull import PullSource
from slipstream.client.jetstream.pull_options import Pull
from slipstream.client.jetstream.push import PushSource
from slipstream.client.jetstream.source import ErrorHandler, MessageSource
from slipstream.client.message import Message
from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

PUSH_ACK_WAIT = 22 * 3600.0
RESET_WAIT_FIRST = 0.25
RESET_WAIT_MAX = 10.0


class Incarnations:
    """The consumers that an ordered consumer is on the server, one after the other.

    Each starts behind `last_sequence`, the last message that was received.
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
        self._new_behind: int | None = None  # where "new" began, for the next one to begin there

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
                forget_consumer(self._js, self._stream, name, is_being_made=True)
                raise
            except (Error, TimeoutError) as error:
                if not isinstance(error, ApiError):
                    forget_consumer(self._js, self._stream, name, is_being_made=True)
                self._check_attempts(attempts, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, RESET_WAIT_MAX)
                continue
            self.info = made
            self._was_made = True
            if self._config.deliver_policy == "new" and self._new_behind is None:
                self._new_behind = made.delivered.stream_seq
            return made

    def _check_attempts(self, attempts: int, error: Exception) -> None:
        code = getattr(error, "code", 503)
        bound = self._config.max_reset_attempts
        if code in (400, 500) and not self._was_made:
            raise error  # the first one ever is refused: the configuration is wrong
        if 0 <= bound <= attempts:
            raise OrderedResetError(
                f"ordered consumer of stream {self._stream!r}: {attempts} attempts at making it "
                f"anew failed, the last one with: {error}"
            ) from error

    def go_on_behind(self, sequence: int) -> None:
        """The message of this sequence was received."""
        self.last_sequence = max(self.last_sequence, sequence)

    def forget(self) -> None:
        """Delete the current one; whether that works is of no interest, it would fade away."""
        if self.info is not None:
            forget_consumer(self._js, self._stream, self.info.name)
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
        behind = self.last_sequence or self._new_behind
        if behind is not None:
            made.deliver_policy = "by_start_sequence"
            made.opt_start_seq = behind + 1
            made.opt_start_time = None
        if deliver_subject:
            made.deliver_subject = deliver_subject
            made.flow_control = True
            made.idle_heartbeat = asked.idle_heartbeat
            made.ack_wait = PUSH_ACK_WAIT
        return made


class Rebirth:
    """What an ordered source does when it has lost its place: one renewal at a time."""

    def __init__(
        self,
        source: MessageSource,
        incarnations: Incarnations,
        begin: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._incarnations = incarnations
        self._begin = begin
        self._task: asyncio.Task[None] | None = None
        self._making: asyncio.Task[ConsumerInfo] | None = None

    async def renew(self, listen: Callable[[], str] | None = None) -> None:
        """Make the next consumer; until it is there nobody else starts to.

        Returns without one if the source is closed meanwhile: whoever waits here is let go.
        """
        making = self._making = asyncio.ensure_future(self._incarnations.renew(listen))
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
        source, incarnations = self._source, self._incarnations
        incarnations.go_on_behind(source.delivery.last_sequence)
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
        self._incarnations.forget()


class Reborn(MessageSource):
    """A source that has its consumer made anew when that may have lost its place."""

    _rebirth: Rebirth

    def on_gap(self, message: JetStreamMessage) -> None:
        """A message is missing."""
        self._rebirth.start(
            OrderedGapError(
                f"{self.who}: delivery {message.metadata.consumer_sequence} came where "
                f"{self.delivery.expected} was expected; reading the missing messages again"
            )
        )

    def on_silence(self, error: NoHeartbeatError) -> None:
        """Start over."""
        self._rebirth.start(None)

    def on_reconnect(self) -> None:
        """The server may have restarted: messages may have been lost on the way."""
        self._rebirth.start(None)

    def close(self) -> None:
        """End, and let the server forget the consumer."""
        super().close()
        self._rebirth.stop()


class OrderedPull(Reborn, PullSource):
    """Pulls from one incarnation after the other."""

    def __init__(
        self,
        js: "JetStream",
        delivery: Delivery,
        pull: Pull,
        incarnations: Incarnations,
        who: str,
        on_error: ErrorHandler | None,
    ) -> None:
        super().__init__(js.connection, delivery, pull, subject="", who=who, on_error=on_error)
        delivery.ordered = True
        delivery.last_sequence = incarnations.last_sequence
        self._incarnations = incarnations
        self._rebirth = Rebirth(self, incarnations, self.start)

    async def start(self) -> None:
        """Make a consumer and ask it."""
        # An inbox of its own, so that nothing which was meant for the last one comes here; and
        # already now, so that the end of the connection is heard of. Whoever takes what is held
        # meanwhile asks nobody: the last consumer would send what the next one sends again.
        self.subject = ""
        self._inbox = self.connection.new_inbox()
        self.open(self._inbox)
        await self._rebirth.renew()
        self.delivery.expected = 1
        self.subject = self._incarnations.subject
        self.begin()

    def on_fatal(self, error: JetStreamError) -> None:
        """The consumer is gone."""
        self._rebirth.start(error)

    def on_lost(self, message: Message, error: JetStreamError) -> None:
        """The request is lost; the consumer may be too."""
        self._rebirth.start(error)


class OrderedPush(Reborn, PushSource):
    """Receives from one incarnation after the other."""

    def __init__(
        self,
        js: "JetStream",
        delivery: Delivery,
        incarnations: Incarnations,
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
        delivery.last_sequence = incarnations.last_sequence
        self._incarnations = incarnations
        self._rebirth = Rebirth(self, incarnations, self.start)

    async def start(self) -> None:
        """Make a consumer that sends to a fresh inbox."""
        await self._rebirth.renew(self._listen)
        self.watch()

    def _listen(self) -> str:
        """Subscribe to a fresh inbox, where no consumer of an earlier attempt sends."""
        self._incarnations.go_on_behind(self.delivery.last_sequence)
        self.delivery.expected = 1
        self.subject = self.connection.new_inbox()
        self.open(self.subject)
        return self.subject

    def on_heartbeat(self, message: Message) -> None:
        """Besides: the number of the last delivery tells if one is missing."""
        super().on_heartbeat(message)
        last = message.header("Nats-Last-Consumer") or ""
        if last.isdigit() and int(last) != self.delivery.expected - 1:
            self._rebirth.start(
                OrderedGapError(
                    f"{self.who}: {int(last) - self.delivery.expected + 1} messages were lost on "
                    "the way; reading them again"
                )
            )
