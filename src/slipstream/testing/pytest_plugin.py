"""pytest fixtures: a JetStream server for tests, without a binary, a port or a container.

    async def test_orders(jetstream_url):
        async with await slipstream.connect(jetstream_url) as nc:
            ...

`jetstream_server` is a `slipstream.Server` of the test's own, in a thread, on a free port, with an
empty store in a temporary directory. `jetstream_url` is its URL. `jetstream_group` is a
`slipstream.Group` of three servers, also of the test's own; `jetstream_group_size` says how many.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slipstream.server import Group, Server


@pytest.fixture
def jetstream_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Server]":
    """A running server with an empty store; stopped, and its store removed, after the test."""
    from slipstream.server import Server

    with Server(store_dir=str(tmp_path_factory.mktemp("jetstream"))) as server:
        yield server


@pytest.fixture
def jetstream_url(jetstream_server: "Server") -> str:
    """Where clients connect to `jetstream_server`."""
    return jetstream_server.url


@pytest.fixture
def jetstream_group_size() -> int:
    """How many servers `jetstream_group` has, 3; a test, a module or a `conftest.py` may say 1, 2
    or 5 by parameters or by a fixture of this name."""
    return 3


@pytest.fixture
def jetstream_group(
    tmp_path_factory: pytest.TempPathFactory, jetstream_group_size: int
) -> "Iterator[Group]":
    """A running group of servers with empty stores; stopped after the test."""
    from slipstream.server import Group

    with Group(jetstream_group_size, tmp_path_factory.mktemp("jetstream-group")) as group:
        yield group
