"""A connection of the hand-driven engine whose every byte a test writes and reads."""

import json
from collections.abc import Iterable

from slipstream.engine.engine import User
from slipstream.engine.session.account import Account
from slipstream.engine.session.permissions import Permissions
from slipstream.engine.session.session import ClientSession
from slipstream.testing.driver import Driver, RecordingTransport

QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
MODERN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Raw:
    """One connection that has been greeted with `info` and has said nothing yet."""

    def __init__(self, driver: Driver, *opening: bytes) -> None:
        self.driver = driver
        self.transport = RecordingTransport()
        session = driver.engine.open_session(self.transport, ip="10.0.0.7", port=5)
        driver.finish()
        self.turned_away = session is None
        self._session = session
        greeting = self.take()
        first, self.after_greeting = greeting.split(b"\r\n", 1)
        self.info = json.loads(first.removeprefix(b"INFO "))
        assert first.endswith(b"} "), "INFO ends with a blank"
        for data in opening:
            self.say(data)

    @property
    def session(self) -> ClientSession:
        """The engine's side."""
        assert self._session is not None
        return self._session

    def say(self, data: bytes) -> bytes:
        """Send `data` as one read; what came back by the end of the turn."""
        self.session.receive(data)
        self.driver.finish()
        return self.take()

    def take(self) -> bytes:
        """What came since the last call."""
        data, self.transport.written = bytes(self.transport.written), bytearray()
        return data

    @property
    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return self.transport.closed

    @property
    def reason(self) -> str:
        """Why, as monitoring shows it."""
        return self.session.close_reason


class Listed:
    """An authenticator that knows a few users by name; passwords are the names."""

    def __init__(self, users: Iterable[User], nobody: str = "") -> None:
        self._users = {user.name: user for user in users}
        self._nobody = self._users.get(nobody)

    def anonymous(self) -> User | None:
        """Who a client is that says nothing."""
        return self._nobody

    def authenticate(self, session: ClientSession, done: object) -> None:
        """By name."""
        assert callable(done)
        if not session.connect.has_credentials and self._nobody is not None:
            done(self._nobody)
            return
        user = self._users.get(session.connect.user)
        done(user if user is not None and session.connect.password == user.name else None)


def connect_as(name: str, **options: object) -> bytes:
    """CONNECT with a name and its password."""
    said = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
    return b"CONNECT %b\r\n" % json.dumps(said | options | {"user": name, "pass": name}).encode()


def user(name: str, account: str = "$G", permissions: Permissions | None = None) -> User:
    """A user for `Listed`."""
    return User(name, account, permissions)


def account_of(driver: Driver, name: str) -> Account:
    """An account of the driver's engine."""
    return driver.engine.accounts[name]
