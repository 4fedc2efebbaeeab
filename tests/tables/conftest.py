"""A stream and a table for each test: on both servers, and in each format."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.tables import Progress, StreamTable, TableOptions, TableWriter, stream_table
from slipstream.tables.iceberg import open_catalog
from tests.fix_nats_server import NatsServer

STREAM = "ORDERS"
ON_ICEBERG = pytest.mark.parametrize("place", ["slipstream", "nats-server"], indirect=True)


class KilledError(BaseException):
    """Nothing catches this: the writer ends where it is."""


class Place:
    """A stream, and a folder where its table is, in a format."""

    def __init__(self, js: JetStream, folder: Path, kind: str = "iceberg") -> None:
        self.js = js
        self.folder = folder
        self.kind = kind

    def tables(self, options: TableOptions | None = None, stream: str = STREAM) -> StreamTable:
        """The tables, opened by themselves: as another process has them."""
        options = replace(options or TableOptions(), format=self.kind)
        return stream_table(str(self.folder), "orders", stream, options)

    def writer(self, options: TableOptions | None = None, **more: Any) -> TableWriter:
        """A new writer, as after a start."""
        return TableWriter(self.js, self.tables(options), **more)

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
        found = self.table(name).sort_by("_sequence")
        rows: list[dict[str, Any]] = (found.select(columns) if columns else found).to_pylist()
        return rows

    def table(self, name: str) -> pa.Table:
        """A table, as a library reads it that knows the format and nothing of us."""
        if self.kind == "iceberg":
            return open_catalog(str(self.folder)).load_table(f"streams.{name}").scan().to_arrow()
        folder = self.folder / "streams" / name
        if self.kind == "delta":
            # By files: what Arrow reads through delta-rs may end the process with SIGABRT.
            plain = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
            return DeltaTable(folder).to_pyarrow_table(filesystem=plain)
        found = ds.dataset(folder, format="parquet", exclude_invalid_files=False)
        schemas = [fragment.physical_schema for fragment in found.get_fragments()]
        whole = pa.unify_schemas(schemas) if schemas else pa.schema([("_sequence", pa.int64())])
        return ds.dataset(folder, schema=whole, format="parquet").to_table()

    def sequences(self) -> tuple[list[int], list[int]]:
        """The sequences of rows and of rejected messages."""
        rows, rejected = self.rows("_sequence"), self.rejected("_sequence")
        return [r["_sequence"] for r in rows], [r["_sequence"] for r in rejected]


@pytest.fixture(scope="session")
def tables_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slipstream.Server]:
    """A Slipstream server for the streams of these tests."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("tables"))) as server:
        yield server


@pytest.fixture(params=["slipstream", "nats-server", "delta", "parquet"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty stream, and a folder for its table; a format is tried on our own server."""
    kind = "iceberg"
    if request.param == "nats-server":
        real: NatsServer = request.getfixturevalue("shared_nats_server")
        url = real.url
    else:
        ours: slipstream.Server = request.getfixturevalue("tables_server")
        url = ours.url
        kind = request.param if request.param != "slipstream" else kind
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name=STREAM, subjects=["orders.>"])
        yield Place(js, tmp_path / "warehouse", kind)
        await js.delete_stream(STREAM)
