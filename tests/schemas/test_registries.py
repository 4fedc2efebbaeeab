"""Registries: a bucket, and what speaks Confluent's protocol. Both keep the same promises."""

import asyncio
import base64
import json
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.errors import ConfigError
from slipstream.schemas import (
    Avro,
    BucketRegistry,
    Decoder,
    IncompatibleSchemaError,
    RegistryError,
    RestRegistry,
    Schema,
    SchemaBucket,
    SchemaError,
    SchemaNotFoundError,
    create_bucket,
    encoder,
    registered,
)
from slipstream.schemas.avro import check_readable
from tests.schemas import shop
from tests.schemas.stub_registry import StubRegistry, serve


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


NUMBER = {"name": "number", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
FIRST, SECOND = Schema("AVRO", avro(NUMBER)), Schema("AVRO", avro(NUMBER, NOTE))


@pytest.fixture
async def js(jetstream_url: str) -> Any:
    async with await slipstream.connect(jetstream_url) as nc:
        yield nc.jetstream()


@pytest.fixture
async def bucket(js: JetStream) -> SchemaBucket:
    return await create_bucket(js, "B" + uuid.uuid4().hex)


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with serve() as registry:
        yield registry


async def test_versions_follow_each_other_and_ids_are_for_ever(bucket: SchemaBucket) -> None:
    first = await bucket.register("orders", FIRST)
    second = await bucket.register("orders", SECOND)
    assert first != second
    assert await bucket.register("orders", FIRST) == first
    assert await bucket.register("shop.orders", FIRST) == first
    latest = await bucket.latest("orders")
    assert (latest.version, latest.id, latest.schema) == (2, second, SECOND)
    assert await bucket.schema(first) == FIRST
    assert await bucket.subjects() == ["orders", "shop.orders"]
    with pytest.raises(SchemaNotFoundError, match="no schema 99"):
        await bucket.schema(99)
    with pytest.raises(SchemaNotFoundError, match="subject nothing"):
        await bucket.latest("nothing")


async def test_writers_who_register_at_once_get_ids_of_their_own(js: JetStream) -> None:
    name = "B" + uuid.uuid4().hex
    buckets = [await create_bucket(js, name) for _ in range(4)]
    schemas = [Schema("AVRO", avro(NUMBER, {**NOTE, "name": f"n{n}"})) for n in range(4)]
    ids = await asyncio.gather(
        *(one.register("orders", schema) for one, schema in zip(buckets, schemas, strict=True))
    )
    assert sorted(ids) == [1, 2, 3, 4]
    found, _ = await buckets[0].subject("orders")
    assert sorted(found.versions) == [1, 2, 3, 4]
    assert [await buckets[0].schema(one) for one in ids] == schemas


async def test_a_version_that_cannot_read_the_last_one_is_refused(bucket: SchemaBucket) -> None:
    await bucket.register("orders", FIRST)
    needed = Schema("AVRO", avro(NUMBER, {"name": "customer", "type": "string"}))
    for attempt in (bucket.check, bucket.register):
        with pytest.raises(IncompatibleSchemaError, match=r"\.customer is new and has no default"):
            await attempt("orders", needed)
    with pytest.raises(SchemaError, match="AVRO, not of JSON"):
        await bucket.register("orders", Schema("JSON", shop.JSON_SCHEMA))
    with pytest.raises(SchemaError, match="not valid"):
        await bucket.register("orders", Schema("AVRO", '{"type": "record"}'))
    with pytest.raises(SchemaError, match="letters, digits"):
        await bucket.register("a subject", FIRST)
    assert (await bucket.latest("orders")).version == 1
    await bucket.check("others", needed)
    assert await bucket.register("orders", needed, "NONE") == 2
    assert await bucket.register("orders", SECOND) == 3  # NONE is kept


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("int", "long", ""),
        ("int", "string", ".f is string and was int"),
        ("long", "int", ".f is int and was long"),
        ("string", "bytes", ""),
        ("string", ["null", "string"], ""),
        (["null", "string"], "string", ".f is string and was null"),
        (["null", "int"], ["null", "string"], ".f may be int"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, ""),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, ".f.values is int"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "no symbol B any more",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            "",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "has 3 bytes and had 2",
        ),
    ],
)
def test_compatible_is_what_avros_rules_of_resolution_say(old: Any, new: Any, why: str) -> None:
    writer, reader = (avro({"name": "f", "type": kind}) for kind in (old, new))
    if not why:
        check_readable("s", reader=reader, writer=writer)
        return
    with pytest.raises(IncompatibleSchemaError, match=why.replace(".", r"\.")):
        check_readable("s", reader=reader, writer=writer)


