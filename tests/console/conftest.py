"""The console in front of both servers, asked as a browser asks it."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import slipstream
import slipstream.sync
from slipstream.cli.session import Settings
from slipstream.client.jetstream.api import new_name
from slipstream.console.app import make_app
from slipstream.console.command import sessions_for
from slipstream.console.options import ConsoleOptions
from tests.fix_nats_server import NatsServer

ADDRESS = "http://127.0.0.1:8380"
SERVERS = ("slipstream", "nats-server")


class Console:
    """A browser's part: it keeps the cookie, and sends the token of the page it is on."""

    def __init__(self, url: str, options: ConsoleOptions, **settings: Any) -> None:
        self.sessions = sessions_for(Settings(server=url, no_context=True, **settings), options)
        self.client = TestClient(
            make_app(options, self.sessions), base_url=ADDRESS, follow_redirects=False
        )

    def __enter__(self) -> "Console":
        self.client.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.client.__exit__(*error)

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        """A page's text."""
        answer = self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    def token(self) -> str:
        """What pages send with whatever changes something."""
        found = re.search(r'"X-CSRF-Token": "([^"]+)"', self.get("/connections"))
        assert found
        return found[1]

    def post(
        self, path: str, status: int = 204, files: Any = None, token: str = "", **form: str
    ) -> str:
        """Do something; where it leads to, or what is said instead."""
        headers = {
            "origin": ADDRESS,
            "x-csrf-token": token or self.token(),
            "hx-request": "true",
        }
        answer = self.client.post(path, data=form, files=files, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.headers.get("hx-redirect", answer.text)


@pytest.fixture(scope="session")
def shared_slipstream(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[slipstream.Server]":
    """One Slipstream server for a test process; tests use names of their own on it."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("slipstream"))) as server:
        yield server


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """Where a server listens that other tests use too."""
    if request.param == "slipstream":
        shared: slipstream.Server = request.getfixturevalue("shared_slipstream")
        return shared.url
    real: NatsServer = request.getfixturevalue("shared_nats_server")
    return real.url


@pytest.fixture
def own_url(shared_slipstream: "slipstream.Server") -> str:
    """Where the Slipstream server listens."""
    return shared_slipstream.url


MakeConsole = Callable[..., Console]


@pytest.fixture
def make_console() -> Iterator[MakeConsole]:
    """Opens consoles: with a server's URL, options of the console, and of the connection."""
    opened: list[Console] = []

    def make(url: str, settings: dict[str, Any] | None = None, **options: Any) -> Console:
        made = Console(url, ConsoleOptions(fresh_seconds=0.0, **options), **(settings or {}))
        opened.append(made.__enter__())
        return made

    yield make
    for one in opened:
        one.__exit__(None, None, None)


@pytest.fixture
def console(url: str, make_console: MakeConsole) -> Console:
    """A console in front of the server."""
    return make_console(url)


@pytest.fixture
def js(url: str) -> "Iterator[Any]":
    """The server's JetStream, without await."""
    with slipstream.sync.connect(url) as nc:
        yield nc.jetstream()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return new_name()
