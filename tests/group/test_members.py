"""What single members of a group do and refuse; groups under faults are in tests/testing."""

from random import Random

import pytest

from slipstream.errors import CorruptionError
from slipstream.group import Entry, Mark, Member, NotLeaderError, Settings, State
from slipstream.group.leader import Leader
from slipstream.group.lease import Lease, SealPromise
from slipstream.group.log_replica import LogReplica
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    BEGINNING,
    Accept,
    Accepted,
    Append,
    Appended,
    AskSeal,
    Ballot,
    Behind,
    DiskHealth,
    Fetch,
    Fetched,
    Heard,
    Heartbeat,
    Message,
    Missing,
    Outbid,
    Prepare,
    Promise,
    Refused,
    RegisterValue,
    Release,
    Seal,
    Sealed,
    Trimmed,
    WouldSeal,
    decode,
    encode,
    make_entry,
)
from slipstream.group.outbox import Outbox
from slipstream.model.durations import MILLISECOND, SECOND

NAMES = ("n1", "n2", "n3")
LATER = 10 * SECOND  # when no promise of a start holds any more


def entries(*epochs: int) -> list[Entry]:
    """A log with entries of these epochs."""
    made: list[Entry] = []
    after = BEGINNING
    for number, epoch in enumerate(epochs, 1):
        made.append(make_entry(epoch, after, b"%d" % number))
        after = made[-1].mark
    return made


FOUNDED = State()


def member(state: State | None = FOUNDED, stored: list[Entry | None] | None = None) -> Member:
    """n1 of three, which has just started."""
    return Member("n1", NAMES, state, stored or [], 0, Random(1))


def answers(one: Member, message: Message, now: int = LATER) -> list[Message]:
    """What n1 answers n2 before the disk has done anything, and after."""
    one.receive(now, "n2", message)
    return [answer for receiver, answer in one.take_messages() if receiver == "n2"]


def finish_jobs(one: Member) -> list[Message]:
    """Let the disk do all; what n2 is told then."""
    while (job := one.take_job()) is not None:
        one.synced(LATER, job.number)
    return [answer for receiver, answer in one.take_messages() if receiver == "n2"]


def test_a_seal_is_answered_once_it_is_synced_with_the_end_of_the_log() -> None:
    log = entries(1, 1)
    one = member(State(sealed=1), list(log))
    assert answers(one, Seal(2)) == []
    assert finish_jobs(one) == [Sealed(2, log[-1].mark)]


def test_who_is_sealed_refuses_earlier_leaders() -> None:
    one = member(State(sealed=3))
    assert answers(one, Append(2, BEGINNING, tuple(entries(2)))) == [Refused(2, 3)]
    assert answers(one, Heartbeat(2, 0, BEGINNING, 0, 0)) == [Refused(2, 3)]
    assert answers(one, Seal(2)) == [Refused(2, 3)]


def test_entries_are_answered_once_they_are_synced() -> None:
    one = member()
    assert answers(one, Append(1, BEGINNING, tuple(entries(1, 1)))) == []
    assert finish_jobs(one) == [Appended(1, 2)]


def test_entries_follow_only_the_very_entry_that_they_were_made_to_follow() -> None:
    one = member(State(sealed=2), list(entries(1, 1, 1)))
    other = entries(1, 2, 2)
    assert answers(one, Append(2, other[1].mark, (other[2],))) == [Missing(2, 0)]
    assert one.log.end.epoch == 1


def test_entries_that_were_changed_on_the_way_are_dropped() -> None:
    one = member()
    (whole,) = entries(1)
    changed = Entry(1, 1, whole.previous, whole.chain, b"else")
    assert answers(one, Append(1, BEGINNING, (changed,))) == []
    assert one.log.end == BEGINNING


def test_who_hears_a_leader_lets_nobody_seal_it_for_a_while() -> None:
    one = member(State(sealed=1))
    answers(one, Heartbeat(1, 0, BEGINNING, 0, 0))
    finish_jobs(one)
    assert answers(one, AskSeal(7), LATER + SECOND) == []
    answers(one, Seal(2), LATER + SECOND)
    assert finish_jobs(one) == []
    assert answers(one, AskSeal(7), LATER + 2 * SECOND) == [WouldSeal(7)]


def asks(one: Member, now: int) -> bool:
    """Whether n1 asks, once it is that late, whether it may lead."""
    one.tick(now)
    return any(isinstance(message, AskSeal) for _, message in one.take_messages())


