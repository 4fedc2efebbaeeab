"""Publishing: the options that become headers, and the acknowledgements that come back.

    await js.publish("orders.new", data, message_id="order-17", expected_last_sequence=41)

Options are checked and written by `block_of` (docs/protocol/streams.md#publishing). A stream
answers each stored message on the reply subject it came with. Those of one JetStream context are
``<inbox>.<number>``: one subscription, a number per message, no task or timer of its own. The
number finds the publication that waits. Three things may end the wait instead: the time runs out
(one timer serves all of them), nobody listens on the subject (a 503, which is tried again a few
times, since a stream may be about to come up), or the connection breaks. Then the error says
whether the message may have been stored: a message whose bytes never left this process was not; it
stays in the write buffer and is sent later.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from slipstream.client.codecs import codec_for, encode
from slipstream.client.errors import ConnectionClosedError
from slipstream.client.jetstream.errors import (
    InvalidAnswerError,
    NoStreamError,
    PublishInterruptedError,
    PublishTimeoutError,
    api_error,
)
from slipstream.client.message import Message, message_of
from slipstream.client.payload import HeadersLike, as_headers, header_bytes, subject_bytes
from slipstream.client.subscriptions import Sink
from slipstream.model.durations import SECOND, to_nanoseconds
from slipstream.model.header_names import (
    NATS_EXPECTED_LAST_MSG_ID,
    NATS_EXPECTED_LAST_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_EXPECTED_STREAM,
    NATS_INCR,
    NATS_MSG_ID,
    NATS_ROLLUP,
    NATS_SCHEDULE,
    NATS_SCHEDULE_ROLLUP,
    NATS_SCHEDULE_SOURCE,
    NATS_SCHEDULE_TARGET,
    NATS_SCHEDULE_TIME_ZONE,
    NATS_SCHEDULE_TTL,
    NATS_TTL,
)
from slipstream.model.times import datetime_text
from slipstream.model.unknown_name import unknown_name
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.reply_future import ReplyFuture
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_ONLY_AN_ID = f"NATS/1.0\r\n{NATS_MSG_ID}: ".encode()
_CRON_FIELDS = 6  # seconds, minutes, hours, day of the month, month, day of the week


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When and where the stream publishes a message later, or again and again
    (docs/protocol/streams.md#schedules).

    One of `at` (a time), `every` (seconds) and `cron` (six fields, seconds first, or ``@daily``
    and the like) says when; `target` says where. `source` is a subject whose last message is sent
    in place of this one, `ttl` the lifetime of what is produced, `time_zone` an IANA name for
    `cron`, `rollup` keeps only the newest on the target.
    """

    target: str
    at: datetime | None = None
    every: float | timedelta | None = None
    cron: str = ""
    source: str = ""
    ttl: float | timedelta | Literal["never"] | None = None
    time_zone: str = ""
    rollup: bool = False

    def fields(self) -> list[tuple[str, str]]:
        """The headers; raises ValueError unless exactly one of `at`, `every`, `cron` is given.

        Also for an `every` that is not of whole seconds, and a `cron` that has not six fields.
        """
        if (self.at is not None) + (self.every is not None) + bool(self.cron) != 1:
            raise ValueError("a Schedule needs exactly one of `at`, `every` and `cron`")
        if self.at is not None:
            when = "@at " + datetime_text(self.at)
        elif self.every is not None:
            nanoseconds = to_nanoseconds(self.every, "every")
            if nanoseconds < SECOND or nanoseconds % SECOND:
                raise ValueError(
                    f"every is a whole number of seconds, 1 or more, not {self.every!r}"
                )
            when = f"@every {nanoseconds // SECOND}s"
        else:
            if not self.cron.startswith("@") and len(self.cron.split()) != _CRON_FIELDS:
                raise ValueError(
                    f"cron is six fields, seconds first, or @daily and the like, not {self.cron!r}"
                )
            when = self.cron
        made = [(NATS_SCHEDULE, when), (NATS_SCHEDULE_TARGET, self.target)]
        if self.source:
            made.append((NATS_SCHEDULE_SOURCE, self.source))
        if self.ttl is not None:
            made.append((NATS_SCHEDULE_TTL, _ttl(self.ttl)))
        if self.time_zone:
            made.append((NATS_SCHEDULE_TIME_ZONE, self.time_zone))
        if self.rollup:
            made.append((NATS_SCHEDULE_ROLLUP, "sub"))
        return made


