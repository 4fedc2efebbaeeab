"""Tables in a REST catalog: what a small one of our own is asked, and what it answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from slipstream.tables import (
    OtherWriterError,
    Position,
    TableError,
    TableOptions,
    TableWriter,
    history_and_tail,
    stream_table,
)
from slipstream.tables.iceberg import open_catalog
from slipstream.tables.layout import schema_of
from tests.tables.conftest import STREAM, Place

OPTIONS = TableOptions(commit_rows=10, compact_files=2)
POSITION = Position("2024-01-01T00:00:00Z", 1)


class RestCatalog(BaseHTTPRequestHandler):
    """The part of Iceberg's REST protocol that a writer uses, before a catalog in a folder."""

    catalog: Catalog
    lost_answers: list[int]  # commits of these numbers are made, and refused all the same
    commits: int

    def log_message(self, *words: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Whether a namespace is there."""
        self._answer(204 if self._name() in self.catalog.list_namespaces() else 404, None)

    def do_GET(self) -> None:
        """The configuration, or a table."""
        if "/config" in self.path:
            self._answer(200, {"defaults": {}, "overrides": {}})
            return
        try:
            self._answer_table(self.catalog.load_table(self._name()))
        except NoSuchTableError as error:
            self._refuse(404, "NoSuchTableException", error)

    def do_POST(self) -> None:
        """Make a namespace or a table, or commit to one."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = json.loads(body)
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[-1] == "namespaces":
            self.catalog.create_namespace_if_not_exists(tuple(asked["namespace"]))
            self._answer(200, {"namespace": asked["namespace"], "properties": {}})
        elif parts[-1] == "tables":
            made = self.catalog.create_table(
                (*self._name()[:1], asked["name"]),
                schema=Schema.model_validate(asked["schema"]),
                partition_spec=PartitionSpec.model_validate(asked["partition-spec"]),
                properties=asked["properties"],
            )
            self._answer_table(made)
        else:
            self._commit(CommitTableRequest.model_validate_json(body))

    def _commit(self, asked: CommitTableRequest) -> None:
        type(self).commits += 1
        table = self.catalog.load_table(self._name())
        try:
            self.catalog.commit_table(table, asked.requirements, asked.updates)
            if self.commits in self.lost_answers:
                raise CommitFailedException("as an answer to the second of two requests")
        except CommitFailedException as error:
            self._refuse(409, "CommitFailedException", error)
        else:
            self._answer_table(self.catalog.load_table(self._name()))

    def _name(self) -> tuple[str, ...]:
        """Namespace, and table if there is one, of the path."""
        parts = self.path.split("?")[0].strip("/").split("/")
        named = parts[parts.index("namespaces") + 1 :]
        return tuple(part for part in named if part != "tables")

    def _answer_table(self, table: Table) -> None:
        metadata = json.loads(table.metadata.model_dump_json())
        location = table.metadata_location
        self._answer(200, {"metadata-location": location, "metadata": metadata, "config": {}})

    def _refuse(self, code: int, kind: str, error: Exception) -> None:
        self._answer(code, {"error": {"message": str(error), "type": kind, "code": code}})

    def _answer(self, code: int, value: Any) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[str, type[RestCatalog]]]:
    """The URL of a REST catalog, and the class that answers."""
    kept = open_catalog(str(tmp_path / "kept"))
    handler = type("Handler", (RestCatalog,), {"catalog": kept, "lost_answers": [], "commits": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def writer(place: Place, url: str) -> TableWriter:
    """A writer of the table `shop.orders` in the REST catalog."""
    tables = stream_table(url, "shop.orders", STREAM, OPTIONS)
    return TableWriter(place.js, tables)


async def sequences(place: Place, url: str) -> list[int]:
    """Those of the rows of table and tail, and of the rejected messages."""
    table = stream_table(url, "shop.orders", STREAM)
    rows = await history_and_tail(place.js, table, columns=["_sequence"])
    rejected = open_catalog(url).load_table("shop.orders_rejected").scan().to_arrow()
    found: list[int] = [
        *rows.read_all()["_sequence"].to_pylist(),
        *rejected["_sequence"].to_pylist(),
    ]
    return sorted(found)


@pytest.mark.parametrize("place", ["slipstream"], indirect=True)
@pytest.mark.parametrize("lost", [[], [1], [3, 5], [4, 6, 8]])
async def test_a_stream_becomes_a_table_in_a_rest_catalog(
    place: Place, rest: tuple[str, type[RestCatalog]], lost: list[int]
) -> None:
    url, catalog = rest
    catalog.lost_answers = lost
    await place.publish(*({"n": n} if n % 4 else b"bad" for n in range(60)))
    progress = await writer(place, url).write_all()
    assert (progress.rows, progress.rejected) == (45, 15)
    await place.publish({"n": 60})
    assert await sequences(place, url) == list(range(1, 62))
    assert (await writer(place, url).write_all()).rows == 1
    assert await sequences(place, url) == list(range(1, 62))


@pytest.mark.parametrize("place", ["slipstream"], indirect=True)
async def test_a_rest_catalog_refuses_the_earlier_of_two_writers(
    place: Place, rest: tuple[str, type[RestCatalog]]
) -> None:
    url, _ = rest
    await place.publish({"n": 1})
    earlier = stream_table(url, "shop.orders", STREAM)
    position = earlier.open()
    assert position is None
    rows, rejected = (schema_of(part.columns()).empty_table() for part in earlier.read())
    await writer(place, url).write_all()
    with pytest.raises(OtherWriterError):
        earlier.commit({}, rows, rejected, POSITION)


async def test_a_catalog_that_is_not_there_is_said_in_a_line() -> None:
    with pytest.raises(TableError, match=r"catalog http://127.0.0.1:1: it cannot be opened") as it:
        stream_table("http://127.0.0.1:1", "orders", STREAM)
    assert "\n" not in str(it.value)
