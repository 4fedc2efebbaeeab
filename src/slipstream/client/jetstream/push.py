"""Push consumers: the server sends unasked (docs/protocol/consumers.md#push).

With flow control the server stops after a window of bytes and asks whether they are dealt with; it
is told so when everything that came before the question has been taken, so the window, at most
32 MiB, bounds what is held. Without it, `limit` does, and what exceeds it is dropped and reported.
"""

import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from slipstream.client.codecs import Kind
from slipstream.client.errors import OutboundBufferFullError
from slipstream.client.jetstream.consumer import Consumer
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import (
    AlreadyConsumingError,
    ConsumeError,
    NoHeartbeatError,
    NotPushConsumerError,
    SlowPushConsumerError,
)
from slipstream.client.jetstream.messages import (
    ConsumeContext,
    ErrorHandler,
    Handler,
    Messages,
    MessageSource,
)
from slipstream.client.message import Message
from slipstream.client.value_types import Given
from slipstream.model.header_names import NATS_CONSUMER_STALLED
from slipstream.model.infos import ConsumerInfo

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.jetstream.context import JetStream

HELD_MAX = 512 * 1024


class PushSource(MessageSource):
    """Receives at a deliver subject; answers flow control, looks for heartbeats."""

    def __init__(
        self,
        connection: "Connection",
        delivery: Delivery,
        *,
        subject: str,
        queue: str,
        who: str,
        heartbeat: float,
        on_error: ErrorHandler | None = None,
        exists: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(connection, delivery, who, heartbeat, on_error)
        self.subject = subject
        self.queue = queue
        self.dropped = 0
        self._exists = exists
        self._is_slow = False
        self._flow_requests = 0  # questions of flow control that wait for what came before them

    async def start(self) -> None:
        """Subscribe."""
        self.open(self.subject, self.queue)
        self.watch()

    @property
    def awaits(self) -> bool:
        """A heartbeat is due unless flow control holds the server, waiting for us."""
        return self.delivery.held == 0

    def on_status(self, message: Message) -> None:
        """A heartbeat, or the question of flow control."""
        if message.status != 100:
            self.report(ConsumeError(f"{self.who}: {message.status} {message.description}"))
        elif message.reply:
            self._flow_requests += 1
            self.delivery.put_control(message)
        else:
            self.on_heartbeat(message)

    def on_heartbeat(self, message: Message) -> None:
        """The server is alive; if it waits for an answer to flow control, give it.

        Unless its question is here, after messages that were not taken yet.
        """
        stalled = message.header(NATS_CONSUMER_STALLED)
        if stalled and not self._flow_requests:
            self._go_on(stalled)

    def on_control(self, message: Message) -> None:
        """Everything before the question of flow control has been taken."""
        self._is_slow = False
        self._flow_requests -= 1
        if not self.is_closed:
            self._go_on(message.reply)

    def _go_on(self, subject: str) -> None:
        """Answer flow control; if there is no room for that, the next heartbeat asks again."""
        with suppress(OutboundBufferFullError):
            self.connection.publish_nowait(subject)

    def on_overflow(self) -> None:
        """Dropped, since `limit` messages are held."""
        self.dropped += 1
        if not self._is_slow:
            self._is_slow = True
            self.report(
                SlowPushConsumerError(
                    f"{self.who}: {self.delivery.held} messages wait to be taken, new ones are "
                    "dropped. Take them faster, or use flow control or a pull consumer"
                )
            )

    def on_missing_heartbeat(self, error: NoHeartbeatError) -> None:
        """If the consumer is gone, that is the end."""
        self.spawn(self.check(error))

    def on_reconnect(self) -> None:
        """The server may have restarted without the consumer: see whether it is still there."""
        if not self.is_closed:
            self.spawn(self.check(NoHeartbeatError(f"{self.who}: the connection is another one")))

    async def still_exists(self) -> None:
        """Ask for the consumer's info."""
        if self._exists is not None:
            await self._exists()


class PushConsumer(Consumer):
    """A consumer that sends unasked, to its deliver subject."""

    def __init__(self, js: "JetStream", info: ConsumerInfo) -> None:
        super().__init__(js, info)
        if not info.config.deliver_subject:
            raise NotPushConsumerError(
                f"{self.who} is a pull consumer; get it with `consumer`, not `push_consumer`"
            )
        self._current: weakref.ref[Messages] | None = None

    @overload
    def messages(
        self,
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        max_messages_pending: int = HELD_MAX,
    ) -> "Messages[Given]": ...
    @overload
    def messages(
        self,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        max_messages_pending: int = HELD_MAX,
    ) -> "Messages": ...
    def messages(
        self,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        max_messages_pending: int = HELD_MAX,
    ) -> "Messages":
        """An endless iterator. Without flow control it holds `max_messages_pending` at most.

        Raises `AlreadyConsumingError` for a second one at a time, unless the consumer has a
        `deliver_group`.
        """
        config = self._info.config
        current = self._current() if self._current is not None else None
        if current is not None and not current.is_stopped and not config.deliver_group:
            raise AlreadyConsumingError(
                f"{self.who} is consumed already; every message would come twice. Stop the other "
                "one first, or give the consumer a deliver_group whose members share its messages"
            )
        delivery = Delivery(self._js.connection.loop, self._js, type)
        delivery.limit = 0 if config.flow_control else max_messages_pending
        source = PushSource(
            self._js.connection,
            delivery,
            subject=config.deliver_subject,
            queue=config.deliver_group,
            who=self.who,
            heartbeat=float(config.idle_heartbeat),  # type: ignore[arg-type]
            on_error=on_error,
            exists=self.info,
        )
        source.raise_on_missing_heartbeat = raise_on_missing_heartbeat
        messages = Messages(delivery, source, config.ack_policy != "none")
        self._current = weakref.ref(messages)
        return messages

    @overload
    def consume(
        self,
        handler: "Handler[Given]",
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        max_messages_pending: int = HELD_MAX,
    ) -> "ConsumeContext": ...
    @overload
    def consume(
        self,
        handler: Handler,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        max_messages_pending: int = HELD_MAX,
    ) -> "ConsumeContext": ...
    def consume(
        self,
        handler: Handler,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        max_messages_pending: int = HELD_MAX,
    ) -> "ConsumeContext":
        """Call `handler` for every message from now on, one after the other."""
        messages = self.messages(
            type=type, on_error=on_error, max_messages_pending=max_messages_pending
        )
        return ConsumeContext(messages, handler)
