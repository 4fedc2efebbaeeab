"""Whatever is put into an `OutBuffer` comes out in order, on raw memory as in the plain twin."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.buffer import OutBuffer
from tests.plain_twin import plain_twin

INT64 = st.integers(-(2**63), 2**63 - 1)
Pieces = list[tuple[str, tuple[Any, ...]]]


PlainBuffer: Callable[[], Any] = plain_twin("slipstream.wire.buffer").OutBuffer


@st.composite
def puts(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    """One call of a method that appends."""
    data = draw(st.binary(max_size=300)) * draw(st.sampled_from([1, 1, 1, 40]))
    start, middle, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=3, max_size=3)))
    word = st.binary(max_size=20)
    return draw(
        st.sampled_from(
            [
                ("put", (data,)),
                ("put_slice", (data, start, end)),
                ("put_byte", (draw(st.integers(0, 255)),)),
                ("share", (data,)),
                ("put_message_line", (draw(word), draw(word), draw(word), start, end)),
                ("put_int", (draw(INT64),)),
                ("put_number", (draw(st.integers(0, 2**16 - 1)), draw(st.integers(2, 8)))),
                ("put_message", (draw(word), draw(word), draw(word), data, start, middle, end)),
                ("put_publish", (draw(word), draw(word), data[:start], data[start:end])),
                ("put_publish_start", (draw(word), draw(word), data[:start], end)),
            ]
        )
    )


@given(st.lists(st.lists(puts(), max_size=8), max_size=4))
def test_both_builds_hold_the_same_bytes_batch_after_batch(batches: list[Pieces]) -> None:
    ours, twin = OutBuffer(), PlainBuffer()
    for batch in batches:
        for name, arguments in batch:
            getattr(ours, name)(*arguments)
            getattr(twin, name)(*arguments)
            assert (ours.size, ours.length()) == (twin.size, twin.length())
        assert ours.take_parts() == twin.take_parts()
        assert ours.size == ours.length() == 0


def test_what_is_shared_is_not_copied() -> None:
    out, large = OutBuffer(), b"x" * 100_000
    out.put(b"line ")
    out.share(large)
    out.put(b"rest")
    assert (out.size, out.shared, out.length()) == (4, 100_005, 100_009)
    parts = out.take_parts()
    assert parts == [b"line ", large, b"rest"]
    assert parts[1] is large
    out.share(large)
    out.clear()
    assert out.take_parts() == []


@given(INT64)
def test_a_number_is_written_in_decimal(value: int) -> None:
    out = OutBuffer()
    out.put_int(value)
    assert out.take() == str(value).encode()


@pytest.mark.parametrize("build", [OutBuffer, PlainBuffer])
def test_a_number_that_needs_more_bytes_than_it_is_given_is_refused(build: Any) -> None:
    out = build()
    out.put_number(2**64 - 1, 8)
    out.put_number(258, 2)
    with pytest.raises(OverflowError):
        out.put_number(256, 1)
    for width in (0, 9):
        with pytest.raises(ValueError, match="one to eight bytes"):
            out.put_number(1, width)
    assert out.take() == b"\xff" * 8 + b"\x02\x01"


@pytest.mark.parametrize(
    ("reply", "header", "frame"),
    [
        (b"", b"", b"MSG a.b 7 4\r\nbody\r\n"),
        (b"r", b"", b"MSG a.b 7 r 4\r\nbody\r\n"),
        (b"", b"HH", b"HMSG a.b 7 2 6\r\nHHbody\r\n"),
        (b"r", b"HH", b"HMSG a.b 7 r 2 6\r\nHHbody\r\n"),
    ],
)
def test_a_message_becomes_a_servers_frame(reply: bytes, header: bytes, frame: bytes) -> None:
    out = OutBuffer()
    data = b"before" + header + b"body" + b"after"
    out.put_message(b"a.b", b"7", reply, data, 6, 6 + len(header), 10 + len(header))
    assert out.take() == frame


@pytest.mark.parametrize(
    ("reply", "header", "frame"),
    [
        (b"", b"", b"PUB a.b 4\r\nbody\r\n"),
        (b"r", b"", b"PUB a.b r 4\r\nbody\r\n"),
        (b"", b"HH", b"HPUB a.b 2 6\r\nHHbody\r\n"),
        (b"r", b"HH", b"HPUB a.b r 2 6\r\nHHbody\r\n"),
    ],
)
def test_a_message_becomes_a_clients_frame(reply: bytes, header: bytes, frame: bytes) -> None:
    out = OutBuffer()
    out.put_publish(b"a.b", reply, header, b"body")
    assert out.take() == frame


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 4), (4, 4)])
def test_a_slice_outside_of_its_data_is_refused_and_writes_nothing(start: int, end: int) -> None:
    out = OutBuffer()
    with pytest.raises(IndexError):
        out.put_slice(b"abc", start, end)
    with pytest.raises(IndexError):
        out.put_message(b"s", b"1", b"", b"abc", start, end, end)
    assert out.size == 0


def test_the_rest_of_another_buffer_is_appended_and_stays_there() -> None:
    out, other = OutBuffer(), OutBuffer()
    other.put(b"head")
    other.put(b"tail")
    out.put(b"<")
    out.put_rest(other, 3)
    out.put_rest(other, 8)
    out.put_byte(ord(">"))
    assert (out.take(), other.take()) == (b"<dtail>", b"headtail")


@pytest.mark.parametrize("start", [-1, 5, 2**63 - 1])
def test_a_rest_outside_of_the_other_buffer_is_refused_and_writes_nothing(start: int) -> None:
    out, other = OutBuffer(), OutBuffer()
    other.put(b"data")
    with pytest.raises(IndexError):
        out.put_rest(other, start)
    assert (out.take(), other.take()) == (b"", b"data")


def test_a_cleared_buffer_is_empty_and_goes_on() -> None:
    out = OutBuffer()
    out.put(b"x" * 100_000)
    out.clear()
    assert out.take() == b""
    out.put(b"next")
    assert out.take() == b"next"


@pytest.mark.parametrize("pieces", [1, 40, 700])
def test_what_was_taken_stays_as_it_is_however_large(pieces: int) -> None:
    out = OutBuffer()
    wanted = [b"%d" % n * 500 for n in range(pieces)]
    taken = []
    for turn in range(3):
        for piece in wanted[turn:]:
            out.put(piece)
        taken.append(out.take())
        assert out.size == 0
    out.put(b"more")
    assert taken == [b"".join(wanted[turn:]) for turn in range(3)]
    assert out.take() == b"more"


@pytest.mark.parametrize("make", [OutBuffer, PlainBuffer], ids=["this build", "plain"])
def test_a_slice_whose_size_does_not_fit_into_64_bits_is_refused(make: Callable[[], Any]) -> None:
    buffer = make()
    buffer.put(b"before")
    for start, end in ((20, -(2**63)), (2**63 - 1, -(2**63)), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(IndexError):
            buffer.put_slice(b"data", start, end)
        with pytest.raises(IndexError):
            buffer.put_message(b"s", b"1", b"", b"data", start, end, 4)
    assert buffer.take() == b"before"
