"""A store directory of nats-server is refused, with a message that says what it is."""

from pathlib import Path

import nats
import pytest

from slipstream import Server
from slipstream.errors import StorageError
from slipstream.server.store_check import StoreUnavailable, check_store
from tests.fix_nats_server import NatsServer, stop_nats_server


async def test_a_server_does_not_start_on_a_store_of_nats_server(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    await client.jetstream().add_stream(name="ORDERS", subjects=["orders"])
    await client.jetstream().publish("orders", b"one")
    await client.close()
    stop_nats_server(nats_server)
    before = sorted(nats_server.store_dir.rglob("*"))
    with pytest.raises(StorageError, match=r"is a store directory of nats-server .*ORDERS"):
        async with Server(store_dir=str(nats_server.store_dir)):
            pass
    refused = pytest.raises(StoreUnavailable, match="is a store directory of nats-server")
    with refused, check_store(str(nats_server.store_dir)):
        pass
    assert sorted(nats_server.store_dir.rglob("*")) == before


async def test_a_stream_may_be_called_streams(tmp_path: Path) -> None:
    for _ in range(2):
        async with Server(store_dir=str(tmp_path)) as server:
            client = await nats.connect(server.url)
            await client.jetstream().add_stream(name="streams", subjects=["s"])
            await client.jetstream().publish("s", b"one")
            await client.close()