def test_a_renamed_field_and_a_type_within_itself_are_compatible() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    check_readable("s", reader=json.dumps(node), writer=json.dumps(node))
    alias = {"name": "id", "type": "long", "aliases": ["number"]}
    check_readable("s", reader=avro(alias), writer=avro(NUMBER))


async def test_every_kind_of_schema_has_its_place_in_a_bucket(bucket: SchemaBucket) -> None:
    descriptors = base64.b64encode(shop.descriptors()).decode()
    for number, schema in enumerate(
        (Schema("PROTOBUF", descriptors), Schema("JSON", shop.JSON_SCHEMA)), 1
    ):
        assert await bucket.register(f"s{number}", schema) == number
        assert await bucket.schema(number) == schema
    with pytest.raises(SchemaError, match="base64"):
        await bucket.register("s3", Schema("PROTOBUF", "message X {}"))


async def test_a_format_writes_and_reads_with_a_bucket(js: JetStream, jetstream_url: str) -> None:
    name = "B" + uuid.uuid4().hex
    bucket = await create_bucket(js, name)
    registry = BucketRegistry(name, servers=jetstream_url)
    form = Avro(schema=FIRST.text, registry=registry, subject="orders")
    assert pickle.loads(pickle.dumps(form)) == form
    pinned, identity = await registered(form)
    body = encoder(pinned, identity)({"number": 5})
    await bucket.register("orders", SECOND)
    reading = await Avro(registry=registry, subject="orders").pinned()
    decoder = Decoder(reading)
    found = await decoder.decode([body])
    await decoder.close()
    assert found.values.to_pylist() == [{"number": 5, "note": None}]
    with pytest.raises(RegistryError, match="slipstream schema add"):
        await Avro(registry=BucketRegistry("none", jetstream_url), subject="x").pinned()


async def test_confluents_protocol_registers_checks_and_says_who_asks(stub: StubRegistry) -> None:
    address = RestRegistry(stub.url + "/", user="me", password="secret")
    async with address.open() as registry:
        assert await registry.register("a/b", FIRST) == 1
        assert (await registry.latest("a/b")).schema == FIRST
        await registry.check("a/b", SECOND)
        await registry.check("new", SECOND)
        stub.refuses = True
        with pytest.raises(IncompatibleSchemaError, match="a reason"):
            await registry.check("a/b", SECOND)
        with pytest.raises(IncompatibleSchemaError, match="409 Schema being registered"):
            await registry.register("a/b", SECOND)
        with pytest.raises(SchemaNotFoundError, match="404 Schema not found"):
            await registry.schema(99)
    assert stub.requests[0][1] == "/subjects/a%2Fb/versions"
    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    assert {told for _, _, told in stub.requests} == {basic}
    assert "secret" not in repr(address)
    async with RestRegistry(stub.url, token="t").open() as registry:
        await registry.schema(1)
    assert stub.requests[-1][2] == "Bearer t"


def _schema_of(*files: Any) -> Schema:
    from google.protobuf import descriptor_pb2

    made = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return Schema("PROTOBUF", base64.b64encode(made).decode())


async def test_protobuf_is_registered_as_one_file(stub: StubRegistry) -> None:
    from google.protobuf import descriptor_pb2

    files = [descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3") for name in "ab"]
    several = _schema_of(*files)
    async with RestRegistry(stub.url).open() as registry:
        with_known = _schema_of(shop.timestamp_file(), shop.proto_file())
        assert await registry.register("a", with_known) == 1
        assert await registry.schema(1) == _schema_of(shop.proto_file())
        with pytest.raises(SchemaError, match="imports others"):
            await registry.register("b", several)


async def test_a_registry_that_does_not_answer_is_no_fault_of_the_bodies(
    stub: StubRegistry,
) -> None:
    identity = stub.add("orders", FIRST.text)
    pinned = await Avro(registry=RestRegistry(stub.url), subject="orders").pinned()
    away = Avro(registry=RestRegistry("http://127.0.0.1:1"), newest=pinned.newest)
    decoder = Decoder(away)
    body = shop.avro_body(json.loads(FIRST.text), {"number": 1})
    assert (await decoder.decode([shop.framed(identity, body)])).values.to_pylist() == [
        {"number": 1}
    ]
    with pytest.raises(RegistryError, match="does not answer schemas/ids/7"):
        await decoder.decode([shop.framed(7, body)])
    await decoder.close()


def test_an_address_that_is_invalid_is_refused() -> None:
    for given in ("registry:8081", "ftp://host"):
        with pytest.raises(ConfigError, match="is like"):
            RestRegistry(given)
    with pytest.raises(ConfigError, match="not given in its URL"):
        RestRegistry("http://me:secret@host")
    with pytest.raises(ConfigError, match="not both"):
        RestRegistry("http://host", user="u", token="t")
