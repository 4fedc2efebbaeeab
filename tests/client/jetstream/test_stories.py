"""The programs that users know from NATS's documentation, and every example of the docs."""

import ast
import asyncio
import inspect
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.client.own_server import OwnServer

ROOT = Path(__file__).parents[3]


async def run(program: str, url: str) -> list[str]:
    """What an example prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / program),
        url,
        env=os.environ | {"PYTHONPATH": str(Path(slipstream.__file__).parents[1])},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


async def test_the_walk_through_a_hundred_orders(own_server: OwnServer) -> None:
    lines = await run("orders_walk.py", own_server.url)
    assert lines[0] == "published 100 messages"
    assert lines[1:11] == [f"fetched   hello message {n}" for n in range(10)]
    assert lines[11] == "handled   hello message 10 to hello message 19"
    assert lines[12] == "iterated  hello message 20 to hello message 99"


async def test_the_shop_with_typed_orders(own_server: OwnServer) -> None:
    lines = await run("shop_orders.py", own_server.url)
    assert lines[:2] == ["order 1 stored as 1", "order 2 stored as 2"]
    assert lines[10:] == [f"processing order {n}: item {n}" for n in range(1, 11)]


async def test_the_story_of_the_interest_stream(own_server: OwnServer) -> None:
    assert await run("interest_stream.py", own_server.url) == [
        "without consumers: 0 messages, last sequence 2",
        "with one consumer: 3 messages, last sequence 5",
        "two acknowledged: 1 messages, last sequence 5",
        "one of two has seen it all: 2 messages, last sequence 6",
        "both have: 0 messages, last sequence 6",
        "processor-3 waits for 0",
        "terminated counts as seen: 0 messages, last sequence 7",
    ]


async def test_the_story_of_the_mirrored_archive(own_server: OwnServer) -> None:
    assert await run("mirrored_archive.py", own_server.url) == [
        "ORDERS: 3 messages, 8 to 10",
        "ARCHIVE: 10 messages, 1 to 10",
        "LARGE: 2 messages, 1 to 2",
        "LARGE has order 10 from ORDERS",
        "ARCHIVE still has message 1: order 1",
        "ARCHIVE is now the stream itself: order 11 is message 11",
    ]


async def test_the_story_of_the_rate_limited_queue(tmp_path: Path) -> None:
    with slipstream.Server(store_dir=str(tmp_path / "store")) as server:
        assert await run("rate_limited_queue.py", server.url) == [
            "0 mails are left in the queue",
            "anna@slow.example: not acknowledged after 3 deliveries",
            "nobody: 'nobody' is no address",
            "dead letters that remain: nobody",
        ]


async def test_the_story_of_the_delayed_jobs(own_server: OwnServer) -> None:
    assert await run("delayed_jobs.py", own_server.url) == [
        "2 plans are stored",
        "jobs.early: remind early",
        "jobs.late: remind late",
        "plans that are left: 0",
    ]


async def test_the_story_of_the_page_counters(own_server: OwnServer) -> None:
    assert await run("page_counters.py", own_server.url) == [
        "east: 45",
        "west: 50",
        "large enough: True",
        "everywhere: 95 and 2**70",
    ]


async def test_the_example_of_the_page_about_dead_letters_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "dead-letters.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with slipstream.Server(store_dir=str(tmp_path / "store")) as server:
        async with await slipstream.connect(server.url) as nc:
            code = compile(block, "dead-letters.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            namespace: dict[str, Any] = {"js": nc.jetstream()}
            await asyncio.wait_for(types.FunctionType(code, namespace)(), 10)
            assert namespace["consumer"].cached_info.config.dead_letter == "dead.mails"


async def test_the_example_of_the_page_about_mirrors_runs(own_server: OwnServer) -> None:
    page = (ROOT / "docs" / "mirrors.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    async with await slipstream.connect(own_server.url) as nc:
        code = compile(block, "mirrors.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        namespace: dict[str, Any] = {"js": nc.jetstream()}
        await asyncio.wait_for(types.FunctionType(code, namespace)(), 10)
        shown = (await namespace["everything"].info()).sources
        assert sorted(source.name for source in shown) == ["ORDERS", "RETURNS"]


PAGE = ROOT / "docs" / "client-jetstream.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if PAGE.exists() else []


async def test_the_examples_of_the_page_run_one_after_the_other(own_server: OwnServer) -> None:
    namespace: dict[str, Any] = {}
    for block in BLOCKS:
        source = block.replace("nats://127.0.0.1:4222", own_server.url)
        code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = types.FunctionType(code, namespace)()
        if inspect.isawaitable(made):
            await asyncio.wait_for(made, 10)
    await namespace["nc"].close()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_has_at_most_ten_lines(number: int) -> None:
    assert len(BLOCKS[number].strip().splitlines()) <= 10
