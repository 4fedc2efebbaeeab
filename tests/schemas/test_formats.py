"""Bodies become columns, whatever they are written in; what cannot be read has a reason."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import ConfigError
from slipstream.schemas import (
    Avro,
    Body,
    CloudEvents,
    Decoded,
    Decoder,
    EventDecoder,
    Json,
    MessagePack,
    Protobuf,
    RestRegistry,
    SchemaError,
    SchemaNotFoundError,
    encoder,
    json_schema_of,
    registered,
)
from slipstream.schemas.framing import message_indexes, message_place
from tests.schemas import shop
from tests.schemas.stub_registry import serve

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, UTC)


async def decoded(form: Body, *bodies: bytes | None) -> Decoded:
    """What has come of bodies, with a decoder of their own."""
    decoder = Decoder(await form.pinned())
    try:
        return await decoder.decode(bodies)
    finally:
        await decoder.close()


def values(found: Decoded) -> list[Any]:
    made: list[Any] = found.values.to_pylist(maps_as_pydicts="strict")
    return made


async def test_avro_is_read_with_every_type_that_columns_have() -> None:
    schema = {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "ok", "type": "boolean"},
            {"name": "small", "type": "int"},
            {"name": "large", "type": ["null", "long"]},
            {"name": "number", "type": ["int", "long"]},
            {"name": "ratio", "type": "float"},
            {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["A", "B"]}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "prices", "type": {"type": "map", "values": "State"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "milli", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "micro", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {
                "name": "sum",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
    value = {
        "ok": True,
        "small": -1,
        "large": None,
        "number": 2**40,
        "ratio": 0.5,
        "raw": b"xy",
        "state": "B",
        "tags": ["a"],
        "prices": {"k": "A"},
        "day": date(2026, 1, 2),
        "milli": NOON.replace(microsecond=123000),
        "micro": NOON,
        "id": "9e0a60ef-7a3b-4f5e-8f86-0c3f0d3b5a53",
        "sum": Decimal("12.34"),
    }
    form = Avro(schema=json.dumps(schema))
    body = shop.avro_body(schema, value)
    found = await decoded(form, body)
    assert found.reasons.to_pylist() == [None]
    assert values(found) == [value]
    assert found.values.type.field("milli").type == pa.timestamp("us", "UTC")
    assert encoder(form, None)(value) == body


async def test_a_time_is_in_the_readers_unit_even_if_the_writer_had_a_mere_number() -> None:
    field: dict[str, Any] = {"name": "at", "type": "long"}
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": [field]}
    logical = {"type": "long", "logicalType": "timestamp-millis"}
    wanted = {**record, "fields": [{"name": "at", "type": logical}]}
    with serve() as stub:
        identity = stub.add("s", json.dumps(record))
        stub.add("s", json.dumps(wanted))
        form = Avro(registry=RestRegistry(stub.url), subject="s")
        body = shop.framed(identity, shop.avro_body(record, {"at": 1500}))
        (row,) = values(await decoded(form, body))
    assert row["at"] == datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)


async def test_bodies_of_every_version_are_resolved_into_the_newest_one() -> None:
    with serve() as stub:
        old = stub.add("orders", json.dumps(shop.FIRST))
        new = stub.add("orders", json.dumps(shop.SECOND))
        form = Avro(registry=RestRegistry(stub.url), subject="orders")
        found = await decoded(
            form,
            shop.framed(old, shop.avro_body(shop.FIRST, {"number": 1, "note": "x"})),
            shop.framed(new, shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5})),
        )
    assert values(found) == [{"number": 1, "amount": 1.5}, {"number": 2, "amount": 2.5}]
    asked = [path for _, path, _ in stub.requests]
    assert asked == ["/subjects/orders/versions/latest", f"/schemas/ids/{old}"]


async def test_a_readers_schema_that_is_given_decides() -> None:
    with serve() as stub:
        new = stub.add("orders", json.dumps(shop.SECOND))
        form = Avro(schema=json.dumps(shop.FIRST), registry=RestRegistry(stub.url))
        body = shop.framed(new, shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5}))
        wider = Avro(
            schema=json.dumps({**shop.SECOND, "fields": shop.SECOND["fields"][:1]}),
            registry=RestRegistry(stub.url),
        )
        assert values(await decoded(wider, body)) == [{"number": 2}]
        (reason,) = (await decoded(form, body)).reasons.to_pylist()
    assert reason.startswith("it cannot be read: Schema mismatch")


async def test_what_cannot_be_read_costs_no_other_row_and_has_its_reason() -> None:
    with serve() as stub:
        known = stub.add("orders", json.dumps(shop.SECOND))
        other = stub.add("things", '{"type": "object", "properties": {}}', "JSON")
        body = shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5})
        found = await decoded(
            Avro(registry=RestRegistry(stub.url), subject="orders"),
            shop.framed(known, body),
            b"{}",
            b"",
            None,
            shop.framed(99, body),
            shop.framed(other, body),
            shop.framed(known, body[:-1]),
            shop.framed(known, body + b"more"),
        )
    assert [value is not None for value in values(found)] == [True] + [False] * 7
    assert found.reasons.to_pylist() == [
        None,
        "it does not begin with 00 and a schema id of 4 bytes",
        "it does not begin with 00 and a schema id of 4 bytes",
        "there is no payload",
        "the registry has no schema 99",
        f"schema {other}: it was written with a schema of JSON, not of AVRO",
        "it cannot be read: cannot read double from the body",
        "4 bytes are left after its end",
    ]


async def test_avro_schemas_that_refer_to_others_are_gathered() -> None:
    inner = {"type": "enum", "name": "shop.State", "symbols": ["OPEN", "PAID"]}
    outer = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "state", "type": "shop.State"}],
    }
    whole = {**outer, "fields": [{"name": "state", "type": inner}]}
    with serve() as stub:
        stub.add("state", json.dumps(inner))
        needs = [{"name": "shop.State", "subject": "state", "version": 1}]
        identity = stub.add("orders", json.dumps(outer), references=needs)
        form = Avro(registry=RestRegistry(stub.url), subject="orders")
        body = shop.framed(identity, shop.avro_body(whole, {"state": "PAID"}))
        assert values(await decoded(form, body)) == [{"state": "PAID"}]


async def test_ids_of_eight_bytes_are_read_where_the_framing_is_apicurios() -> None:
    with serve() as stub:
        identity = stub.add("orders", json.dumps(shop.SECOND))
        form = Avro(registry=RestRegistry(stub.url), subject="orders", framing="apicurio")
        body = shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5})
        found = await decoded(form, shop.framed(identity, body, 8), shop.framed(identity, body))
    assert values(found)[0] == {"number": 2, "amount": 2.5}
    assert found.reasons.to_pylist()[1] is not None


ORDER = {
    "number": 7,
    "items": [{"name": "pear", "count": Decimal(2**63)}],
    "prices": {"pear": 1.5},
    "at": NOON,
    "state": "PAID",
    "gift": None,
}


async def test_protobuf_is_read_by_its_descriptors() -> None:
    form = Protobuf(message="shop.Order", descriptors=shop.descriptors())
    found = await decoded(form, encoder(form, None)(ORDER), b"\xff", b"")
    assert values(found)[0] == ORDER
    assert found.reasons.to_pylist()[1].startswith("it is no message shop.Order")
    assert values(found)[2] == {
        "number": 0,
        "items": [],
        "prices": {},
        "at": None,
        "state": "OPEN",
        "gift": None,
    }
    last_part = Protobuf(message="Item", descriptors=shop.descriptors())
    assert last_part.arrow_type().names == ["name", "count"]
    with pytest.raises(SchemaError, match=r"no one message Nothing: .*shop\.Shop"):
        Protobuf(message="Nothing", descriptors=shop.descriptors()).arrow_type()


async def test_protobuf_comes_from_a_registry_with_what_it_imports() -> None:
    with serve() as stub:
        stub.add("time", shop.serialized(shop.timestamp_file()), "PROTOBUF")
        needs = [{"name": "google/protobuf/timestamp.proto", "subject": "time", "version": 1}]
        identity = stub.add("orders", shop.serialized(shop.proto_file()), "PROTOBUF", needs)
        registry = RestRegistry(stub.url)
        form = Protobuf(message="shop.Order", registry=registry, subject="orders")
        pinned, known = await registered(form)
        assert known == identity
        body = encoder(pinned, known)(ORDER)
        assert body[:7] == b"\0\0\0\0\x02\x02\x02"  # id 2; one index, which is 1
        shop_body = body[:5] + b"\0" + b"\x0a\x01x"
        found = await decoded(form, body, shop_body)
        assert values(found)[0] == ORDER
        assert found.reasons.to_pylist()[1] == "it is a message shop.Shop, not shop.Order"
        stub.is_source_only = True
        with pytest.raises(SchemaError, match="source text"):
            await form.pinned()
        stub.is_source_only = False
        stub.cannot_serialize = True
        with pytest.raises(SchemaError, match=r"Syntax error in shop\.proto; give the format"):
            await form.pinned()
        stub.cannot_serialize = False
        stub.add(
            "alone", shop.serialized(shop.proto_file()), "PROTOBUF"
        )  # what comes with Protobuf
        alone = Protobuf(message="shop.Order", registry=registry, subject="alone")
        assert values(await decoded(alone, body)) == [ORDER]
        given = Protobuf(message="Order", descriptors=shop.descriptors(), registry=registry)
        assert values(await decoded(given, body)) == [ORDER]


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=5))
def test_the_place_of_a_message_is_read_as_it_was_written(indexes: list[int]) -> None:
    place = message_place(indexes)
    assert message_indexes(place + b"rest", 0) == (indexes, len(place))


def test_a_place_that_is_cut_or_endless_is_an_error() -> None:
    for broken in (b"", b"\x04\x02", b"\xff" * 20, b"\x01", b"\xfe\xff\xff\x01"):
        with pytest.raises(SchemaError):
            message_indexes(broken, 0)


async def test_json_and_messagepack_are_read_by_a_json_schema() -> None:
    value = {"number": 1, "at": "2026-01-02T12:00:00.123456Z", "tags": ["a"], "any": {"x": [1]}}
    row = {"number": 1, "at": NOON, "tags": ["a"], "any": '{"x":[1]}'}
    for form, pack in (
        (Json(schema=shop.JSON_SCHEMA), msgspec.json.encode),
        (MessagePack(schema=shop.JSON_SCHEMA), msgspec.msgpack.encode),
    ):
        found = await decoded(form, pack(value), pack({"number": "x"}), pack({}), b"\xc1", None)
        assert values(found) == [row, None, None, None, None]
        assert found.reasons.to_pylist()[1:3] == [
            "Expected `int`, got `str` - at `$.number`",
            "Object missing required field `number`",
        ]
        (again,) = values(await decoded(form, encoder(form, None)({"number": 2, "tags": None})))
        assert again == {"number": 2, "at": None, "tags": None, "any": None}


async def test_a_json_schema_may_come_from_a_type_or_a_registry() -> None:
    class Item(msgspec.Struct):
        name: str
        extra: dict[str, int] | list[int] | None = None

    class Order(msgspec.Struct):
        items: list[Item]
        at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    schema = json_schema_of(Order)
    body = b'{"items": [{"name": "pear", "extra": [1]}], "at": "2026-01-02T12:00:00.123456Z"}'
    row = {"items": [{"name": "pear", "extra": "[1]"}], "at": NOON}
    assert values(await decoded(Json(schema=schema), body)) == [row]
    with serve() as stub:
        form = Json(schema=schema, registry=RestRegistry(stub.url), subject="orders")
        pinned, identity = await registered(form)
        assert identity == 1
        written = encoder(pinned, identity)({"items": []})
        assert written == b'\0\0\0\0\x01{"items":[]}'
        from_registry = Json(registry=RestRegistry(stub.url), subject="orders")
        found = values(await decoded(from_registry, shop.framed(1, body), written))
        assert found == [row, {"items": [], "at": None}]


def header(**values_of: str) -> dict[str, list[str]]:
    return {name.replace("_", "-"): [value] for name, value in values_of.items()}


EVENT = header(
    ce_id="1", ce_source="/shop", ce_specversion="1.0", ce_type="order", ce_trace="a%20b"
)


async def test_events_are_read_in_both_modes_with_their_data() -> None:
    decoder = EventDecoder(await CloudEvents(Json(schema=shop.JSON_SCHEMA)).pinned())
    structured = {
        "id": "2",
        "source": "/shop",
        "specversion": "1.0",
        "type": "order",
        "time": "2026-01-02T12:00:00.123456Z",
        "trace": 5,
        "data": {"number": 2},
    }
    text = msgspec.json.encode(structured)
    kind = header(content_type="application/cloudevents+json; charset=utf-8")
    found = await decoder.decode(
        [b'{"number": 1}', text, text, b"{}", b"x", b"[]", b'{"number": "x"}', b""],
        [
            EVENT | header(content_type="application/json"),
            kind,
            None,
            kind,
            header(content_type="text/plain"),
            header(content_type="application/cloudevents-batch+json"),
            EVENT,
            EVENT,
        ],
    )
    rows = found.values.to_pylist(maps_as_pydicts="strict")
    assert [row and (row["id"], row["extensions"]) for row in rows] == [
        ("1", {"trace": "a b"}),
        ("2", {"trace": "5"}),
        ("2", {"trace": "5"}),
        None,
        None,
        None,
        None,
        ("1", {"trace": "a b"}),
    ]
    assert [row["data"] and row["data"]["number"] for row in rows if row] == [1, 2, 2, None]
    assert (rows[0]["datacontenttype"], rows[1]["time"]) == ("application/json", NOON)
    assert found.reasons.to_pylist()[3:7] == [
        "an event needs id, source, specversion, type",
        "it is no event: no header ce-specversion, and it is text/plain",
        "it is a batch of events, which NATS has no messages for",
        "its data: Expected `int`, got `str` - at `$.number`",
    ]


async def test_the_data_of_an_event_may_be_bytes_or_avro() -> None:
    text = json.dumps(
        {"id": "1", "source": "s", "specversion": "1.0", "type": "t", "data_base64": "eHk="}
    )
    plain = await EventDecoder(CloudEvents()).decode([text.encode()], [None])
    assert plain.values.to_pylist()[0]["data"] == b"xy"
    body = shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5})
    inner = Avro(schema=json.dumps(shop.SECOND))
    found = await EventDecoder(CloudEvents(inner)).decode([body], [EVENT])
    assert found.values.to_pylist()[0]["data"] == {"number": 2, "amount": 2.5}


def test_schemas_that_no_column_can_hold_are_errors_that_say_so() -> None:
    node: dict[str, Any] = {"type": "record", "name": "Node", "fields": []}
    node["fields"] = [{"name": "next", "type": ["null", "Node"]}]
    union = {**node, "fields": [{"name": "x", "type": ["int", "string"]}]}
    for form, told in (
        (Avro(schema=json.dumps(node)), "itself within itself"),
        (Avro(schema=json.dumps(union)), "a union of int32, string"),
        (Avro(schema="{"), "not valid"),
        (Json(schema='{"type": "object"}'), "no columns"),
        (Json(schema='{"$ref": "#/x"}'), "has no #/x"),
        (Protobuf(descriptors=b"\xff"), "not valid"),
    ):
        with pytest.raises(SchemaError, match=told):
            form.arrow_type()
    with pytest.raises(ConfigError, match="needs a registry"):
        Avro(subject="orders")
    with pytest.raises(SchemaError, match="framing"):
        Avro(schema="x", framing="kafka")  # type: ignore[arg-type]


async def test_what_is_not_in_the_registry_is_named() -> None:
    with serve() as stub:
        with pytest.raises(SchemaNotFoundError, match="orders"):
            await Avro(registry=RestRegistry(stub.url), subject="orders").pinned()
        with pytest.raises(ConfigError, match="give the subject"):
            await Avro(registry=RestRegistry(stub.url)).pinned()
