"""Arrow columns become frames, on raw memory as in the plain twin; each row is accounted for."""

import struct
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.client.arrow.row_block import (
    LEFT_OUT,
    REFUSED,
    SENT,
    STORED,
    TO_SEND,
    RowBlock,
    siphash,
)
from slipstream.wire.client_frames import ClientFrames
from tests.plain_twin import plain_twin

KEY = bytes(range(16))


PLAIN = plain_twin("slipstream.client.arrow.row_block")


def column(values: list[bytes], before: int = 0) -> tuple[int, bytes, bytes]:
    """A column of bytes; `before` others stand in front of the first row."""
    values = [b"before"] * before + values
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return before, struct.pack(f"={len(ends)}i", *ends), b"".join(values)


def frames(block: Any, **changes: Any) -> bytes:
    """The frames of everything that is to be sent."""
    arguments = {
        "inbox": b"_INBOX.x.",
        "lines": b"A: b\r\n",
        "label": b"Row: q.",
        "payload_max": 1000,
        "rows_max": 100,
        "size": 1 << 20,
    }
    return bytes(block.frames(*{**arguments, **changes}.values()))


def test_a_row_is_a_frame_with_its_headers_and_its_number() -> None:
    block = RowBlock(1, b"orders", column([b"body"], 3), column([b"C: d\r\n"]), column([b"id"], 1))
    block.digest(KEY)
    block.first_token = 40
    identity = urlsafe_b64encode(block.digests).decode().rstrip("=")
    headers = f"NATS/1.0\r\nA: b\r\nC: d\r\nRow: q.{identity}\r\nNats-Msg-Id: id\r\n\r\n"
    line = f"HPUB orders _INBOX.x.40 {len(headers)} {len(headers) + 4}\r\n"
    assert frames(block) == f"{line}{headers}body\r\n".encode()
    assert (block.left, block.in_flight, list(block.states)) == (1, 1, [SENT])


def test_a_row_without_headers_is_a_plain_publish() -> None:
    block = RowBlock(1, column([b"a.b"]), column([b"x"]))
    assert frames(block, lines=b"", label=b"") == b"PUB a.b _INBOX.x.0 1\r\nx\r\n"


def test_the_server_reads_what_was_sent() -> None:
    count = 50
    bodies = [b"\r\n" * n for n in range(count)]
    block = RowBlock(count, column([f"s.{n}".encode() for n in range(count)]), column(bodies))
    block.digest(KEY)
    reader = ClientFrames()
    reader.feed(frames(block))
    for number in range(count):
        assert reader.next() > 0
        assert reader.subject == f"s.{number}".encode()
        assert reader.data[reader.body_start : reader.end] == bodies[number]


def test_a_row_that_no_server_takes_is_refused() -> None:
    subjects = [b"", b"a b", b"a..b", b".a", b"a.", b"a\n", b"x" * 4001, b"fine"]
    block = RowBlock(len(subjects), column(subjects), column([b""] * len(subjects)))
    assert frames(block, lines=b"", label=b"") == b"PUB fine _INBOX.x.7 0\r\n\r\n"
    assert list(block.states) == [REFUSED] * 7 + [SENT]
    large = RowBlock(2, b"s", column([bytes(101), bytes(100)]))
    frames(large, lines=b"", label=b"", payload_max=100)
    assert list(large.states) == [REFUSED, SENT]


def test_a_row_has_one_end_and_what_is_in_doubt_is_sent_again() -> None:
    block = RowBlock(5, b"s", column([b"x"] * 5))
    block.leave_out(0)
    frames(block, lines=b"", label=b"", rows_max=3)
    assert (block.next_row, block.in_flight) == (4, 3)
    assert block.settle(1, STORED, 17)
    assert not block.settle(1, STORED, 18)
    assert not block.settle(99, STORED)
    assert block.settle(2, REFUSED)
    assert (block.left, block.sequence) == (2, 17)
    block.send_again()
    assert list(block.states) == [LEFT_OUT, STORED, REFUSED, TO_SEND, TO_SEND]
    assert frames(block, lines=b"", label=b"").count(b"PUB") == 2


