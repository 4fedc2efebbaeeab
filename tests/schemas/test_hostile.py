"""Bodies, schemas and registries that mean harm: each is an error or a bad row with its reason."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from google.protobuf import descriptor_pb2

from slipstream.client.jetstream import JetStream
from slipstream.schemas import (
    Avro,
    CloudEvents,
    Decoder,
    EventDecoder,
    Json,
    MessagePack,
    Protobuf,
    RegistryError,
    RestRegistry,
    Schema,
    SchemaError,
    SchemaNotFoundError,
    create_bucket,
)
from tests.schemas.stub_registry import serve
from tests.schemas.test_registries import FIRST, bucket, js

__all__ = ["bucket", "js"]  # fixtures

RECURSIVE = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "next", "type": ["null", "R"]}, {"name": "f", "type": "long"}],
    }
)
EVENT = {"id": "1", "source": "s", "specversion": "1.0", "type": "t"}


class KnownSchemas:
    """A registry with these schemas; it counts how often it is asked."""

    def __init__(self, schemas: dict[int, Schema]) -> None:
        self.schemas = schemas
        self.asked = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator["KnownSchemas"]:
        yield self

    async def schema(self, identity: int) -> Schema:
        self.asked += 1
        if identity not in self.schemas:
            raise SchemaNotFoundError(str(identity))
        return self.schemas[identity]


def record(*types: object) -> str:
    fields = [{"name": f"f{at}" if at else "f", "type": one} for at, one in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def long(value: int) -> bytes:
    """A number as Avro writes it."""
    left = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


async def reasons(form: Avro | Json, *bodies: bytes) -> list[str | None]:
    found: list[str | None] = (await Decoder(form).decode(bodies)).reasons.to_pylist()
    return found


async def reason_by_registry(wrote: str, body: bytes) -> str:
    registry = KnownSchemas({1: Schema("AVRO", wrote)})
    form = Avro(schema=record("long"), registry=registry, subject="s")  # type: ignore[arg-type]
    (found,) = await reasons(form, b"\0\0\0\0\1" + body)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["string", "bytes", {"type": "array", "items": "long"}])
async def test_a_length_beyond_the_end_of_a_body_is_a_reason(kind: object) -> None:
    assert all(await reasons(Avro(schema=record(kind)), long(1 << 60) + b"x", long(-(1 << 62))))


async def test_values_nested_without_end_in_a_body_are_a_reason() -> None:
    assert "recursion" in await reason_by_registry(RECURSIVE, b"\2" * 1_000_000)


@pytest.mark.parametrize(
    "items", ["null", {"type": "record", "name": "E", "fields": []}], ids=["null", "empty"]
)
async def test_items_that_take_no_bytes_are_not_read(items: object) -> None:
    wrote = record({"type": "array", "items": items}, "long")
    told = await reason_by_registry(wrote, long(1 << 40) + b"\0\2")
    assert "items without bytes" in told


async def test_a_time_that_microseconds_cannot_hold_costs_no_other_row() -> None:
    form = Avro(schema=record({"type": "long", "logicalType": "timestamp-millis"}))
    far, near = await reasons(form, long(1 << 62), long(5))
    assert far is not None
    assert "out of bounds" in far
    assert near is None


@pytest.mark.parametrize("text", ["1e-999999999", "1e999999999", "9" * 100_000, "NaN"])
async def test_a_decimal_that_no_column_holds_is_a_reason(text: str) -> None:
    kind = {"type": "string", "format": "decimal"}
    of_list = {"type": "array", "items": kind}
    form = Json(schema=json.dumps({"type": "object", "properties": {"d": kind, "l": of_list}}))
    bodies = [json.dumps({"d": text}).encode(), json.dumps({"l": ["1", text]}).encode(), b"{}"]
    assert [one is None for one in await reasons(form, *bodies)] == [False, False, True]


async def test_messagepack_that_claims_much_or_nests_deep_is_a_reason() -> None:
    form = MessagePack(schema=json.dumps({"type": "object", "properties": {"o": {}}}))
    assert all(await reasons(form, b"\x81\xa1o\xdd\xff\xff\xff\xff", b"\x81\xa1o" + b"\x91" * 9999))


async def test_base64_of_an_event_is_base64() -> None:
    decoder = EventDecoder(CloudEvents())
    body = json.dumps(EVENT | {"data_base64": "Y!Q=="}).encode()
    (reason,) = (await decoder.decode([body], [{}])).reasons.to_pylist()
    assert "base64" in reason


async def test_the_media_type_of_an_event_may_be_written_in_capitals() -> None:
    decoder = EventDecoder(CloudEvents())
    headers = {"content-type": ["Application/CloudEvents+JSON; charset=utf-8"]}
    found = await decoder.decode([json.dumps(EVENT).encode()], [headers])
    assert found.reasons.to_pylist() == [None]


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "bytes", "logicalType": "decimal"}',
        '{"type": "long", "logicalType": ["x"]}',
        '{"type": "map", "values": []}',
        '{"type":"array","items":' * 5000 + '"long"' + "}" * 5000,
    ],
)
def test_an_avro_schema_that_is_invalid_is_an_error(text: str) -> None:
    with pytest.raises(SchemaError, match="not valid"):
        Avro(schema=text).arrow_type()


def test_a_schema_that_doubles_at_each_level_is_an_error() -> None:
    inner: object = "long"
    for level in range(30):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level - 1}"}]
        inner = {"type": "record", "name": f"L{level}", "fields": fields[: 2 if level else 1]}
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        Avro(schema=json.dumps(inner)).arrow_type()
    refers = [{"$ref": f"#/$defs/L{level + 1}"} for level in range(30)]
    named: dict[str, object] = {
        f"L{level}": {"type": "object", "properties": {"a": one, "b": one}}
        for level, one in enumerate(refers)
    }
    schema = {"$ref": "#/$defs/L0", "$defs": {**named, "L30": {"type": "integer"}}}
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        Json(schema=json.dumps(schema)).arrow_type()


def proto(levels: int, fields: str = "a", imports: str = "") -> Protobuf:
    """Messages within messages, each as often as there are fields."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    file.dependency.extend([imports] if imports else [])
    for level in range(levels):
        made = file.message_type.add(name=f"L{level}")
        for number, name in enumerate(fields, 1):
            made.field.add(name=name, number=number, label=1, type=11, type_name=f".p.L{level + 1}")
    file.message_type.add(name=f"L{levels}").field.add(name="x", number=1, label=1, type=3)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return Protobuf(descriptors=files.SerializeToString())


