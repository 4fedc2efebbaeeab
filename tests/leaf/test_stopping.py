"""A server that stops while it dials its hub."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.server.leaf.remote import RemoteLink
from slipstream.server.options import LeafNodesOptions, LeafRemoteOptions
from slipstream.server.runtime import Runtime
from tests.fix_nats_server import WAIT_SECONDS


async def test_a_link_stops_also_at_the_moment_at_which_it_reaches_its_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    dialled, connected = asyncio.Event(), loop.create_future()

    async def connect(_make: object, _host: str, _port: int) -> tuple[None, Any]:
        dialled.set()
        await connected
        return None, SimpleNamespace(ended=loop.create_future())

    monkeypatch.setattr(loop, "create_connection", connect)
    accounts = {"$G": None}
    runtime = SimpleNamespace(loop=loop, engine=SimpleNamespace(accounts=accounts))
    options = LeafRemoteOptions(urls=["nats-leaf://127.0.0.1:1"], account="$G")
    link = RemoteLink(cast(Runtime, runtime), options, LeafNodesOptions())
    link.start()
    await dialled.wait()
    connected.set_result(None)
    stopping = asyncio.ensure_future(link.stop())
    done, _ = await asyncio.wait([stopping], timeout=WAIT_SECONDS)
    assert done