class PublishOptions(TypedDict, total=False):
    """Keywords of `publish`, `publish_async` and batches.

    message_id: the stream stores a message of an id once within its `duplicate_window`.
    expected_stream: refuse if another stream would store it.
    expected_last_sequence: refuse unless the stream's last sequence is this.
    expected_last_sequence_per_subject: the same of the last message on the subject (0: none).
    expected_last_sequence_subject: the subject (wildcards too) to which the former applies.
    expected_last_message_id: refuse unless the stream's last message has this id.
    ttl: how long the stream keeps the message: seconds (whole, 1 or more), timedelta or "never".
    rollup: "sub" or "all": drop what is older on the subject, or in the stream.
    increment: what to add to a counter (docs/protocol/streams.md#counters).
    schedule: publish it later, see `Schedule`.
    """

    message_id: str
    expected_stream: str
    expected_last_sequence: int
    expected_last_sequence_per_subject: int
    expected_last_sequence_subject: str
    expected_last_message_id: str
    ttl: float | timedelta | Literal["never"]
    rollup: Literal["sub", "all"]
    increment: int
    schedule: Schedule


def block_of(headers: HeadersLike | None, options: PublishOptions) -> bytes:
    """The header block for `headers` and `options`; b"" for neither.

    Raises ValueError for what cannot be in a header, TypeError for an unknown option.
    """
    if not options:
        return b"" if headers is None else header_bytes(headers)
    if headers is None and len(options) == 1 and "message_id" in options:
        # The one that is given for each of many messages.
        one = options["message_id"]
        if isinstance(one, str) and "\r" not in one and "\n" not in one:
            return _ONLY_AN_ID + one.encode() + b"\r\n\r\n"
    made = as_headers(headers)
    for name, value in options.items():
        if value is not None:
            _add(made, name, value)
    return made.encode()


def _add(headers: Headers, name: str, value: object) -> None:
    match name:
        case "message_id":
            headers[NATS_MSG_ID] = str(value)
        case "expected_stream":
            headers[NATS_EXPECTED_STREAM] = str(value)
        case "expected_last_sequence":
            headers[NATS_EXPECTED_LAST_SEQUENCE] = str(value)
        case "expected_last_sequence_per_subject":
            headers[NATS_EXPECTED_LAST_SUBJECT_SEQUENCE] = str(value)
        case "expected_last_sequence_subject":
            headers[NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT] = str(value)
        case "expected_last_message_id":
            headers[NATS_EXPECTED_LAST_MSG_ID] = str(value)
        case "ttl":
            headers[NATS_TTL] = _ttl(value)  # type: ignore[arg-type]
        case "rollup":
            headers[NATS_ROLLUP] = str(value)
        case "increment":
            if not isinstance(value, Integral):
                raise TypeError(f"increment is a whole number, not {value!r}")
            headers[NATS_INCR] = f"{int(value):+d}"
        case "schedule":
            if not isinstance(value, Schedule):
                raise TypeError(f"schedule is a Schedule, not {value!r}")
            for field, text in value.fields():
                headers[field] = text
        case _:
            known = PublishOptions.__annotations__
            raise TypeError(unknown_name("publish", "option", [name], known))