def test_who_loses_its_connection_to_the_leader_stands_once_its_promise_is_over() -> None:
    for is_unlinked in (False, True):
        one = member(State(sealed=1))
        answers(one, Heartbeat(1, 0, BEGINNING, 0, 0))
        one.unlinked(LATER, "n3")  # of which nothing follows
        if is_unlinked:
            one.unlinked(LATER, "n2")
        assert not asks(one, LATER + 1200 * MILLISECOND)
        assert asks(one, LATER + 1360 * MILLISECOND) == is_unlinked


def test_who_hears_the_leader_again_does_not_stand() -> None:
    one = member(State(sealed=1))
    answers(one, Heartbeat(1, 0, BEGINNING, 0, 0))
    one.unlinked(LATER, "n2")
    answers(one, Heartbeat(1, 1, BEGINNING, 0, 0), LATER + SECOND)
    assert not asks(one, LATER + 2 * SECOND)


def test_who_has_just_started_may_have_promised_something() -> None:
    one = member(State(sealed=1))
    assert answers(one, AskSeal(1), SECOND) == []
    assert answers(one, AskSeal(1), 2 * SECOND) == [WouldSeal(1)]


def test_a_lease_is_shorter_than_the_promise_by_the_speed_of_two_clocks() -> None:
    settings = Settings(promise=1200 * MILLISECOND, rate_max=2.0)
    lease = Lease(Membership(NAMES), settings, 0)
    lease.heard("n1", 5 * SECOND)
    assert not lease.is_held(5 * SECOND)  # it is no majority
    lease.heard("n2", 5 * SECOND)
    assert lease.is_held(5 * SECOND + 299 * MILLISECOND)
    assert not lease.is_held(5 * SECOND + 300 * MILLISECOND)


def test_a_promise_is_released_by_the_leader_that_it_was_made_to() -> None:
    promise = SealPromise(0)
    promise.renew(4, SECOND)
    promise.release(3)
    assert not promise.is_over(SECOND - 1)
    promise.release(4)
    assert promise.is_over(0)


def test_a_promise_of_the_register_is_answered_once_it_is_synced() -> None:
    one = member()
    value = RegisterValue(1, "n2", NAMES)
    ballot = Ballot(3, "n2")
    assert answers(one, Prepare(ballot)) == []
    assert finish_jobs(one) == [Promise(ballot, Ballot(0, ""), None)]
    assert answers(one, Prepare(Ballot(2, "n2"))) == [Outbid(Ballot(2, "n2"), ballot)]
    assert answers(one, Accept(ballot, value)) == []
    assert finish_jobs(one) == [Accepted(ballot)]


def test_who_follows_a_leader_wants_the_register_no_more() -> None:
    one = member(State(sealed=1))
    assert asks(one, LATER)
    (question,) = answers(one, WouldSeal(LATER))
    assert isinstance(question, Prepare)
    answers(one, Outbid(question.ballot, Ballot(9, "n2")))
    answers(one, Heartbeat(2, 0, BEGINNING, 0, 0))
    one.tick(LATER + SECOND)
    assert one.take_messages() == []


def test_who_is_outbid_bids_higher_at_once_and_the_next_time_after_a_while() -> None:
    one = member(State(sealed=1))
    (question,) = answers(one, Release(1, "n1"))
    assert isinstance(question, Prepare)
    assert question.ballot < Ballot(9, "n2")
    (higher,) = answers(one, Outbid(question.ballot, Ballot(9, "n2")))
    assert higher == Prepare(Ballot(10, "n1"))
    assert answers(one, Outbid(Ballot(10, "n1"), Ballot(11, "n2"))) == []
    one.tick(LATER + 99 * MILLISECOND)
    assert one.take_messages() == []
    one.tick(LATER + 100 * MILLISECOND)
    assert ("n2", Prepare(Ballot(12, "n1"))) in one.take_messages()


def test_a_successor_takes_the_epoch_after_one_that_another_server_has_given_up() -> None:
    one = member(State(sealed=1))
    (question,) = answers(one, Release(1, "n1"))
    given_up = RegisterValue(2, "n3", NAMES)
    for wanted in (given_up, RegisterValue(3, "n1", NAMES)):
        assert isinstance(question, Prepare)
        finish_jobs(one)
        (change,) = answers(one, Promise(question.ballot, Ballot(1, "n3"), given_up))
        assert change == Accept(question.ballot, wanted)
        finish_jobs(one)
        (question,) = answers(one, Accepted(question.ballot))
    assert question == Seal(3)


