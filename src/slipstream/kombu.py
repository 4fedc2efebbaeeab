"""A transport for Kombu, so that Celery's tasks lie in a stream.

    app = Celery(broker="slipstream.kombu:Transport://127.0.0.1:4222")

Exchanges and queues become these:

* A queue is a durable pull consumer of one stream. The stream keeps a message as long as a queue
  waits for it: what is acknowledged is gone, and what no queue asks for is not stored.
* A queue that goes with its owner (exclusive, auto_delete, or one that expires) is a consumer that
  goes when nobody has asked it for a while.
* The bindings of an exchange are an entry of a key-value bucket.

A message that a worker has taken stays its own while the worker runs, however long the task takes:
the server is told so at intervals. After a worker's death others get it, `ack_wait` seconds later.

`transport_options` may have `stream` (its name, "KOMBU"), `ack_wait` (seconds, 30),
`transient_seconds` (after which a queue of the second kind goes when it is not used, 300),
`stream_fields` (more of `create_stream`, such as `num_replicas`) and `connect` (keywords of
`slipstream.connect`). Needs the extra `kombu`.
"""

import json
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from operator import methodcaller
from queue import Empty
from time import monotonic
from typing import TypedDict, cast

import slipstream.sync
from slipstream.client.errors import ClientError
from slipstream.client.jetstream.errors import ApiError, ConsumerNotFoundError
from slipstream.client.kv.errors import KeyExistsError, KeyNotFoundError, RevisionMismatchError
from slipstream.errors import Error
from slipstream.extras import require

require("kombu", extra="kombu")  # before the names that cannot be imported without

from kombu.transport import virtual  # noqa: E402

DEFAULT_STREAM = "KOMBU"
ACK_WAIT_SECONDS = 30.0
TRANSIENT_SECONDS = 300.0
ASK_SECONDS = 1.0  # that one request waits for a message; a queue that is cancelled has no longer
QUEUES_MAX = 64  # that one connection asks at the same time

Binding = tuple[str, str, str]  # routing key, pattern, queue
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class _Properties(TypedDict):
    delivery_tag: str
    delivery_info: dict[str, object]


class Payload(TypedDict):
    """What of a message's JSON is looked at here."""

    properties: _Properties


def name_of(text: str) -> str:
    """The name of a queue or exchange as one token of a subject: other bytes are ``=xx``."""
    return _UNSAFE.sub(lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), text)


