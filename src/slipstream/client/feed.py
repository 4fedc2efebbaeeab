"""A feed: what a stream holds now, a mark, then what comes: the ground under every watch.

An ordered push consumer delivers the messages (spec kv-object.md section 5). When it is made it
says how many there are to begin with; after so many, or after one behind which nothing waits, the
mark is given once. If the consumer has to be made anew, the feed goes on behind the last message
that came, and the mark is not given again.
"""

import itertools
import weakref
from typing import TYPE_CHECKING

from slipstream.client.jetstream.consumer_config import OrderedConsumerConfig
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.ordered_source import Incarnations, OrderedPush
from slipstream.client.message import Message

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

HEARTBEAT_SECONDS = 5.0


class _Source(OrderedPush):
    """Tells its feed how much there is to deliver whenever a consumer has been made."""

    feed: "weakref.ref[Feed]"

    async def start(self) -> None:
        """Make a consumer."""
        await super().start()
        info, feed = self._incarnations.info, self.feed()
        if feed is not None:
            feed.begin(0 if info is None else info.num_pending)

    def on_heartbeat(self, message: Message) -> None:
        """Besides: an idle server has delivered all that there was, also if that became less."""
        super().on_heartbeat(message)
        last, feed = message.header("Nats-Last-Consumer"), self.feed()
        is_idle = not message.header("Nats-Consumer-Stalled")
        if feed is not None and is_idle and last == str(self.delivery.expected - 1):
            feed.is_all_here()

    def on_mark(self, message: Message) -> None:
        """A flow control request has been reached, or what `Feed.begin` woke its taker with."""
        if message.reply:
            super().on_mark(message)


class Feed:
    """Messages of a stream, and None once when all that was there at the start has been given."""

    def __init__(
        self,
        js: "JetStream",
        stream: str,
        config: OrderedConsumerConfig,
        *,
        has_mark: bool = True,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._delivery = Delivery(js.connection.loop, js, None)
        self._source = _Source(
            js,
            self._delivery,
            Incarnations(js, stream, config, itertools.count(1)),
            f"watch of stream {stream!r}",
            heartbeat,
            None,
        )
        self._source.feed = weakref.ref(self)
        self._awaits_mark = has_mark
        self._left = 0  # messages before the mark, as far as the server told

    def begin(self, pending: int) -> None:
        """A consumer was made, which has so much to deliver before what is new."""
        self._left = pending + self._delivery.held
        if not self._left:
            self._delivery.put_mark(Message("mark"))  # wakes who waits in `next`

    def is_all_here(self) -> None:
        """Nothing more comes before the mark than what is held."""
        if self._awaits_mark and self._left > 0:
            self.begin(0)

    async def start(self) -> None:
        """Make the consumer. Raises `StreamNotFoundError` and what else the server refuses."""
        try:
            await self._source.start()
        except BaseException:
            self._source.close()
            raise

    async def next(self) -> JetStreamMessage | None:
        """The next message, or None for the mark. Raises StopAsyncIteration once it is stopped."""
        while True:
            if self._awaits_mark and self._left <= 0:
                self._awaits_mark = False
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
        # Whoever left a watch without a word: nothing more is to be sent for it.
        source = getattr(self, "_source", None)
        if source is not None:
            source.abandon()
