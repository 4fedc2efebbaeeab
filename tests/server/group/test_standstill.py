"""What a server says where its group has not served for long."""

from random import Random

from slipstream.group import Entry, Member, State
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    BEGINNING,
    Heartbeat,
    RegisterValue,
    Release,
    Sealed,
    make_entry,
)
from slipstream.model.durations import SECOND
from slipstream.server.group.standstill import AFTER, AGAIN, Standstill

NAMES = ("n1", "n2", "n3")


def member(state: State | None = None, stored: list[Entry | None] | None = None) -> Member:
    return Member("n1", NAMES, state or State(sealed=1), stored or [], 0, Random(1))


def said(one: Member, *linked: str, after: int = AFTER) -> str:
    """After that time in which nothing changed."""
    standstill = Standstill()
    assert standstill.look(0, one, linked) == ""
    assert standstill.look(after - 1, one, linked) == ""
    return standstill.look(after, one, linked)


def test_nothing_is_said_while_somebody_else_leads() -> None:
    one = member()
    one.receive(0, "n2", Heartbeat(1, 0, BEGINNING, 0, 0))
    assert said(one) == ""


def test_servers_that_are_needed_and_cannot_be_reached_are_named() -> None:
    assert said(member()) == (
        "The group has not served for 10 s: n2, n3 cannot be reached, and the others are no "
        "majority: start them with their stores, or see to the network"
    )


def test_a_log_that_is_not_whole_is_said_where_a_majority_is_there() -> None:
    short = member(State(sealed=1, synced=3))
    assert "has lost entries that it had answered for" in said(short, "n2", "n3")


def test_files_that_nobody_sends_are_said() -> None:
    assert "waits for files of another one" in said(
        member(State(sealed=1, is_installing=True)), "n2", "n3"
    )


def test_where_all_seems_well_the_logs_of_others_are_named() -> None:
    assert said(member(), "n2").endswith(
        "nobody could begin to lead, and n3 cannot be reached: the logs of the others may say why"
    )


def test_a_leader_names_whom_it_waits_for() -> None:
    one = leading()
    assert said(one, "n2").endswith(
        "this server is to lead it, and a majority has to have its entries up to 2; "
        "n2 lacks entries that are gone here, and has to get files first, n3 cannot be reached"
    )


def test_it_is_said_once_in_a_while() -> None:
    one, standstill = member(), Standstill()
    times = [second for second in range(200) if standstill.look(second * SECOND, one, ())]
    assert times == [10, 70, 130, 190]
    assert AGAIN == 60 * SECOND


def test_who_is_no_member_yet_says_nothing() -> None:
    one = member(State(sealed=1, membership=Membership(("n2", "n3"), (), 2)))
    assert said(one) == ""


def leading() -> Member:
    """It has trimmed an entry, and n2 has nothing."""
    first = make_entry(1, BEGINNING, b"gone")
    one = member(State(sealed=1, synced=1, committed=1, base=first.mark))
    later = 10 * SECOND
    one.receive(later, "n2", Release(1, "n1", (), RegisterValue(2, "n1", NAMES)))
    while (job := one.take_job()) is not None:
        one.synced(later, job.number)
    one.receive(later, "n2", Sealed(2, BEGINNING))
    assert (one.leader_name, one.epoch) == ("n1", 0)
    return one
