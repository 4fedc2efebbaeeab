"""What the register outside of the group asks of its store, and what it takes for known."""

from random import Random

import pytest

from slipstream.group import Member, RegisterValue, State
from slipstream.group.membership import Membership
from slipstream.group.messages import AskSeal
from slipstream.group.outside_register import (
    Answer,
    Changed,
    Failed,
    Found,
    Get,
    OutsideRegister,
    Put,
    Stored,
    encode_record,
)
from slipstream.model.durations import MILLISECOND, SECOND

THREE = Membership(("n1", "n2", "n3"))
TWO = Membership(("n1", "n2"))
NOTHING = Found(b"", "")


def value(epoch: int, leader: str, membership: Membership = THREE) -> RegisterValue:
    return RegisterValue(epoch, leader, ()).with_membership(membership)


def held(epoch: int, leader: str, membership: Membership = THREE, mark: str = "else.1") -> Found:
    """What a read shows, at a version that is called by the epoch."""
    return Found(encode_record(value(epoch, leader, membership), mark), f"at {epoch}")


class Store:
    """A store whose answers the test gives."""

    def __init__(self, name: str = "n1") -> None:
        self.register = OutsideRegister(name, "p")
        self.now = 0

    def want(self, wanted: RegisterValue) -> None:
        self.register.compare_and_set(self.now, wanted)

    def read(self) -> Get:
        request = self.register.take_request()
        assert isinstance(request, Get)
        return request

    def put(self) -> Put:
        request = self.register.take_request()
        assert isinstance(request, Put)
        return request

    def answer(self, request: Get | Put, answer: Answer) -> None:
        self.register.answered(self.now, request.number, answer)

    def wait(self, time: int = 200 * MILLISECOND) -> None:
        self.now += time
        self.register.tick(self.now)

    @property
    def outcome(self) -> tuple[bool, int, str] | None:
        found = self.register.outcome
        return (found.is_set, found.value.epoch, found.value.leader) if found else None


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_first_value_is_put_where_there_is_nothing(store: Store) -> None:
    store.want(value(1, "n1"))
    store.answer(store.read(), NOTHING)
    put = store.put()
    assert put.version == ""
    assert b'"members"' in put.data
    store.answer(put, Stored())
    assert store.outcome == (True, 1, "n1")


def test_the_next_epoch_is_put_at_the_version_that_was_read_with_its_members(store: Store) -> None:
    store.want(value(4, "n1"))
    four = Membership(("n1", "n2", "n3", "n4"), (), 2)
    store.answer(store.read(), held(3, "n2", four))
    put = store.put()
    assert put.version == "at 3"
    store.answer(put, Stored())
    assert store.register.outcome is not None
    assert store.register.outcome.value.membership == four


def test_an_epoch_that_another_server_has_taken_is_not_put(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(4, "n2"))
    assert store.register.take_request() is None
    assert store.outcome == (False, 4, "n2")


def test_a_refused_put_is_followed_by_a_read(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(3, "n2"))
    store.answer(store.put(), Changed())
    assert store.outcome is None
    store.answer(store.read(), held(4, "n3"))
    assert store.outcome == (False, 4, "n3")


@pytest.mark.parametrize("lost", [Failed("no answer"), Changed()])
def test_a_put_that_has_happened_without_an_answer_is_recognised(
    store: Store, lost: Answer
) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(3, "n2"))
    put = store.put()
    store.answer(put, lost)
    store.wait()
    store.answer(store.read(), Found(put.data, "at 4"))
    assert store.outcome == (True, 4, "n1")


def test_the_same_epoch_and_server_of_an_earlier_process_is_not_ones_own(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(4, "n1", mark="earlier.1"))
    assert store.outcome == (False, 4, "n1")


def test_the_answer_to_an_earlier_attempt_says_nothing_about_this_one(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(3, "n2"))
    put = store.put()
    store.want(value(4, "n1"))
    store.answer(put, Stored())
    assert store.outcome is None
    store.answer(store.read(), Found(put.data, "at 4"))
    assert store.outcome == (False, 4, "n1")


@pytest.mark.parametrize("stale", [held(2, "n2"), held(1, "n1"), NOTHING])
def test_a_stale_read_is_not_believed(store: Store, stale: Found) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), stale)
    assert store.register.take_request() is None
    assert store.outcome is None
    store.wait()
    store.answer(store.read(), held(3, "n2"))
    assert store.put().version == "at 3"


