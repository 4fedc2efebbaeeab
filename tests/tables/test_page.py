"""The examples of docs/tables.md run as they stand, with addresses replaced."""

from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.pages import blocks, run

DEFAULT_SERVER = "nats://127.0.0.1:4222"


@pytest.mark.skipif(not blocks("tables.md"), reason="the docs are not beside the tests")
async def test_the_examples_of_the_tables_page_run(
    tables_server: slipstream.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await slipstream.connect(tables_server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(5):
            await js.publish("orders.new", {"number": number})
        names: dict[str, Any] = {}
        for block in blocks("tables.md"):
            await run(block.replace(DEFAULT_SERVER, tables_server.url), names)
            if "write_all" in block:
                await js.publish("orders.new", {"number": 100})
        await js.delete_stream("ORDERS")
    said = capsys.readouterr().out
    assert "rows=5" in said
    assert "[(5,)]" in said
    assert said.endswith("110\n")