def test_a_successor_that_has_the_next_epoch_of_the_register_seals_at_once_and_once() -> None:
    one = member(State(sealed=1))
    taken = RegisterValue(2, "n1", NAMES)
    assert answers(one, Release(1, "n1", (), taken)) == [Seal(2)]
    finish_jobs(one)
    assert answers(one, Release(1, "n1", (), taken)) == [Refused(1, 2)]
    assert answers(member(State(sealed=2)), Release(1, "n1", (), taken)) == [Refused(1, 2)]


def test_a_leader_hands_over_with_the_next_epoch_once_the_successor_has_all() -> None:
    one = leading_member()
    assert one.prepare_hand_over(LATER, "n2") == "n2"
    (question,) = {message for _, message in one.take_messages()}
    assert isinstance(question, Prepare)
    marks = one.append(LATER, [b"it serves meanwhile"])
    finish_jobs(one)
    before, value = RegisterValue(1, "n1", NAMES), RegisterValue(2, "n2", NAMES)
    (change,) = answers(one, Promise(question.ballot, Ballot(0, "n1"), before))
    assert change == Accept(question.ballot, value)
    finish_jobs(one)
    answers(one, Accepted(question.ballot))
    assert not one.is_handing_over
    one.hand_over(LATER, "n2")
    assert one.epoch == 1
    assert one.is_handing_over
    assert Release(1, "n2", (), value) in answers(one, Appended(1, marks[-1].index))
    assert one.epoch == 0


def test_nobody_is_to_lead_who_is_not_there() -> None:
    one, now = leading_member(), LATER + SECOND
    answers(one, Heard(1, now, 0), now)
    assert one.prepare_hand_over(now, "") == "n2"
    with pytest.raises(ValueError, match="n3 is not there, or lacks entries"):
        one.prepare_hand_over(now, "n3")
    with pytest.raises(ValueError, match="n9 is no other member"):
        one.prepare_hand_over(now, "n9")
    with pytest.raises(NotLeaderError):
        member().prepare_hand_over(now, "n2")


def test_a_leader_says_when_it_is_asked_how_far_entries_are_committed() -> None:
    one = leading_member()
    one.say_committed(LATER)
    said = {
        message.committed for _, message in one.take_messages() if isinstance(message, Heartbeat)
    }
    assert said == {one.log.mark(one.committed)}
    follower = member(State(sealed=1))
    follower.say_committed(LATER)
    assert follower.take_messages() == []


def leading_member() -> Member:
    """Leads in epoch 1; n2 has all that it has, and n3 was not heard."""
    one = member()
    (question,) = answers(one, Release(0, "n1", (), RegisterValue(1, "n1", NAMES)))
    assert question == Seal(1)
    finish_jobs(one)
    answers(one, Sealed(1, BEGINNING))
    finish_jobs(one)
    answers(one, Appended(1, 1))
    answers(one, Heard(1, LATER, 0))
    assert one.epoch == 1
    return one


def leader_of(
    epoch: int, log: list[Entry], settings: Settings | None = None
) -> tuple[Leader, LogReplica, Outbox]:
    """n1 leads, and has synced its log with the first entry of its epoch."""
    outbox = Outbox(State(sealed=epoch))
    replica = LogReplica(outbox, list(log))
    leader = Leader("n1", epoch, Membership(NAMES), replica, outbox, settings or Settings(), 0)
    job = outbox.take_job(*replica.progress())
    replica.job_taken()
    replica.job_synced()
    outbox.synced(job.number)
    leader.appended(0, "n1", Appended(epoch, replica.end.index))
    return leader, replica, outbox


def test_an_entry_of_an_earlier_epoch_is_not_committed_by_counting_its_copies() -> None:
    leader, log, _ = leader_of(4, entries(1, 2))
    leader.appended(0, "n2", Appended(4, 2))
    assert log.committed == 0
    assert not leader.serves
    leader.appended(0, "n2", Appended(4, 3))
    assert log.committed == 3
    assert leader.serves


def test_one_member_is_counted_once() -> None:
    leader, log, _ = leader_of(1, [])
    for _ in range(3):
        leader.appended(0, "n1", Appended(1, 1))
    assert log.committed == 0


def test_a_damaged_entry_is_repaired_by_the_one_whose_checksum_the_next_entry_names() -> None:
    whole = entries(1, 1, 1)
    log = LogReplica(Outbox(State(sealed=1, synced=3)), [whole[0], None, whole[2]])
    assert log.damaged == {2}
    assert not log.repair(make_entry(2, whole[0].mark, b"of another leader"))
    assert log.repair(whole[1])
    assert log.is_whole
    assert log.end == whole[2].mark