def test_messages_that_double_or_nest_at_each_level_are_an_error() -> None:
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        proto(30, "ab").arrow_type()
    with pytest.raises(SchemaError, match="nested too deep"):
        proto(2000).arrow_type()


@pytest.mark.parametrize("name", ["google/protobuf/../../os.proto", "google/protobuf/a/b.proto"])
def test_a_file_that_does_not_come_with_protobuf_is_not_looked_for(name: str) -> None:
    with pytest.raises(SchemaError, match="has not been loaded"):
        proto(1, imports=name).arrow_type()


def test_json_schemas_nested_too_deep_are_an_error() -> None:
    with pytest.raises(SchemaError, match="not valid"):
        Json(schema='{"items":' * 100_000 + "{}" + "}" * 100_000).arrow_type()


async def test_ids_without_end_that_a_registry_lacks_are_not_all_asked_for() -> None:
    registry = KnownSchemas({})
    form = Avro(schema=record("long"), registry=registry, subject="s")  # type: ignore[arg-type]
    found = await reasons(form, *(b"\0" + at.to_bytes(4, "big") + b"\2" for at in range(3000)))
    assert all(found)
    assert registry.asked == 1000


# -- registries ------------------------------------------------------------------------------------


@contextmanager
def answering(answer: bytes, *, drips: bytes = b"") -> Iterator[str]:
    """The URL of a server that writes this to every request; `drips` again and again after it."""
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(answer)
            try:
                while drips and not done.wait(0.001):
                    self.wfile.write(drips)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        done.set()
        server.shutdown()
        thread.join()
        server.server_close()


OK = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"what\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 99\r\n\r\n[[[",
        OK + b"[]",
        OK + b'{"schema": 5}',
        OK + b'{"schema": "\\"long\\"", "schemaType": "XML"}',
        OK + b'{"schema": "\\"long\\"", "version": 1, "id": -1}',
        OK + b'{"schema": "\\"long\\""}',
        OK + b"[" * 100_000,
    ],
    ids=lambda answer: answer[-20:].decode(),
)
async def test_an_answer_that_no_registry_gives_is_a_registry_error(answer: bytes) -> None:
    with answering(answer) as url:
        async with RestRegistry(url).open() as registry:
            with pytest.raises(RegistryError, match=r"127\.0\.0\.1"):
                await registry.latest("orders")


async def test_a_redirect_is_not_followed_with_the_password() -> None:
    with serve() as other:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other.url}/x\r\n\r\n".encode()
        with answering(moved) as url:
            async with RestRegistry(url, user="me", password="secret").open() as registry:
                with pytest.raises(RegistryError, match="redirects to"):
                    await registry.schema(1)
        assert not other.requests


@pytest.mark.parametrize(("drips", "why"), [(b" ", "longer than"), (b" " * (1 << 20), "bytes")])
async def test_an_answer_without_end_is_an_error(drips: bytes, why: str) -> None:
    with answering(OK, drips=drips) as url:
        timeout = 0.5 if why == "longer than" else 60.0
        async with RestRegistry(url, timeout=timeout).open() as registry:
            with pytest.raises(RegistryError, match=why):
                await registry.schema(1)


async def test_references_that_go_round_or_double_are_asked_for_once() -> None:
    with serve() as stub:
        both = [{"name": f"n.{at}", "subject": f"s{at}", "version": 1} for at in range(12)]
        for at in range(12):
            text = json.dumps({"type": "record", "name": f"n.{at}", "fields": []})
            stub.add(f"s{at}", text, references=both)
        identity = stub.add("orders", '"n.0"', references=both[:1])
        async with RestRegistry(stub.url).open() as registry:
            found = await registry.schema(identity)
        assert len(found.needs) == 12
        assert len(stub.requests) == 13


async def test_keys_of_a_bucket_that_somebody_else_has_written_are_named(js: JetStream) -> None:
    schemas = await create_bucket(js, "SchemasEdited")
    await schemas.register("orders", FIRST)
    edited = await js.key_value("SchemasEdited")
    await edited.put("ids.note", b"what we agreed on")
    assert await schemas.register("others", FIRST) == 1
    await edited.put("ids.1", b"[")
    with pytest.raises(SchemaError, match=r"key ids\.1 of bucket SchemasEdited"):
        await schemas.schema(1)
    await edited.put("subjects.orders", b'{"versions": ["1"]}')
    with pytest.raises(SchemaError, match=r"key subjects\.orders"):
        await schemas.latest("orders")
