"""Frames become Arrow columns, on raw memory as in the plain twin."""

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.client.arrow.columns import (
    ADDED,
    BEYOND,
    DATA,
    GAP,
    HEADERS,
    MALFORMED,
    REPLY,
    SIZE,
    STATUS,
    SUBJECT,
    TIMESTAMP,
    MessageColumns,
)
from slipstream.wire.headers import fields
from tests.plain_twin import plain_twin

EVERYTHING = SUBJECT | TIMESTAMP | HEADERS | DATA | SIZE | REPLY


PlainColumns: Callable[[int], Any] = plain_twin("slipstream.client.arrow.columns").MessageColumns


def direct(
    sequence: object = 7,
    *,
    subject: bytes = b"orders.new",
    time: bytes = b"2026-03-01T12:00:00.5Z",
    pending: object = 3,
    previous: object = 0,
    own: bytes = b"",
) -> bytes:
    """The header block of an answer of a batched direct get."""
    block = b"NATS/1.0\r\n" + own + b"Nats-Stream: ORDERS\r\nNats-Subject: " + subject
    block += f"\r\nNats-Sequence: {sequence}\r\nNats-Time-Stamp: ".encode() + time
    return (
        block
        + f"\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {previous}\r\n\r\n".encode()
    )


def add_direct(columns: Any, block: bytes, body: bytes = b"body") -> int:
    data = b"before" + block + body + b"\r\nafter"
    start = len(b"before")
    return int(columns.add_direct(data, start, start + len(block), start + len(block) + len(body)))


Packed = tuple[int, int, bytes, bytes, bytes]  # sequence, time, subject, headers, body


def add_packed(
    columns: Any, rows: list[Packed], previous: object = 0, pending: object = 3, cut: int = 0
) -> int:
    """Add an answer with these messages, without its last `cut` bytes."""
    body = b"".join(
        struct.pack("<QqIIH", sequence, time, len(block), len(data), len(subject))
        + subject
        + block
        + data
        for sequence, time, subject, block, data in rows
    )
    head = f"NATS/1.0\r\nSlipstream-Packed: {len(rows)}\r\nNats-Num-Pending: {pending}\r\n"
    block = f"{head}Nats-Last-Sequence: {previous}\r\n\r\n".encode()
    return add_direct(columns, block, body[: len(body) - cut])


def add_delivered(columns: Any, reply: bytes, block: bytes = b"", body: bytes = b"body") -> int:
    data = block + body
    return int(columns.add_delivered(b"a.b", reply, data, 0, len(block), len(data)))


@pytest.fixture(params=["ours", "twin"])
def columns(request: pytest.FixtureRequest) -> Any:
    return MessageColumns(EVERYTHING) if request.param == "ours" else PlainColumns(EVERYTHING)


def test_a_direct_answer_loses_what_the_server_appended_and_keeps_its_own_headers(
    columns: Any,
) -> None:
    own = b"Nats-Sequence: 1\r\nKind: order\r\nTag:a\r\nKind:  again \r\nEmpty:\r\n"
    assert add_direct(columns, direct(own=own)) == ADDED
    assert (columns.rows, columns.sequence, columns.pending) == (1, 7, 3)
    taken = columns.take()
    assert taken["subject"][1] == b"orders.new"
    assert taken["data"][1] == b"body"
    assert taken["headers"][2] == b"Nats-SequenceKindTagEmpty"
    assert taken["headers"][5] == b"1orderagaina"
    assert columns.rows == 0


@given(st.lists(st.sampled_from([b"A", b": ", b" ", b"b", b"\r", b"\n", b"\r\n"]), max_size=20))
def test_headers_are_those_that_the_scanner_of_headers_finds(pieces: list[bytes]) -> None:
    columns = MessageColumns(EVERYTHING)
    block = b"NATS/1.0\r\n" + b"".join(pieces)
    found: dict[bytes, list[bytes]] = {}
    for name, value in fields(block):
        found.setdefault(name, []).append(value)
    assert add_delivered(columns, b"$JS.ACK.S.c.1.1.1.1.0", block) == ADDED
    taken = columns.take()["headers"]
    assert (taken[2], taken[5]) == (
        b"".join(found),
        b"".join(value for values in found.values() for value in values),
    )


def test_a_missing_message_shows_as_a_gap_and_adds_nothing(columns: Any) -> None:
    assert add_direct(columns, direct(7)) == ADDED
    assert add_direct(columns, direct(9, previous=8)) == GAP
    assert columns.rows == 1
    assert add_direct(columns, direct(9, previous=7)) == ADDED


def test_what_lies_behind_the_end_is_not_added(columns: Any) -> None:
    columns.last_wanted = 7
    assert add_direct(columns, direct(8)) == BEYOND
    columns.time_end = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 10**9
    assert add_direct(columns, direct(7)) == BEYOND
    assert columns.rows == 0


