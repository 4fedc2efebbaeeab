"""An acknowledgement subject says which message it is; nothing else is taken for one."""

import pytest

from slipstream.model.ack_subject import NUMBERS, SEQUENCES, AckSubject, ack_head, is_ack_subject

SHORT = b"$JS.ACK.S.c.1.22.3.4.5"
LONG = b"$JS.ACK.hub.hash.S.c.1.22.3.4.5"


def _numbers(ack: AckSubject) -> tuple[int, ...]:
    sequences = ack.num_delivered, ack.stream_sequence, ack.consumer_sequence
    return (*sequences, ack.timestamp_ns, ack.num_pending)


@pytest.mark.parametrize("subject", [SHORT, LONG, LONG + b".random", LONG + b".more.of.it"])
def test_both_forms_are_read(subject: bytes) -> None:
    ack = AckSubject()
    assert ack.read(subject)
    assert _numbers(ack) == (1, 22, 3, 4, 5)
    assert ack.has_domain == subject.startswith(LONG)


@pytest.mark.parametrize(
    "subject",
    [
        b"",
        b"$JS.ACK",
        b"$JS.API.S.c.1.22.3.4.5",
        SHORT + b".one_too_many",
        b"$JS.ACK.S.c.1.22.3.4",
        b"$JS.ACK.S.c.1..3.4.5",
        b"$JS.ACK.S.c.1.2x.3.4.5",
        b"$JS.ACK.S.c.1.9223372036854775808.3.4.5",
    ],
)
def test_anything_else_is_refused(subject: bytes) -> None:
    assert not AckSubject().read(subject)


def test_a_number_may_have_63_bits() -> None:
    ack = AckSubject()
    assert ack.read(b"$JS.ACK.S.c.1.9223372036854775807.3.4.5")
    assert ack.stream_sequence == 2**63 - 1


def test_the_numbers_are_read_after_a_head_that_is_known_as_far_as_they_are_wanted() -> None:
    ack = AckSubject()
    head = ack_head("S", "c")
    assert head == b"$JS.ACK.S.c."
    assert ack.read_numbers(SHORT, len(head), NUMBERS) == len(SHORT)
    assert ack.read_numbers(b"$JS.ACK.S.c.7.8.9.x", len(head), SEQUENCES) == len(head) + 5
    assert _numbers(ack) == (7, 8, 9, 4, 5)
    assert ack.read_numbers(b"$JS.ACK.S.c.7.8", len(head), SEQUENCES) == -1


def test_only_what_begins_like_one_is_one() -> None:
    assert is_ack_subject(b"$JS.ACK.")
    assert not is_ack_subject(b"$JS.ACK")
    assert not is_ack_subject(b"_INBOX.a.b")
