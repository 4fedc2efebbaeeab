"""A stream and a table for each test, on both servers."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.tables import Progress, StreamTable, TableOptions, TableWriter, open_catalog
from tests.fix_nats_server import NatsServer

STREAM = "ORDERS"


class Place:
    """A stream, and a folder where its table is."""

    def __init__(self, js: JetStream, folder: Path) -> None:
        self.js = js
        self.folder = folder

    def tables(self, options: TableOptions | None = None, stream: str = STREAM) -> StreamTable:
        """The tables, through a catalog of their own: as another process has them."""
        return StreamTable(open_catalog(str(self.folder)), "orders", stream, options)

    def writer(self, options: TableOptions | None = None, **more: Any) -> TableWriter:
        """A new writer, as after a start."""
        return TableWriter(self.js, STREAM, self.tables(options), options, **more)

    async def write(self, options: TableOptions | None = None) -> Progress:
        """Have a new writer write what the stream holds."""
        return await self.writer(options).write_all()

    async def publish(self, *bodies: Any, subject: str = "orders.new") -> None:
        """Publish bytes as they are, anything else as JSON."""
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            await self.js.publish_async(subject, data)
        await self.js.publish_async_complete()

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """What the table holds, by sequence."""
        return self._read("orders", columns)

    def rejected(self, *columns: str) -> list[dict[str, Any]]:
        """What the table of rejected messages holds, by sequence."""
        return self._read("orders_rejected", columns)

    def _read(self, name: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        table = open_catalog(str(self.folder)).load_table(f"streams.{name}")
        found = table.scan().to_arrow().sort_by("_sequence")
        rows: list[dict[str, Any]] = (found.select(columns) if columns else found).to_pylist()
        return rows

    def sequences(self) -> tuple[list[int], list[int]]:
        """The sequences of rows and of rejected messages."""
        rows, rejected = self.rows("_sequence"), self.rejected("_sequence")
        return [r["_sequence"] for r in rows], [r["_sequence"] for r in rejected]


@pytest.fixture(scope="session")
def tables_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slipstream.Server]:
    """A Slipstream server for the streams of these tests."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("tables"))) as server:
        yield server


@pytest.fixture(params=["slipstream", "nats-server"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty stream, and a folder for its table."""
    if request.param == "slipstream":
        ours: slipstream.Server = request.getfixturevalue("tables_server")
        url = ours.url
    else:
        real: NatsServer = request.getfixturevalue("shared_nats_server")
        url = real.url
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name=STREAM, subjects=["orders.>"])
        yield Place(js, tmp_path / "warehouse")
        await js.delete_stream(STREAM)
