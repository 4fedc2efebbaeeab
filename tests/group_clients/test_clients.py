"""Other people's clients publish and consume on while leaders change; what the judge finds."""

import asyncio

import pytest

from tests.group_clients.judge import Stored, judge
from tests.group_clients.pauses import Change, Spread, pause
from tests.group_clients.programs import PROGRAMS, MissingError
from tests.group_clients.record import Record
from tests.group_clients.run import Outcome, run

# They share a run; and what is built is built once, however many processes the tests run in.
pytestmark = pytest.mark.xdist_group("group clients")


@pytest.fixture(scope="module")
def missing() -> dict[str, str]:
    """Why a client cannot be had here, by its name. To be filled in."""
    return {}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, missing: dict[str, str]) -> Outcome:
    """Of a run with all clients that can be had here."""
    commands = {}
    for name, program in PROGRAMS.items():
        try:
            commands[name] = program.made()
        except MissingError as error:
            missing[name] = str(error)
    directory = tmp_path_factory.mktemp("group-clients")
    return asyncio.run(run(commands, ["step-down", "kill", "lame duck"], directory))


@pytest.mark.timeout(900)  # most of it for what Rust compiles the first time
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_client_goes_on_through_changes_of_leader(
    name: str, outcome: Outcome, missing: dict[str, str]
) -> None:
    if name in missing:
        pytest.skip(missing[name])
    verdict, record = outcome.verdicts[name], outcome.records[name]
    assert not verdict.counts, verdict.words
    assert record.published == len(record.acknowledged) > 0
    assert len(record.settled) > 0


RECORDED = """\
acknowledged 1000000 0 1 1 0
acknowledged 2000000 1 2 2 1
asked 2100000
delivered 2200000 0 1 1
settled 2300000 0
delivered 2400000 1 2 1
unsettled 2500000 1 TimeoutError()
disconnected 2600000
stopped 3000000 2"""
STORED = [Stored(1, "0", b"0"), Stored(2, "1", b"1")]


def recorded(*more: str) -> Record:
    record = Record()
    for line in [*RECORDED.splitlines(), *more]:
        record.take(line)
    return record


def test_what_is_as_it_should_be_breaks_nothing() -> None:
    assert not judge(recorded(), STORED).counts


@pytest.mark.parametrize(
    ("promise", "stored"),
    [
        ("lost", [Stored(1, "0", b"0")]),
        ("twice", [*STORED, Stored(3, "1", b"1")]),
        ("order", [Stored(1, "1", b"1"), Stored(2, "0", b"0")]),
        ("foreign", [*STORED, Stored(3, "7", b"7")]),
        ("undelivered", [*STORED, Stored(3, "1", b"1")]),
    ],
)
def test_a_stream_that_is_not_what_was_acknowledged_is_found(
    promise: str, stored: list[Stored]
) -> None:
    assert promise in judge(recorded(), stored).counts


def test_what_the_consumer_has_not_settled_is_found() -> None:
    assert judge(recorded(), STORED, left=2).counts == {"unsettled": 2}


def test_a_delivery_is_one_too_many_if_the_client_asked_after_the_message_was_settled() -> None:
    again = "delivered 2800000 0 1 2"
    assert not judge(recorded(again), STORED).counts  # it waited in the client
    assert judge(recorded("asked 2700000", again), STORED).counts == {"again": 1}
    not_settled = "delivered 2800000 1 2 2"
    assert not judge(recorded("asked 2700000", not_settled), STORED).counts


def test_a_pause_ends_within_a_change_and_begins_with_it_at_the_earliest() -> None:
    change = Change("kill", 10.0, 14.0)
    assert pause([9.0, 12.0, 12.5, 13.9, 30.0, 50.0], change) == pytest.approx(16.1)
    assert pause([9.0, 12.0, 12.5, 14.1], change) == 2.0
    assert pause([], change) == 0.0


def test_of_many_numbers_those_are_said_that_half_and_nearly_all_are_within() -> None:
    assert Spread.of([float(number) for number in range(1, 201)]) == Spread(100.0, 198.0, 200.0)
