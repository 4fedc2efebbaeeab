"""Every example of docs/client-data.md runs, one after the other, on both servers."""

import ast
import asyncio
import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.client.own_server import OwnServer

PAGE = Path(__file__).parents[2] / "docs" / "client-data.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if PAGE.exists() else []

pytestmark = pytest.mark.skipif(not BLOCKS, reason="the docs are not beside the tests")


async def test_the_examples_of_the_page_run(own_server: OwnServer) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS:
        source = block.replace("nats://127.0.0.1:4222", own_server.url)
        code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = types.FunctionType(code, namespace)()
        if inspect.isawaitable(made):
            await asyncio.wait_for(made, 20)
    await asyncio.to_thread(namespace["script"])
    await namespace["nc"].close()


def test_a_first_example_has_at_most_ten_lines() -> None:
    assert not [block for block in BLOCKS if len(block.splitlines()) > 10]


async def test_what_users_name_is_at_the_top(own_server: OwnServer) -> None:
    async with await slipstream.connect(own_server.url) as nc:
        js = nc.jetstream()
        kv: slipstream.KeyValue = await js.create_key_value(slipstream.KeyValueConfig(bucket="b"))
        with pytest.raises(slipstream.KeyNotFoundError):
            await kv.get("k")
        config = slipstream.ObjectStoreConfig(bucket="b")
        store: slipstream.ObjectStore = await js.create_object_store(config)
        assert store.bucket == "b"
