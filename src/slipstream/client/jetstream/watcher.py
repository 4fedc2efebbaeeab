"""A watcher: what a stream holds now, a sign that this was all, then what is stored from now on.

An ordered push consumer delivers the messages (docs/protocol/buckets.md#watching). When it is made,
the server says how many messages there are to begin with. After so many, or after one with none
pending, the watcher gives None once: all initial values are done. If the consumer has to be made
again, the watcher goes on after the last message that came, and None is not given again.
"""

import itertools
import weakref
from typing import TYPE_CHECKING

from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.ordered import (
    EphemeralConsumers,
    OrderedConsumerConfig,
    OrderedPush,
)
from slipstream.client.message import Message
from slipstream.model.header_names import NATS_CONSUMER_STALLED, NATS_LAST_CONSUMER

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

HEARTBEAT_SECONDS = 5.0


class _Source(OrderedPush):
    """Reports to its watcher how much there is to deliver whenever a consumer has been made."""

    watcher: "weakref.ref[Watcher]"

    async def start(self) -> None:
        """Make a consumer."""
        await super().start()
        info, watcher = self._consumers.info, self.watcher()
        if watcher is not None:
            watcher.begin(0 if info is None else info.num_pending)

    def on_heartbeat(self, message: Message) -> None:
        """Besides: an idle server has delivered all that there was, also if that became less."""
        super().on_heartbeat(message)
        last, watcher = message.header(NATS_LAST_CONSUMER), self.watcher()
        is_idle = not message.header(NATS_CONSUMER_STALLED)
        if watcher is not None and is_idle and last == str(self.delivery.expected - 1):
            watcher.is_all_here()

    def on_control(self, message: Message) -> None:
        """A flow control request has been reached, or what `Watcher.begin` woke its taker with."""
        if message.reply:
            super().on_control(message)


class Watcher:
    """Messages of a stream, and None once when all that was there at the start has been given."""

    def __init__(
        self,
        js: "JetStream",
        stream: str,
        config: OrderedConsumerConfig,
        *,
        signals_done: bool = True,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._delivery = Delivery(js.connection.loop, js, None)
        self._source = _Source(
            js,
            self._delivery,
            EphemeralConsumers(js, stream, config, itertools.count(1)),
            f"watch of stream {stream!r}",
            heartbeat,
            None,
        )
        self._source.watcher = weakref.ref(self)
        self._awaits_done = signals_done
        self._left = 0  # initial values still to come, as far as the server said

    def begin(self, pending: int) -> None:
        """A consumer was made, which has so much to deliver before what is new."""
        self._left = pending + self._delivery.held
        if not self._left:
            self._delivery.put_control(Message("wake"))  # wakes who waits in `next`

    def is_all_here(self) -> None:
        """No further initial value comes than those that are held."""
        if self._awaits_done and self._left > 0:
            self.begin(0)

    async def start(self) -> None:
        """Make the consumer. Raises `StreamNotFoundError` and what else the server refuses."""
        try:
            await self._source.start()
        except BaseException:
            self._source.close()
            raise

    async def next(self) -> JetStreamMessage | None:
        """The next message; None once, after the initial values.

        Raises StopAsyncIteration once it is stopped.
        """
        while True:
            if self._awaits_done and self._left <= 0:
                self._awaits_done = False
                return None
            message = self._delivery.take()
            if message is not None:
                self._left = self._left - 1 if message.metadata.num_pending else 0
                return message
            if self._delivery.outcome():
                raise StopAsyncIteration
            await self._delivery.arrival()

    def stop(self) -> None:
        """End it; the server forgets the consumer."""
        self._source.close()
        self._delivery.end()
        self._delivery.give_up()

    def __del__(self) -> None:
        # The watch was dropped without `stop`: nothing more is to be sent for it.
        source = getattr(self, "_source", None)
        if source is not None:
            source.abandon()