def test_a_damaged_entry_does_not_cost_those_behind_it() -> None:
    whole = entries(1, 1, 1)
    log = LogReplica(Outbox(State(sealed=1, synced=3)), [whole[0], None, whole[2]])
    assert log.append(whole[0].mark, (whole[1],)) == 2
    assert log.end == whole[2].mark


def test_a_torn_end_is_cut_and_a_lost_one_is_known() -> None:
    whole = entries(1, 1, 1)
    torn = LogReplica(Outbox(State(sealed=1, synced=1)), [whole[0], None, whole[2]])
    assert (torn.end, torn.is_whole) == (whole[0].mark, True)
    lost = LogReplica(Outbox(State(sealed=1, synced=3)), [whole[0], whole[1], None])
    assert (lost.end, lost.is_whole) == (whole[1].mark, False)


def test_damaged_entries_in_a_row_that_go_leave_the_log_short_until_a_leader_has_sent_all() -> None:
    """Nothing in between says what they were, so the leader's first one takes all of them away: it
    may be the only server that has what this one has answered for."""
    whole = entries(1, 1, 1, 1, 1)
    outbox = Outbox(State(sealed=1, synced=5, committed=5))
    log = LogReplica(outbox, [whole[0], None, None, None, whole[4]])
    assert log.append(whole[0].mark, (whole[1],)) == 2
    assert (log.damaged, log.is_whole) == (set(), False)
    state = outbox.take_job(*log.progress()).state
    assert LogReplica(Outbox(state), list(whole[:2])).is_short
    log.job_taken()
    log.job_synced()
    log.holds_up_to(5)
    assert not log.is_whole
    assert log.append(whole[1].mark, tuple(whole[2:])) == 5
    outbox.take_job(*log.progress())
    log.job_taken()
    log.job_synced()
    log.holds_up_to(5)
    assert (log.end, log.is_whole) == (whole[4].mark, True)


def test_an_entry_that_others_follow_than_the_leaders_was_never_committed() -> None:
    """What goes with it is no loss: the log is as whole as before."""
    whole, other = entries(1, 1, 1), entries(1, 2)
    log = LogReplica(Outbox(State(sealed=2, synced=3)), [whole[0], None, whole[2]])
    assert log.append(whole[0].mark, (other[1],)) == 2
    assert (log.end, log.is_whole) == (other[1].mark, True)


def test_a_leader_that_would_replace_what_is_committed_is_contradicted() -> None:
    whole, other = entries(1, 1, 1), entries(1, 2)
    log = LogReplica(Outbox(State(sealed=2, synced=3, committed=2)), list(whole))
    with pytest.raises(CorruptionError, match="another entry 2 than the one"):
        log.append(whole[0].mark, (other[1],))


@pytest.mark.parametrize("stored", [[None, *entries(1, 1)[1:]], [entries(1, 1)[0]]])
def test_of_who_has_lost_something_the_log_does_not_count_where_others_are_enough(
    stored: list[Entry | None],
) -> None:
    """It refuses earlier leaders as any other, which is asked of it in groups of an even size."""
    one = member(State(sealed=1, synced=2), stored)
    assert answers(one, AskSeal(1, 2, takes_damaged=True)) == [WouldSeal(1, is_whole=False)]
    answers(one, Seal(2, takes_damaged=True))
    (sealed,) = finish_jobs(one)
    assert isinstance(sealed, Sealed)
    assert (sealed.epoch, sealed.is_whole) == (2, False)
    assert answers(one, Seal(1, takes_damaged=True)) == [Refused(1, 2)]


def test_one_of_two_leads_with_its_own_log_where_that_of_the_other_one_is_damaged() -> None:
    """Each majority has both, so it has all that was committed. What the other one says that it has
    is not asked for: nobody could say what is in between."""
    log = entries(1, 1)
    one = Member("n1", ("n1", "n2"), State(sealed=1, synced=2), list(log), 0, Random(1))
    taken = RegisterValue(2, "n1", ("n1", "n2"))
    assert answers(one, Release(1, "n1", (), taken)) == [Seal(2, takes_damaged=True)]
    finish_jobs(one)
    said = answers(one, Sealed(2, Mark(1, 9, 9), is_whole=False))
    (append,) = (message for message in said if isinstance(message, Append))
    assert (append.after, len(append.entries)) == (log[-1].mark, 1)


def test_of_three_a_majority_has_to_have_whole_logs() -> None:
    """The third one may have what the others have lost or never had."""
    one = member(State(sealed=1, synced=2), list(entries(1, 1)))
    answers(one, Release(1, "n1", (), RegisterValue(2, "n1", NAMES)))
    finish_jobs(one)
    assert answers(one, Sealed(2, Mark(1, 9, 9), is_whole=False)) == []
    one.receive(LATER, "n3", Sealed(2, Mark(1, 2, 9)))
    assert one.take_messages() != []


