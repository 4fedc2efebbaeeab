"""Tables are read back by everything that reads Iceberg, and with the stream's tail by us."""

import asyncio
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from slipstream.client.arrow.scan import Scan
from slipstream.tables import (
    StreamReplacedError,
    TableError,
    TableOptions,
    TableWriter,
    history_and_tail,
)
from slipstream.tables.iceberg import open_catalog
from tests.tables.conftest import ON_ICEBERG, STREAM, Place

SMALL = TableOptions(commit_rows=10)


async def read(place: Place, **more: Any) -> pa.Table:
    """History and tail as one table, by sequence as far as it is read."""
    reader = await history_and_tail(place.js, place.tables(), **more)
    found = await asyncio.to_thread(reader.read_all)
    return found.sort_by("_sequence") if "_sequence" in found.column_names else found


@ON_ICEBERG
async def test_duckdb_and_polars_read_the_same_sums(place: Place) -> None:
    await place.publish(*({"n": n, "x": n / 4} for n in range(1000)), b"bad")
    await place.write(TableOptions(commit_rows=250))
    table = open_catalog(str(place.folder)).load_table("streams.orders")
    wanted = (1000, sum(range(1000)), sum(range(1000)) / 4)
    frame = polars.scan_iceberg(table).select(polars.len(), polars.sum("n"), polars.sum("x"))
    assert frame.collect().row(0) == wanted
    connection = table.scan().to_duckdb("orders")
    assert connection.sql("SELECT count(*), sum(n), sum(x) FROM orders").fetchall() == [wanted]
    files = [task.file.file_path for task in table.scan().plan_files()]
    plain = duckdb.read_parquet(files).aggregate("count(*), sum(n), sum(x)")
    assert plain.fetchall() == [wanted]


async def test_history_and_tail_have_each_row_once(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(25)), b"bad")
    await place.write(SMALL)
    assert (await read(place))["n"].to_pylist() == list(range(25))
    await place.publish({"n": 25}, b"bad", {"n": 26, "new": "x"})
    found = await read(place)
    assert found["_sequence"].to_pylist() == [*range(1, 26), 27, 29]
    assert found["new"].to_pylist() == [None] * 26 + ["x"]
    assert (await read(place, columns=["new", "n"])).column_names == ["new", "n"]
    with pytest.raises(TableError, match="no column nothing"):
        await read(place, columns=["nothing"])


async def test_the_tail_has_the_subjects_that_the_writer_takes(place: Place) -> None:
    options = TableOptions(subjects=("orders.new",))
    await place.publish({"n": 1})
    await place.publish({"n": 2}, subject="orders.old")
    await place.write(options)
    await place.publish({"n": 3})
    await place.publish({"n": 4}, subject="orders.old")
    reader = await history_and_tail(place.js, place.tables(options))
    assert (await asyncio.to_thread(reader.read_all))["n"].to_pylist() == [1, 3]


async def test_a_tail_that_is_archived_while_it_is_read_is_read_from_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TableOptions(archive=True)
    await place.publish(*({"n": n} for n in range(5)))
    await place.write(options)
    await place.publish(*({"n": n} for n in range(5, 10)))
    scan = Scan.__anext__
    archived = False

    async def archive_first(self: Scan) -> Any:
        nonlocal archived
        if not archived:
            archived = True
            await place.write(options)
        return await scan(self)

    monkeypatch.setattr(Scan, "__anext__", archive_first)
    assert (await read(place))["n"].to_pylist() == list(range(10))


async def test_rows_of_other_streams_are_not_given(place: Place) -> None:
    await place.js.create_stream(name="OTHER", subjects=["other.>"])
    try:
        await place.publish({"n": 1}, subject="other.x")
        await place.publish({"n": 2})
        await TableWriter(place.js, place.tables(stream="OTHER")).write_all()
        await place.write()
        assert (await read(place))["n"].to_pylist() == [2]
    finally:
        await place.js.delete_stream("OTHER")


async def test_a_tail_of_another_stream_than_the_tables_is_refused(place: Place) -> None:
    await place.publish({"n": 1})
    place.tables().open()
    with pytest.raises(TableError, match="nothing of stream ORDERS was written"):
        await read(place)
    await place.write()
    await place.js.delete_stream(STREAM)
    await place.js.create_stream(name=STREAM, subjects=["orders.>"])
    with pytest.raises(StreamReplacedError, match="is not the one"):
        await read(place)
