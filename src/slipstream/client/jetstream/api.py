"""Requests to ``$JS.API`` (spec jetstream-api.md): prefix, JSON both ways, errors, pages."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client.errors import NoRespondersError
from slipstream.client.jetstream.document import Document, to_seconds
from slipstream.client.jetstream.errors import (
    FeatureError,
    InvalidAnswerError,
    JetStreamNotEnabledError,
    api_error,
)
from slipstream.client.message import Message
from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

DEFAULT_PREFIX = "$JS.API"
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
        limit = self.timeout if timeout is None else to_seconds(timeout)
        raw = body.to_wire() if isinstance(body, Document) else body
        data = b"" if raw is None else msgspec.json.encode(raw)
        subject = f"{self.prefix}.{endpoint}"
        logger.debug("request %s %s", subject, data)
        try:
            message = await self.connection.request(subject, data, timeout=limit)
        except NoRespondersError as error:
            raise JetStreamNotEnabledError(
                503, 10076, "nobody answers: JetStream is not enabled on this server", endpoint
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
    except msgspec.DecodeError as error:
        raise InvalidAnswerError(
            f"{endpoint}: the answer is not a JSON object but {message.data[:80]!r}"
        ) from error
    answer.pop("type", None)
    failure = answer.pop("error", None)
    if failure:
        raise api_error(failure, endpoint)
    return answer


def check_echo(asked: dict[str, Any], answered: dict[str, Any], fields: tuple[str, ...]) -> None:
    """Raise `FeatureError` if the server dropped one of `fields`, as old ones do with new ones."""
    for name in fields:
        if asked.get(name) and not answered.get(name):
            raise FeatureError(
                f"{asked.get('name') or 'the request'}: this server does not support {name!r}; it "
                "ignored the field. Use a newer server"
            )
