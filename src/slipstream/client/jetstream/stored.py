"""Messages read from a stream by sequence or subject, without a consumer
(docs/protocol/streams.md#reading-a-message).

A stream with `allow_direct` answers itself, replicas and mirrors included (direct get); any other
is asked through the API, which gives the same at a lower pace. `last_message`, `message_at` and
`message_after` do as little work as there can be, for key-value gets and object infos: the headers
of a direct get's answer are searched, not parsed.
"""

import base64
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from slipstream.client.codecs import Kind, decode
from slipstream.client.errors import ConnectionLostError, NoRespondersError, TimeoutError
from slipstream.client.jetstream.errors import (
    ApiError,
    BadRequestError,
    InvalidAnswerError,
    MessageNotFoundError,
    StreamNotFoundError,
)
from slipstream.client.jetstream.status import header_number
from slipstream.client.message import Message
from slipstream.client.requests import AnswerQueue
from slipstream.errors import ProtocolError
from slipstream.model import header_fields
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_names import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
    NATS_UPTO_SEQUENCE,
)
from slipstream.model.times import Timestamp, datetime_text
from slipstream.wire.headers import Headers, find, find_last

if TYPE_CHECKING:
    from slipstream.client.jetstream.api import Api
    from slipstream.client.jetstream.context import JetStream

T = TypeVar("T")

# Servers refuse a multi-subject read that matches more subjects than this.
SUBJECTS_PER_PAGE = 1000
MESSAGES_PER_PAGE = 1000
_ADDED = (NATS_STREAM, NATS_SUBJECT, NATS_SEQUENCE, NATS_TIME_STAMP)
_ADDED_IN_BATCH = (NATS_NUM_PENDING, NATS_LAST_SEQUENCE, NATS_UPTO_SEQUENCE)


class StoredMessage(msgspec.Struct, kw_only=True):
    """A message as a stream holds it. `num_pending` counts what a batch has still to give."""

    stream: str
    subject: str
    sequence: int
    data: bytes
    headers: Headers = msgspec.field(default_factory=Headers)
    time: Timestamp | None = None
    num_pending: int = 0

    @overload
    def decode(self, type: "Kind[T]") -> T: ...
    @overload
    def decode(self, type: object) -> Any: ...
    def decode(self, type: object) -> object:
        """The payload as a `type`; raises `CodecError` if it is not one."""
        return decode(self.data, type, f"message {self.sequence} of {self.stream!r}")


def from_api(stream: str, answer: dict[str, Any]) -> StoredMessage:
    """What the API's answer holds. Raises `InvalidAnswerError` if that is no message."""
    try:
        return _read_api(stream, answer["message"])
    except (AttributeError, LookupError, TypeError, ValueError, ProtocolError) as error:
        raise InvalidAnswerError(
            f"get a message of stream {stream!r}: the answer holds none but {answer!r}"
        ) from error


def _read_api(stream: str, raw: dict[str, Any]) -> StoredMessage:
    block = base64.b64decode(raw.get("hdrs") or "")
    return StoredMessage(
        stream=stream,
        subject=raw["subject"],
        sequence=raw["seq"],
        data=base64.b64decode(raw.get("data") or ""),
        headers=Headers.parse(block) if block else Headers(),
        time=Timestamp.parse(raw["time"]) if raw.get("time") else None,
    )


def from_direct(message: Message) -> StoredMessage:
    """What a direct get's answer holds; the headers that it added are taken out again.

    An answer without headers, as a server gives to who wants none, is only payload. Raises
    `InvalidAnswerError` if they are not what a stream adds.
    """
    if not message.header_block:
        return StoredMessage(stream="", subject="", sequence=0, data=message.data)
    try:
        return _read_direct(message)
    except (ValueError, LookupError, ProtocolError) as error:
        raise malformed(message) from error


def malformed(message: Message) -> InvalidAnswerError:
    """The error for what is no answer to a direct get."""
    return InvalidAnswerError(
        "direct get: the answer has not the headers that a stream adds ("
        f"{NATS_SUBJECT}, {NATS_SEQUENCE}, {NATS_TIME_STAMP}): {message.header_block[:200]!r}"
    )


