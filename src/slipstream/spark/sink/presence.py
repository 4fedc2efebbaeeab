"""Whether an attempt at a task can still publish: as long as its connection is there.

The headers that would have a server refuse the rows of an attempt that was overtaken are stored
with each row, and longer than many a row. Instead each attempt listens on an inbox, on the
connection over which it publishes, and says in its marker which one that is. A later attempt asks
there, and waits until nobody listens any more. Then the connection has ended: a server takes in
what came over a connection before it lets go of the connection's subscriptions, and an attempt
never opens another one without a new marker (`reconnect` is off). What the server has taken in is
stored, or refused, before what it takes in later: `settled` asks it for an answer.

An attempt that is asked ends its connection at once, whatever its task is doing. One that does not
answer (a process that was stopped, a host that is gone without a word) is waited for until the
server drops its connection; until then the batch does not go on, and nothing is written twice.

All that needs a server that says when nobody listens. A client that subscribes to all subjects
listens on every inbox, also on those of attempts that have gone: so an inbox that nobody has is
asked first (`check_unheard`).
"""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slipstream.client.errors import (
    ClientError,
    NoRespondersError,
    PermissionsError,
    TimeoutError,
)
from slipstream.client.jetstream.errors import ApiError, PublishError, WrongLastSequenceError
from slipstream.errors import ConfigError, Error

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.client.message import Message

_ASK_SECONDS = 0.5
_ASK_AGAIN_SECONDS = 0.1
_UNHEARD_TIMES = 3  # servers of a cluster hear of each other's subscriptions a little later
_PROBE_SECONDS = 5.0  # a server that does not answer for so long is not slow
_NEVER = 2**62  # no stream has this sequence
_POLL_SECONDS = 0.02


class PresentError(Error):
    """An earlier attempt still has its connection, and does not answer."""


class OverheardError(Error):
    """Somebody listens on all inboxes: whether an attempt has gone cannot be found out."""


class Presence:
    """The presence of one attempt; `connect` is called for each of its connections."""

    def __init__(self) -> None:
        self.was_asked = False
        self.inbox = ""
        self._connection: Connection | None = None
        self._closing: asyncio.Task[None] | None = None

    async def connect(self, connection: "Connection") -> None:
        """Listen over this connection, until its end."""
        self._connection = connection
        self.inbox = connection.new_inbox()
        await connection.subscribe(self.inbox, handler=self._go)

    async def _go(self, message: "Message") -> None:
        """A later attempt asks: end the connection."""
        self.was_asked = True
        await message.respond(b"")
        assert self._connection is not None
        self._closing = asyncio.create_task(self._connection.close())

    async def outlive(self, inboxes: Iterable[str], retry_timeout: float) -> None:
        """Wait until nobody listens on these inboxes.

        Raises `PresentError` after `retry_timeout` s, and `OverheardError`.
        """
        inboxes = list(inboxes)
        if not inboxes:
            return
        assert self._connection is not None
        await check_unheard(self._connection, min(retry_timeout, _PROBE_SECONDS))
        await asyncio.gather(*(self._outlive(inbox, retry_timeout) for inbox in inboxes))

    async def _outlive(self, inbox: str, retry_timeout: float) -> None:
        assert self._connection is not None
        deadline = time.monotonic() + retry_timeout
        unheard = 0
        while True:
            try:
                await self._connection.request(inbox, b"", timeout=_ASK_SECONDS)
                unheard = 0
            except NoRespondersError:
                unheard += 1
                if unheard == _UNHEARD_TIMES:
                    return
            except TimeoutError:
                unheard = 0
            if time.monotonic() > deadline:
                raise PresentError(
                    f"an earlier attempt at this task is still connected (it listens on {inbox}) "
                    f"and has not answered for {retry_timeout:g} s: its process may be stopped, or "
                    "its host gone. The batch goes on when that connection ends: end the process, "
                    "or wait until the server drops the connection (see its ping_interval)"
                )
            await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def check_unheard(connection: "Connection", wait: float = _PROBE_SECONDS) -> None:
    """Raise `OverheardError` unless the server says within `wait` s that nobody listens."""
    try:
        await connection.request(connection.new_inbox(), b"", timeout=wait)
    except NoRespondersError:
        return
    except TimeoutError as error:
        reason: Exception | None = error
    else:
        reason = None
    raise OverheardError(
        "a client of this account subscribes to all subjects, or to all inboxes (as `nats sub '>'` "
        "does; a stream on > as well): then the server does not say when an earlier attempt at a "
        "task has gone. End that client, have it subscribe to less, or give Spark's user an "
        "account of its own"
    ) from reason


async def check_inboxes(connection: "Connection") -> None:
    """Raise `ConfigError` if attempts cannot be asked, or cannot be told from those that are gone.

    That would show when the first attempt has failed and the next one looks for it.
    """
    inbox = connection.new_inbox()

    async def answer(message: "Message") -> None:
        await message.respond(b"")

    try:
        listening = await connection.subscribe(inbox, handler=answer)
        await connection.request(inbox, b"", timeout=_PROBE_SECONDS)
        await listening.unsubscribe()
        await check_unheard(connection)
    except (PermissionsError, NoRespondersError, TimeoutError) as error:
        raise ConfigError(
            f"jetstream: an attempt at a task is asked on its inbox, {inbox}, and this user cannot "
            f"be ({error}). Let it subscribe to _INBOX.> and publish to _INBOX.>, or to those "
            "inboxes that begin with the connection's inbox prefix"
        ) from error
    except OverheardError as error:
        raise ConfigError(f"jetstream: {error}") from error


async def settled(
    js: "JetStream", stream: "Stream", subjects: list[str], retry_timeout: float
) -> int:
    """The last sequence of a stream once all is stored that its server has received so far.

    A message with a condition that cannot hold takes its turn after what the server has received,
    and is refused with the last sequence, that of writes under way included. `subjects` are tried
    in turn: one may be denied.
    """
    last = await _last_received(js, stream, subjects, retry_timeout)
    deadline = time.monotonic() + retry_timeout
    while (await stream.info()).state.last_seq < last:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"stream {stream.name} has not stored up to its sequence {last} within "
                f"{retry_timeout:g} s: is its disk slow, or a majority of its replicas away?"
            )
        await asyncio.sleep(_POLL_SECONDS)
    return last


async def _last_received(
    js: "JetStream", stream: "Stream", subjects: list[str], retry_timeout: float
) -> int:
    deadline = time.monotonic() + retry_timeout
    left = list(subjects)
    while True:
        try:
            await js.publish(
                left[0], b"", expected_stream=stream.name, expected_last_sequence=_NEVER
            )
        except WrongLastSequenceError as error:
            if error.last_sequence is not None:
                return error.last_sequence
        except (ApiError, ClientError, PublishError, ValueError):
            if len(left) == 1:
                raise
            del left[0]
            continue
        if time.monotonic() > deadline:
            raise TimeoutError(f"stream {stream.name} does not say what its last sequence is")
        await asyncio.sleep(_POLL_SECONDS)


def some_subject(stream: "Stream") -> str:
    """A subject that a stream takes."""
    first = (stream.config.subjects or [stream.name])[0]
    tokens = ("_slipstream" if token in ("*", ">") else token for token in first.split("."))
    return ".".join(tokens)
