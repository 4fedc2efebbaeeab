"""Requests to ``$JS.API`` (docs/protocol/api.md): prefix, names, JSON both ways, errors, pages.

`delete_in_background` deletes a consumer without waiting for the answer. If the request is lost
with its connection, it is sent again on the next one. It may also arrive too early: nats-server
makes one consumer and deletes another at the same time, so that a deletion which follows a
cancelled creation may be answered with "not found" just before the consumer exists. A deletion that
never arrives does no lasting harm: these consumers have an `inactive_threshold` and expire.
"""

import logging
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    OutboundBufferFullError,
)
from slipstream.client.jetstream.errors import (
    BadRequestError,
    ConsumerNotFoundError,
    EmptyStreamNameError,
    FeatureError,
    InvalidAnswerError,
    InvalidConsumerNameError,
    InvalidNameError,
    InvalidStreamNameError,
    JetStreamNotEnabledError,
    api_error,
)
from slipstream.client.message import Message
from slipstream.client.payload import subject_bytes
from slipstream.client.requests import Request
from slipstream.client.subscriptions import Sink
from slipstream.errors import ConfigError, Error
from slipstream.model.documents import Document
from slipstream.model.durations import to_seconds
from slipstream.model.error_codes import ErrorCode
from slipstream.wire.nuid import Nuid

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.jetstream.context import JetStream

DEFAULT_PREFIX = "$JS.API"
# Fields that an old server ignores in silence, and users would miss.
_ECHOED_STREAM_FIELDS = ("subject_transform", "sources", "mirror", "republish")
_ECHOED_UPSTREAM_FIELDS = ("filter_subject", "subject_transforms", "consumer")
_ECHOED_CONSUMER_FIELDS = ("filter_subjects", "priority_groups")
logger = logging.getLogger("slipstream.client.jetstream")


def prefix_of(domain: str, prefix: str) -> str:
    """The API's prefix; raises `ConfigError` if both a domain and a prefix are given."""
    if domain and prefix and prefix != DEFAULT_PREFIX:
        raise ConfigError(
            f"jetstream(domain={domain!r}, prefix={prefix!r}): give one of the two, a domain is "
            "short for the prefix $JS.<domain>.API"
        )
    if domain:
        return f"$JS.{domain}.API"
    return (prefix or DEFAULT_PREFIX).rstrip(".")


