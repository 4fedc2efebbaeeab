"""Tables in an object store: S3, as moto has it on this machine."""

import asyncio
import os

import pyarrow as pa
import pytest
from msgspec.structs import replace

import slipstream
from slipstream.tables import (
    OtherWriterError,
    TableOptions,
    TableWriter,
    history_and_tail,
    stream_table,
)
from slipstream.tables.parts import Wanted
from slipstream.tables.stream_table import StreamTable
from tests.tables.conftest import STREAM, Place

SMALL = TableOptions(commit_rows=10, compact_files=2)
KINDS = ["iceberg", "delta"]


class Store:
    """A stream, and a bucket where its tables are."""

    def __init__(self, place: Place, bucket: str, kind: str) -> None:
        self.place = place
        self.bucket = bucket
        self.kind = kind

    def table(self, options: TableOptions = SMALL) -> StreamTable:
        """The tables, opened by themselves."""
        options = replace(options, format=self.kind)
        if self.kind == "delta":
            return stream_table(self.bucket, "orders", STREAM, options)
        return stream_table(str(self.place.folder), "orders", STREAM, options, self.properties)

    @property
    def properties(self) -> dict[str, str]:
        """Those of a catalog in a folder whose files are in the bucket."""
        return {
            "warehouse": self.bucket,
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }

    async def read(self, *columns: str) -> pa.Table:
        """Table and tail, by sequence."""
        reader = await history_and_tail(self.place.js, self.table(), columns=columns or None)
        found = await asyncio.to_thread(reader.read_all)
        return found.sort_by("_sequence")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, place: Place, s3_bucket: str) -> Store:
    """An empty bucket for a format."""
    return Store(place, s3_bucket, request.param)


pytestmark = pytest.mark.parametrize("place", ["slipstream"], indirect=True)


async def test_a_stream_becomes_a_table_in_a_bucket(store: Store) -> None:
    await store.place.publish(*({"n": n} if n % 5 else b"bad" for n in range(50)))
    progress = await TableWriter(store.place.js, store.table()).write_all()
    assert (progress.rows, progress.rejected) == (40, 10)
    assert (await TableWriter(store.place.js, store.table()).write_all()).rows == 0
    await store.place.publish({"n": 50, "new": "x"})
    await TableWriter(store.place.js, store.table()).write_all()
    await store.place.publish({"n": 51})
    found = await store.read()
    assert found["n"].to_pylist() == [n for n in range(52) if n % 5 or n == 50]
    assert found["new"].to_pylist()[-3:] == [None, "x", None]
    rows, rejected = store.table().read()
    assert all(path.startswith(store.bucket) for path in rows.files(Wanted(STREAM)))
    assert rejected.position(STREAM) is not None


async def test_many_commits_in_a_bucket_are_merged_and_lose_nothing(store: Store) -> None:
    await store.place.publish(*({"n": n} for n in range(400)))
    progress = await TableWriter(store.place.js, store.table()).write_all()
    assert progress.commits == 40
    rows, _ = store.table().read()
    assert len(rows.files(Wanted(STREAM))) < 40
    rows.tend(SMALL, deletes_unused=True)
    assert (await store.read("_sequence", "n"))["n"].to_pylist() == list(range(400))


async def test_the_earlier_of_two_writers_in_a_bucket_stops(store: Store) -> None:
    await store.place.publish({"n": 1}, b"bad")
    committed = asyncio.Event()
    writer = TableWriter(store.place.js, store.table(), lambda progress: committed.set())
    running = asyncio.create_task(writer.run())
    await committed.wait()
    await TableWriter(store.place.js, store.table()).write_all()
    await store.place.publish({"n": 2}, b"bad, too")
    with pytest.raises(OtherWriterError):
        await running
    await TableWriter(store.place.js, store.table()).write_all()
    assert (await store.read("_sequence"))["_sequence"].to_pylist() == [1, 3]


async def test_what_is_wrong_with_a_bucket_is_said_in_a_line(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    await store.place.publish({"n": 1})
    with pytest.raises(slipstream.Error, match="opening it failed") as raised:
        await TableWriter(store.place.js, store.table()).write_all()
    assert str(raised.value).count("\n") == 0