@pytest.mark.parametrize(
    ("membership", "enough"),
    [
        (Membership(("n1",)), 1),
        (Membership(("n1", "n2")), 1),
        (Membership(("n1", "n2", "n3")), 2),
        (Membership(("n1", "n2", "n3", "n4")), 2),
        (Membership(("n1", "n2", "n3", "n4", "n5")), 3),
    ],
)
def test_so_many_servers_are_in_each_majority(membership: Membership, enough: int) -> None:
    assert membership.is_in_each_quorum(membership.members[:enough])
    assert not membership.is_in_each_quorum(membership.members[: enough - 1])


def test_while_members_change_servers_have_to_be_in_each_majority_of_both() -> None:
    both = Membership(("n1", "n2"), ("n1", "n2", "n3"), 1)
    assert both.is_in_each_quorum(["n1", "n3"])
    assert not both.is_in_each_quorum(["n1"])
    assert not both.is_in_each_quorum(["n3"])
    assert both.has_even_group


@pytest.mark.parametrize("stored", [[None, *entries(1, 1)[1:]], [entries(1, 1)[0]]])
def test_who_has_lost_something_counts_in_no_seal(stored: list[Entry | None]) -> None:
    one = member(State(sealed=1, synced=2), stored)
    answers(one, Seal(2))
    assert finish_jobs(one) == []
    assert answers(one, AskSeal(1)) == []


def test_an_empty_disk_under_an_old_name_takes_no_part() -> None:
    one = member(None)
    assert one.failed
    assert answers(one, Prepare(Ballot(1, "n2"))) == []
    assert answers(one, Heartbeat(1, 0, BEGINNING, 0, 0)) == []


def test_what_a_stranger_says_counts_for_nothing() -> None:
    one = member()
    one.tick(LATER)  # it would lead
    (asked,) = {message for _, message in one.take_messages()}
    assert isinstance(asked, AskSeal)
    for stranger in ("n4", "n5", "n6"):
        one.receive(LATER, stranger, WouldSeal(asked.attempt))
    assert one.take_messages() == []
    assert answers(one, WouldSeal(asked.attempt)) != []  # n2 says the same

    leader, log, _ = leader_of(4, entries(1, 2))
    for stranger in ("n4", "n5", "n6"):
        leader.appended(0, stranger, Appended(4, 3))
        leader.heard(stranger, Heard(4, SECOND, 0))
    assert log.committed == 0
    assert not leader.may_read(SECOND)


def test_a_follower_takes_no_entries_of_clients() -> None:
    with pytest.raises(NotLeaderError):
        member().append(LATER, [b"1"])


def test_a_group_of_one_leads_as_soon_as_its_disk_says_so() -> None:
    one = Member("n1", ("n1",), State(), [], 0, Random(1))
    one.tick(0)
    finish_jobs(one)
    assert one.epoch == 1
    (mark,) = one.append(0, [b"1"])
    assert not one.is_committed(mark)
    finish_jobs(one)
    assert one.is_committed(mark)


def test_a_group_of_one_lets_nobody_else_lead_first_where_its_disk_is_full() -> None:
    one = Member("n1", ("n1",), State(), [], 0, Random(1))
    one.tick(0)
    finish_jobs(one)
    one.note_disk(0, DiskHealth(is_full=True))
    later = 0
    while one.leads:
        later += LATER  # it stood still, and has not heard itself
        one.tick(later)
    one.tick(later + 2 * Settings().promise)
    finish_jobs(one)
    assert one.epoch == 2


def test_a_change_is_given_up_until_the_register_is_asked() -> None:
    one = Member("n1", ("n1",), FOUNDED, [], 0, Random(1))
    one.tick(LATER)
    finish_jobs(one)
    assert not one.give_up_change(LATER)
    one.change_members(LATER, ("n1", "n2"))
    assert one.give_up_change(LATER)
    assert not one.is_changing
    one.change_members(LATER, ("n1", "n2"))
    answers(one, Appended(1, 1))
    answers(one, Heard(1, LATER, 0))
    assert [type(asked) for asked in finish_jobs(one)] == [Accept]
    assert not one.give_up_change(LATER)
    assert one.joining == ("n2",)


def test_messages_are_bytes_and_back() -> None:
    message = Append(3, Mark(2, 7, 9), tuple(entries(1)))
    assert decode(encode(message)) == message


