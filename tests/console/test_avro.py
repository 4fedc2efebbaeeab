"""Avro bodies: container files as fastavro writes them, and what is made to harm their reader."""

import io
import json
import sys
import time
import tracemalloc
import uuid
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.console import avro
from slipstream.console.bodies import DECODED_BYTES_MAX, MASKED, Body, Masks, preview, views

SECONDS_MAX = 5.0  # of processor time, with memory counted; without a bound it is minutes
MEMORY_MAX = 64 * 1024 * 1024
SYNC = bytes(16)

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ssn", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDERS = [{"id": 1, "ssn": None, "tags": ["eu"]}, {"id": -7, "ssn": "078-05", "tags": []}]


def container(schema: Any, records: list[Any], codec: str = "null") -> bytes:
    """The file that fastavro writes."""
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec=codec)
    return file.getvalue()


def number(value: int) -> bytes:
    """A number as Avro has it."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def forged(schema: Any, count: int, block: bytes, codec: bytes = b"null") -> bytes:
    """A file of one block that says what it likes."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    header = number(2)
    for one in (b"avro.schema", text, b"avro.codec", codec):
        header += number(len(one)) + one
    return (
        avro.MAGIC + header + number(0) + SYNC + number(count) + number(len(block)) + block + SYNC
    )


def deflated(data: bytes, times: int = 1) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join(packer.compress(data) for _ in range(times)) + packer.flush()


def shown(data: bytes, masks: Masks | None = None) -> Body:
    """A body that was read and shown within a bounded time and memory."""
    tracemalloc.start()
    began = time.process_time()
    body = (masks or Masks()).body(data)
    assert all(view.text for view in views(body))
    assert "\n" not in preview(body)
    took = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < SECONDS_MAX
    assert peak < MEMORY_MAX
    return body


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_the_records_of_a_file_are_shown(codec: str) -> None:
    body = shown(container(ORDER, ORDERS, codec))
    assert [view.name for view in views(body)] == ["Avro", "Hex"]
    assert json.loads(views(body)[0].text) == ORDERS
    assert views(body)[0].note == ""


def test_records_of_many_blocks_are_shown() -> None:
    file = io.BytesIO()
    records = [{"id": at, "ssn": "x" * 50, "tags": ["a", "b"]} for at in range(2000)]
    fastavro.writer(file, ORDER, records, codec="deflate", sync_interval=500)
    assert shown(file.getvalue()).document == records