class Api:
    """JetStream's API as seen through one connection."""

    def __init__(self, connection: "Connection", prefix: str, timeout: float) -> None:
        self.connection = connection
        self.prefix = prefix
        self.timeout = timeout

    async def request(
        self,
        endpoint: str,
        body: "Document | dict[str, Any] | None" = None,
        *,
        timeout: "float | timedelta | None" = None,
    ) -> dict[str, Any]:
        """Ask ``<prefix>.<endpoint>`` and give the answer's JSON without its `type`.

        Raises the `ApiError` that the answer carries, `JetStreamNotEnabledError` if nothing
        listens, and what `Connection.request` raises.
        """
        limit = self.timeout if timeout is None else to_seconds(timeout, "timeout")
        raw = body.to_wire() if isinstance(body, Document) else body
        data = b"" if raw is None else msgspec.json.encode(raw)
        subject = f"{self.prefix}.{endpoint}"
        logger.debug("request %s %s", subject, data)
        try:
            message = await self.connection.request(subject, data, timeout=limit)
        except NoRespondersError as error:
            raise JetStreamNotEnabledError(
                503,
                ErrorCode.NOT_ENABLED,
                "nobody answers: JetStream is not enabled on this server",
                endpoint,
            ) from error
        logger.debug("answer to %s %s", subject, message.data)
        return read_answer(message, endpoint)

    async def pages(
        self, endpoint: str, key: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[Any]:
        """Every entry of a paged answer's list `key`, asking for a page when it is needed."""
        offset = 0
        while True:
            answer = await self.request(endpoint, {**(body or {}), "offset": offset})
            entries, total = answer.get(key) or [], answer.get("total", 0)
            if not isinstance(entries, list) or not isinstance(total, int):
                raise InvalidAnswerError(
                    f"{endpoint}: the answer has no list {key!r} but {entries!r}, {total!r} in all"
                )
            for entry in entries:
                yield entry
            offset += len(entries)
            if not entries or offset >= total:
                return


def read_answer(message: Message, endpoint: str) -> dict[str, Any]:
    """An answer's JSON without its `type`. Raises the `ApiError` in it, `InvalidAnswerError`."""
    try:
        answer = msgspec.json.decode(message.data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidAnswerError(
            f"{endpoint}: the answer is not a JSON object but {message.data[:80]!r}"
        ) from error
    answer.pop("type", None)
    failure = answer.pop("error", None)
    if failure:
        raise api_error(failure, endpoint)
    return answer


def check_stream_echo(asked: dict[str, Any], answered: dict[str, Any]) -> None:
    """Raise `FeatureError` if the server ignored a field of a stream that it does not know."""
    _check_echo(asked, answered, _ECHOED_STREAM_FIELDS)
    upstream = {"name": asked.get("name"), **_upstream_fields(asked)}
    _check_echo(upstream, _upstream_fields(answered), _ECHOED_UPSTREAM_FIELDS)


def check_consumer_echo(asked: dict[str, Any], answered: dict[str, Any], *, is_new: bool) -> None:
    """Raise `FeatureError` if the server ignored a field of a consumer that it does not know."""
    if asked.get("dead_letter") and not answered.get("dead_letter"):
        raise FeatureError(
            f"consumer {asked.get('name')!r}: this server has made it without 'dead_letter', which "
            "it does not know: it will give up messages and store none of them. Delete the "
            "consumer, or use a Slipstream server"
        )
    _check_echo(asked, answered, _ECHOED_CONSUMER_FIELDS)
    if is_new:  # an update leaves a pause as it is
        _check_echo(asked, answered, ("pause_until",))


def explain_refusal(asked: dict[str, Any], error: BadRequestError) -> None:
    """Raise `FeatureError` if a server refused a consumer for a field that it does not know."""
    if asked.get("dead_letter") and '"dead_letter"' in error.description:
        raise FeatureError(
            f"consumer {asked.get('name')!r}: this server does not know 'dead_letter' and has "
            f"refused the consumer ({error.description}). Leave the field away, or use a "
            "Slipstream server"
        ) from error


def _upstream_fields(config: dict[str, Any]) -> dict[str, Any]:
    """Which fields the mirror or any of the sources has."""
    upstreams = [*filter(None, [config.get("mirror")]), *(config.get("sources") or ())]
    return {name: any(one.get(name) for one in upstreams) for name in _ECHOED_UPSTREAM_FIELDS}


def _check_echo(asked: dict[str, Any], answered: dict[str, Any], fields: tuple[str, ...]) -> None:
    for name in fields:
        if asked.get(name) and not answered.get(name):
            raise FeatureError(
                f"{asked.get('name') or 'the request'}: this server does not support {name!r}; it "
                "ignored the field. Use a newer server"
            )


_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


def check_stream_name(name: str) -> str:
    """`name`, if a stream can have it; raises `InvalidStreamNameError`."""
    if not name:
        raise EmptyStreamNameError("a stream needs a name")
    return _check("stream", name, InvalidStreamNameError)


def check_consumer_name(name: str) -> str:
    """`name`, if a consumer can have it; raises `InvalidConsumerNameError`."""
    if not name:
        raise InvalidConsumerNameError("a consumer needs a name")
    return _check("consumer", name, InvalidConsumerNameError)


def _check(kind: str, name: str, error: type[InvalidNameError]) -> str:
    wrong = sorted({c for c in name if c in _FORBIDDEN})
    if wrong:
        raise error(
            f"a {kind} cannot be named {name!r}: {' '.join(map(repr, wrong))} may not be in it "
            "(no blanks, dots, wildcards or path separators)"
        )
    return name


def check_subject(subject: str) -> str:
    """`subject`, if messages can have it or match it; raises `InvalidSubjectError`."""
    subject_bytes(subject)
    return subject


def new_name() -> str:
    """A name that nobody else has."""
    return Nuid(random.SystemRandom()).next()


# How often to delete a consumer whose creation had no answer: in 6 s altogether.
TRIES_MAX = 7
WAIT_FIRST_SECONDS = 0.05
WAIT_FOR_ROOM_SECONDS = 0.25


def delete_in_background(
    js: "JetStream", stream: str, name: str, *, is_being_made: bool = False
) -> None:
    """Delete a consumer, on the next connection if there is none now; nothing is awaited.

    With `is_being_made` it was asked for and no answer came: it may be there only later.
    """
    BackgroundDelete(js, stream, name, TRIES_MAX if is_being_made else 1).say()


class BackgroundDelete(Sink):
    """The deletion of one consumer, until the server has done it or there is nothing to do."""

    def __init__(self, js: "JetStream", stream: str, name: str, tries: int) -> None:
        self._connection = js.connection
        self._timeout = js.timeout
        self._subject = f"{js.api.prefix}.CONSUMER.DELETE.{stream}.{name}"
        self._tries = tries
        self._wait = WAIT_FIRST_SECONDS
        self._request = Request(self._subject, None, self)

    def say(self) -> None:
        """Send the request."""
        connection = self._connection
        request = self._request = Request(self._subject, None, self)
        request.timeout = self._timeout
        try:
            reply = connection.requests.open(request)
            request.position = connection.publish_nowait(self._subject, reply=reply)
        except ConnectionClosedError:
            return
        except OutboundBufferFullError:
            connection.requests.close(request)
            connection.loop.call_later(WAIT_FOR_ROOM_SECONDS, self.say)

    def deliver(self, message: Message) -> None:
        """The answer: it is done, unless the consumer is still to come."""
        self._connection.requests.close(self._request)
        self._tries -= 1
        try:
            read_answer(message, self._subject)
        except ConsumerNotFoundError:
            if self._tries:
                self._connection.loop.call_later(self._wait, self.say)
                self._wait *= 2
        except Error:
            pass  # a refusal that another request would meet as well

    def failed(self, error: Exception) -> None:
        """No answer will come."""
        if isinstance(error, ConnectionLostError):
            self._connection.loop.call_soon(self.say)