def test_a_read_that_shows_less_than_the_one_before_is_not_believed(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), held(6, "n2"))
    store.want(value(6, "n1"))
    store.answer(store.read(), held(5, "n3"))
    assert store.register.take_request() is None
    assert store.outcome is None


def test_a_store_that_shows_an_older_content_for_long_is_said_to_have_lost_it(
    store: Store,
) -> None:
    store.want(value(4, "n1"))
    for number in range(15):
        store.answer(store.read(), held(2, "n2"))
        assert bool(store.register.fault) == (number >= 10)
        store.wait()
    assert "it shows epoch 2 and step 0 of the members, and has had epoch 3" in store.register.fault
    store.answer(store.read(), held(3, "n2"))
    assert store.register.fault == ""


def test_an_object_that_is_gone_is_not_made_anew(store: Store) -> None:
    store.want(value(4, "n1"))
    store.answer(store.read(), NOTHING)
    assert store.register.take_request() is None
    assert "is gone" in store.register.fault


@pytest.mark.parametrize("content", [b"hello", b'{"leader": "\xff"}'])
def test_what_is_no_register_is_left_alone(store: Store, content: bytes) -> None:
    store.want(value(1, "n1"))
    store.answer(store.read(), Found(content, "1"))
    assert store.register.take_request() is None
    assert "something else" in store.register.fault


def test_a_store_that_does_not_answer_is_asked_again(store: Store) -> None:
    store.want(value(1, "n1"))
    first = store.read()
    store.wait(5 * SECOND)
    second = store.read()
    assert second.number > first.number
    assert store.register.fault
    store.answer(first, held(7, "n2"))
    assert store.outcome is None


def test_what_is_given_up_leaves_no_more(store: Store) -> None:
    store.want(value(1, "n1"))
    read = store.read()
    store.register.give_up()
    store.answer(read, NOTHING)
    store.wait()
    assert store.register.take_request() is None


def test_who_is_no_member_does_not_take_the_register() -> None:
    store = Store("n4")
    store.want(value(4, "n4"))
    store.answer(store.read(), held(3, "n2"))
    assert store.register.take_request() is None
    assert store.outcome == (False, 3, "n2")


def test_one_of_two_takes_it_alone_from_both_and_not_from_the_other_one(store: Store) -> None:
    store.want(value(4, "n1", TWO.alone("n1")))
    store.answer(store.read(), held(3, "n2", TWO))
    assert b'"n2"\n ]' in store.put().data  # that is away
    store.want(value(4, "n1", TWO.alone("n1")))
    store.answer(store.read(), held(3, "n2", TWO.alone("n2")))
    assert store.register.take_request() is None
    assert store.outcome == (False, 3, "n2")


def test_nobody_of_three_goes_on_alone() -> None:
    assert not any(THREE.is_in_all_quorums(name) for name in THREE.members)


def test_a_server_that_is_away_asks_whether_it_was_taken_back() -> None:
    register = OutsideRegister("n1", "p")
    away = TWO.alone("n2")
    state = State(sealed=3, membership=away)
    one = Member("n1", ("n1", "n2"), state, [], 0, Random(1), register=register)
    one.tick(10 * SECOND)
    read = register.take_request()
    assert isinstance(read, Get)
    back = Membership(("n2", "n1"), ("n2",), away.number + 1)
    register.answered(10 * SECOND, read.number, held(3, "n2", back))
    one.look_at_register(10 * SECOND)
    assert register.take_request() is None
    assert one.membership == back
    assert not one.failed


def test_a_candidate_that_too_few_answer_asks_who_the_members_are() -> None:
    """n1 is in the group no more, and n2 is damaged: neither answers n3, which was told of no
    change. n4 is in the group, and does not know that either."""
    step = Membership(("n2", "n3", "n4"), (), 2)
    for name in ("n3", "n4"):
        register = OutsideRegister(name, "p")
        member = Member(name, THREE.members, State(sealed=1), [], 0, Random(1), register=register)
        now, request = 0, None
        while request is None:
            now += 50 * MILLISECOND
            assert now < 20 * SECOND
            member.tick(now)
            request = register.take_request()
        assert isinstance(request, Get)
        register.answered(now, request.number, held(1, "n2", step))
        member.look_at_register(now)
        assert member.members == step.members
        asked: set[str] = set()
        while asked != set(step.members) - {name}:
            now += 50 * MILLISECOND
            assert now < 40 * SECOND
            member.tick(now)
            asked = {to for to, message in member.take_messages() if isinstance(message, AskSeal)}
