"""What the engine's tests run on: streams in memory or in files, and a disk that obeys a test."""

from pathlib import Path
from random import Random

import pytest

from slipstream.log.disk import OsDisk
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk


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


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk that does what a test says, always the same."""
    return SimulatedDisk(Random(1))
