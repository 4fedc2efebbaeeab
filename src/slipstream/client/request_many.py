"""One request, many answers: from several responders, or one that answers in pieces."""

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from slipstream.client.errors import NoRespondersError
from slipstream.client.inbox import Request
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike, Payload
from slipstream.client.route import Sink

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

Sentinel = Callable[[Message], bool]


class Answers(Sink):
    """Keeps answers until they are taken."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.error: Exception | None = None
        self.arrived = asyncio.Event()

    def deliver(self, message: Message) -> None:
        """An answer."""
        self.messages.append(message)
        self.arrived.set()

    def failed(self, error: Exception) -> None:
        """None will come any more."""
        self.error = error
        self.arrived.set()

    async def next(self, deadline: float) -> Message | None:
        """The next answer; None if there is none up to `deadline` (loop time)."""
        while not self.messages:
            if self.error is not None:
                raise self.error
            self.arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self.arrived.wait()
            except builtins.TimeoutError:
                return None
        return self.messages.popleft()


async def request_many(
    connection: "Connection",
    subject: str,
    data: Payload,
    headers: HeadersLike | None,
    *,
    max_messages: int | None,
    timeout: float,
    stall: float | None,
    sentinel: Sentinel | None,
    kind: Any,
) -> AsyncGenerator[Message, None]:
    """See `Connection.request_many`."""
    if connection.outbox.crowded:
        await connection.outbox.room()
    answers = Answers()
    request = Request(subject, None, answers)
    reply = connection.open_reply(request)
    try:
        request.position = connection.outbox.publish(subject, data, reply, headers)
        deadline = end = connection.loop.time() + timeout
        left = max_messages
        while left is None or left > 0:
            message = await answers.next(deadline)
            if message is None:
                return
            if message.status == 503 and not message.data:
                raise NoRespondersError(subject)
            message.expect(kind)
            if sentinel is not None and sentinel(message):
                return
            yield message
            if left is not None:
                left -= 1
            if stall is not None:
                deadline = min(end, connection.loop.time() + stall)
    finally:
        connection.close_reply(request)
