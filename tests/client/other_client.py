"""nats-py beside this client, on the same server: what one writes the other reads."""

from collections.abc import AsyncIterator

import nats
import pytest
from nats.js.client import JetStreamContext


@pytest.fixture
async def other(server_url: str) -> AsyncIterator[JetStreamContext]:
    """nats-py's JetStream context."""
    connection = await nats.connect(server_url)
    yield connection.jetstream()
    await connection.close()
