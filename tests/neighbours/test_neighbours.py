"""The recipes of docs/neighbours.md, with the packages that they are about, on a server of ours."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.pages import ROOT, blocks, run

PAGE = "neighbours.md"
WAIT_SECONDS = 30.0

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs" / PAGE).exists(), reason="the docs are not beside the tests"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[slipstream.Server]:
    """A server of the test's own."""
    with slipstream.Server(store_dir=str(tmp_path)) as running:
        yield running


async def _done(package: str, url: str) -> dict[str, Any]:
    """The names that the recipe of a package has made, on the server at `url`."""
    names: dict[str, Any] = {"__name__": __name__}  # taskiq looks for the module of a task
    begun = False
    for block in blocks(PAGE):
        begun = f"from {package}" in block or (begun and "from " not in block)
        if begun:
            await run(block.replace("nats://127.0.0.1:4222", url), names)
    assert len(names) > 1
    return names


async def test_faststream_reads_a_stream_and_publishes(server: slipstream.Server) -> None:
    pytest.importorskip("faststream.nats", reason="faststream[nats] is not installed")
    names = await _done("faststream", server.url)
    broker = names["broker"]
    invoices: asyncio.Queue[str] = asyncio.Queue()

    @broker.subscriber("invoices")  # type: ignore[untyped-decorator]
    async def note(text: str) -> None:
        await invoices.put(text)

    async with broker:
        await broker.start()
        await broker.publish({"id": 7}, "orders.new", stream="ORDERS")
        assert await asyncio.wait_for(invoices.get(), WAIT_SECONDS) == "invoice 7"
    async with slipstream.connect(server.url) as nc:
        info = await nc.jetstream().consumer_info("ORDERS", "billing")
    assert info.num_pending == 0


async def test_taskiq_gives_out_tasks_and_keeps_results(server: slipstream.Server) -> None:
    pytest.importorskip("taskiq_nats", reason="taskiq-nats is not installed")
    from taskiq.api import run_receiver_task

    names = await _done("taskiq_nats", server.url)
    broker, task = names["broker"], names["task"]
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        result = await task.wait_result(timeout=WAIT_SECONDS)
        assert (result.is_err, result.return_value) == (False, 42)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
    async with slipstream.connect(server.url) as nc:
        assert (await nc.jetstream().stream_info("TASKS")).state.last_seq == 1
