"""Both servers, as the client's tests have them, and places of each kind."""

from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from slipstream.backups import DirectoryStore, ObjectStore, Place, Store
from tests.client.conftest import (
    make_server,
    nc,
    own_server,
    server_url,
    shared_slipstream,
)
from tests.client.jetstream.conftest import js, make_stream

__all__ = [
    "js",
    "make_server",
    "make_stream",
    "nc",
    "own_server",
    "server_url",
    "shared_slipstream",
]

MAKERS: dict[str, Callable[[Path], Store]] = {
    "directory": DirectoryStore,
    "memory": lambda _: ObjectStore(MemoryStore(), "here/"),
    "local": lambda path: ObjectStore(LocalStore(path, mkdir=True)),
}


@pytest.fixture(params=list(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind that this machine has by itself."""
    return MAKERS[request.param](tmp_path / "place")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place in a directory."""
    return Place(DirectoryStore(tmp_path / "place"))
