"""The collector that tests of telemetry send to."""

from collections.abc import Iterator

import pytest

from tests.server.telemetry.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One that listens."""
    with Collector() as found:
        yield found
