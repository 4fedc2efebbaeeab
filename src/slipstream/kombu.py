"""A transport for Kombu, so that Celery's tasks lie in a stream.

    app = Celery(broker="slipstream.kombu:Transport://127.0.0.1:4222")

Exchanges and queues become these:

* A queue is a durable pull consumer of one stream. The stream keeps a message as long as a queue
  waits for it: what is acknowledged is gone, and what no queue asks for is not stored.
* A queue that goes with its owner (exclusive, auto_delete, or one that expires) is a consumer that
  goes when nobody has asked it for a while. It stays as long as a process that consumes it lives.
* The bindings of an exchange are an entry of a key-value bucket.

A message that a worker has taken stays its own while the worker runs, however long the task takes:
the server is told so at intervals. After a worker's death others get it, `ack_wait` seconds later.
A worker asks for no more messages than it may have; what comes nevertheless it gives back at once.

`transport_options` may have `stream` (its name, "KOMBU"), `ack_wait` (seconds, 30; a queue keeps
that of the process which made it), `transient_seconds` (after which a queue of the second kind goes
when it is not used, 300, or later if it expires later),
`stream_fields` (more of `create_stream`, such as `num_replicas`) and `connect` (keywords of
`slipstream.connect`). Needs the extra `kombu`.
"""

import hashlib
import json
import logging
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from operator import methodcaller
from queue import Empty
from time import monotonic
from typing import TypedDict, cast
from urllib.parse import quote

import slipstream.sync
from slipstream.client.errors import ClientError, MaxPayloadError
from slipstream.client.jetstream.errors import ApiError, ConsumerNotFoundError
from slipstream.client.kv.errors import KeyExistsError, KeyNotFoundError, RevisionMismatchError
from slipstream.errors import Error
from slipstream.extras import require
from slipstream.model.durations import to_seconds

require("kombu", extra="kombu")  # before the names that cannot be imported without

from kombu.transport import virtual  # noqa: E402
from kombu.transport.base import to_rabbitmq_queue_arguments  # noqa: E402

DEFAULT_STREAM = "KOMBU"
ACK_WAIT_SECONDS = 30.0
TRANSIENT_SECONDS = 300.0
ASK_SECONDS = 1.0  # that one request waits for a message; a queue that is cancelled has no longer
QUEUES_MAX = 64  # that one connection asks at the same time
NAME_MAX = 160  # characters of a name; the server takes 255
PURGE_MANY = 500  # messages that are purged at a time

Binding = tuple[str, str, str]  # routing key, pattern, queue
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_logger = logging.getLogger("slipstream.kombu")


class _Properties(TypedDict):
    delivery_tag: str
    delivery_info: dict[str, object]


class Payload(TypedDict):
    """What of a message's JSON is looked at here."""

    properties: _Properties


def name_of(text: str) -> str:
    """The name of a queue or exchange as one token of a subject: other bytes are ``=xx``. One that
    would be long ends with its hash."""
    name = _UNSAFE.sub(lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), text)
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - 34]}=={hashlib.sha256(text.encode()).hexdigest()[:32]}"


