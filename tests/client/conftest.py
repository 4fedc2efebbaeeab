"""Every client test runs against both servers: Slipstream and the real nats-server."""

from collections.abc import AsyncIterator, Iterator

import pytest

import slipstream
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