class Broker:
    """What the channels of one connection share: the stream, the bucket, and who asks.

    Raises what `slipstream.sync.connect` and `create_stream` raise.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self._process = os.getpid()
        self.stream = str(options.get("stream") or DEFAULT_STREAM)
        self.ack_wait = float(cast(float, options.get("ack_wait") or ACK_WAIT_SECONDS))
        self._transient = float(cast(float, options.get("transient_seconds") or TRANSIENT_SECONDS))
        keywords = cast("Mapping[str, str]", options.get("connect") or {})
        self._nc = slipstream.sync.connect(url, name="kombu", **keywords)  # type: ignore[arg-type]
        self._js = self._nc.jetstream()
        fields = cast("Mapping[str, int]", options.get("stream_fields") or {})
        self._js.get_or_create_stream(
            name=self.stream,
            subjects=[f"kombu.{self.stream}.>"],
            retention="interest",
            **fields,  # type: ignore[arg-type]
        )
        self._bindings = self._js.create_key_value(f"{self.stream}-bindings")
        self._consumers: dict[str, slipstream.sync.PullConsumer] = {}
        self.channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._pool = ThreadPoolExecutor(QUEUES_MAX, thread_name_prefix="kombu queue")
        self._has_news = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._keep_alive, name="kombu keep-alive", daemon=True).start()

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and of this process: a fork has none of its threads."""
        return not self._closed.is_set() and self._process == os.getpid()

    def close(self) -> None:
        """End the connection, after what was said on it."""
        if self.is_usable:
            self._closed.set()
            self._pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Error):
                self._nc.flush()
            self._nc.close()

    # -- queues ------------------------------------------------------------------------------------

    def subject(self, queue: str) -> str:
        """The subject of a queue's messages."""
        return f"kombu.{self.stream}.{name_of(queue)}"

    def make_queue(self, queue: str, is_transient: bool) -> None:
        """Have a queue, unless it is there."""
        self._consumers[queue] = self._js.get_or_create_consumer(
            self.stream,
            durable_name=name_of(queue),
            filter_subject=self.subject(queue),
            ack_wait=self.ack_wait,
            max_ack_pending=-1,
            inactive_threshold=self._transient if is_transient else 0.0,
        )

    def consumer(self, queue: str) -> "slipstream.sync.PullConsumer":
        """The consumer of a queue. Raises `ConsumerNotFoundError`."""
        found = self._consumers.get(queue)
        if found is None:
            found = self._consumers[queue] = self._js.consumer(self.stream, name_of(queue))
        return found

    def has_queue(self, queue: str) -> bool:
        """Whether the server has it."""
        try:
            self._js.consumer(self.stream, name_of(queue))
        except ConsumerNotFoundError:
            return False
        return True

    def size(self, queue: str) -> int:
        """How many messages wait in a queue; 0 if it is not there."""
        try:
            return self._js.consumer_info(self.stream, name_of(queue)).num_pending
        except ConsumerNotFoundError:
            return 0

    def purge(self, queue: str) -> int:
        """Remove a queue's messages; how many there were."""
        return self._js.purge_stream(self.stream, filter=self.subject(queue))

    def delete_queue(self, queue: str) -> None:
        """Remove a queue with its messages."""
        self._consumers.pop(queue, None)
        with suppress(ConsumerNotFoundError):
            self._js.delete_consumer(self.stream, name_of(queue))

    def put(self, queue: str, message: Payload) -> None:
        """Store a message for a queue. Raises what `JetStream.publish` raises."""
        self._js.publish(self.subject(queue), json.dumps(message).encode())

    # -- bindings ----------------------------------------------------------------------------------

    def bindings(self, exchange: str) -> list[Binding]:
        """The bindings of an exchange."""
        return self._entry(exchange)[0]

    def _entry(self, exchange: str) -> tuple[list[Binding], int]:
        try:
            entry = self._bindings.get(name_of(exchange))
        except KeyNotFoundError:
            return [], 0
        return [cast(Binding, tuple(row)) for row in json.loads(entry.value)], entry.revision

    def change_bindings(
        self, exchange: str, change: Callable[[list[Binding]], list[Binding]]
    ) -> None:
        """Replace the bindings of an exchange by what `change` makes of them; it may be called
        again, where others change them at the same time."""
        while True:
            found, revision = self._entry(exchange)
            wanted = change(found)
            if wanted == found:
                return
            with suppress(RevisionMismatchError, KeyExistsError):
                self._bindings.update(name_of(exchange), json.dumps(wanted).encode(), revision)
                return

    def queues(self) -> set[str]:
        """The names of all queues, as `name_of` has them."""
        return set(self._js.consumer_names(self.stream))

    # -- who asks ----------------------------------------------------------------------------------

    def ask(self, queue: str) -> "Future[slipstream.sync.JetStreamMessage | None]":
        """Ask a queue for a message, on another thread."""
        consumer = self.consumer(queue)
        asked = self._pool.submit(lambda: consumer.next(timeout=ASK_SECONDS))
        asked.add_done_callback(lambda _: self.wake())
        return asked

    def wake(self) -> None:
        """A channel may have something to deliver now."""
        self._has_news.set()

    def wait(self, timeout: float) -> None:
        """Wait until a channel may have something to deliver."""
        self._has_news.wait(timeout)
        self._has_news.clear()

    def _keep_alive(self) -> None:
        """Tell the server at intervals that messages are being worked on."""
        while not self._closed.wait(self.ack_wait / 3):
            for channel in list(self.channels):
                with suppress(Error):
                    channel.keep_alive()


