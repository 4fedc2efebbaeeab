"""The table of messages that are out, beside a dictionary that means the same."""

from random import Random

import pytest

from slipstream.engine.consumer.pending import DUE, PendingMessages

Entry = tuple[int, int, int]  # consumer sequence, time, deadline


def contents(pending: PendingMessages) -> dict[int, Entry]:
    found = {}
    place = pending.first()
    while place >= 0:
        found[pending.seq(place)] = (
            pending.consumer_seq(place),
            pending.ts(place),
            pending.deadline(place),
        )
        place = pending.following(place)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_it_holds_what_a_dictionary_would(seed: int) -> None:
    random = Random(seed)
    pending, model = PendingMessages(), dict[int, Entry]()
    seq = 0
    for step in range(2000):
        if random.random() < 0.55 or not model:
            seq += random.choice((1, 1, 1, 7))
            pending.add(seq, step, step * 10, step * 10 + random.randrange(500))
            place = pending.find(seq)
            model[seq] = (step, pending.ts(place), pending.deadline(place))
        else:
            one = min(model) if random.random() < 0.6 else random.choice(list(model))
            place = pending.find(one)
            if random.random() < 0.2:
                pending.delivered_again(place, step, DUE)
                model[one] = (model[one][0], step, DUE)
            else:
                pending.remove(place)
                del model[one]
                assert pending.find(one) == -1
    assert contents(pending) == model
    assert pending.sequences() == sorted(model)
    assert len(pending) == len(model)
    assert pending.due == sum(deadline == DUE for _, _, deadline in model.values())
    assert [s for s in range(seq + 3) if s in pending] == sorted(model)
    deadlines = [deadline for _, _, deadline in model.values() if deadline != DUE]
    assert pending.next_deadline() == min(deadlines)
    assert pending.last_deadline() == max(deadlines)
    middle = sorted(deadlines)[len(deadlines) // 2]
    assert pending.overdue(middle) == [
        s for s, (_, _, deadline) in sorted(model.items()) if DUE < deadline <= middle
    ]


def test_what_follows_a_message_that_is_never_settled_takes_no_room_for_ever() -> None:
    pending = PendingMessages()
    pending.add(1, 1, 1, 1)
    for seq in range(2, 10_000):
        pending.add(seq, seq, 1, 1)
        pending.remove(pending.find(seq))
    assert pending.sequences() == [1]
    assert pending.span <= 64


def test_it_comes_back_from_bytes() -> None:
    pending = PendingMessages()
    for seq in range(1, 100):
        pending.add(seq * 3, seq, 10, 20 if seq % 2 else DUE)
    pending.remove(pending.find(30))
    again = PendingMessages()
    again.unpack(pending.pack())
    assert contents(again) == contents(pending)


def test_what_was_cleared_is_empty() -> None:
    pending = PendingMessages()
    pending.add(5, 1, 1, 1)
    pending.clear()
    assert (len(pending), pending.first(), pending.find(5), pending.next_deadline()) == (
        0,
        -1,
        -1,
        0,
    )
    assert "five" not in pending


def test_sequences_that_a_crash_took_back_are_given_out_again() -> None:
    pending = PendingMessages()
    for seq in range(1, 6):
        pending.add(seq, seq, seq, 100)
    for seq in (3, 4, 5):
        pending.remove(pending.find(seq))
    pending.add(3, 6, 6, 100)
    pending.add(4, 7, 7, 100)
    assert pending.sequences() == [1, 2, 3, 4]
    for seq in (2, 3):
        pending.remove(pending.find(seq))
    assert contents(pending) == {1: (1, 1, 100), 4: (7, 7, 100)}
    assert len(pending.pack()) == 2 * 32