def _read_direct(message: Message) -> StoredMessage:
    headers = message.headers.copy()
    found: dict[str, str] = {}
    for name in (*_ADDED, *_ADDED_IN_BATCH):
        values = headers.get_all(name)
        if values:
            # The server's own come last: a republished message may have had the same.
            found[name] = values[-1]
            del headers[name]
            for value in values[:-1]:
                headers.add(name, value)
    return StoredMessage(
        stream=found.get(NATS_STREAM, ""),
        subject=found[NATS_SUBJECT],
        sequence=int(found[NATS_SEQUENCE]),
        data=message.data,
        headers=headers,
        time=Timestamp.parse(found[NATS_TIME_STAMP]) if NATS_TIME_STAMP in found else None,
        num_pending=int(found.get(NATS_NUM_PENDING, "0")),
    )


async def get(api: "Api", stream: str, request: dict[str, Any], direct: bool) -> StoredMessage:
    """One message. Raises `MessageNotFoundError`."""
    if direct:
        return await _get_direct(api, stream, request)
    answer = await api.request(f"STREAM.MSG.GET.{stream}", request)
    return from_api(stream, answer)


async def _get_direct(api: "Api", stream: str, request: dict[str, Any]) -> StoredMessage:
    from slipstream.client.errors import NoRespondersError

    asked = f"direct get {request} of stream {stream!r}"
    subject = f"{api.prefix}.DIRECT.GET.{stream}"
    try:
        message = await api.connection.request(
            subject, msgspec.json.encode(request), timeout=api.timeout
        )
    except NoRespondersError as error:
        raise StreamNotFoundError(
            404,
            ErrorCode.STREAM_NOT_FOUND,
            "stream not found, or it does not allow direct gets (allow_direct)",
            asked,
        ) from error
    _check_status(message, asked)
    found = from_direct(message)
    found.stream = stream
    return found


def _check_status(message: Message, asked: str) -> None:
    status = message.status
    if not status:
        return
    text = message.description
    if status == 404:
        raise MessageNotFoundError(
            404, ErrorCode.NO_MESSAGE_FOUND, text or "no message found", asked
        )
    if status == 503:
        raise StreamNotFoundError(
            404, ErrorCode.STREAM_NOT_FOUND, "stream not found, or no direct gets allowed", asked
        )
    if status == 408:
        raise BadRequestError(400, ErrorCode.BAD_REQUEST, text, asked)
    raise ApiError(status, 0, text, asked)


async def get_batch(
    api: "Api", stream: str, request: dict[str, Any], count: int | None
) -> AsyncIterator[StoredMessage]:
    """Messages from `request` on, up to `count` (None: all), by batched direct gets.

    If the connection breaks, the next one asks for what comes after the last message.
    """
    given = 0
    while count is None or given < count:
        page = MESSAGES_PER_PAGE if count is None else min(MESSAGES_PER_PAGE, count - given)
        last, pending, is_broken = 0, 0, False
        try:
            async for found in _answers(api, stream, {**request, "batch": page}):
                if isinstance(found, StoredMessage):
                    last, pending = found.sequence, found.num_pending
                    given += 1
                    yield found
        except MessageNotFoundError:
            return
        except ConnectionLostError:
            is_broken = True
        if not is_broken and not (last and pending):
            return
        if last:
            request = {key: value for key, value in request.items() if key != "start_time"}
            request["seq"] = last + 1


async def last_for(
    api: "Api", stream: str, subjects: list[str], up_to_sequence: int, up_to_time: datetime | None
) -> AsyncIterator[StoredMessage]:
    """The last message of each subject that matches one of `subjects`, in sequence order."""
    request: dict[str, Any] = {"multi_last": subjects, "batch": SUBJECTS_PER_PAGE}
    if up_to_sequence:
        request["up_to_seq"] = up_to_sequence
    if up_to_time is not None:
        request["up_to_time"] = datetime_text(up_to_time)
    while True:
        last, end = 0, None
        try:
            async for found in _answers(api, stream, request):
                if isinstance(found, StoredMessage):
                    last = found.sequence
                    yield found
                else:
                    end = found
        except MessageNotFoundError:
            return
        pending = header_number(end, NATS_NUM_PENDING) if end else 0
        up_to = header_number(end, NATS_UPTO_SEQUENCE) if end else 0
        if not last or not pending or not up_to:
            return
        request = {
            "multi_last": subjects, "batch": SUBJECTS_PER_PAGE, "seq": last + 1, "up_to_seq": up_to,
        }  # fmt: skip


