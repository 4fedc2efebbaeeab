"""Bodies in a format with a schema: the registry says what the columns are, and when there are
more."""

import asyncio
import json
import threading
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from slipstream.client.errors import ConnectError
from slipstream.errors import ConfigError
from slipstream.schemas import (
    Avro,
    BucketRegistry,
    CloudEvents,
    Json,
    MessagePack,
    RegistryError,
    SchemaError,
    create_bucket,
    encoder,
    registered,
)
from slipstream.tables import TableOptions, history_and_tail
from slipstream.tables.parts import Wanted
from slipstream.tables.registered_bodies import RegisteredBodies
from tests.tables.conftest import STREAM, Place

pytestmark = pytest.mark.parametrize("place", ["slipstream", "delta", "parquet"], indirect=True)


def avro(*fields: tuple[str, Any]) -> str:
    """A schema of Avro; all but the first field are added later, so they have defaults."""
    first, *others = ({"name": name, "type": kind} for name, kind in fields)
    later = [{**field, "type": ["null", field["type"]], "default": None} for field in others]
    return json.dumps({"type": "record", "name": "Order", "fields": [first, *later]})


class Shop:
    """A registry in a bucket of the place's server."""

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self.registry = BucketRegistry("schemas", url)

    async def publish(self, schema: str, *values: dict[str, Any]) -> None:
        """Register a schema, and publish values that were written with it."""
        form = Avro(registry=self.registry, subject="orders", schema=schema)
        write = encoder(*await registered(form))
        await self.place.publish(*map(write, values))

    @property
    def options(self) -> TableOptions:
        """A table with the newest schema's columns."""
        return TableOptions(schema=Avro(registry=self.registry, subject="orders"), commit_rows=2)


@pytest.fixture
async def shop(place: Place, tables_server: Any) -> Any:
    """An empty registry."""
    await create_bucket(place.js, "schemas")
    yield Shop(place, tables_server.url)
    await place.js.delete_key_value("schemas")


async def test_the_newest_schema_in_the_registry_says_what_the_columns_are(shop: Shop) -> None:
    kinds = [("n", "long"), ("tags", {"type": "array", "items": "string"}),
             ("at", {"type": "long", "logicalType": "timestamp-micros"})]  # fmt: skip
    await shop.publish(avro(*kinds), {"n": 1, "tags": ["a", "b"], "at": None}, {"n": 2})
    await shop.place.publish(b"bad", b"\x00\x00\x00\x00\x63\x02")
    progress = await shop.place.write(shop.options)
    assert (progress.rows, progress.rejected) == (2, 2)
    assert shop.place.rows("n", "tags", "at") == [
        {"n": 1, "tags": ["a", "b"], "at": None},
        {"n": 2, "tags": None, "at": None},
    ]
    reasons = [row["reason"] for row in shop.place.rejected("reason")]
    assert "does not begin with 00" in reasons[0]
    assert "the registry has no schema 99" in reasons[1]


async def test_a_newer_schema_adds_columns_while_the_writer_runs(shop: Shop) -> None:
    await shop.publish(avro(("n", "long")), {"n": 1})
    committed: asyncio.Queue[int] = asyncio.Queue()
    writer = shop.place.writer(
        shop.options, on_commit=lambda done: committed.put_nowait(done.sequence)
    )
    running = asyncio.create_task(writer.run())
    assert await committed.get() == 1
    await shop.publish(avro(("n", "long"), ("place", "string")), {"n": 2, "place": "here"})
    assert await committed.get() == 2
    await shop.publish(avro(("n", "long")), {"n": 3})
    assert await committed.get() == 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [(row["n"], row["place"]) for row in shop.place.rows("n", "place")] == [
        (1, None), (2, "here"), (3, None),
    ]  # fmt: skip


async def test_a_column_that_is_there_keeps_its_type(shop: Shop) -> None:
    await shop.place.publish({"n": 1})
    await shop.place.write()  # JSON: n is long
    await shop.publish(avro(("n", "string")), {"n": "2"}, {"n": "two"})
    progress = await shop.place.write(shop.options)
    assert (progress.rows, progress.rejected) == (1, 1)
    assert [row["n"] for row in shop.place.rows("n")] == [1, 2]
    assert "two" in shop.place.rejected("reason")[0]["reason"]


def inner(*names: str) -> dict[str, Any]:
    """A record that may have these numbers."""
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
    return {"type": "record", "name": "Inner", "fields": fields}


@pytest.mark.parametrize("kind", ["record", "array", "map"])
async def test_a_nested_value_that_the_column_has_no_place_for_is_rejected(
    shop: Shop, kind: str
) -> None:
    def schema(*names: str) -> str:
        nested = {"type": kind, "items": inner(*names), "values": inner(*names)}
        return avro(("n", "long"), ("r", inner(*names) if kind == "record" else nested))

    def value(**numbers: int) -> Any:
        return {"record": numbers, "array": [{}, numbers], "map": {"k": numbers}}[kind]

    await shop.publish(schema("x"), {"n": 1, "r": value(x=1)})
    await shop.place.write(shop.options)
    new = schema("x", "y")
    await shop.publish(new, {"n": 2, "r": value(x=2)}, {"n": 3, "r": value(x=3, y=3)}, {"n": 4})
    progress = await shop.place.write(shop.options)
    assert (progress.rows, progress.rejected) == (2, 1)
    assert [row["n"] for row in shop.place.rows("n")] == [1, 2, 4]
    (rejected,) = shop.place.rejected("_sequence", "reason")
    assert rejected["_sequence"] == 3
    assert "column r has no place for it - at `$.r" in rejected["reason"]


