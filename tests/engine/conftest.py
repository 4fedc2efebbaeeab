"""Drivers for the engine's tests: streams in memory, or in files of a temporary directory."""

from pathlib import Path

import pytest

from slipstream.log.disk import OsDisk
from slipstream.testing.driver import Client, Driver


@pytest.fixture
def driver() -> Driver:
    """An engine whose streams all lie in memory."""
    return Driver().start()


@pytest.fixture
def client(driver: Driver) -> Client:
    """A connection to `driver`."""
    return driver.client()


@pytest.fixture
def file_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """An engine that keeps its streams in files."""
    monkeypatch.chdir(tmp_path)
    return Driver(OsDisk()).start()