class QoS(virtual.QoS):
    """Acknowledgements go to the server, which also keeps what is not acknowledged."""

    def ack(self, delivery_tag: str) -> None:
        """The message is done."""
        self.channel.settle(delivery_tag, methodcaller("ack"))
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """The message is not done: others get it, or nobody."""
        self.channel.settle(delivery_tag, methodcaller("nak" if requeue else "term"))
        self._quick_ack(delivery_tag)

    def restore_unacked_once(self, stderr: object = None) -> None:
        """What is not acknowledged goes to others at once."""
        self._on_collect.cancel()
        self.channel.give_back()


class Channel(virtual.Channel):
    """One channel; its messages are kept by the server until they are acknowledged."""

    QoS = QoS
    supports_fanout = True
    do_restore = False

    def __init__(self, connection: "Transport", **kwargs: object) -> None:
        super().__init__(connection, **kwargs)
        self._broker = connection.broker
        self._broker.channels.add(self)
        self._taken: dict[str, slipstream.sync.JetStreamMessage] = {}  # by delivery tag
        self._asked: dict[str, Future[slipstream.sync.JetStreamMessage | None]] = {}
        self._arrived: deque[tuple[str, slipstream.sync.JetStreamMessage]] = deque()
        self._needs_no_ack: set[str] = set()  # queues
        self._deleted: set[str] = set()  # queues, by this channel: consumers of them get nothing

    # -- queues and bindings -----------------------------------------------------------------------

    def _new_queue(
        self,
        queue: str,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        self._deleted.discard(queue)
        self._broker.make_queue(queue, auto_delete or exclusive or "x-expires" in (arguments or {}))

    def _has_queue(self, queue: str, **kwargs: object) -> bool:
        return self._broker.has_queue(queue)

    def _size(self, queue: str) -> int:
        return self._broker.size(queue)

    def _purge(self, queue: str) -> int:
        return self._broker.purge(queue)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: object
    ) -> None:
        """Remove a queue, its bindings and its messages."""
        if not (if_empty and self._size(queue)):
            self._deleted.add(queue)
            super().queue_delete(queue)
            self._broker.delete_queue(queue)

    def _delete(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        pattern: str,
        *_: object,
        **kwargs: object,
    ) -> None:
        gone = (routing_key or "", pattern or "", queue)
        self._broker.change_bindings(exchange, lambda rows: [row for row in rows if row != gone])

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind a queue, and unbind those that are gone: nobody else does that for them."""
        bound = (routing_key or "", pattern or "", queue)

        def change(rows: list[Binding]) -> list[Binding]:
            if bound in rows:
                return rows
            there = self._broker.queues()
            return [*(row for row in rows if name_of(row[2]) in there), bound]

        self._broker.change_bindings(exchange, change)

    def get_table(self, exchange: str) -> list[Binding]:
        """The bindings of an exchange, from whichever process they are."""
        return self._broker.bindings(exchange)

    # -- messages ----------------------------------------------------------------------------------

    def _put(self, queue: str, message: Payload, **kwargs: object) -> None:
        self._broker.put(queue, message)

    def _put_fanout(
        self, exchange: str, message: Payload, routing_key: str, **kwargs: object
    ) -> None:
        for _, _, queue in self.get_table(exchange):
            self._broker.put(queue, message)

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        for message in self._broker.consumer(queue).fetch_no_wait(1):
            return self._take(queue, message)
        raise Empty

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: object) -> object:
        """A message, or None if there is none now."""
        found = super().basic_get(queue, no_ack)
        if found is not None and no_ack:
            self.settle(found.delivery_tag, methodcaller("ack"))
        return found

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[object], object],
        consumer_tag: str,
        **kwargs: object,
    ) -> None:
        """Have messages of a queue delivered by `drain_events`."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        (self._needs_no_ack.add if no_ack else self._needs_no_ack.discard)(queue)

    def _poll(
        self,
        cycle: object,
        callback: Callable[[Payload, str], object],
        timeout: float | None = None,
    ) -> None:
        """Deliver one message that has come. Raises `queue.Empty`."""
        self._look()
        if not self._arrived:
            raise Empty
        queue, message = self._arrived.popleft()
        callback(self._take(queue, message), queue)

    def _look(self) -> None:
        """Take what has come, and ask the queues that have answered again."""
        for queue in [queue for queue, asked in self._asked.items() if asked.done()]:
            asked = self._asked.pop(queue)
            message = None if queue in self._deleted else asked.result()
            if message is None:
                continue
            if queue in self._active_queues:
                self._arrived.append((queue, message))
            else:  # it was cancelled meanwhile
                message.nak()
        for queue in set(self._active_queues) - self._asked.keys() - self._deleted:
            self._asked[queue] = self._broker.ask(queue)

    def _take(self, queue: str, message: "slipstream.sync.JetStreamMessage") -> Payload:
        """A message as Kombu has it; it is this channel's until it is settled."""
        payload = cast(Payload, json.loads(message.data))
        properties, delivered = payload["properties"], message.metadata.num_delivered
        # A fanout's message has one tag in all queues, and one that comes again has it, too.
        tag = properties["delivery_tag"] = f"{message.sequence}.{delivered}"
        if delivered > 1:
            properties["delivery_info"]["redelivered"] = True
        if queue in self._needs_no_ack:
            message.ack()
        else:
            self._taken[tag] = message
        return payload

    def settle(self, tag: str, how: "Callable[[slipstream.sync.JetStreamMessage], object]") -> None:
        """Say what has become of a message."""
        message = self._taken.pop(tag, None)
        if message is not None and self._broker.is_usable:
            how(message)
            self._broker.wake()  # there is room for another one

    def keep_alive(self) -> None:
        """Tell the server that messages are still being worked on. What nobody has taken is for
        others: this channel has as many as it may have."""
        for message in list(self._taken.values()):
            message.in_progress()
        while self._arrived:
            with suppress(IndexError):
                self._arrived.pop()[1].nak()

    def give_back(self) -> None:
        """Everything that is not acknowledged is for others."""
        if self._broker.is_usable:
            for message in self._rest():
                with suppress(Error):
                    message.nak()

    def _rest(self) -> "Iterator[slipstream.sync.JetStreamMessage]":
        while self._taken:
            yield self._taken.popitem()[1]
        while self._arrived:
            yield self._arrived.popleft()[1]
        for asked in self._asked.values():
            with suppress(Error, OSError, RuntimeError):
                message = asked.result() if not asked.cancel() else None
                if message is not None:
                    yield message
        self._asked.clear()

    def close(self) -> None:
        """Consume no more, and give back what is not acknowledged."""
        if not self.closed:
            super().close()
            self.give_back()


