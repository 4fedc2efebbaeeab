"""Header blocks are read and changed field by field."""

from slipstream.wire.headers import fields, with_field, without, without_prefixed

BLOCK = b"NATS/1.0\r\nA: 1\r\nNats-B:  two \r\nNats-BC: 3\r\nA: 4\r\n\r\n"


def test_fields_come_in_order_without_the_blanks_around_their_values() -> None:
    assert list(fields(BLOCK)) == [
        (b"A", b"1"),
        (b"Nats-B", b"two"),
        (b"Nats-BC", b"3"),
        (b"A", b"4"),
    ]
    assert list(fields(b"")) == list(fields(b"NATS/1.0 503\r\n\r\n")) == []


def test_fields_are_taken_out_by_their_names_or_by_how_these_begin() -> None:
    assert without(BLOCK, b"Nats-B") == b"NATS/1.0\r\nA: 1\r\nNats-BC: 3\r\nA: 4\r\n\r\n"
    assert without_prefixed(BLOCK, b"Nats-") == b"NATS/1.0\r\nA: 1\r\nA: 4\r\n\r\n"
    assert without_prefixed(BLOCK, b"Nats-", b"A:") == b""
    assert without(BLOCK, b"C") == BLOCK


def test_a_field_takes_the_place_of_the_first_of_its_name_or_comes_last() -> None:
    assert with_field(BLOCK, b"A", b"9") == BLOCK.replace(b"A: 1", b"A: 9")
    assert with_field(BLOCK, b"C", b"9") == BLOCK[:-2] + b"C: 9\r\n\r\n"
    assert with_field(b"", b"C", b"9") == b"NATS/1.0\r\nC: 9\r\n\r\n"