def test_a_status_is_left_to_the_caller(columns: Any) -> None:
    assert add_direct(columns, b"NATS/1.0 204 EOB\r\n\r\n", b"") == STATUS
    assert add_delivered(columns, b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"") == STATUS


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"HTTP/1.1 200\r\n\r\n",
        b"NATS/1.0\r\n\r\n",
        direct("x"),
        direct("99999999999999999999"),
        direct(time=b"yesterday"),
        direct(time=b"2026-13-01T12:00:00Z"),
        direct(time=b"2026-03-01T12:00:00.Z"),
        direct(time=b"2026-03-01T12:00:00.1234567890Z"),
        direct(time=b"2026-03-01T12:00:00+0100"),
    ],
)
def test_what_is_no_direct_answer_is_refused(columns: Any, block: bytes) -> None:
    assert add_direct(columns, block) == MALFORMED
    assert columns.rows == 0


def test_a_delivery_tells_sequence_and_time_in_its_reply(columns: Any) -> None:
    assert add_delivered(columns, b"$JS.ACK.S.c.1.42.5.1700000000000000001.9") == ADDED
    assert (columns.sequence, columns.timestamp, columns.pending) == (42, 1700000000000000001, 9)
    second = b"$JS.ACK._.hash.S.c.1.43.6.1700000000000000002.8.more.tokens"
    assert add_delivered(columns, second) == ADDED
    assert (columns.sequence, columns.pending) == (43, 8)


def test_an_ordered_consumer_may_not_skip_a_number(columns: Any) -> None:
    columns.ordered = True
    assert add_delivered(columns, b"$JS.ACK.S.c.1.42.1.17.9") == ADDED
    assert add_delivered(columns, b"$JS.ACK.S.c.1.44.3.17.7") == GAP


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"_INBOX.1",
        b"$JS.ACK.S.c.1.2.3.4",
        b"$JS.ACK.S.c.1.2.3.4.5.6",
        b"$JS.ACK.S.c.1.x.3.4.5",
    ],
)
def test_what_is_no_delivery_is_refused(columns: Any, reply: bytes) -> None:
    assert add_delivered(columns, reply) == MALFORMED


def test_a_slice_outside_of_the_data_is_an_error(columns: Any) -> None:
    with pytest.raises(IndexError):
        columns.add_direct(b"NATS/1.0\r\n\r\n", 0, 12, 13)
    with pytest.raises(IndexError):
        columns.add_delivered(b"a", b"b", b"", 0, 1, 0)


TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
ZONES = st.integers(-14 * 60, 14 * 60)


@given(TIMES, ZONES, st.integers(0, 9))
def test_times_are_read_to_the_nanosecond(moment: datetime, zone: int, digits: int) -> None:
    fraction = f"{moment.microsecond:06d}123"[:digits]
    sign = "-" if zone < 0 else "+"
    text = moment.strftime("%Y").zfill(4) + moment.strftime("-%m-%dT%H:%M:%S")
    text += f".{fraction}" if fraction else ""
    text += f"{sign}{abs(zone) // 60:02d}:{abs(zone) % 60:02d}"
    since = moment.replace(microsecond=0) - timedelta(minutes=zone) - datetime(1970, 1, 1)
    expected = (since.days * 86400 + since.seconds) * 10**9 + int(fraction.ljust(9, "0"))
    for made in (MessageColumns(EVERYTHING), PlainColumns(EVERYTHING)):
        assert add_direct(made, direct(time=text.encode())) == ADDED
        assert made.timestamp == expected


NAMES = st.sampled_from([b"A", b"B", b"Nats-Subject", b"\xff"])
LINES = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.tuples(
            st.sampled_from([b"A", b"B", b"Nats-Subject", b"Slipstream-Packed", b"\xff"]),
            st.binary(max_size=6),
        ).map(b":".join),
        st.sampled_from(
            [b"Nats-Sequence: 4", b"Nats-Subject: x", b"Nats-Time-Stamp: 2026-01-01T00:00:00Z"]
        ),
    ),
    max_size=8,
).map(lambda lines: b"".join(line + b"\r\n" for line in lines))
CALLS = st.one_of(
    st.tuples(st.just("packed"), LINES, st.binary(max_size=20), st.booleans()),
    st.tuples(st.just("direct"), LINES, st.binary(max_size=20), st.booleans()),
    st.tuples(st.just("delivered"), LINES, st.binary(max_size=20), st.booleans()),
)


NOON = 1_772_366_400_000_000_000
PACKED_ROWS: list[Packed] = [
    (7, NOON, b"a.b", b"NATS/1.0\r\nKind: order\r\n\r\n", b"one"),
    (9, NOON + 1, b"a", b"", b""),
]


