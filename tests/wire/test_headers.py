"""Header blocks are read and changed field by field."""

import pytest

from slipstream.wire.headers import (
    closed,
    fields,
    find,
    find_last,
    with_field,
    without,
    without_prefixed,
    without_spelled,
)

BLOCK = b"NATS/1.0\r\nA: 1\r\nNats-B:  two \r\nNats-BC: 3\r\nA: 4\r\n\r\n"


def test_fields_come_in_order_without_the_blanks_around_their_values() -> None:
    assert list(fields(BLOCK)) == [
        (b"A", b"1"),
        (b"Nats-B", b"two"),
        (b"Nats-BC", b"3"),
        (b"A", b"4"),
    ]
    assert list(fields(b"")) == list(fields(b"NATS/1.0 503\r\n\r\n")) == []


def test_the_first_and_the_last_value_of_a_name_are_found() -> None:
    end = len(BLOCK)
    assert (find(BLOCK, 0, end, b"A"), find_last(BLOCK, 0, end, b"A")) == (b"1", b"4")
    assert (find(BLOCK, 0, end, b"Nats-"), find_last(BLOCK, 0, end, b"Nats-")) == (None, None)


def test_fields_are_taken_out_by_their_names_or_by_how_these_begin() -> None:
    assert without(BLOCK, b"Nats-B") == b"NATS/1.0\r\nA: 1\r\nNats-BC: 3\r\nA: 4\r\n\r\n"
    assert without_prefixed(BLOCK, b"Nats-") == b"NATS/1.0\r\nA: 1\r\nA: 4\r\n\r\n"
    assert without_prefixed(BLOCK, b"Nats-", b"A:") == b""
    assert without(BLOCK, b"C") == BLOCK


@pytest.mark.parametrize("spelled", [b"WHO: x", b"who : x", b" Who: x", b"wHo:x"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r"])
def test_a_field_is_taken_out_however_it_is_spelled(spelled: bytes, line_end: bytes) -> None:
    block = line_end.join([b"NATS/1.0", b"A: who", spelled, b"B: 2", b"", b""])
    assert without_spelled(block, b"Who") == b"NATS/1.0\r\nA: who\r\nB: 2\r\n\r\n"
    assert without_spelled(line_end.join([b"NATS/1.0", spelled]), b"Who") == b""
    assert without_spelled(BLOCK, b"Who") == BLOCK


def test_a_block_ends_with_an_empty_line() -> None:
    assert closed(b"NATS/1.0\r\nA: 1") == closed(b"NATS/1.0\r\nA: 1\r\n\r\n")
    assert closed(BLOCK[:-2]) == BLOCK
    assert closed(b"") == b""


def test_a_field_takes_the_place_of_the_first_of_its_name_or_comes_last() -> None:
    assert with_field(BLOCK, b"A", b"9") == BLOCK.replace(b"A: 1", b"A: 9")
    assert with_field(BLOCK, b"C", b"9") == BLOCK[:-2] + b"C: 9\r\n\r\n"
    assert with_field(b"", b"C", b"9") == b"NATS/1.0\r\nC: 9\r\n\r\n"
