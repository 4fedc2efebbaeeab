"""The JetStream context: publish, streams, consumers, buckets and object stores.

    js = nc.jetstream()
    ack = await js.publish("orders.new", b"...")
    stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])

`publish` waits for the acknowledgement. `publish_async` returns a future of it at once, with a
bound on how many may be in flight; at the bound it waits, or raises if so configured. What concerns
consumers takes the stream's name, so that no stream handle is needed; `Stream` has the same methods
without it. Buckets and object stores are imported on first use.
"""

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.api import (
    Api,
    check_consumer_echo,
    check_consumer_name,
    check_stream_echo,
    check_stream_name,
    check_subject,
    explain_refusal,
    new_name,
    prefix_of,
)
from slipstream.client.jetstream.backup import BackupInfo, Progress, backup, restore
from slipstream.client.jetstream.batch_publish import AtomicBatch, FastBatch
from slipstream.client.jetstream.consumer import PullConsumer
from slipstream.client.jetstream.errors import (
    BadRequestError,
    ConsumerNotFoundError,
    NotPullConsumerError,
    NotPushConsumerError,
    StreamNotFoundError,
    TooManyInFlightError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.ordered import OrderedConsumer, OrderedConsumerConfig
from slipstream.client.jetstream.publish import AckInbox, PubAck, PublishOptions
from slipstream.client.jetstream.push import PushConsumer
from slipstream.client.jetstream.stream import Stream
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike, as_headers, subject_bytes
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.subscriptions import Route
from slipstream.client.value_types import Given
from slipstream.model.configurations import ConsumerConfig, StreamConfig
from slipstream.model.documents import Document
from slipstream.model.durations import to_seconds
from slipstream.model.error_codes import ErrorCode
from slipstream.model.infos import (
    AccountInfo,
    ConsumerInfo,
    ConsumerPauseInfo,
    StreamInfo,
    StreamState,
)
from slipstream.model.times import datetime_text
from slipstream.model.unknown_name import unknown_name
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.codecs import Kind
    from slipstream.client.connection import Connection
    from slipstream.client.jetstream.keywords import (
        ConsumerKeywords,
        OrderedConsumerKeywords,
        StreamKeywords,
    )
    from slipstream.client.kv import KeyCodec, KeyValue, KeyValueConfig, KeyValueStatus
    from slipstream.client.kv.keywords import KeyValueKeywords
    from slipstream.client.object_store import ObjectStore, ObjectStoreConfig, ObjectStoreStatus
    from slipstream.client.object_store.keywords import ObjectStoreKeywords

RETRIES = 2
RETRY_WAIT = 0.25

C = TypeVar("C")
D = TypeVar("D", bound=Document)


class JetStream:
    """JetStream through one connection; `Connection.jetstream` makes one.

    `timeout` bounds API requests and `publish`, `publish_ack_timeout` the wait of `publish_async`
    for an acknowledgement (0: no bound), both in seconds. `max_ack_pending` bounds the
    acknowledgements in flight; `wait_when_full` says whether `publish_async` waits then (up to
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
        self.api = Api(connection, prefix_of(domain, prefix), to_seconds(timeout, "timeout"))
        self._ack_timeout = to_seconds(publish_ack_timeout, "publish_ack_timeout")
        self._wait_when_full = wait_when_full
        self._stall = None if stall_timeout is None else to_seconds(stall_timeout, "stall_timeout")
        self._write_buffer = connection.write_buffer
        inbox = f"{connection.new_inbox()}."
        self._acks = AckInbox(
            self._write_buffer, inbox, max_ack_pending, to_seconds(retry_wait, "retry_wait")
        )
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
        self.api.timeout = to_seconds(value, "timeout")

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
        limit = self.api.timeout if timeout is None else to_seconds(timeout, "timeout")
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
            limit = self._ack_timeout if timeout is None else to_seconds(timeout, "timeout")
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
        """Return when no acknowledgement is in flight, whatever the outcomes.

        Raises `TimeoutError` after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(None if timeout is None else to_seconds(timeout, "timeout")):
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
        self, message: JetStreamMessage, word: bytes, timeout: "float | timedelta | None"
    ) -> None:
        """Acknowledge `message` and await the server's confirmation; see `ack_sync`."""
        await self.connection.request(
            message.reply, word, timeout=self.timeout if timeout is None else timeout
        )

    # -- streams -------------------------------------------------------------------------------

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use. Raises `JetStreamNotEnabledError`."""
        return AccountInfo.from_wire(await self.api.request("INFO"))

    async def create_stream(
        self,
        config: StreamConfig | None = None,
        *,
        pedantic: bool = False,
        **fields: "Unpack[StreamKeywords]",
    ) -> Stream:
        """Make a stream from a `config`, from its fields, or from both.

        Succeeds if it exists with the same configuration, else raises `StreamExistsError`.
        `pedantic` has the server refuse what it would correct in silence.
        """
        made = _config_of(StreamConfig, config, fields, "create_stream")
        return await self._put_stream("CREATE", made, pedantic)

    async def update_stream(
        self,
        config: StreamConfig | None = None,
        *,
        pedantic: bool = False,
        **fields: "Unpack[StreamKeywords]",
    ) -> Stream:
        """Give a stream another configuration: the whole of it, start from `info().config`.

        Raises `StreamNotFoundError`, and `ApiError` for what cannot be changed.
        """
        made = _config_of(StreamConfig, config, fields, "update_stream")
        return await self._put_stream("UPDATE", made, pedantic)

    async def create_or_update_stream(
        self,
        config: StreamConfig | None = None,
        *,
        pedantic: bool = False,
        **fields: "Unpack[StreamKeywords]",
    ) -> Stream:
        """Update the stream if it exists, else make it."""
        made = _config_of(StreamConfig, config, fields, "create_or_update_stream")
        try:
            return await self._put_stream("UPDATE", made, pedantic)
        except StreamNotFoundError:
            return await self._put_stream("CREATE", made, pedantic)

    async def get_or_create_stream(
        self, config: StreamConfig | None = None, **fields: "Unpack[StreamKeywords]"
    ) -> Stream:
        """The stream as it is; made if there is none."""
        made = _config_of(StreamConfig, config, fields, "get_or_create_stream")
        try:
            return await self.stream(made.name)
        except StreamNotFoundError:
            return await self._put_stream("CREATE", made, False)

    async def _put_stream(self, verb: str, config: StreamConfig, pedantic: bool) -> Stream:
        check_stream_name(config.name)
        asked = config.to_wire()
        if pedantic:
            asked["pedantic"] = True
        answer = await self.api.request(f"STREAM.{verb}.{config.name}", asked)
        info = StreamInfo.from_wire(answer)
        check_stream_echo(asked, answer["config"])
        return Stream(self, info)

    async def stream(self, name: str) -> Stream:
        """A stream. Raises `StreamNotFoundError`."""
        check_stream_name(name)
        return Stream(self, await self.stream_info(name))

    def stream_handle(self, name: str) -> Stream:
        """A stream that is taken to exist, without asking for it.

        Of use where the API of streams is forbidden: its `cached_info` has nothing but the name
        until `info` is called, and messages are read with ``direct=True`` if it allows that.
        """
        check_stream_name(name)
        return Stream(self, StreamInfo(config=StreamConfig(name=name), state=StreamState()))

    async def stream_info(
        self, name: str, *, subjects_filter: str = "", deleted_details: bool = False
    ) -> StreamInfo:
        """A stream's info; with `subjects_filter` ("">" for all) the messages of each subject.

        `deleted_details` lists the sequences that are missing inside the stream.
        """
        check_stream_name(name)
        body: dict[str, Any] = {}
        if deleted_details:
            body["deleted_details"] = True
        if subjects_filter:
            body["subjects_filter"] = subjects_filter
        info = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body or None))
        while subjects_filter and len(info.state.subjects) < info.total:
            body["offset"] = len(info.state.subjects)
            page = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body))
            if not page.state.subjects:
                break
            info.state.subjects.update(page.state.subjects)
        return info

    async def stream_subjects(self, name: str, filter: str = ">") -> AsyncIterator[tuple[str, int]]:
        """Each subject in a stream that matches `filter`, with the number of its messages.

        Pages of 100,000 are asked for as they are needed. Raises `StreamNotFoundError`.
        """
        check_stream_name(name)
        check_subject(filter)
        offset = 0
        while True:
            body = {"subjects_filter": filter, "offset": offset}
            info = StreamInfo.from_wire(await self.api.request(f"STREAM.INFO.{name}", body))
            counts = info.state.subjects
            for pair in counts.items():
                yield pair
            offset += len(counts)
            if not counts or offset >= info.total:
                return

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all its messages and consumers. Raises `StreamNotFoundError`."""
        check_stream_name(name)
        await self.api.request(f"STREAM.DELETE.{name}")

    async def purge_stream(
        self, name: str, *, filter: str = "", sequence: int = 0, keep: int = 0
    ) -> int:
        """Remove messages, all of them by default; how many there were. See `Stream.purge`."""
        check_stream_name(name)
        if sequence and keep:
            raise ValueError("purge by `sequence` or by `keep`, not by both")
        body: dict[str, Any] = {}
        if filter:
            body["filter"] = filter
        if sequence:
            body["seq"] = sequence
        if keep:
            body["keep"] = keep
        answer = await self.api.request(f"STREAM.PURGE.{name}", body or None)
        return int(answer.get("purged", 0))

    async def delete_message(self, name: str, sequence: int, *, secure: bool = False) -> None:
        """Remove a message, with `secure` overwriting its bytes.

        Raises `MessageDeleteError` if there is none, or the stream forbids it.
        """
        check_stream_name(name)
        body = {"seq": sequence} if secure else {"seq": sequence, "no_erase": True}
        await self.api.request(f"STREAM.MSG.DELETE.{name}", body)

    async def backup_stream(
        self,
        name: str,
        directory: "str | os.PathLike[str]",
        *,
        consumers: bool = True,
        check: bool = False,
        progress: Progress | None = None,
    ) -> BackupInfo:
        """Write a stream, with its consumers unless `consumers` is False, to `directory`, which is
        made if need be, as the `nats` tool does; what the stream was when the server was asked.

        `check` has nats-server check the stream first; Slipstream always checks what it reads.
        `progress` is called with the bytes so far and in all, as `StreamState` counts them. Raises
        `StreamNotFoundError`, `BackupError` (also for a directory that holds a backup) and OSError;
        what was begun is removed then.
        """
        return await backup(self, name, directory, consumers, check, progress)

    async def restore_stream(
        self,
        directory: "str | os.PathLike[str]",
        *,
        config: StreamConfig | None = None,
        progress: Progress | None = None,
    ) -> StreamInfo:
        """Make a stream from a backup, with the consumers that it holds; durable on return.

        `config` takes the place of the configuration in the backup, which may have another name,
        other subjects or limits. `progress` is called with the bytes of the archive that were sent,
        and all of them. Raises `ApiError` (`STREAM_NAME_EXIST_RESTORE_FAILED`: there is a stream of
        that name; `STREAM_RESTORE`: what is wrong with the archive or the configuration),
        `BackupError` and OSError.
        """
        return await restore(self, directory, config, progress)

    async def stream_names(self, subject: str = "") -> AsyncIterator[str]:
        """Names of the streams, or of those with a subject that overlaps `subject`."""
        body = {"subject": subject} if subject else None
        async for name in self.api.pages("STREAM.NAMES", "streams", body):
            yield name

    async def streams(self, subject: str = "") -> AsyncIterator[StreamInfo]:
        """Infos of the streams, or of those with a subject that overlaps `subject`."""
        body = {"subject": subject} if subject else None
        async for raw in self.api.pages("STREAM.LIST", "streams", body):
            yield StreamInfo.from_wire(raw)

    async def stream_name_by_subject(self, subject: str) -> str:
        """The stream that stores `subject`. Raises `StreamNotFoundError`, `InvalidSubjectError`."""
        check_subject(subject)
        async for name in self.stream_names(subject):
            return name
        raise StreamNotFoundError(
            404,
            ErrorCode.STREAM_NOT_FOUND,
            "no stream listens on this subject",
            f"stream of subject {subject!r}",
        )

    async def stream_by_subject(self, subject: str) -> Stream:
        """The stream that stores `subject`. Raises `StreamNotFoundError`."""
        return await self.stream(await self.stream_name_by_subject(subject))

    # -- pull consumers ------------------------------------------------------------------------

    async def create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PullConsumer:
        """Make a pull consumer from a `config`, from its fields, or from both.

        Succeeds if it exists with the same configuration, else raises `ConsumerExistsError`.
        """
        return await self._put_pull(stream, config, fields, "create")

    async def update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PullConsumer:
        """Give a pull consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._put_pull(stream, config, fields, "update")

    async def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PullConsumer:
        """Update the pull consumer if it exists, else make it."""
        return await self._put_pull(stream, config, fields, "")

    async def get_or_create_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PullConsumer:
        """The pull consumer as it is; made if there is none."""
        made = _config_of(ConsumerConfig, config, fields, "get_or_create_consumer")
        there = await _if_there(self.consumer, stream, made)
        return there or await self._put_pull(stream, made, {}, "create")

    async def _put_pull(
        self, stream: str, config: ConsumerConfig | None, fields: "ConsumerKeywords", action: str
    ) -> PullConsumer:
        call = f"{action or 'create_or_update'}_consumer"
        made = _config_of(ConsumerConfig, config, fields, call)
        if made.deliver_subject:
            raise NotPullConsumerError(
                f"a consumer with a deliver_subject ({made.deliver_subject!r}) is a push consumer: "
                "use create_push_consumer and its like"
            )
        return PullConsumer(self, await self.create_consumer_raw(stream, made, action))

    async def consumer(self, stream: str, name: str) -> PullConsumer:
        """A pull consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return PullConsumer(self, await self.consumer_info(stream, name))

    # -- push consumers ------------------------------------------------------------------------

    async def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PushConsumer:
        """Make a push consumer; see `create_consumer`.

        Without a `deliver_subject` it sends to a new inbox, which is of use while it is ephemeral.
        """
        return await self._put_push(stream, config, fields, "create")

    async def update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PushConsumer:
        """Give a push consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._put_push(stream, config, fields, "update")

    async def create_or_update_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PushConsumer:
        """Update the push consumer if it exists, else make it."""
        return await self._put_push(stream, config, fields, "")

    async def get_or_create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        **fields: "Unpack[ConsumerKeywords]",
    ) -> PushConsumer:
        """The push consumer as it is; made if there is none."""
        made = _config_of(ConsumerConfig, config, fields, "get_or_create_push_consumer")
        there = await _if_there(self.push_consumer, stream, made)
        return there or await self._put_push(stream, made, {}, "create")

    async def _put_push(
        self, stream: str, config: ConsumerConfig | None, fields: "ConsumerKeywords", action: str
    ) -> PushConsumer:
        call = f"{action or 'create_or_update'}_push_consumer"
        made = _config_of(ConsumerConfig, config, fields, call)
        if not made.deliver_subject:
            if made.durable_name:
                raise NotPushConsumerError(
                    f"push consumer {made.durable_name!r}: a durable one needs a deliver_subject"
                )
            made = made.replace(deliver_subject=self.api.connection.new_inbox())
        return PushConsumer(self, await self.create_consumer_raw(stream, made, action))

    async def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """A push consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return PushConsumer(self, await self.consumer_info(stream, name))

    def ordered_consumer(
        self,
        stream: str,
        config: OrderedConsumerConfig | None = None,
        **fields: "Unpack[OrderedConsumerKeywords]",
    ) -> OrderedConsumer:
        """Read a stream in order, with nothing to acknowledge. The server is not asked yet."""
        check_stream_name(stream)
        made = _config_of(OrderedConsumerConfig, config, fields, "ordered_consumer")
        return OrderedConsumer(self, stream, made)

    # -- consumers of both kinds ---------------------------------------------------------------

    async def create_consumer_raw(
        self, stream: str, config: ConsumerConfig, action: str = "", *, pedantic: bool = False
    ) -> ConsumerInfo:
        """Ask for a consumer of either kind; `action` is "create", "update" or "" for both."""
        check_stream_name(stream)
        name = check_consumer_name(config.name or config.durable_name or new_name())
        asked = {**config.to_wire(), "name": name}
        endpoint = f"CONSUMER.CREATE.{stream}.{name}"
        if config.filter_subject and not config.filter_subjects:
            endpoint += f".{config.filter_subject}"
        body: dict[str, Any] = {"stream_name": stream, "config": asked}
        if action:
            body["action"] = action
        if pedantic:
            body["pedantic"] = True
        try:
            answer = await self.api.request(endpoint, body)
        except BadRequestError as error:
            explain_refusal(asked, error)
            raise
        info = ConsumerInfo.from_wire(answer)
        check_consumer_echo(asked, answer["config"], is_new=action == "create")
        return info

    async def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """A consumer's info. Raises `ConsumerNotFoundError`, `StreamNotFoundError`."""
        check_stream_name(stream)
        check_consumer_name(name)
        return ConsumerInfo.from_wire(await self.api.request(f"CONSUMER.INFO.{stream}.{name}"))

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises `ConsumerNotFoundError`."""
        check_stream_name(stream)
        check_consumer_name(name)
        await self.api.request(f"CONSUMER.DELETE.{stream}.{name}")

    async def pause_consumer(
        self, stream: str, name: str, until: "datetime | timedelta | float"
    ) -> ConsumerPauseInfo:
        """Have a consumer deliver nothing until a time, or for a while in seconds."""
        if not isinstance(until, datetime):
            until = datetime.now(UTC) + timedelta(seconds=to_seconds(until, "until"))
        return await self._pause(stream, name, {"pause_until": datetime_text(until)})

    async def resume_consumer(self, stream: str, name: str) -> ConsumerPauseInfo:
        """Have a consumer deliver again."""
        return await self._pause(stream, name, None)

    async def _pause(
        self, stream: str, name: str, body: dict[str, Any] | None
    ) -> ConsumerPauseInfo:
        check_stream_name(stream)
        check_consumer_name(name)
        answer = await self.api.request(f"CONSUMER.PAUSE.{stream}.{name}", body)
        return ConsumerPauseInfo.from_wire(answer)

    async def unpin_consumer(self, stream: str, name: str, group: str) -> None:
        """Let another client of a priority group be the pinned one."""
        check_stream_name(stream)
        check_consumer_name(name)
        await self.api.request(f"CONSUMER.UNPIN.{stream}.{name}", {"group": group})

    async def reset_consumer(self, stream: str, name: str, sequence: int = 0) -> ConsumerInfo:
        """Have a consumer go to the stream's `sequence`; 0: back to its ack floor (server 2.14)."""
        # A server does not answer for a consumer that does not exist, so ask for it first.
        await self.consumer_info(stream, name)
        body = {"seq": sequence} if sequence else None
        return ConsumerInfo.from_wire(
            await self.api.request(f"CONSUMER.RESET.{stream}.{name}", body)
        )

    async def consumer_names(self, stream: str) -> AsyncIterator[str]:
        """Names of a stream's consumers."""
        check_stream_name(stream)
        async for name in self.api.pages(f"CONSUMER.NAMES.{stream}", "consumers"):
            yield name

    async def consumers(self, stream: str) -> AsyncIterator[ConsumerInfo]:
        """Infos of a stream's consumers."""
        check_stream_name(stream)
        async for raw in self.api.pages(f"CONSUMER.LIST.{stream}", "consumers"):
            yield ConsumerInfo.from_wire(raw)

    # -- key-value buckets ---------------------------------------------------------------------

    @overload
    async def create_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: "Kind[Given] | None" = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Given]": ...
    @overload
    async def create_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]": ...
    async def create_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]":
        """Make a bucket from a `KeyValueConfig`, or from its name and fields as `options`.

        Succeeds if it exists with the same configuration. Values come back as `type` (bytes if
        none is given); `key_codec` lets keys be any text. Raises `BucketExistsError`,
        `BucketOptionError`, `InvalidBucketNameError`.
        """
        from slipstream.client.kv.bucket import config_of, create_bucket

        made = config_of(config, options)
        return await create_bucket(self, made, type=type, key_codec=key_codec)

    @overload
    async def update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: "Kind[Given] | None" = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Given]": ...
    @overload
    async def update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]": ...
    async def update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]":
        """Give a bucket another configuration, the whole of it. Raises `BucketNotFoundError`."""
        from slipstream.client.kv.bucket import config_of, update_bucket

        made = config_of(config, options)
        return await update_bucket(self, made, type=type, key_codec=key_codec)

    @overload
    async def create_or_update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: "Kind[Given] | None" = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Given]": ...
    @overload
    async def create_or_update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]": ...
    async def create_or_update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: object = None,
        key_codec: "KeyCodec | None" = None,
        **options: "Unpack[KeyValueKeywords]",
    ) -> "KeyValue[Any]":
        """A bucket with this configuration, whether there was one or not."""
        from slipstream.client.kv.bucket import config_of, create_or_update_bucket

        made = config_of(config, options)
        return await create_or_update_bucket(self, made, type=type, key_codec=key_codec)

    @overload
    async def key_value(
        self, bucket: str, *, type: "Kind[Given] | None" = None, key_codec: "KeyCodec | None" = None
    ) -> "KeyValue[Given]": ...
    @overload
    async def key_value(
        self, bucket: str, *, type: object, key_codec: "KeyCodec | None" = None
    ) -> "KeyValue[Any]": ...
    async def key_value(
        self, bucket: str, *, type: object = None, key_codec: "KeyCodec | None" = None
    ) -> "KeyValue[Any]":
        """A bucket that exists. Raises `BucketNotFoundError`, `BadBucketError`."""
        from slipstream.client.kv.bucket import open_bucket

        return await open_bucket(self, bucket, type=type, key_codec=key_codec)

    async def delete_key_value(self, bucket: str) -> None:
        """Remove a bucket with all its values. Raises `BucketNotFoundError`."""
        from slipstream.client.kv.bucket import delete_bucket

        await delete_bucket(self, bucket)

    async def key_value_names(self) -> AsyncIterator[str]:
        """The names of all buckets, asked for page by page."""
        from slipstream.client.kv.bucket import bucket_names

        async for name in bucket_names(self):
            yield name

    async def key_values(self) -> AsyncIterator["KeyValueStatus"]:
        """The status of every bucket, asked for page by page."""
        from slipstream.client.kv.bucket import bucket_statuses

        async for status in bucket_statuses(self):
            yield status

    # -- object stores -------------------------------------------------------------------------

    async def create_object_store(
        self,
        config: "ObjectStoreConfig | str | None" = None,
        **options: "Unpack[ObjectStoreKeywords]",
    ) -> "ObjectStore":
        """Make a store from an `ObjectStoreConfig`, or from its name and fields as `options`.

        Succeeds if it exists with the same configuration. Raises `StoreExistsError`,
        `InvalidStoreNameError`.
        """
        from slipstream.client.object_store.store import config_of, create_store

        return await create_store(self, config_of(config, options))

    async def update_object_store(
        self,
        config: "ObjectStoreConfig | str | None" = None,
        **options: "Unpack[ObjectStoreKeywords]",
    ) -> "ObjectStore":
        """Give a store another configuration, the whole of it. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store.store import config_of, update_store

        return await update_store(self, config_of(config, options))

    async def create_or_update_object_store(
        self,
        config: "ObjectStoreConfig | str | None" = None,
        **options: "Unpack[ObjectStoreKeywords]",
    ) -> "ObjectStore":
        """A store with this configuration, whether there was one or not."""
        from slipstream.client.object_store.store import config_of, create_or_update_store

        return await create_or_update_store(self, config_of(config, options))

    async def object_store(self, bucket: str) -> "ObjectStore":
        """A store that exists. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store.store import open_store

        return await open_store(self, bucket)

    async def delete_object_store(self, bucket: str) -> None:
        """Remove a store with all its objects. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store.store import delete_store

        await delete_store(self, bucket)

    async def object_store_names(self) -> AsyncIterator[str]:
        """The names of all stores, asked for page by page."""
        from slipstream.client.object_store.store import store_names

        async for name in store_names(self):
            yield name

    async def object_stores(self) -> AsyncIterator["ObjectStoreStatus"]:
        """The status of every store, asked for page by page."""
        from slipstream.client.object_store.store import store_statuses

        async for status in store_statuses(self):
            yield status


async def _if_there(
    find: Callable[[str, str], Awaitable[C]], stream: str, config: ConsumerConfig
) -> C | None:
    """The consumer that `config` names; None if there is none, or it names none."""
    name = config.name or config.durable_name
    try:
        return await find(stream, name) if name else None
    except ConsumerNotFoundError:
        return None


def _config_of(kind: type[D], config: D | None, fields: Mapping[str, object], call: str) -> D:
    """The configuration given as an object, as its fields, or as both.

    Raises TypeError for a field that there is not, and for what is no configuration, with the name
    of the `call`.
    """
    given: object = config  # whatever its type says
    if given is not None and not isinstance(given, kind):
        hint = f"; is it name={given!r}?" if isinstance(given, str) else ""
        raise TypeError(f"{call} takes a {kind.__name__} or its fields, not {given!r}{hint}")
    if unknown := fields.keys() - set(kind.__struct_fields__):
        raise TypeError(unknown_name(call, "field", unknown, kind.__struct_fields__))
    if config is not None:
        return config.replace(**fields) if fields else config
    make: Callable[..., D] = kind
    return make(**fields)
