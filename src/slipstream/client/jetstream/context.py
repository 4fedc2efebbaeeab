"""The JetStream context: publishing, and the door to streams and consumers.

    js = nc.jetstream()
    ack = await js.publish("orders.new", b"...")

`publish` waits for the acknowledgement. `publish_async` gives a future of it at once, with a bound
on how many may be in flight; at the bound it waits, or raises if so asked.
"""

import asyncio
import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from slipstream.client.data_admin import DataAdmin
from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.api import Api, prefix_of
from slipstream.client.jetstream.batch_publish import AtomicBatch, FastBatch
from slipstream.client.jetstream.consumer_admin import ConsumerAdmin
from slipstream.client.jetstream.document import to_seconds
from slipstream.client.jetstream.errors import TooManyInFlightError
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.publish_options import PublishOptions
from slipstream.client.jetstream.publisher import AckInbox, PubAck
from slipstream.client.jetstream.stream_admin import StreamAdmin
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike, as_headers, subject_bytes
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.subscriptions import Route
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

RETRIES = 2
RETRY_WAIT = 0.25


class JetStream(StreamAdmin, ConsumerAdmin, DataAdmin):
    """JetStream through one connection; `Connection.jetstream` makes one.

    `timeout` bounds API requests and `publish`, `publish_ack_timeout` the wait of `publish_async`
    for an acknowledgement (0: no bound), both in seconds. `max_ack_pending` bounds the
    acknowledgements in flight; `wait_when_full` tells whether `publish_async` waits then (up to
    `stall_timeout`, None: as long as it takes) or raises `TooManyInFlightError`. `on_publish_ack`
    and `on_publish_error` are called with the message and the outcome of every publish.
    """

    def __init__(
        self,
        connection: "Connection",
        *,
        domain: str = "",
        prefix: str = "",
        timeout: "float | timedelta" = 5.0,
        publish_ack_timeout: "float | timedelta" = 30.0,
        max_ack_pending: int = 4000,
        wait_when_full: bool = True,
        stall_timeout: "float | timedelta | None" = None,
        retry_wait: "float | timedelta" = RETRY_WAIT,
        on_publish_ack: Callable[[Message, PubAck], None] | None = None,
        on_publish_error: Callable[[Message, Exception], None] | None = None,
    ) -> None:
        if max_ack_pending < 1:
            raise ValueError(f"max_ack_pending is 1 or more, not {max_ack_pending}")
        self.connection = connection
        self.api = Api(connection, prefix_of(domain, prefix), to_seconds(timeout))
        self._ack_timeout = to_seconds(publish_ack_timeout)
        self._wait_when_full = wait_when_full
        self._stall = None if stall_timeout is None else to_seconds(stall_timeout)
        self._write_buffer = connection.write_buffer
        inbox = f"{connection.new_inbox()}."
        self._acks = AckInbox(self._write_buffer, inbox, max_ack_pending, to_seconds(retry_wait))
        self._acks.on_ack = on_publish_ack
        self._acks.on_error = on_publish_error
        self._acks_subject = inbox + "*"
        self._route: Route | None = None

    @property
    def prefix(self) -> str:
        """What the subjects of the API begin with."""
        return self.api.prefix

    @property
    def timeout(self) -> float:
        """Seconds that a request to the API, or a `publish`, may take; may be set."""
        return self.api.timeout

    @timeout.setter
    def timeout(self, value: "float | timedelta") -> None:
        self.api.timeout = to_seconds(value)

    # -- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: Any = b"",
        *,
        headers: HeadersLike | None = None,
        type: Any = None,
        timeout: "float | timedelta | None" = None,
        retries: int = RETRIES,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Store a message; returns when the stream says that it has.

        `data` is bytes, str, or any value that a codec knows (see `slipstream.client.codecs`), by
        its own type or by `type`. `options` are those of `PublishOptions`. If nobody listens it is
        tried `retries` more times. Raises `NoStreamError`, `PublishTimeoutError`,
        `PublishInterruptedError`, the stream's refusal as an `ApiError`, and what
        `Connection.publish` raises.
        """
        acks = self._acks
        if self._write_buffer.crowded:
            await self._write_buffer.room()
        if not acks.is_open:
            self._open()
        limit = self.api.timeout if timeout is None else to_seconds(timeout)
        answer = ReplyFuture(self._write_buffer)
        if self.connection.telemetry is None:
            acks.send(subject, data, headers, type, options, limit, retries, answer)
            stored: PubAck = await answer
            return stored
        with self._span(subject, data, headers, type) as (body, sent):
            acks.send(subject, body, sent, None, options, limit, retries, answer)
            stored = await answer
            return stored

    async def publish_async(
        self,
        subject: str,
        data: Any = b"",
        *,
        headers: HeadersLike | None = None,
        type: Any = None,
        timeout: "float | timedelta | None" = None,
        retries: int = RETRIES,
        **options: Unpack[PublishOptions],
    ) -> "asyncio.Future[PubAck]":
        """Send a message to be stored; the future is its acknowledgement, or its error.

        Waits while `max_ack_pending` acknowledgements are in flight, or raises
        `TooManyInFlightError`. `timeout` bounds how long the acknowledgement may take; the other
        arguments are those of `publish`.
        """
        acks = self._acks
        if not acks.is_ready:
            await self._make_ready(subject)
        try:
            limit = self._ack_timeout if timeout is None else to_seconds(timeout)
            future: asyncio.Future[PubAck] = acks.create_future()
            if self.connection.telemetry is None:
                acks.send(subject, data, headers, type, options, limit, retries, future)
                return future
            with self._span(subject, data, headers, type) as (body, sent):
                acks.send(subject, body, sent, None, options, limit, retries, future)
            return future
        except BaseException:
            acks.pass_on()
            raise

    @contextmanager
    def _span(
        self, subject: str, data: Any, headers: HeadersLike | None, kind: Any
    ) -> Iterator[tuple[bytes, Headers]]:
        """A span around a publish; gives the payload, and the headers with its context in them."""
        body = self._acks.encoded(data, kind)
        telemetry = self.connection.telemetry
        assert telemetry is not None
        with telemetry.publish(subject, len(body), as_headers(headers)) as sent:
            yield body, sent

    async def publish_chunk(self, subject: str, body: memoryview) -> "asyncio.Future[PubAck]":
        """As `publish_async`, of bytes that nobody changes until they are acknowledged.

        They are sent from where they are.
        """
        acks = self._acks
        if not acks.is_ready:
            await self._make_ready(subject)
        try:
            future: asyncio.Future[PubAck] = acks.create_future()
            acks.publish(subject_bytes(subject), b"", body, self._ack_timeout, RETRIES, future)
            return future
        except BaseException:
            acks.pass_on()
            raise

    def _open(self) -> None:
        """Begin to receive acknowledgements: with the first publish."""
        self._route = self.connection.subscriptions.open(self._acks_subject, "", self._acks)
        self._acks.is_open = True

    def __del__(self) -> None:
        # A context may be made for a single publish: what it subscribed to ends with it, once its
        # last acknowledgement has come.
        route: Route | None = getattr(self, "_route", None)
        if route is not None and not self.connection.loop.is_closed():
            unsubscribe = partial(self.connection.subscriptions.drop, route)
            self.connection.loop.call_soon_threadsafe(self._acks.retire, unsubscribe)

    async def _make_ready(self, subject: str) -> None:
        """See to it that one more message can be sent, see `AckInbox.is_ready`."""
        acks = self._acks
        if len(acks.pending) >= acks.in_flight_max:
            await self._slot(subject)
        try:
            if self._write_buffer.crowded:
                await self._write_buffer.room()
            if not acks.is_open:
                self._open()
        except BaseException:
            acks.pass_on()
            raise

    async def _slot(self, subject: str) -> None:
        bound = self._acks.in_flight_max
        error = TooManyInFlightError(
            f"publish to {subject!r}: {bound} acknowledgements are awaited, the bound "
            "(max_ack_pending). Await some of them, or have publish_async wait (wait_when_full)",
            subject=subject,
            may_be_stored=False,
        )
        if not self._wait_when_full:
            raise error
        try:
            await self._acks.slot(self._stall)
        except builtins.TimeoutError:
            raise error from None

    @property
    def publish_async_pending(self) -> int:
        """How many acknowledgements are in flight."""
        return len(self._acks.pending)

    async def publish_async_complete(self, timeout: "float | timedelta | None" = None) -> None:
        """Return when no acknowledgement is in flight any more, with whatever outcome.

        Raises `TimeoutError` after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(None if timeout is None else to_seconds(timeout)):
                await self._acks.complete()
        except builtins.TimeoutError:
            raise TimeoutError(
                f"publish_async_complete: {self.publish_async_pending} acknowledgements are still "
                f"in flight after {timeout} s"
            ) from None

    def atomic_batch(self, batch_id: str = "") -> AtomicBatch:
        """Messages that a stream stores all or none of; it needs `allow_atomic` (server 2.12)."""
        return AtomicBatch(self.connection, batch_id, self.timeout)

    def fast_batch(
        self, batch_id: str = "", *, flow: int = 100, allow_gaps: bool = False
    ) -> FastBatch:
        """A stream of messages stored at full speed; it needs `allow_batched` (server 2.14)."""
        return FastBatch(self.connection, batch_id, self.timeout, flow, allow_gaps)

    # -- acknowledging -------------------------------------------------------------------------

    async def request_ack(
        self, message: JetStreamMessage, word: bytes, timeout: float | None
    ) -> None:
        """Acknowledge `message` and await the server's confirmation; see `ack_sync`."""
        await self.connection.request(
            message.reply, word, timeout=self.timeout if timeout is None else timeout
        )
