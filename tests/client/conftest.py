"""Every client test runs against both servers: Slipstream and the real nats-server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy
from tests.client.waiting import LoopClock
from tests.fix_nats_server import NatsServer

SERVERS = ("slipstream", "nats-server")


@pytest.fixture(scope="session")
def shared_slipstream(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[slipstream.Server]":
    """One Slipstream server for a test process; tests use names of their own on it."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("slipstream"))) as server:
        yield server


@pytest.fixture(params=SERVERS)
def server_url(request: pytest.FixtureRequest) -> str:
    """Where a server with JetStream listens, which other tests use too."""
    if request.param == "slipstream":
        shared: slipstream.Server = request.getfixturevalue("shared_slipstream")
        return shared.url
    real: NatsServer = request.getfixturevalue("shared_nats_server")
    return real.url


@pytest.fixture
async def nc(server_url: str) -> "AsyncIterator[slipstream.Connection]":
    """An open connection."""
    async with await slipstream.connect(server_url) as connection:
        yield connection


@pytest.fixture(params=SERVERS)
def make_server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], OwnServer]]:
    """Starts servers of the test's own, from the text of a configuration file."""
    started: list[OwnServer] = []

    def make(config: str = "") -> OwnServer:
        server = OwnServer(request.param, tmp_path / f"server-{len(started)}", config)
        started.append(server)
        return server.start()

    yield make
    for server in started:
        server.stop()


@pytest.fixture
def own_server(make_server: Callable[[str], OwnServer]) -> OwnServer:
    """A server of the test's own, which may be stopped and started."""
    return make_server("")


@pytest.fixture
async def proxy(server_url: str) -> AsyncIterator[Proxy]:
    """Bad weather in front of a shared server."""
    async with Proxy(server_url) as made:
        yield made


@pytest.fixture
async def clock() -> LoopClock:
    """The time of the test's loop, which the client takes for its own."""
    return LoopClock(asyncio.get_running_loop())


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    """Fails a test that leaves a task of the client running."""
    yield
    left = [t for t in asyncio.all_tasks() if t.get_name().startswith("slipstream")]
    assert not left


@pytest.fixture
async def nothing_reaches_the_loop() -> AsyncIterator[None]:
    """Fails a test in which the event loop had to report an error."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    yield
    assert not reported
