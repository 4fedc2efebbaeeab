"""Who looks at the console: sessions, and the connections behind them.

Three ways lead to a session. A server that takes anybody: to open the console is enough. The
command was started with credentials: the address that it prints has a key, and a browser that
brings it acts as that user. And on any server a user may log in with a password or token of their
own; such a session has a connection of its own, so that the server decides what it may do.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from slipstream.client.connection import Connection
from slipstream.client.errors import AuthorizationError
from slipstream.client.jetstream.context import JetStream
from slipstream.console.options import ConsoleOptions
from slipstream.console.sampler import Sampler

SESSIONS_MAX = 256
LOGINS_MAX = 32  # sessions with a connection of their own
IDLE_SECONDS_MAX = 12 * 3600.0


class Credentials(msgspec.Struct, frozen=True):
    """What somebody logs in with: user and password, or a token."""

    user: str = ""
    password: str = ""
    token: str = ""


# Opens a connection: with credentials, or with None as the command line says.
Dial = Callable[[Credentials | None], Awaitable[Connection]]
ContextOf = Callable[[Connection], JetStream]


class Workspace:
    """A connection with its sampler, for one user."""

    def __init__(self, js: JetStream, user: str, options: ConsoleOptions) -> None:
        self.js = js
        self.user = user
        self.sampler = Sampler(js, options.sample_seconds, options.fresh_seconds)
        self._task = asyncio.create_task(self.sampler.run(), name="console sampler")

    @property
    def nc(self) -> Connection:
        """The connection."""
        return self.js.connection

    async def close(self) -> None:
        """End the sampler and the connection."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self.nc.close()


@dataclass(slots=True)
class Session:
    """One browser. `csrf` has to come with everything that changes something."""

    id: str
    workspace: Workspace
    is_own: bool  # the connection ends with the session
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    used: float = field(default_factory=monotonic)
    notices: list[str] = field(default_factory=list)

    def take_notices(self) -> list[str]:
        """What was done since the last page, once."""
        found, self.notices = self.notices, []
        return found


class Sessions:
    """All sessions, and the ways into one."""

    def __init__(
        self, dial: Dial, context_of: ContextOf, options: ConsoleOptions, *, has_credentials: bool
    ) -> None:
        self._dial = dial
        self._context_of = context_of
        self._options = options
        self._by_id: dict[str, Session] = {}
        self._shared: Workspace | None = None
        self.key = secrets.token_urlsafe(24) if has_credentials else ""

    async def open(self) -> None:
        """Connect as the command line says.

        A server that wants credentials where none were given is one to log in to. Raises what
        `connect` raises.
        """
        try:
            self._shared = await self._workspace(None)
        except AuthorizationError:
            if self.key:
                raise

    async def close(self) -> None:
        """Close every connection."""
        for session in list(self._by_id.values()):
            await self.end(session)
        if self._shared is not None:
            await self._shared.close()

    async def _workspace(self, credentials: Credentials | None) -> Workspace:
        connection = await self._dial(credentials)
        user = (credentials.user or "token") if credentials else ""
        return Workspace(self._context_of(connection), user, self._options)

    @property
    def is_open(self) -> bool:
        """Whether anybody may look without logging in."""
        return self._shared is not None and not self.key

    @property
    def needs_login(self) -> bool:
        """Whether nobody can look without logging in."""
        return self._shared is None

    def find(self, session_id: str) -> Session | None:
        """The session of that id, if it is still good."""
        session = self._by_id.get(session_id)
        if session is None or monotonic() - session.used > IDLE_SECONDS_MAX:
            return None
        if session.is_own and session.workspace.nc.is_closed:
            return None  # the server has let go of the user
        session.used = monotonic()
        return session

    async def enter(self, key: str = "") -> Session | None:
        """A session on the shared connection: for anybody, or for who brings the key."""
        is_right = secrets.compare_digest(key.encode(), self.key.encode())
        if self._shared is None or not (is_right or self.is_open):
            return None
        return await self._add(self._shared, is_own=False)

    async def log_in(self, credentials: Credentials) -> Session:
        """A session with a connection of its own. Raises what `connect` raises."""
        return await self._add(await self._workspace(credentials), is_own=True)

    async def _add(self, workspace: Workspace, *, is_own: bool) -> Session:
        for most, sessions in (
            (SESSIONS_MAX, list(self._by_id.values())),
            (LOGINS_MAX, [one for one in self._by_id.values() if one.is_own]),
        ):
            if len(sessions) >= most:
                await self.end(min(sessions, key=lambda one: one.used))
        session = Session(secrets.token_urlsafe(32), workspace, is_own)
        self._by_id[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """Log out."""
        self._by_id.pop(session.id, None)
        if session.is_own:
            await session.workspace.close()