def expires_after(arguments: Mapping[str, object] | None) -> float:
    """The seconds after which a queue with these arguments expires; 0: it does not."""
    given = (arguments or {}).get("x-expires")
    return float(given) / 1000 if isinstance(given, int | float) else 0.0


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
        self._context = self._nc.jetstream()
        fields = cast("Mapping[str, int]", options.get("stream_fields") or {})
        try:
            self._js.get_or_create_stream(
                name=self.stream,
                subjects=[f"kombu.{self.stream}.>"],
                retention="interest",
                **fields,  # type: ignore[arg-type]
            )
            self._bucket = self._js.create_key_value(f"{self.stream}-bindings")
        except BaseException:
            self._nc.close()
            raise
        self._consumers: dict[str, slipstream.sync.PullConsumer] = {}
        self._transients: set[str] = set()  # queues that go when nobody asks them
        self.channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._pool = ThreadPoolExecutor(QUEUES_MAX, thread_name_prefix="kombu queue")
        self._has_news = threading.Event()
        self._closed = threading.Event()
        self._beat = self.ack_wait / 3  # the server is told so often what is worked on
        self._hurries = threading.Event()  # more often than before
        threading.Thread(target=self._keep_alive, name="kombu keep-alive", daemon=True).start()

    @property
    def _js(self) -> "slipstream.sync.JetStream":
        self._check_process()
        return self._context

    @property
    def _bindings(self) -> "slipstream.sync.KeyValue":
        self._check_process()
        return self._bucket

    def _check_process(self) -> None:
        """Raises ConnectionError in a fork, where nobody would answer: Kombu connects anew then."""
        if self._process != os.getpid():
            raise ConnectionError("this connection is of the process that forked; connect again")

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and of this process: a fork has none of its threads."""
        return not self._closed.is_set() and self._process == os.getpid()

    def close(self) -> None:
        """End the connection, after what was said on it."""
        if self.is_usable:
            self._closed.set()
            self._hurries.set()
            self._pool.shutdown(wait=False, cancel_futures=True)
            with suppress(Error):
                self._nc.flush()
            self._nc.close()

    # -- queues ------------------------------------------------------------------------------------

    def subject(self, queue: str) -> str:
        """The subject of a queue's messages."""
        return f"kombu.{self.stream}.{name_of(queue)}"

    def make_queue(self, queue: str, is_transient: bool, expires: float) -> None:
        """Have a queue, unless it is there."""
        made = self._js.get_or_create_consumer(
            self.stream,
            durable_name=name_of(queue),
            filter_subject=self.subject(queue),
            ack_wait=self.ack_wait,
            max_ack_pending=-1,
            inactive_threshold=max(self._transient, expires) if is_transient else 0.0,
        )
        self._note(queue, made)

    def _note(self, queue: str, consumer: "slipstream.sync.PullConsumer") -> None:
        """A queue is as the process has made it that came first, whatever this one would have."""
        self._consumers[queue] = consumer
        config = consumer.cached_info.config
        ack_wait = to_seconds(config.ack_wait, "ack_wait") or ACK_WAIT_SECONDS
        if ack_wait / 3 < self._beat:
            self._beat = ack_wait / 3
            self._hurries.set()
        if config.inactive_threshold:
            self._transients.add(queue)
        else:
            self._transients.discard(queue)

    def is_transient(self, queue: str) -> bool:
        """Whether a queue goes when nobody asks it."""
        return queue in self._transients

    def consumer(self, queue: str) -> "slipstream.sync.PullConsumer":
        """The consumer of a queue. Raises `ConsumerNotFoundError`."""
        if queue not in self._consumers:
            self._note(queue, self._js.consumer(self.stream, name_of(queue)))
        return self._consumers[queue]

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

    def is_used(self, queue: str) -> bool:
        """Whether somebody asks a queue for messages."""
        try:
            return self._js.consumer_info(self.stream, name_of(queue)).num_waiting > 0
        except ConsumerNotFoundError:
            return False

    def purge(self, queue: str) -> int:
        """Remove the messages of a queue that wait, and not those that a worker has; how many there
        were."""
        if not self.has_queue(queue):
            return 0
        last, removed, is_over = self._js.stream_info(self.stream).state.last_seq, 0, False
        while not is_over and (found := list(self.consumer(queue).fetch_no_wait(PURGE_MANY))):
            for message in found:
                if message.sequence > last:  # it came later
                    is_over = True
                    message.nak()
                else:
                    removed += 1
                    message.ack()
        self._nc.flush()
        return removed

    def delete_queue(self, queue: str) -> None:
        """Remove a queue with its messages."""
        self._consumers.pop(queue, None)
        with suppress(ConsumerNotFoundError):
            self._js.delete_consumer(self.stream, name_of(queue))

    def put(self, queue: str, message: Payload) -> None:
        """Store a message for a queue. Raises what `JetStream.publish` raises; ValueError for one
        that is too large, which no other connection would take either."""
        data = json.dumps(message).encode()
        try:
            self._js.publish(self.subject(queue), data)
        except MaxPayloadError as error:
            raise ValueError(
                f"a message of {len(data)} bytes cannot be put into the queue {queue!r}: {error}. "
                "Store what is large elsewhere and send where it is, have Celery compress it "
                "(task_compression), or raise max_payload on the server"
            ) from error

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
        return self._pool.submit(lambda: consumer.next(timeout=ASK_SECONDS))

    def wake(self) -> None:
        """A channel may have something to deliver now."""
        self._has_news.set()

    def wait(self, timeout: float) -> None:
        """Wait until a channel may have something to deliver."""
        self._has_news.wait(timeout)
        self._has_news.clear()

    def _keep_alive(self) -> None:
        """Tell the server at intervals that messages are being worked on."""
        told = monotonic()
        while True:
            self._hurries.wait(max(told + self._beat - monotonic(), 0.0))
            self._hurries.clear()
            if self._closed.is_set():
                return
            if monotonic() - told < self._beat:
                continue
            before, told = told, monotonic()
            try:
                for channel in self.channels.copy():
                    channel.keep_alive(before)
            except Exception as error:  # the next time may do
                if not self._closed.is_set():
                    _logger.warning("the server was not told what is worked on: %s", error)


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

    def restore_unacked(self) -> list[object]:
        """What is not acknowledged goes to the next worker that asks, as it is; nothing is
        published anew."""
        self.channel.give_back_taken()
        self._delivered.clear()
        self._dirty.clear()
        return []

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
        self._lock = threading.RLock()  # for what was asked and what has arrived
        self._taken: dict[str, slipstream.sync.JetStreamMessage] = {}  # by delivery tag
        self._asked: dict[str, Future[slipstream.sync.JetStreamMessage | None]] = {}
        self._failed: deque[Exception] = deque()  # what has befallen queues that were asked
        # What nobody has taken yet, of which queue, and when it came.
        self._arrived: deque[tuple[str, slipstream.sync.JetStreamMessage, float]] = deque()
        self._needs_no_ack: set[str] = set()  # queues
        self._deleted: set[str] = set()  # queues, by this channel: consumers of them get nothing

    # -- queues and bindings -----------------------------------------------------------------------

    def prepare_queue_arguments(
        self, arguments: dict[str, object], **kwargs: object
    ) -> Mapping[str, object]:
        """What a queue is declared with, its time to expire among it."""
        prepared: Mapping[str, object] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return prepared

    def _new_queue(
        self,
        queue: str,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        self._deleted.discard(queue)
        expires = expires_after(arguments)
        self._broker.make_queue(queue, auto_delete or exclusive or expires > 0, expires)

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
        if not (if_empty and self._size(queue)) and not (if_unused and self._broker.is_used(queue)):
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

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        """Bind a queue. What this process remembers is no reason not to: another one may have
        removed the binding of a queue that was gone."""
        exchange = exchange or "amq.direct"
        if not self.state.has_binding(queue, exchange, routing_key):
            self.state.binding_declare(queue, exchange, routing_key, arguments)
        kind = self.typeof(exchange)
        self._queue_bind(exchange, *kind.prepare_bind(queue, exchange, routing_key, arguments))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        """Have a queue get nothing more of what the binding brought."""
        exchange = exchange or "amq.direct"
        self.state.binding_delete(queue, exchange, routing_key)
        kind = self.typeof(exchange)
        bound = kind.prepare_bind(queue, exchange, routing_key, arguments)
        self._delete(queue, exchange, *bound)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Remove an exchange with its bindings; the queues stay."""
        if if_unused and self.get_table(exchange):
            return
        self._broker.change_bindings(exchange, lambda rows: [])
        self.state.exchanges.pop(exchange, None)

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
        while messages := list(self._broker.consumer(queue).fetch_no_wait(1)):
            payload = self._take(queue, messages[0])
            if payload is not None:
                return payload
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
        with self._lock:
            self._look()
            payload = None
            while payload is None:
                if not self._arrived:
                    raise Empty
                queue, message, _ = self._arrived.popleft()
                if queue in self._active_queues and queue not in self._deleted:
                    payload = self._take(queue, message)
                else:  # it was cancelled meanwhile
                    message.nak()
        callback(payload, queue)

    def _look(self) -> None:
        """Ask the queues that have answered again, as long as there is room for what comes. Raises
        what has befallen one of them."""
        if self._failed:
            raise self._failed.popleft()
        for queue in set(self._active_queues) - self._asked.keys() - self._deleted:
            if self._has_room():
                self._ask(queue)

    def _ask(self, queue: str) -> None:
        asked = self._asked[queue] = self._broker.ask(queue)
        asked.add_done_callback(lambda _: self._answered(queue, asked))

    def _has_room(self) -> bool:
        """Whether one more message may be delivered before one is acknowledged."""
        most = self.qos.prefetch_count
        taken = len(self.qos._delivered) - len(self.qos._dirty)
        return not most or taken + len(self._arrived) < most

    def _answered(
        self, queue: str, asked: "Future[slipstream.sync.JetStreamMessage | None]"
    ) -> None:
        """A queue has answered; on another thread. While a task runs nobody looks at what comes, so
        what there is no room for goes to others now."""
        with self._lock:
            if asked.cancelled() or self._asked.get(queue) is not asked:  # see `give_back`
                return
            del self._asked[queue]
            error = asked.exception()
            message = None if error is not None else asked.result()
            if isinstance(error, Exception) and queue not in self._deleted:
                self._failed.append(error)
            elif message is not None and queue in self._active_queues and self._has_room():
                self._arrived.append((queue, message, monotonic()))
            elif message is not None:
                with suppress(Error):
                    message.nak()
        self._broker.wake()

    def _take(self, queue: str, message: "slipstream.sync.JetStreamMessage") -> Payload | None:
        """A message as Kombu has it; it is this channel's until it is settled. None for what is not
        Kombu's, and would come to each worker again and again."""
        try:
            payload = cast(Payload, json.loads(message.data))
            properties, delivered = payload["properties"], message.metadata.num_delivered
            # A fanout's message has one tag in all queues, and one that comes again has it, too.
            tag = properties["delivery_tag"] = f"{message.sequence}.{delivered}"
            if delivered > 1:
                properties["delivery_info"]["redelivered"] = True
        except (ValueError, KeyError, TypeError) as error:
            _logger.error(
                "message %d of the queue %r is none of Kombu's, and is removed: %r",
                message.sequence, queue, error,
            )  # fmt: skip
            message.term("not a message of Kombu's")
            return None
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

    def keep_alive(self, before: float) -> None:
        """Tell the server that messages are still being worked on. What has come before then, and
        nobody has taken, is for others: this channel's thread is busy. Queues that would go for
        want of interest are asked in its place."""
        for message in list(self._taken.values()):
            message.in_progress()
        with self._lock:
            while self._arrived and self._arrived[0][2] < before:
                self._arrived.popleft()[1].nak()
            if self.closed or self._failed:
                return
            for queue in set(self._active_queues) - self._asked.keys() - self._deleted:
                if self._broker.is_transient(queue):
                    self._ask(queue)

    def give_back(self) -> None:
        """Everything that is not acknowledged is for others."""
        self.give_back_taken()
        if not self._broker.is_usable:
            return
        with self._lock:
            on_their_way = list(self._asked.values())
            self._asked.clear()
            while self._arrived:
                with suppress(Error):
                    self._arrived.popleft()[1].nak()
        for asked in on_their_way:
            with suppress(Error, OSError, RuntimeError, CancelledError):
                message = asked.result() if not asked.cancel() else None
                if message is not None:
                    message.nak()

    def give_back_taken(self) -> None:
        """What was delivered and is not acknowledged is for others."""
        while self._taken and self._broker.is_usable:
            with suppress(Error, KeyError):
                self._taken.popitem()[1].nak()

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
            parts = [client.userid, client.password] if client.password else [client.userid]
            login = ":".join(quote(part, safe="") for part in parts if part)
            login = f"{login}@" if login else ""
            scheme = "tls" if client.ssl else "nats"
            host = client.hostname or "127.0.0.1"
            host = f"[{host}]" if ":" in host else host
            address = f"{host}:{client.port or self.default_port}"
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