def test_each_type_is_shown_as_json_has_it() -> None:
    schema = {
        "type": "record",
        "name": "All",
        "namespace": "one.two",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "small", "type": "float"},
            {"name": "exact", "type": "double"},
            {"name": "raw", "type": "bytes"},
            {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
            {"name": "again", "type": "Key"},
            {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["A", "B"]}},
            {"name": "by_name", "type": {"type": "map", "values": ["null", "Suit", "int"]}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "on", "type": {"type": "int", "logicalType": "date"}},
            {"name": "one", "type": {"type": "string", "logicalType": "uuid"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
    record = {
        "flag": True,
        "small": 0.5,
        "exact": -1e300,
        "raw": b"\x00\xff",
        "key": b"ab",
        "again": b"cd",
        "suit": "B",
        "by_name": {"x": None, "y": "A", "z": -(1 << 31)},
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "on": date(2026, 1, 31),
        "one": uuid.UUID(int=7),
        "price": Decimal("-12.50"),
    }
    plain = {
        "raw": "00ff",
        "key": "6162",
        "again": "6364",
        "at": "2026-01-31T12:00:00+00:00",
        "on": "2026-01-31",
        "one": str(uuid.UUID(int=7)),
        "price": "-12.50",
    }
    assert shown(container(schema, [record])).document == [record | plain]


def test_a_list_has_itself_within_itself() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "at", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    record: dict[str, Any] = {"at": 1, "next": {"at": 2, "next": None}}
    assert shown(container(node, [record])).document == [record]


def test_a_file_without_records_says_so() -> None:
    assert shown(container(ORDER, [])).document == []


def test_one_record_must_be_as_the_filter_says() -> None:
    from slipstream.console.query import parse

    documents = Masks().body(container(ORDER, ORDERS)).documents

    def is_found(text: str) -> bool:
        return any(all(c.holds({}, one) for c in parse(text)) for one in documents)

    assert is_found("json.id = -7 and json.ssn ~ 078")
    assert is_found("json.tags[0] = eu")
    assert not is_found("json.id = 1 and json.ssn ~ 078")
    assert Masks().body(container(ORDER, [])).documents == [None]


def test_masks_hide_fields_of_records() -> None:
    masks = Masks(fields=("ssn",))
    body = shown(container(ORDER, ORDERS), masks)
    assert body.is_masked
    assert [record["ssn"] for record in body.document] == [MASKED, MASKED]
    assert b"078" not in body.data
    assert msgspec.json.decode(body.data) == body.document
    assert all("078" not in view.text for view in views(body))
    other = Masks(fields=("other",)).body(container(ORDER, ORDERS))
    assert not other.is_masked


def test_masks_hide_whole_what_could_not_be_looked_into() -> None:
    masks = Masks(fields=("ssn",))
    whole = container(ORDER, ORDERS)
    for data in (
        whole[:-1],
        whole + b"more",
        forged(ORDER, 1, b"", b"snappy"),
        b"\xc3\x01" + bytes(8) + b"078-05",
        b"\x00\x00\x00\x00\x07078-05",
    ):
        assert masks.body(data).data == MASKED.encode()


def test_a_console_without_fastavro_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = container({**ORDER, "name": "Unseen"}, ORDERS)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    [hexed] = views(Masks().body(data))
    assert hexed.name == "Hex"
    assert "fastavro" in hexed.note
    assert "pip install 'slipstream[console]'" in hexed.note


def test_what_has_no_schema_with_it_is_named() -> None:
    single = b"\xc3\x01" + bytes(range(1, 9)) + b"\x02"
    framed = b"\x00" + (1042).to_bytes(4, "big") + b"\x02\xff"
    for data, words in (
        (single, "single-object encoding, with the schema of fingerprint 0807060504030201"),
        (framed, "Confluent's framing, with schema 1,042 of a registry"),
    ):
        [hexed] = views(shown(data))
        assert words in hexed.note
        assert "The schema is not in the message." in hexed.note
    for data in (b"\xc3\x01", bytes(12), b"\x00\x01"):
        assert views(Masks().body(data))[-1].note == ""


def test_broken_files_show_what_is_before_the_damage() -> None:
    block = number(1) + number(0) + number(0)
    broken = forged(ORDER, 9, block)
    body = shown(broken)
    assert body.document == [{"id": 1, "ssn": None, "tags": []}]
    assert views(body)[0].note == "The first 1 of its records: the file is broken."
    whole = container(ORDER, ORDERS)
    for size in range(len(whole)):
        body = Masks().body(whole[:size])
        assert body.document in (None, [], ORDERS[:1], ORDERS)


@pytest.mark.parametrize("codec", ["snappy", "zstandard", "bzip2", "xz", "lz4", "<b>"])
def test_other_codecs_are_named_and_not_unpacked(codec: str) -> None:
    [hexed] = views(shown(forged(ORDER, 1, b"x" * 100, codec.encode())))
    assert f"codec {codec!r} is not read here" in hexed.note


def doubled(levels: int, innermost: list[Any]) -> dict[str, Any]:
    """A record of two records, each of two records and so on."""
    schema: dict[str, Any] = {"type": "record", "name": "R0", "fields": innermost}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


NULLS = [{"name": f"n{at}", "type": "null"} for at in range(1000)]
BOMBS = {
    "records without bytes": forged("null", 1 << 62, b""),
    "items without bytes": forged(
        {"type": "array", "items": "null"}, 1, number(1 << 62) + number(0)
    ),
    "blocks of counts": forged(
        {"type": "array", "items": "null"}, 1, (number(-(1 << 40)) + number(0)) * 1000 + number(0)
    ),
    "records of records without bytes": forged(doubled(30, []), 1, b""),
    "records of records of null": forged(doubled(30, [{"name": "n", "type": "null"}]), 1, b""),
    "wide records of null": forged(
        {"type": "array", "items": {"type": "record", "name": "W", "fields": NULLS}},
        1,
        number(1 << 40),
    ),
    "many small values": forged(
        {"type": "array", "items": {"type": "map", "values": "int"}},
        1,
        deflated(number(1_000_000) + bytes(1_000_001)),
        b"deflate",
    ),
    "a record within itself": forged(
        {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}, 1, b""
    ),
    "arrays within arrays": forged(
        {"type": "record", "name": "A", "fields": [
            {"name": "a", "type": {"type": "array", "items": "A"}}]},
        1,
        number(1) * 500_000,
    ),
    "a deflate bomb": forged("bytes", 1, deflated(bytes(1_000_000), 150), b"deflate"),
    "a number without end": forged("long", 1, b"\x80" * 900_000),
    "a length that is not there": forged("string", 1, number(1 << 60)),
    "a length below nothing": forged("string", 1, number(-5)),
    "a fixed of any size": forged({"type": "fixed", "name": "F", "size": 1 << 40}, 1, b""),
    "a fixed below nothing": forged({"type": "fixed", "name": "F", "size": -1}, 1 << 40, b""),
    "an enum outside": forged({"type": "enum", "name": "E", "symbols": ["A"]}, 1, number(-1)),
    "a union of nothing": forged([], 1, number(0)),
    "a union outside": forged(["null"], 1, number(9)),
    "a large decimal": forged(
        {"type": "bytes", "logicalType": "decimal", "precision": 9**9, "scale": 9**8},
        1,
        number(900_000) + b"\x7f" * 900_000,
    ),
    "a time outside": forged(
        {"type": "long", "logicalType": "timestamp-millis"}, 1, number(1 << 62)
    ),
    "a text that is none": forged("string", 1, number(2) + b"\xff\xfe"),
    "a schema that is none": forged(b"{", 1, b""),
    "a schema of another kind": forged({"type": "tree"}, 1, b""),
    "a schema that names what is not there": forged("other.Thing", 1, b""),
    "a schema that says it was parsed": forged(
        {"type": "record", "name": "A", "__fastavro_parsed": True, "__named_schemas": {}}, 1, b""
    ),
    "a deep schema": forged(b'{"type":"array","items":' * 500 + b'"int"' + b"}" * 500, 1, b""),
    "a large schema": forged(
        {"type": "record", "name": "A", "fields": NULLS * 20}, 1, b""
    ),
    "a name that is no text": forged(
        b'{"type":"record","name":"A","fields":[{"name":"\\ud800","type":"null"}]}', 1, b""
    ),
    "a header without end": avro.MAGIC + number(1 << 62) + b"\x00\x00" * 500_000,
    "a header without a schema": avro.MAGIC + number(0) + SYNC,
    "blocks without records": forged("null", 0, b"") + (number(0) * 2 + SYNC) * 50_000,
    "more than a megabyte": avro.MAGIC + bytes(DECODED_BYTES_MAX),
    "nothing but the magic": avro.MAGIC,
}  # fmt: skip


WHY = dict.fromkeys(
    (
        "records without bytes",
        "items without bytes",
        "records of records without bytes",
        "records of records of null",
        "wide records of null",
        "many small values",
        "blocks without records",
    ),
    "there are more than 16,384 values",
) | {
    "a record within itself": "64 levels deep",
    "arrays within arrays": "64 levels deep",
    "a deflate bomb": "unpacked, the file has more than 1,048,576 bytes",
    "a deep schema": "its schema is more than 192 levels deep",
    "a large schema": "its schema has more than 65,536 bytes",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_file_is_bounded_and_says_what_is_missing(name: str) -> None:
    data = BOMBS[name]
    body = shown(data)
    found = views(body)
    if name in ("a large decimal", "a time outside"):
        assert body.form == "Avro"
        return
    assert WHY.get(name, "") in found[0].note
    assert found[0].note
    assert len(found[0].text) < 70_000 or found[0].name == "Hex"
    masked = shown(data, Masks(fields=("ssn",)))
    assert masked.data == MASKED.encode()


@given(st.data())
def test_any_damage_can_be_shown(data: st.DataObject) -> None:
    whole = bytearray(container(ORDER, ORDERS, data.draw(st.sampled_from(["null", "deflate"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    body = Masks().body(bytes(whole))
    assert all(isinstance(view.text, str) for view in views(body))
    assert "\n" not in preview(body)
    msgspec.json.encode(body.document)