def _ttl(value: float | timedelta | str) -> str:
    """A TTL as the server reads it: whole seconds, or "never"."""
    if isinstance(value, str):
        if value != "never":
            raise ValueError(f"a ttl is seconds, a timedelta or 'never', not {value!r}")
        return value
    nanoseconds = to_nanoseconds(value, "ttl")
    if nanoseconds < SECOND or nanoseconds % SECOND:
        raise ValueError(f"a ttl is a whole number of seconds, 1 or more, not {value!r}")
    return str(nanoseconds // SECOND)


_int = int  # the name `int` in a compiled module's annotations is a C type

logger = logging.getLogger("slipstream.client.jetstream")

# Deadlines are met to within this; so few looks cost nothing.
TICKSECONDS_MIN = 0.01
DRAINSECONDS_MAX = 2.0
# Where a message lies in the write_buffer that came back, refused, and waits to be put there again.
NOWHERE = 2**63 - 1


class PubAck(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    repr_omit_defaults=True,
    rename={"sequence": "seq", "value": "val", "batch_id": "batch", "batch_size": "count"},
):
    """The stream's acknowledgement that a message is stored, under `sequence`.

    `duplicate` means that a message of the same id was stored before, under that sequence. `value`
    is a counter's new total. `batch_id` and `batch_size` belong to the last message of a batch.
    """

    stream: str = ""
    sequence: _int = 0
    duplicate: bool = False
    domain: str = ""
    value: str = ""
    batch_id: str = ""
    batch_size: _int = 0


def read_ack(data: bytes, asked: str) -> PubAck:
    """Read an acknowledgement; raises the `ApiError` that it carries."""
    try:
        ack = msgspec.json.decode(data, type=PubAck)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_ack(asked, data) from error
    if ack.sequence <= 0 or not ack.stream:
        body = msgspec.json.decode(data)
        if "error" in body:
            raise api_error(body["error"], asked)
        raise _no_ack(asked, data)
    return ack


def _no_ack(asked: str, data: bytes) -> InvalidAnswerError:
    return InvalidAnswerError(
        f"{asked}: the answer is not a stream's acknowledgement but {data[:80]!r}. "
        "Something else than a stream is subscribed to the subject"
    )


class Publication:
    """A message whose acknowledgement is awaited; `fill` it after ``__new__``."""

    def fill(
        self,
        future: "asyncio.Future[PubAck] | ReplyFuture",
        token: _int,
        subject: bytes,
        block: bytes,
        body: "bytes | memoryview",
        retries: _int,
        deadline: float,
    ) -> None:
        """All that is known of it."""
        self.future = future
        self.token = token
        self.subject = subject
        self.block = block
        self.body = body
        self.retries = retries
        self.deadline = deadline
        self.position = 0

    def message(self) -> Message:
        """What was published, to be reported or published again."""
        return Message(self.subject.decode(), bytes(self.body), headers=self.block or None)


class AckInbox(Sink):
    """The sink of a context's acknowledgements. `prefix` ends with a dot.

    `on_ack(message, ack)` and `on_error(message, error)` are called with every outcome, if given.
    """

    def __init__(
        self, write_buffer: "WriteBuffer", prefix: str, in_flight_max: _int, retry_wait: float
    ) -> None:
        self.write_buffer = write_buffer
        self.loop = write_buffer.loop
        self.prefix = prefix.encode()
        self.in_flight_max = in_flight_max
        self.retry_wait = retry_wait
        self.is_open = False  # subscribed
        self.on_ack: Callable[[Message, PubAck], None] | None = None
        self.on_error: Callable[[Message, Exception], None] | None = None
        self.pending: dict[_int, Publication] = {}
        self._token = 0
        self._scratch = OutBuffer()
        # The last subject and its bytes: a flood on one subject encodes and checks it once.
        self._subject = "-"
        self._subject_bytes = b"-"
        self._prefix_size = len(self.prefix)
        self._decode = msgspec.json.Decoder(PubAck).decode
        self.create_future = self.loop.create_future
        self._time = self.loop.time
        self._slots: deque[asyncio.Future[None]] = deque()
        self._empty: list[asyncio.Future[None]] = []
        self._retired: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # -- sending -------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a message can be sent without waiting: few are in flight, little waits to go."""
        return (
            self.is_open
            and len(self.pending) < self.in_flight_max
            and not self.write_buffer.crowded
        )

    def send(
        self,
        subject: str,
        data: Any,
        headers: HeadersLike | None,
        kind: Any,
        options: PublishOptions,
        timeout: float,
        retries: _int,
        future: "asyncio.Future[PubAck] | ReplyFuture",
    ) -> None:
        """Encode a message by its type or `kind`, and `publish` it."""
        if subject is not self._subject:
            self._subject_bytes = subject_bytes(subject)
            self._subject = subject
        body = data if kind is None and type(data) is bytes else self.encoded(data, kind)
        block = b"" if headers is None and not options else block_of(headers, options)
        self.publish(self._subject_bytes, block, body, timeout, retries, future)

    def encoded(self, data: Any, kind: Any) -> bytes:
        """The payload of `data`, by the codec of `kind` or of its own type."""
        registry = self.write_buffer.codecs
        return encode(data, None if kind is None else codec_for(kind, registry), registry)

    def publish(
        self,
        subject: bytes,
        block: bytes,
        body: "bytes | memoryview",
        timeout: float,
        retries: _int,
        future: "asyncio.Future[PubAck] | ReplyFuture",
    ) -> None:
        """Put a message into the buffer; `future` gets its acknowledgement.

        A body that is a view is sent from where it is; it must not change until it is acknowledged.

        Gives up after `timeout` seconds (0: never) with `PublishTimeoutError`. Raises what
        `WriteBuffer.put_message` raises.
        """
        self._token += 1
        token = self._token
        deadline = 0.0
        if timeout > 0.0:
            deadline = self._time() + timeout
        publication = Publication.__new__(Publication)
        publication.fill(future, token, subject, block, body, retries, deadline)
        reply = self._reply(token)
        write_buffer = self.write_buffer
        if self.pending or write_buffer.batching:
            publication.position = self._put(subject, reply, block, body)
        else:
            # A task that publishes one message after the other waits for each: send it now, the
            # turn's end would cost another round of the loop.
            write_buffer.batching = True
            try:
                publication.position = self._put(subject, reply, block, body)
            finally:
                write_buffer.batching = False
            write_buffer.flush()
        self.pending[token] = publication
        if deadline > 0.0 and (self._timer is None or deadline < self._timer_at):
            self._arm(deadline)

    def _put(self, subject: bytes, reply: bytes, block: bytes, body: "bytes | memoryview") -> _int:
        if isinstance(body, bytes):
            return self.write_buffer.put_message(subject, reply, block, body)
        return self.write_buffer.put_view(subject, reply, block, body)

    def _reply(self, token: _int) -> bytes:
        """The subject that leads an acknowledgement to its publication."""
        scratch = self._scratch
        scratch.put(self.prefix)
        scratch.put_int(token)
        return scratch.take()

    async def slot(self, wait: float | None) -> None:
        """Wait until fewer acknowledgements are in flight than `in_flight_max`.

        Raises the builtin TimeoutError after `wait` seconds (None: as long as it takes).
        """
        async with asyncio.timeout(wait):
            while len(self.pending) >= self.in_flight_max:
                future = self.loop.create_future()
                self._slots.append(future)
                try:
                    await future
                except asyncio.CancelledError:
                    # Woken and cancelled in one turn: the slot is for someone else then.
                    if future.done() and not future.cancelled():
                        self._free_slot()
                    raise

    def pass_on(self) -> None:
        """A task that `slot` let go on did not publish after all: let another one go on."""
        if len(self.pending) < self.in_flight_max:
            self._free_slot()

    async def complete(self) -> None:
        """Wait until nothing is in flight."""
        while self.pending:
            future = self.loop.create_future()
            self._empty.append(future)
            try:
                await future
            finally:
                if future in self._empty:
                    self._empty.remove(future)

    def retire(self, unsubscribe: Callable[[], None]) -> None:
        """Nothing more is published here: `unsubscribe` when nothing is in flight."""
        self._retired = unsubscribe
        if not self.pending:
            self._nothing_in_flight()

    async def drain(self) -> None:
        """The connection will be closed: give the acknowledgements in flight a while to come."""
        try:
            async with asyncio.timeout(DRAINSECONDS_MAX):
                await self.complete()
        except TimeoutError:
            return  # a stream that never acknowledges: closing ends them with an error

    # -- acknowledgements ----------------------------------------------------------------------

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """An acknowledgement, or a status in its place."""
        subject = frames.subject
        view = subject
        token = 0
        for i in range(self._prefix_size, len(subject)):
            token = token * 10 + (view[i] - 48)
        publication = self.pending.get(token)
        if publication is None:
            return
        if frames.header_start < frames.body_start:
            message = message_of(frames, write_buffer)
            if message.status == 503:
                self._no_responders(publication)
                return
        body = frames.data[frames.body_start : frames.end]
        try:
            ack = self._decode(body)
            if ack.sequence <= 0 or not ack.stream:
                ack = read_ack(body, f"publish to {publication.subject.decode()!r}")
        except Exception as error:
            self._fail(publication, self._explain(publication, body, error))
            return
        future = publication.future
        if not future.done():
            future.set_result(ack)
        self._release(publication)
        if self.on_ack is not None:
            self.on_ack(publication.message(), ack)

    def _explain(self, publication: Publication, body: bytes, error: Exception) -> Exception:
        if not isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
            return error
        try:
            read_ack(body, f"publish to {publication.subject.decode()!r}")
        except Exception as better:
            return better
        return error

    def _no_responders(self, publication: Publication) -> None:
        """No stream listens: perhaps not yet."""
        if publication.retries > 0 and not publication.future.done():
            publication.retries -= 1
            publication.position = NOWHERE
            self.loop.call_later(self.retry_wait, self._again, publication)
            return
        self._fail(publication, self._unheard(publication))

    def _unheard(self, publication: Publication) -> Exception:
        name = publication.subject.decode()
        return NoStreamError(
            f"publish to {name!r}: no stream listens on this subject, the message is not "
            "stored. Create a stream with it, or check the subject's spelling and the account",
            subject=name,
            may_be_stored=False,
        )

    def _again(self, publication: Publication) -> None:
        if publication.token not in self.pending or publication.future.done():
            return
        try:
            publication.position = self._put(
                publication.subject,
                self._reply(publication.token),
                publication.block,
                publication.body,
            )
        except Exception as error:
            self._fail(publication, error)

    def _fail(self, publication: Publication, error: Exception) -> None:
        self._release(publication)
        future = publication.future
        if future.done():
            return
        future.set_exception(error)
        if self.on_error is None:
            return
        future.exception()  # it was reported, so the loop need not log it
        try:
            self.on_error(publication.message(), error)
        except Exception:  # others fail with it, which are to be reported as well
            logger.exception("on_publish_error raised")

    def _release(self, publication: Publication) -> None:
        self.pending.pop(publication.token, None)
        if self._slots:
            self._free_slot()
        if not self.pending:
            self._nothing_in_flight()

    def _free_slot(self) -> None:
        while self._slots:
            future = self._slots.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _nothing_in_flight(self) -> None:
        empty = self._empty
        self._empty = []
        for future in empty:
            if not future.done():
                future.set_result(None)
        if self._retired is not None:
            retired, self._retired = self._retired, None
            retired()

    # -- giving up -----------------------------------------------------------------------------

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        """Fail what is overdue; look again when the next one is."""
        self._timer = None
        now = self._time()
        earliest = 0.0
        for publication in list(self.pending.values()):
            if publication.deadline <= 0.0:
                continue
            if publication.deadline <= now:
                self._fail(publication, self._overdue(publication))
            elif earliest == 0.0 or publication.deadline < earliest:
                earliest = publication.deadline
        if earliest > 0.0:
            self._arm(max(earliest, now + TICKSECONDS_MIN))

    def _overdue(self, publication: Publication) -> Exception:
        name = publication.subject.decode()
        if publication.position == NOWHERE:
            return self._unheard(publication)
        what = (
            "the stream did not acknowledge it in time. It may be stored all the same"
            if publication.position <= self.write_buffer.handed
            else "no server is connected. It waits in the buffer and is sent on reconnect"
        )
        return PublishTimeoutError(
            f"publish to {name!r}: {what}; publish again with the same message_id to be sure",
            subject=name,
        )

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke: what may have been sent is in doubt, the rest is sent later."""
        for publication in list(self.pending.values()):
            if publication.position <= handed:
                self._fail(publication, self._interrupted(publication, True))

    def failed(self, error: Exception) -> None:
        """The connection is closed, or the inbox is forbidden: nothing will be acknowledged."""
        self.is_open = False
        closed = isinstance(error, ConnectionClosedError)
        for publication in list(self.pending.values()):
            sent = publication.position <= self.write_buffer.handed
            self._fail(publication, self._interrupted(publication, sent) if closed else error)
        while self._slots:
            self._free_slot()

    def _interrupted(self, publication: Publication, sent: bool) -> Exception:
        name = publication.subject.decode()
        what = (
            "broke before the acknowledgement came. The message may be stored; publish it again "
            "with the same message_id to be sure"
            if sent
            else "was closed before the message was sent. It is not stored"
        )
        return PublishInterruptedError(
            f"publish to {name!r}: the connection {what}", subject=name, may_be_stored=sent
        )