async def test_local_times_are_read_and_merged_as_others(shop: Shop) -> None:
    local = ("at", {"type": "long", "logicalType": "local-timestamp-micros"})
    rows = [{"n": n, "at": datetime(2026, 11, 26, 12)} for n in range(4)]
    await shop.publish(avro(("n", "long"), local), *rows)
    await shop.place.write(replace(shop.options, commit_rows=1))
    table = shop.place.tables(shop.options)
    reader = await history_and_tail(shop.place.js, table)
    found = (await asyncio.to_thread(reader.read_all))["at"].to_pylist()
    assert found == [datetime(2026, 11, 26, 12)] * 4
    if shop.place.kind == "delta":
        part, _ = await asyncio.to_thread(table.read)
        part.tend(replace(shop.options, compact_files=2), deletes_unused=False)
        assert len(part.files(Wanted(STREAM))) == 1


async def test_a_writer_that_ends_with_an_error_leaves_no_thread_of_the_registry(
    shop: Shop,
) -> None:
    await shop.publish(avro(("n", "long")), {"n": 1})
    committed: asyncio.Queue[int] = asyncio.Queue()
    writer = shop.place.writer(
        shop.options, on_commit=lambda done: committed.put_nowait(done.sequence)
    )
    running = asyncio.create_task(writer.run())
    await committed.get()
    await shop.publish(avro(("n", "long"), ("_time", "long")), {"n": 2})
    with pytest.raises(ConfigError, match="the name of a column of the message"):
        await running
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("schemas")]


async def test_a_registry_that_is_away_for_a_moment_is_asked_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.publish(avro(("n", "long")), {"n": 1})
    committed: asyncio.Queue[int] = asyncio.Queue()
    writer = shop.place.writer(
        shop.options, on_commit=lambda done: committed.put_nowait(done.sequence)
    )
    running = asyncio.create_task(writer.run())
    await committed.get()
    pin = RegisteredBodies._pin
    away: list[Exception] = [ConnectError("refused"), RegistryError("it does not answer")]

    def pin_later(bodies: RegisteredBodies) -> None:
        if away:
            raise away.pop()
        pin(bodies)

    monkeypatch.setattr(RegisteredBodies, "_pin", pin_later)
    await shop.publish(avro(("n", "long"), ("place", "string")), {"n": 2, "place": "here"})
    assert await committed.get() == 2
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not away
    assert [row["place"] for row in shop.place.rows("place")] == [None, "here"]


async def test_the_tail_is_read_as_the_writer_will_write_it(shop: Shop) -> None:
    await shop.publish(avro(("n", "long")), {"n": 1})
    await shop.place.write(shop.options)
    await shop.publish(avro(("n", "long"), ("place", "string")), {"n": 2, "place": "here"})
    reader = await history_and_tail(shop.place.js, shop.place.tables(shop.options))
    rows = (await asyncio.to_thread(reader.read_all)).sort_by("_sequence")
    assert rows["n"].to_pylist() == [1, 2]
    assert rows["place"].to_pylist() == [None, "here"]


async def test_a_schema_that_is_no_record_is_refused(shop: Shop) -> None:
    await shop.place.publish(b"\x02")
    with pytest.raises(ConfigError, match="whose values have fields"):
        await shop.place.write(TableOptions(schema=Avro(schema='"long"')))
    with pytest.raises(SchemaError):
        await shop.place.write(shop.options)  # nothing was registered
    schema = json.dumps({"type": "object", "properties": {"N": {}, "n": {}}})
    with pytest.raises(ConfigError, match="differs from column N"):
        await shop.place.write(TableOptions(schema=Json(schema=schema)))


JSON_SCHEMA = json.dumps(
    {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
)


async def test_json_and_messagepack_have_the_columns_of_their_json_schema(place: Place) -> None:
    await place.publish({"n": 1, "s": "a", "more": True}, {"n": "x"})
    await place.write(TableOptions(schema=Json(schema=JSON_SCHEMA)))
    write = MessagePack(schema=JSON_SCHEMA).writer()
    await place.publish(write({"n": 2, "s": "b"}))
    await place.write(TableOptions(schema=MessagePack(schema=JSON_SCHEMA)))
    assert place.rows("n", "s") == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    assert len(place.rejected()) == 1


async def test_cloud_events_have_columns_for_their_attributes_and_data(place: Place) -> None:
    headers = {"ce-id": "1", "ce-source": "/s", "ce-specversion": "1.0", "ce-type": "t"}
    await place.js.publish("orders.x", b'{"n": 5}', headers=headers)
    await place.js.publish("orders.x", b'{"n": 6}')
    progress = await place.write(TableOptions(schema=CloudEvents(Json(schema=JSON_SCHEMA))))
    assert (progress.rows, progress.rejected) == (1, 1)
    (row,) = place.rows("id", "source", "type", "data")
    assert row == {"id": "1", "source": "/s", "type": "t", "data": {"n": 5, "s": None}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": "long"}, [1]),
        ({"type": "map", "values": "long"}, {"a": 1}),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}, {"x": 1}),
        ({"type": "map", "values": {"type": "array", "items": "string"}}, {"a": ["b"]}),
    ],
)
async def test_writers_go_on_with_nested_values_that_the_schema_requires(
    shop: Shop, kind: Any, value: Any
) -> None:
    for number in (1, 2):
        await shop.publish(avro(("n", "long"), ("f", kind)), {"n": number, "f": value})
        assert (await shop.place.write(shop.options)).rows == 1