def test_a_run_of_damaged_entries_is_asked_for_at_once_and_goes_on_as_answers_come() -> None:
    log = entries(*[1] * 9)
    damaged: list[Entry | None] = [None if 2 <= entry.index <= 8 else entry for entry in log]
    settings = Settings(entries_max=4)
    one = Member("n1", NAMES, State(sealed=1, synced=9), damaged, 0, Random(1), settings)
    one.tick(LATER)
    asked = [message for _, message in one.take_messages() if isinstance(message, Fetch)]
    assert asked == [Fetch(0, 8, 1)] * 2
    for first, last, next_first, next_count in ((8, 8, 6, 2), (6, 7, 2, 4)):
        found = tuple(log[first - 1 : last])
        (again, _) = answers(one, Fetched(0, log[first - 2].mark, found)), finish_jobs(one)
        assert again == [Fetch(0, next_first, next_count)]
    answers(one, Fetched(0, log[0].mark, tuple(log[1:5])))
    assert one.log.is_whole


def test_what_does_not_fit_into_one_message_is_sent_in_several() -> None:
    leader, _, outbox = leader_of(1, [], Settings(bytes_max=10, unanswered_max=25))
    leader.appended(0, "n2", Appended(1, 1))
    leader.appended(0, "n3", Appended(1, 1))
    outbox.take_messages()
    leader.append([b"four"] * 5 + [b"more than ten bytes"] * 3)
    leader.send_entries()
    sent = [m.entries for to, m in outbox.take_messages() if to == "n2" and isinstance(m, Append)]
    assert [len(found) for found in sent] == [2, 2, 1, 1]
    leader.appended(0, "n2", Appended(1, 6))
    leader.send_entries()
    sent = [m.entries for to, m in outbox.take_messages() if to == "n2" and isinstance(m, Append)]
    assert [len(found) for found in sent] == [1]


def test_who_comes_back_to_a_leader_at_rest_learns_what_is_committed() -> None:
    log = entries(1, 1, 1)
    one = member(State(sealed=1, synced=3, committed=1), list(log))
    answers(one, Heartbeat(1, 0, log[2].mark, 3, 0))
    assert one.committed == 3
    other = member(State(sealed=1, synced=3, committed=1), list(entries(1, 1, 2)))
    answers(other, Heartbeat(1, 0, log[2].mark, 3, 0))
    assert other.committed == 1
    assert other.heard_committed == 3


def test_a_leader_hands_over_to_a_member_and_to_the_one_that_has_most() -> None:
    leader, log, _ = leader_of(1, [])
    leader.appended(0, "n2", Appended(1, 1))
    assert leader.most_synced() == "n2"
    leader.append([b"1"])
    leader.appended(0, "n3", Appended(1, log.end.index))
    assert leader.most_synced() == "n3"
    with pytest.raises(ValueError, match="n9 is no other member of the group: choose from n2, n3"):
        member().hand_over(LATER, "n9")
    with pytest.raises(NotLeaderError):
        member().hand_over(LATER, "n2")


def test_a_log_that_is_trimmed_goes_on_behind_its_base() -> None:
    log = entries(1, 1, 1, 1)
    one = member(State(sealed=1, synced=4, committed=3), list(log))
    one.trim(LATER, 9)
    assert (one.log.base, one.log.end) == (log[2].mark, log[3].mark)  # the last is not committed
    assert one.log.read(1, 9) == ()
    assert one.log.read(4, 9) == (log[3],)
    assert one.log.mark(2) is None
    job = one.take_job()
    assert job is not None
    assert job.state.base == log[2].mark
    again = member(job.state, [log[3]])
    assert (again.log.base, again.log.end, again.committed) == (log[2].mark, log[3].mark, 3)


def test_damage_before_the_base_does_not_matter() -> None:
    log = entries(1, 1, 1)
    one = member(State(sealed=1, synced=3, committed=3), [log[0], None, log[2]])
    assert not one.log.is_whole
    one.trim(LATER, 2)
    assert one.log.base == log[0].mark
    one.trim(LATER, 3)
    assert (one.log.base, one.log.is_whole) == (log[2].mark, True)


def test_entries_that_do_not_follow_the_base_are_cut() -> None:
    log = entries(1, 1)
    other = entries(2, 2)
    replica = LogReplica(Outbox(State(sealed=2, base=other[0].mark, synced=1)), [log[1]])
    assert (replica.end, replica.is_whole) == (other[0].mark, True)


def trimmed() -> tuple[Member, list[Entry]]:
    """A member whose log begins behind its second entry."""
    log = entries(1, 1, 1)
    state = State(sealed=1, synced=3, committed=3, base=log[1].mark)
    return member(state, [log[2]]), log


