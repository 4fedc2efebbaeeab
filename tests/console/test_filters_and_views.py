"""Filters on messages, views of bodies, masks and plots' numbers, without a server."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.console.bodies import (
    MASKED,
    Masks,
    hex_dump,
    preview,
    protobuf_fields,
    views,
)
from slipstream.console.query import QueryError, parse
from slipstream.console.render import coded, compact, query, spark
from slipstream.console.sampler import POINTS_MAX, History
from slipstream.wire.headers import Headers

HEADERS = {"Region": ["eu"], "Trace": ["a", "b"]}
BODY = {"order": {"id": 7, "items": [{"sku": "A-1"}], "note": "Rush and careful"}, "ok": True}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "header.region = eu",
        "header.Trace = b",
        "header.Region",
        "json.order.id = 7",
        "json.order.id = 7.0",
        "json.order.id > 6 and json.order.id < 8",
        "json.order.items[0].sku ~ a-",
        "json.order.items.0.sku = A-1",
        'json.order.note = "Rush and careful"',
        "json.ok = true",
        "json.missing != 1",
        "header.Missing != x",
    ],
)
def test_a_filter_holds(text: str) -> None:
    assert all(condition.holds(HEADERS, BODY) for condition in parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "header.Region = us",
        "header.Region != eu",
        "header.Missing",
        "json.order.id > 7",
        "json.order.items[1].sku",
        "json.order.id.deeper",
        "json.order.note ~ slow",
        "header.Region = eu and json.ok = false",
    ],
)
def test_a_filter_does_not_hold(text: str) -> None:
    assert not all(condition.holds(HEADERS, BODY) for condition in parse(text))


@pytest.mark.parametrize("text", ["total > 1", "json. = 1", "header", "= 1"])
def test_a_filter_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="filter"):
        parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        conditions = parse(text)
    except QueryError:
        return
    for condition in conditions:
        condition.holds(HEADERS, BODY)


def names(data: bytes) -> list[str]:
    """Which views a body has."""
    return [view.name for view in views(Masks().body(data))]


def test_a_body_is_shown_as_what_it_is() -> None:
    assert names(b'{"a": 1}') == ["JSON", "Text", "Hex"]
    assert names(b"plain") == ["Text", "Hex"]
    assert names(msgspec.msgpack.encode({"a": 1})) == ["MessagePack", "Hex"]
    assert names(b"\x08\x96\x01\x12\x02\xff\xfe") == ["Protobuf", "Hex"]
    assert names(b"\xff\xfe\x00") == ["Hex"]
    assert names(b"") == []


def test_large_bodies_are_cut_and_say_so() -> None:
    found = views(Masks().body(b"x" * 200_000))
    assert all(len(view.text) < 70_000 and view.note for view in found)


def test_numbers_of_any_size_are_shown_exactly() -> None:
    body = Masks().body(b'{"id": 123456789012345678}')
    assert "123456789012345678" in views(body)[0].text


@given(st.binary(max_size=400))
def test_any_bytes_can_be_shown(data: bytes) -> None:
    for masks in (Masks(), Masks(("x",), ("a.*", "b"))):
        body = masks.body(data)
        assert all(isinstance(view.text, str) for view in views(body))
        assert "\n" not in preview(body)


def test_protobuf_shows_numbers_texts_and_messages_inside() -> None:
    inner = b"\x08\x01\x12\x02\xff\xfe"
    data = b"\x08\x96\x01\x12\x02hi\x1a" + bytes([len(inner)]) + inner + b"\x25\x01\x00\x00\x00"
    assert protobuf_fields(data) == [
        "1: 150", '2: "hi"', "3 {", "  1: 1", "  2: ff fe", "}", "4: 0x00000001",
    ]  # fmt: skip
    assert protobuf_fields(b"\xff\xff") == []


def test_hex_has_offsets_and_letters() -> None:
    line = "00000000  41 42 0a                                          AB."
    assert hex_dump(b"AB\n") == line
    assert hex_dump(bytes(17)).splitlines()[1].startswith("00000010  00")


def test_masks_hide_fields_at_any_depth_or_at_a_path() -> None:
    masks = Masks(fields=("ssn", "user.*.pin"))
    found = masks.body(b'[{"ssn": 1, "user": {"ann": {"pin": 2, "x": 3}}, "pin": 4}]')
    assert found.document == [{"ssn": MASKED, "user": {"ann": {"pin": MASKED, "x": 3}}, "pin": 4}]
    assert found.is_masked
    assert b'"ssn":1' not in found.data


def test_a_body_in_which_a_hidden_field_may_be_is_hidden_whole() -> None:
    masks = Masks(fields=("ssn",))
    for data in (b'{"ssn": 1', b"x ssn=1", b'{"a":1}\n{"ssn":2}', b"[" * 2000, b" " * 2**21):
        assert masks.body(data).data == MASKED.encode()
    assert masks.body(b"nothing to hide").data == b"nothing to hide"


def test_masks_hide_headers_in_any_case() -> None:
    masks = Masks(headers=("x-auth*",))
    headers = Headers([("X-Auth-Token", "a"), ("X-Other", "b")])
    assert masks.headers(headers) == {"X-Auth-Token": [MASKED], "X-Other": ["b"]}


def test_a_history_keeps_the_last_points_of_each_series() -> None:
    history = History()
    for at in range(POINTS_MAX + 10):
        history.begin(float(at))
        history.add("all", at)
        if at % 2:
            history.add("odd", at)
    assert history.times()[0] == 10.0
    assert history.values("all") == [float(at) for at in range(10, POINTS_MAX + 10)]
    assert history.values("odd")[:4] == [None, 11.0, None, 13.0]
    assert history.values("unknown") == [None] * POINTS_MAX
    assert history.latest("odd") == POINTS_MAX + 9


def test_a_rate_is_the_growth_between_two_looks() -> None:
    history = History()
    for at, count in ((0.0, 100), (2.0, 150), (4.0, 20)):
        history.begin(at)
        history.add_rate("in", count, at)
    assert history.values("in") == [None, 25.0, 0.0]  # a stream that was made anew has no rate


def test_series_of_what_is_gone_are_forgotten() -> None:
    history = History()
    history.begin(0.0)
    history.add("gone", 1.0)
    for at in range(1, POINTS_MAX):
        history.begin(float(at))
        history.forget_unused()
    assert history.latest("gone") == 0.0


def test_texts_are_escaped_before_they_become_markup() -> None:
    assert coded("a `<b>` <i>") == "a <code>&lt;b&gt;</code> &lt;i&gt;"
    assert query(q='"><script>', at=0) == "?q=%22%3E%3Cscript%3E"
    assert spark([1.0]) == ""
    assert "polyline" in spark([1.0, None, 2.0])
    assert [compact(n) for n in (950, 12_345, 4_500_000)] == ["950", "12.3k", "4.5M"]