def test_an_identity_is_siphash_of_all_that_a_message_says() -> None:
    assert siphash(KEY, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash(KEY, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"
    one = RowBlock(1, b"ab", column([b"c"]))
    other = RowBlock(1, b"a", column([b"bc"]))
    for block in (one, other):
        block.digest(KEY)
    assert one.digests != other.digests


def test_equal_rows_get_identities_of_their_own_where_they_are_numbered() -> None:
    seen: dict[bytes, int] = {}
    blocks = [RowBlock(2, b"s", column([b"x", b"x"])) for _ in range(2)]
    for block in blocks:
        block.digest(KEY)
        block.number_equals(KEY, seen)
    both = blocks[0].digests + blocks[1].digests
    assert len({both[at : at + 16] for at in range(0, 64, 16)}) == 4


def test_equal_rows_of_different_places_are_told_apart() -> None:
    places = [b"S.1", b"S.2", b"S.1"]
    made = []
    for kind in (RowBlock, PLAIN.RowBlock):
        block = kind(3, b"s", column([b"x", b"x", b"x"]))
        block.digest(KEY)
        block.tell_apart(KEY, places)
        made.append(block.digests)
    assert made[0] == made[1]
    assert made[0][:16] == made[0][32:] != made[0][16:32]


def test_columns_that_reach_outside_of_their_buffers_are_refused() -> None:
    for made in (RowBlock, PLAIN.RowBlock):
        for start, offsets, data in (
            (0, struct.pack("=2i", 0, 5), b"abc"),
            (0, struct.pack("=2i", 2, 1), b"abc"),
            (0, struct.pack("=2i", -1, 1), b"abc"),
            (1, struct.pack("=2i", 0, 1), b"abc"),
            (-1, struct.pack("=2i", 0, 1), b"abc"),
            (2**62 - 1, struct.pack("=2i", 0, 1), b"abc"),
            (2**63 - 1, struct.pack("=2i", 0, 1), b"abc"),
        ):
            with pytest.raises(ValueError, match="a column"):
                made(1, b"s", (start, offsets, data))


TEXT = st.binary(max_size=40)
ROWS = st.lists(st.tuples(st.sampled_from([b"a", b"b.c", b"", b"d e"]), TEXT, TEXT, TEXT))


@given(rows=ROWS, before=st.integers(0, 3), some=st.integers(1, 9), size=st.integers(1, 600))
def test_both_builds_make_the_same_of_any_rows(
    rows: list[tuple[bytes, bytes, bytes, bytes]], before: int, some: int, size: int
) -> None:
    columns = [column([row[at] for row in rows], before) for at in range(4)]
    seen: dict[bytes, int] = {}
    plain_seen: dict[bytes, int] = {}
    block, plain = RowBlock(len(rows), *columns), PLAIN.RowBlock(len(rows), *columns)
    for made, known in ((block, seen), (plain, plain_seen)):
        made.digest(KEY)
        made.number_equals(KEY, known)
    assert (block.digests, block.sum_low, block.sum_high) == (
        plain.digests, plain.sum_low, plain.sum_high,
    )  # fmt: skip
    while plain.next_row < len(rows):
        for label in (b"Row: ", b"Nats-Msg-Id: "):
            changes = {"rows_max": some, "size": size, "payload_max": 150, "label": label}
            assert frames(block, **changes) == frames(plain, **changes)
        assert bytes(block.states) == bytes(plain.states)
    assert (block.left, block.in_flight, block.payload) == (
        plain.left, plain.in_flight, plain.payload,
    )  # fmt: skip


def test_a_row_that_there_is_not_is_an_error() -> None:
    for made in (RowBlock, PLAIN.RowBlock):
        block = made(2, b"s", column([b"x", b"y"]))
        for row in (-1, 2):
            for method in ("subject", "body", "extra", "message_id", "leave_out", "refuse"):
                with pytest.raises(IndexError):
                    getattr(block, method)(row)
        assert list(block.states) == [TO_SEND, TO_SEND]