class Transport(virtual.Transport):
    """The transport, as Kombu finds it by its name: ``slipstream.kombu:Transport``."""

    Channel = Channel
    default_port = 4222
    driver_type = "nats"
    driver_name = "slipstream"
    connection_errors = (*virtual.Transport.connection_errors, ClientError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, ApiError)
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset({"direct", "topic", "fanout"})
    )

    def __init__(self, client: object, **kwargs: object) -> None:
        super().__init__(client, **kwargs)
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The connection; made on first use."""
        if self._broker is None:
            client = self.client
            login = f"{client.userid}:{client.password}@" if client.userid else ""
            scheme = "tls" if client.ssl else "nats"
            address = f"{client.hostname or '127.0.0.1'}:{client.port or self.default_port}"
            self._broker = Broker(f"{scheme}://{login}{address}", client.transport_options)
        return self._broker

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Deliver one message. Raises `TimeoutError` if none has come after `timeout` seconds."""
        end = monotonic() + timeout if timeout is not None else float("inf")
        while True:
            try:
                self.cycle.get(self._deliver)
            except Empty:
                left = end - monotonic()
                if left <= 0:
                    raise TimeoutError("no message has come") from None
                self.broker.wait(min(left, ASK_SECONDS))
            else:
                return

    def close_connection(self, connection: object) -> None:
        """Close the channels, then the connection."""
        super().close_connection(connection)
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def driver_version(self) -> str:
        """The version of this package."""
        return slipstream.__version__
