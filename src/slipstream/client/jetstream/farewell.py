"""Consumers that nobody wants any more: the server is told, and nobody waits for its answer.

The word may be lost with its connection; then it is said again on the next one. And it may come too
early: nats-server makes a consumer and deletes one at the same time, so that whoever gave up while
the consumer was being made may be told that there is none, just before there is one. What never
arrives does no lasting harm: these consumers have an `inactive_threshold` and fade away.
"""

from typing import TYPE_CHECKING

from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    OutboundBufferFullError,
)
from slipstream.client.jetstream.api import read_answer
from slipstream.client.jetstream.errors import ConsumerNotFoundError
from slipstream.client.message import Message
from slipstream.client.requests import Request
from slipstream.client.subscriptions import Sink
from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

# A consumer whose making nobody heard of is looked for this often, in 6 s altogether.
TRIES_MAX = 7
WAIT_FIRST_SECONDS = 0.05
WAIT_FOR_ROOM_SECONDS = 0.25


def forget_consumer(
    js: "JetStream", stream: str, name: str, *, is_being_made: bool = False
) -> None:
    """Delete a consumer, on the next connection if there is none now; nothing is awaited.

    With `is_being_made` it was asked for and no answer came: it may be there only later.
    """
    Farewell(js, stream, name, TRIES_MAX if is_being_made else 1).say()


class Farewell(Sink):
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
