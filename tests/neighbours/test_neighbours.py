"""The recipes of docs/neighbours.md, with the packages that they are about, on a server of ours."""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.pages import ROOT, blocks, run

PAGE = "neighbours.md"
WAIT_SECONDS = 30.0
AIRFLOW_SECONDS = 180.0  # of one command

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


async def _airflow(home: Path, *arguments: str) -> str:
    """What an Airflow command has said, at a `home` of its own."""
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        "PYTHONPATH": os.pathsep.join([str(home / "plugins"), *filter(None, sys.path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airflow", *arguments),
        env=os.environ | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said = (await asyncio.wait_for(running.communicate(), AIRFLOW_SECONDS))[0].decode()
    finally:
        if running.returncode is None:
            running.kill()
    assert running.returncode == 0, said
    return said


@pytest.mark.timeout(600)
async def test_airflow_publishes_and_waits_for_a_message(
    server: slipstream.Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not find_spec("airflow"):
        pytest.skip("apache-airflow-core is not installed")
    home = tmp_path_factory.mktemp("airflow")
    dag, plugin = (block for block in blocks(PAGE) if "from airflow" in block)
    for path, text in (("dags/billing.py", dag), ("plugins/waiting.py", plugin)):
        (home / path).parent.mkdir(parents=True)
        (home / path).write_text(text.replace("nats://127.0.0.1:4222", server.url))
    async with slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.>"])
        await js.create_stream(name="INVOICES", subjects=["invoices"])
        await js.create_consumer("INVOICES", durable_name="airflow", ack_wait=600)

        orders = await nc.subscribe("orders.new")

        async def bill() -> None:
            async for order in orders:
                await js.publish("invoices", f"invoice {order.data.decode()}")

        billing = asyncio.create_task(bill())
        await nc.flush()
        await _airflow(home, "db", "migrate")
        said = await _airflow(home, "dags", "test", "billing")
        billing.cancel()
        info = await js.consumer_info("INVOICES", "airflow")
    with closing(sqlite3.connect(home / "airflow.db")) as kept:
        returned = kept.execute("SELECT value FROM xcom WHERE task_id = 'invoice'").fetchall()
    assert [json.loads(value) for (value,) in returned] == ["invoice 7"], said
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 1)


async def test_taskiq_gives_out_tasks_and_keeps_results(server: slipstream.Server) -> None:
    pytest.importorskip("taskiq_nats", reason="taskiq-nats is not installed")
    from taskiq.api import run_receiver_task

    names = await _done("taskiq_nats", server.url)
    broker, sent = names["broker"], names["sent"]
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        result = await sent.wait_result(timeout=WAIT_SECONDS)
        assert (result.is_err, result.return_value) == (False, 42)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
    async with slipstream.connect(server.url) as nc:
        assert (await nc.jetstream().stream_info("TASKS")).state.last_seq == 1