def test_a_packed_answer_brings_its_messages(columns: Any) -> None:
    assert add_packed(columns, PACKED_ROWS) == ADDED
    assert (columns.rows, columns.sequence, columns.expected, columns.pending) == (2, 9, 9, 3)
    taken = columns.take()
    assert taken["sequence"] == (struct.pack("<2q", 7, 9),)
    assert taken["timestamp"] == (struct.pack("<2q", NOON, NOON + 1),)
    assert taken["subject"] == (struct.pack("<3i", 0, 3, 4), b"a.ba")
    assert taken["data"] == (struct.pack("<3i", 0, 3, 3), b"one")
    assert taken["headers"][2] == b"Kind"


def test_a_packed_answer_behind_one_that_was_lost_is_a_gap(columns: Any) -> None:
    assert add_packed(columns, PACKED_ROWS[:1]) == ADDED
    assert add_packed(columns, PACKED_ROWS[1:], previous=8) == GAP
    assert add_packed(columns, PACKED_ROWS[1:], previous="") == GAP
    assert columns.rows == 1
    assert add_packed(columns, PACKED_ROWS[1:], previous=7) == ADDED


def test_a_packed_answer_is_read_to_where_it_goes_beyond(columns: Any) -> None:
    columns.last_wanted = 8
    assert add_packed(columns, PACKED_ROWS) == BEYOND
    assert (columns.rows, columns.sequence) == (1, 7)
    columns.last_wanted, columns.time_end = 100, NOON + 1
    assert add_packed(columns, [(8, NOON, b"a", b"", b""), PACKED_ROWS[1]], previous=7) == BEYOND
    assert columns.rows == 2


@pytest.mark.parametrize("cut", [1, 3, 4, 29, 30, 31])
def test_a_packed_answer_that_ends_early_is_malformed(columns: Any, cut: int) -> None:
    found = add_packed(columns, [PACKED_ROWS[1], PACKED_ROWS[0]], cut=cut)
    assert found == MALFORMED
    assert columns.rows == 1


def test_a_sequence_beyond_63_bits_is_malformed(columns: Any) -> None:
    assert add_packed(columns, [(2**63, NOON, b"a", b"", b"")]) == MALFORMED


def test_a_message_that_came_before_does_not_come_again(columns: Any) -> None:
    columns.after = 6
    assert add_packed(columns, [(6, NOON, b"a", b"", b"")]) == MALFORMED
    assert add_direct(columns, direct(6)) == MALFORMED
    assert columns.rows == 0
    assert add_packed(columns, [*PACKED_ROWS, PACKED_ROWS[0]]) == MALFORMED
    assert add_packed(columns, PACKED_ROWS[1:], previous=9) == MALFORMED
    assert add_direct(columns, direct(9, previous=9)) == MALFORMED
    assert (columns.rows, columns.sequence) == (2, 9)
    assert add_direct(columns, direct(10, previous=9)) == ADDED


def test_a_message_that_calls_itself_packed_is_one_message(columns: Any) -> None:
    own = b"Kind: order\r\nSlipstream-Packed: 2\r\n"
    assert add_direct(columns, direct(own=own)) == ADDED
    assert columns.rows == 1
    assert columns.take()["headers"][2] == b"KindSlipstream-Packed"


@given(st.lists(CALLS, max_size=8), st.integers(0, 63))
def test_both_builds_make_the_same_columns(
    calls: list[tuple[str, bytes, bytes, bool]], wanted: int
) -> None:
    ours, twin = MessageColumns(wanted), PlainColumns(wanted)
    for kind, lines, body, proper in calls:
        if kind == "packed":
            block = b"NATS/1.0\r\n" + lines + b"\r\n"
            rows = [(ours.sequence + n, n, b"s\xe9"[:n], block, body) for n in (1, 2)]
            cut = 0 if proper else len(body) + len(lines) % 60
            results = [add_packed(made, rows, made.expected, cut=cut) for made in (ours, twin)]
        elif kind == "direct":
            block = direct(ours.sequence + 1, previous=ours.expected, own=lines)
            block = block if proper else b"NATS/1.0\r\n" + lines + b"\r\n"
            results = [add_direct(made, block, body) for made in (ours, twin)]
        else:
            block = b"NATS/1.0\r\n" + lines + b"\r\n" if proper else lines
            reply = b"$JS.ACK.S.c.1.%d.9.17.2" % (ours.sequence + 1)
            results = [add_delivered(made, reply, block, body) for made in (ours, twin)]
        assert results[0] == results[1]
        for name in ("rows", "size", "sequence", "timestamp", "pending", "expected", "after"):
            assert getattr(ours, name) == getattr(twin, name)
    assert ours.take() == twin.take()