def test_a_leader_that_sends_what_was_trimmed_is_told_to_go_on_behind_it() -> None:
    one, log = trimmed()
    assert answers(one, Append(1, BEGINNING, (log[0],))) == [Missing(1, 2)]
    assert answers(one, Append(1, log[1].mark, (log[2],))) == [Appended(1, 3)]


def test_who_lacks_what_was_trimmed_is_told_not_to_lead() -> None:
    one, log = trimmed()
    assert answers(one, AskSeal(7, 1)) == [Trimmed(2)]
    assert answers(one, AskSeal(7, 2)) == [WouldSeal(7)]
    assert answers(one, Fetch(4, 1, 9)) == [Trimmed(2)]
    assert answers(one, Fetch(4, 3, 9)) == [Fetched(4, log[1].mark, (log[2],))]


def test_who_was_told_that_it_lacks_something_does_not_stand() -> None:
    one = member(State(sealed=1, synced=1), list(entries(1)))
    answers(one, Trimmed(5))
    one.tick(2 * LATER)
    assert not any(isinstance(message, AskSeal) for _, message in one.take_messages())


def test_a_leader_says_where_its_log_begins_to_who_needs_what_is_gone() -> None:
    leader, log, outbox = leader_of(2, entries(1, 1, 1))
    leader.appended(0, "n2", Appended(2, 4))
    log.trim(2)
    outbox.take_messages()
    leader.missing(10 * LATER, "n3", Missing(2, 1))
    leader.send_entries()
    assert [message for to, message in outbox.take_messages() if to == "n3"] == [
        Behind(2, log.base)
    ]
    leader.missing(20 * LATER, "n3", Missing(2, 2))
    leader.send_entries()
    (sent,) = [message for to, message in outbox.take_messages() if to == "n3"]
    assert isinstance(sent, Append)
    assert sent.after == log.base


def test_a_leader_names_a_follower_that_has_all_as_the_source_of_a_checkpoint() -> None:
    leader, log, outbox = leader_of(2, entries(1, 1, 1))
    leader.appended(0, "n2", Appended(2, 4))
    leader.heard("n2", Heard(2, LATER, 0))
    log.trim(2)

    def told(now: int) -> list[Message]:
        outbox.take_messages()
        leader.missing(now, "n3", Missing(2, 1))
        return [message for to, message in outbox.take_messages() if to == "n3"]

    assert told(LATER) == [Behind(2, log.base, "n2")]
    assert told(10 * LATER) == [Behind(2, log.base)], "it has not been heard for long"


def test_a_leader_keeps_what_follows_a_checkpoint_that_is_on_its_way() -> None:
    leader, log, _ = leader_of(2, entries(1, 1, 1))
    for name in ("n2", "n3"):
        leader.heard(name, Heard(2, LATER, 0))
    leader.appended(0, "n2", Appended(2, 4))
    leader.appended(0, "n3", Appended(2, 3))
    assert leader.needed_behind(LATER) == 3
    log.trim(2)
    leader.missing(LATER, "n3", Missing(2, 1))
    assert leader.needed_behind(LATER) == 4
    leader.heard("n3", Heard(2, LATER, 0, needs=3))
    assert leader.needed_behind(LATER) == 3
    leader.heard("n3", Heard(2, LATER, 0, needs=1))
    assert leader.needed_behind(LATER) == 4, "what follows that one is gone"
    leader.heard("n3", Heard(2, LATER, 0, needs=3))
    assert leader.needed_behind(10 * LATER) == 4, "it is away"


def test_who_installs_a_checkpoint_says_what_it_needs_until_entries_follow() -> None:
    base = Mark(2, 9, 99)
    one = installing(entries(1, 1), base)

    def needs(now: int) -> int:
        (heard,) = [
            message
            for message in answers(one, Heartbeat(2, now, BEGINNING, 0, 0), now)
            if isinstance(message, Heard)
        ]
        return heard.needs

    assert needs(2 * LATER) == 9
    one.installed(2 * LATER, base)
    finish_jobs(one)
    assert needs(3 * LATER) == 9
    answers(one, Append(2, base, (make_entry(2, base, b"new"),)))
    assert needs(4 * LATER) == 0


def test_a_checkpoint_is_asked_of_whom_the_leader_names_and_then_of_itself() -> None:
    base = Mark(2, 9, 99)
    one = member(State(sealed=2, synced=2), list(entries(1, 1)))
    answers(one, Heartbeat(2, 0, BEGINNING, 0, 0))
    answers(one, Behind(2, base, "n3"))
    assert one.checkpoint_sources() == ("n3", "n2")
    answers(one, Behind(2, base, "a stranger"))
    assert one.checkpoint_sources() == ("n2",)