async def _answers(
    api: "Api", stream: str, request: dict[str, Any]
) -> AsyncIterator[StoredMessage | Message]:
    """The messages of one batched direct get, then the message that ends it."""
    connection = api.connection
    asked = f"direct get {request} of stream {stream!r}"
    inbox = connection.new_inbox()
    answers = _Answers(asked)
    subscription = connection.open_sink(inbox, answers)
    try:
        answers.position = connection.publish_nowait(
            f"{api.prefix}.DIRECT.GET.{stream}", msgspec.json.encode(request), reply=inbox
        )
        while True:
            message = await answers.next(connection.loop.time() + api.timeout)
            while message is None and not connection.is_connected:  # it goes with the next one
                message = await answers.next(connection.loop.time() + api.timeout)
            if message is None:
                raise TimeoutError(f"{asked}: no answer came within {api.timeout} s")
            if message.status == 204:
                yield message
                return
            _check_status(message, asked)
            if not message.header_block:
                raise InvalidAnswerError(f"{asked}: the server knows no batches; it is too old")
            yield from_direct(message)
    finally:
        subscription.close()


class _Answers(AnswerQueue):
    """The answers to one request, which end with the connection that it was sent on."""

    def __init__(self, asked: str) -> None:
        super().__init__()
        self.position = 0
        self._asked = asked

    def on_disconnect(self, handed: int) -> None:
        """The rest will not come."""
        if self.position <= handed:
            self.failed(
                ConnectionLostError(
                    f"{self._asked}: the connection broke before the last answer; ask again from "
                    "after the last message that came"
                )
            )


class Found(msgspec.Struct, frozen=True):
    """A message in a stream; `block` is its header block."""

    subject: str
    data: bytes
    sequence: int
    timestamp_ns: int
    block: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header; None if there is none."""
        value = find(self.block, 0, len(self.block), name.encode())
        return None if value is None else value.decode("utf-8", "surrogateescape")


async def last_message(js: "JetStream", stream: str, subject: str, is_direct: bool) -> Found | None:
    """The last message on `subject`, None if there is none. Raises `StreamNotFoundError`."""
    asked = {"last_by_subj": subject}
    if is_direct:
        return await _direct(js, stream, f".{subject}", b"", asked)
    return await _from_leader(js, stream, asked)


async def message_at(js: "JetStream", stream: str, sequence: int, is_direct: bool) -> Found | None:
    """The message of a sequence, None if there is none. Raises `StreamNotFoundError`."""
    asked = {"seq": sequence}
    if is_direct:
        return await _direct(js, stream, "", b'{"seq":%d}' % sequence, asked)
    return await _from_leader(js, stream, asked)


async def message_after(js: "JetStream", stream: str, subject: str, sequence: int) -> Found | None:
    """The first message on `subject` after `sequence`, asked of the leader; None if none is."""
    return await _from_leader(js, stream, {"seq": sequence + 1, "next_by_subj": subject})


async def _from_leader(js: "JetStream", stream: str, asked: dict[str, Any]) -> Found | None:
    try:
        message = await get(js.api, stream, asked, False)
    except MessageNotFoundError:
        return None
    return Found(
        subject=message.subject,
        data=message.data,
        sequence=message.sequence,
        timestamp_ns=0 if message.time is None else message.time.ns,
        block=message.headers.encode() if len(message.headers) else b"",
    )


async def _direct(
    js: "JetStream", stream: str, tail: str, body: bytes, asked: dict[str, Any]
) -> Found | None:
    subject = f"{js.api.prefix}.DIRECT.GET.{stream}{tail}"
    try:
        message = await js.connection.request(subject, body, timeout=js.timeout)
    except NoRespondersError:
        # The stream is gone, or its server is about to stop or just back: the API knows.
        return await _from_leader(js, stream, asked)
    if message.status:
        if message.status == 404:
            return None
        raise ApiError(message.status, 0, message.description, f"direct get from {stream}")
    try:
        return _found(message)
    except ValueError as error:
        raise malformed(message) from error


def _found(message: Message) -> Found:
    block = message.header_block
    time = Timestamp.parse(_last(block, header_fields.NATS_TIME_STAMP))
    return Found(
        subject=_last(block, header_fields.NATS_SUBJECT),
        data=message.data,
        sequence=int(_last(block, header_fields.NATS_SEQUENCE)),
        timestamp_ns=0 if time is None else time.ns,
        block=block,
    )


def _last(block: bytes, name: bytes) -> str:
    """The last value of a header: the server's own. A republished message may have had others.
    Raises ValueError if there is none."""
    value = find_last(block, 0, len(block), name)
    if value is None:
        raise ValueError(f"the answer has no header {name.decode()}")
    return value.strip().decode("utf-8", "surrogateescape")
