"""What clients of the simulation were shown is held against a server, unless the disk's trouble
excuses it."""

import json
from random import Random

import pytest

from slipstream.testing.driver import Message
from slipstream.testing.ledger import ViolationError
from slipstream.testing.looks import Looks, Trust
from slipstream.testing.simulation import Simulation

INBOX = "_INBOX.t.l1"


def shown(first_seq: int) -> Message:
    """The answer to the first look."""
    config, state = {"name": "S"}, {"first_seq": first_seq, "last_seq": 9}
    info = {"config": config, "state": state, "ack_floor": {"stream_seq": 0}, "name": "c"}
    return Message(INBOX, "1", "", b"", json.dumps(info | {"streams": [info]}).encode())


def asking() -> Looks:
    """A client of a stream that waits for its answer."""
    looks = Looks(Random(1))
    while b"STREAM" not in looks.frame("S", ["c"]):
        looks = Looks(looks.random)
    return looks


def test_a_message_that_was_shown_to_be_gone_may_not_come_back() -> None:
    looks = asking()
    looks.take(shown(first_seq=5), "S", Trust())
    with pytest.raises(ViolationError, match="are back, shown to be gone"):
        looks.restarted({"first_seq": 1, "last_seq": 9}, {})


def test_what_was_asked_on_a_full_disk_is_late_when_there_is_space_again() -> None:
    looks = asking()
    answer = shown(first_seq=5)
    assert not looks.is_late(answer)
    looks.has_space_again()
    assert looks.is_late(answer)
    looks.take(answer, "S", Trust())
    assert not looks.is_late(answer)


def test_an_answer_from_a_full_disk_is_not_held_against_the_server() -> None:
    Simulation(5746, trouble=True).failing().run(200)
