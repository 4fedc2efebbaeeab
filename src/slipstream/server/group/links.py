"""All connections of a server to the others of its group: one to each of them.

Of two servers the one whose name comes first dials; the other one accepts. Routes are addresses
without names, so a server dials each of them until it knows whose it is, and goes on with those
that are its own to dial; one that leads back to itself is dialled no more. A server that dials
again has lost its connection, also if the other one has not noticed: the new connection takes the
place of the old one, once it is proved. Between two attempts lies a pause that grows, and is random
in part.

A connection that says nothing for `SILENCE` is ended: the other end is gone, or one direction is.
Who says nothing else sends a sign of life each `ALIVE_EVERY`. Connections that have not proved who
they are have a time limit, and there are at most `STRANGERS_MAX`: of more, the oldest one of the
address that has most goes.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec

from slipstream.group import Message, encode
from slipstream.server.group.handshake import NONCE_SIZE, Greeting, Handshake
from slipstream.server.group.link import Link, LinkContexts
from slipstream.server.listeners import BACKLOG, bracketed, cannot_listen, open_listeners
from slipstream.server.logger import Logger

ALIVE_EVERY = 1.0  # s
SILENCE = 4.0  # s
STRANGERS_MAX = 32
_LOOK_EVERY = 0.25  # s, at connections
_PAUSE_MIN = 0.1  # s, before dialling again
_PAUSE_MAX = 5.0
_PAUSE_REFUSED = 1.0  # more, after a server was there and not one to talk to
_JITTER = 0.5  # of a pause, at most
_SAY_EVERY = 10.0  # s, between lines about strangers, and about a server that is not linked


class LinkSettings(msgspec.Struct, kw_only=True):
    """Where to listen, whom to dial, and how each side shows who it is."""

    host: str = "0.0.0.0"
    port: int = 0  # 0 is any free one
    routes: list[tuple[str, int]] = msgspec.field(default_factory=list)  # host, port
    secret: bytes = b""  # what the servers of the group share; empty with TLS alone
    timeout: float = 2.0  # s, to prove it


class LinksOwner(Protocol):
    """Who sends and receives."""

    def greeting(self, nonce: bytes) -> Greeting:
        """What this server says of itself."""

    def may_link(self, greeting: Greeting) -> str:
        """Why a server that has proved to know the secret is not one to talk to; "" if it is."""

    def linked(self, greeting: Greeting) -> None:
        """A connection to a server is there."""

    def unlinked(self, name: str) -> None:
        """A connection to a server has ended, and what was on its way is lost."""

    def received(self, sender: str, messages: list[Message]) -> None:
        """Messages have come."""


class Links:
    """See the module's text."""

    def __init__(
        self,
        name: str,
        settings: LinkSettings,
        owner: LinksOwner,
        log: Logger,
        contexts: LinkContexts | None = None,
        nonce: Callable[[], bytes] = lambda: random.SystemRandom().randbytes(NONCE_SIZE),
    ) -> None:
        self.name = name
        self.port = 0  # where it listens
        self._settings = settings
        self._owner = owner
        self._log = log
        self._contexts = contexts
        self._nonce = nonce
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, Link] = {}  # by name
        self._encoded: tuple[Message | None, bytes] = None, b""  # the last message, and its bytes
        self._unproved: dict[Link, None] = {}  # that were accepted, the oldest first
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._looked_at = 0.0
        self._strangers = 0  # since the last line about them
        self._said_at = -_SAY_EVERY
        self._refused: dict[str, tuple[str, float]] = {}  # why, and when that was said, by name
        self._is_closed = False

    @property
    def names(self) -> set[str]:
        """To whom there is a connection."""
        return set(self._links)

    # -- the beginning, the end ------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and dial. Raises `Error`."""
        settings = self._settings
        try:
            listeners = await open_listeners(settings.host, settings.port)
        except OSError as error:
            what = "Error listening on cluster port"
            raise cannot_listen(
                what, settings.host, settings.port, error, "another port"
            ) from error
        self.port = listeners[0].getsockname()[1]
        for listener in listeners:
            server = await self._loop.create_server(self._accept, sock=listener, backlog=BACKLOG)
            self._servers.append(server)
        self._log.info(f"Listening for servers of the group on {settings.host}:{self.port}")
        if self._contexts is None:
            self._log.warn(
                "The servers of the group prove that they share a secret, but what they say can "
                "be read on the way: give cluster a tls block, or a network of its own"
            )
        for host, port in settings.routes:
            self._tasks.append(self._loop.create_task(self._dial(host, port)))
        self._looked_at = self._loop.time()
        self._tasks.append(self._loop.create_task(self._look()))

    async def stop(self) -> None:
        """End all connections."""
        self._is_closed = True
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for link in [*self._unproved, *self._links.values()]:
            link.close("this server stops")
        self._unproved.clear()
        self._links.clear()

    def rename(self, name: str) -> None:
        """Have this server be known under another name: all connections begin anew."""
        self.name = name
        self.end_all("this server joins the group under another name")

    def end_all(self, why: str) -> None:
        """End the connections that there are: both sides greet each other anew."""
        for link in list(self._links.values()):
            link.close(why)

    # -- messages --------------------------------------------------------------------------------

    def send(self, receiver: str, message: Message) -> None:
        """Queue a message, which leaves with `flush`; without a connection it is dropped."""
        link = self._links.get(receiver)
        if link is None:
            return
        if message is not self._encoded[0]:  # the same entries often go to several servers
            self._encoded = message, encode(message)
        link.send(message, self._encoded[1])

    def flush(self) -> None:
        """Write what waits."""
        self._encoded = None, b""
        for link in tuple(self._links.values()):
            link.flush()

    def received(self, link: Link, messages: list[Message]) -> None:
        """Messages have come."""
        if self._links.get(link.name) is link:
            self._owner.received(link.name, messages)

    # -- connections -----------------------------------------------------------------------------

    def _accept(self) -> Link:
        link = self._new("")
        self._unproved[link] = None
        return link

    def _make_room(self) -> None:
        """End connections that have not proved anything, and are too many."""
        while len(self._unproved) > STRANGERS_MAX:
            hosts = {one: one.address.rpartition(":")[0] for one in self._unproved if one.address}
            if not hosts:
                return
            most, _ = Counter(hosts.values()).most_common(1)[0]
            link = next(one for one, host in hosts.items() if host == most)
            del self._unproved[link]  # its end is heard of later than that of the next one
            why = "too many connections have not proved who they are"
            link.close(why)
            self._say_stranger(link.address, why)

    def _new(self, host: str) -> Link:
        def begin() -> Handshake:
            self._make_room()
            mine = self._owner.greeting(self._nonce())
            link.greeted_as = mine.name
            return Handshake(self._settings.secret, mine, dials=bool(host))

        link = Link(self._loop, self, begin, self._settings.timeout, self._contexts, host)
        return link

    def proved(self, link: Link, greeting: Greeting) -> bool:
        """Who is at the other end is known now; whether the connection is one to keep."""
        self._unproved.pop(link, None)
        name = greeting.name
        if name == self.name or link.greeted_as != self.name or self._is_closed:
            return False
        why = self._owner.may_link(greeting)
        if why:
            link.is_refused = True
            self._say_refused(link.address, name, why)
            return False
        self._refused.pop(name, None)
        if link.is_dialled != (self.name < name):
            self._owner.linked(greeting)  # it is heard of, though the other one has to dial
            return False
        old = self._links.get(name)
        self._links[name] = link
        if old is not None:
            old.close(f"{name} has dialled again")
            self._owner.unlinked(name)
        self._log.info(f"Linked with {name} of the group, at {link.address}")
        self._owner.linked(greeting)
        return True

    def lost(self, link: Link, why: str) -> None:
        """A connection has ended."""
        was_unproved = link in self._unproved
        self._unproved.pop(link, None)
        if self._is_closed:
            return
        if self._links.get(link.name) is link:
            del self._links[link.name]
            self._owner.unlinked(link.name)
            self._log.info(f"Link with {link.name} of the group has ended: {why}")
        elif was_unproved:
            self._say_stranger(link.address, why)

    def _say_stranger(self, address: str, why: str) -> None:
        """A line in the log, but not for each of them."""
        self._strangers += 1
        now = self._loop.time()
        if now < self._said_at + _SAY_EVERY:
            return
        more = f" ({self._strangers} such connections)" if self._strangers > 1 else ""
        self._log.warn(f"{address} is no server of this group: {why}{more}")
        self._said_at, self._strangers = now, 0

    def _say_refused(self, address: str, name: str, why: str) -> None:
        """A line in the log, but not for each attempt."""
        now = self._loop.time()
        before, said_at = self._refused.get(name, ("", 0.0))
        if why == before and now < said_at + _SAY_EVERY:
            return
        if len(self._refused) > STRANGERS_MAX:
            self._refused.clear()
        self._refused[name] = (why, now)
        self._log.error(f"{address} is {_shown(name)}, which is not linked: {why}")

    async def _look(self) -> None:
        """End what is silent, and say that this server is alive."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = self._loop.time()
            was_away = now > self._looked_at + SILENCE / 2  # what has come was not read yet
            self._looked_at = now
            for link in list(self._links.values()):
                if was_away:
                    link.heard_at = max(link.heard_at, now - SILENCE / 2)
                elif now > link.heard_at + SILENCE:
                    link.close(f"it has said nothing for {SILENCE:g} s")
                if now > link.said_at + ALIVE_EVERY:
                    link.say_alive()

    # -- dialling --------------------------------------------------------------------------------

    async def _dial(self, host: str, port: int) -> None:
        failures = 0
        while not self._is_closed:
            link = self._new(host)
            try:
                # Not wait_for: it can lose a cancellation that comes with the connection (3.11).
                async with asyncio.timeout(self._settings.timeout):
                    await self._loop.create_connection(lambda one=link: one, host, port)  # type: ignore[misc]
            except asyncio.CancelledError:
                link.close("this server stops")
                raise
            except (OSError, TimeoutError) as error:
                failures += 1
                self._say_failure(host, port, failures, str(error) or "nobody answers")
            else:
                await asyncio.shield(link.ended)
                if link.name == self.name:
                    self._log.debug(f"The route {host}:{port} leads to this server itself")
                    return
                failures = 0 if link.name else failures + 1
                if not link.name:
                    self._say_failure(host, port, failures, link.why)
                elif link.is_refused:
                    await asyncio.sleep(_PAUSE_REFUSED)
                while link.name > "" and link.name < self.name and link.name in self._links:
                    await asyncio.shield(self._links[link.name].ended)  # it dials this server
            pause = min(_PAUSE_MIN * 2 ** min(failures, 10), _PAUSE_MAX)
            await asyncio.sleep(pause * (1 + _JITTER * random.random()))

    def _say_failure(self, host: str, port: int, failures: int, why: str) -> None:
        """The first attempt and then each tenth one are worth a line."""
        if failures % 10 == 1:
            self._log.warn(
                f"The route {bracketed(host)}:{port} leads to no server of this group "
                f"(attempt {failures}): {why}"
            )


def _shown(name: str) -> str:
    """A name that somebody else has chosen, for the log."""
    return repr(name[:64])