def test_whom_an_earlier_leader_named_is_not_asked_for_a_checkpoint() -> None:
    base = Mark(2, 9, 99)
    one = member(State(sealed=2, synced=2), list(entries(1, 1)))
    answers(one, Heartbeat(2, 0, BEGINNING, 0, 0))
    answers(one, Behind(2, base, "n3"))
    answers(one, Heartbeat(3, 0, BEGINNING, 0, 0), LATER)
    assert one.lose_applied(LATER)
    assert one.checkpoint_sources() == ("n2",)


def installing(log: list[Entry], base: Mark) -> Member:
    """A member that has been told by n2, which leads epoch 2, that its log begins behind `base`,
    and has noted that it installs a checkpoint."""
    one = member(State(sealed=2, synced=len(log)), list(log))
    answers(one, Heartbeat(2, 0, BEGINNING, 0, 0))
    answers(one, Behind(2, base))
    assert one.checkpoint_sources() == ("n2",)
    assert one.begin_install(LATER, base)
    assert not one.may_install
    finish_jobs(one)
    assert one.may_install
    return one


def test_who_installs_a_checkpoint_answers_for_its_log_and_does_not_lead() -> None:
    """Or servers of which one has lost its files and another one an entry would stand still."""
    base = Mark(2, 9, 99)
    one = installing(entries(1, 1), base)
    log = entries(1, 1, 2)
    answers(one, Append(2, log[1].mark, (log[2],)))
    assert finish_jobs(one) == [Appended(2, 3)]
    assert answers(one, AskSeal(7, 9), 2 * LATER) == [WouldSeal(7)]
    answers(one, Seal(3), 2 * LATER)
    assert finish_jobs(one) == [Sealed(3, log[2].mark)]
    assert not asks(one, 3 * LATER)


def test_who_has_installed_a_checkpoint_goes_on_behind_it_with_its_promises() -> None:
    base = Mark(2, 9, 99)
    one = installing(entries(1, 1), base)
    one.installed(LATER, base)
    job = one.take_job()
    assert job is not None
    assert (job.is_reset, job.state.base, job.state.sealed) == (True, base, 2)
    assert not job.state.is_installing
    one.synced(LATER, job.number)
    assert (one.log.end, one.committed, one.log.is_whole) == (base, 9, True)
    new = make_entry(2, base, b"new")
    answers(one, Append(2, base, (new,)))
    assert finish_jobs(one) == [Appended(2, 10)]


def test_a_log_that_may_have_lost_what_it_answered_for_is_short_after_an_install() -> None:
    base = Mark(2, 2, 99)
    damaged: list[Entry | None] = [entries(1, 1, 1)[0], None, entries(1, 1, 1)[2]]
    one = member(State(sealed=2, synced=3), damaged)
    answers(one, Heartbeat(2, 0, BEGINNING, 0, 0))
    answers(one, Behind(2, base), 2 * LATER)
    assert one.begin_install(LATER, base)
    finish_jobs(one)
    one.installed(LATER, base)
    assert (one.log.end, one.log.is_short) == (base, True)


def test_an_install_keeps_what_follows_it_and_drops_what_contradicts_it() -> None:
    log = entries(1, 1, 1)
    replica = LogReplica(Outbox(State(sealed=1, synced=3, is_installing=True)), list(log))
    assert (replica.is_installing, replica.is_whole) == (True, True)
    replica.reset(log[1].mark)
    assert (replica.end, replica.is_whole) == (log[2].mark, True)
    replica = LogReplica(Outbox(State(sealed=1, synced=3, is_installing=True)), list(log))
    replica.reset(Mark(2, 2, 99))
    assert (replica.end, replica.is_whole) == (Mark(2, 2, 99), True)


def test_a_checkpoint_of_what_was_applied_is_sent_also_if_less_was_noted_as_committed() -> None:
    """A leader that has just started may be able to commit nothing before a follower has it."""
    log = entries(1, 1, 1, 1)
    one = member(State(sealed=1, synced=4, committed=2), list(log))
    assert one.committed == 2
    assert one.checkpoint_mark(4) == log[3].mark
    assert one.committed == 4
    assert one.checkpoint_mark(5) is None


def test_a_checkpoint_that_is_older_than_the_log_or_not_needed_is_refused() -> None:
    one, log = trimmed()
    assert not one.begin_install(LATER, log[0].mark)
    assert not one.begin_install(LATER, log[2].mark)
    assert not one.is_installing
