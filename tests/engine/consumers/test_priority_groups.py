"""Several clients pull from one consumer, and its priority groups decide who is served."""

import json
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Message

MINUTE = 60 * SECOND


def consumer(client: Client, policy: str, **options: Any) -> Any:
    """The stream S and its consumer c with the group A."""
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    config = {
        "durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * SECOND,
        "priority_policy": policy, "priority_groups": ["A"], **options,
    }  # fmt: skip
    answer = client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert "error" not in answer, answer
    return answer


class Puller:
    """One client's requests, on an inbox of its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client.driver.client()
        self.inbox = f"in.{name}"
        self.client.subscribe(self.inbox, 9)

    def ask(self, **request: Any) -> list[Message]:
        """Pull for group A unless told otherwise; what comes at once."""
        body = {"batch": 1, "expires": 10 * MINUTE, "group": "A", **request}
        subject = "$JS.API.CONSUMER.MSG.NEXT.S.c"
        self.client.publish(subject, json.dumps(body).encode(), self.inbox)
        return self.take()

    def take(self) -> list[Message]:
        """What has come since."""
        return [message for message in self.client.take() if message.sid == "9"]


def subjects(messages: list[Message]) -> list[str]:
    """Of ordinary messages their subjects, of others their statuses."""
    return [message.status or message.subject for message in messages]


def pin_of(message: Message) -> str:
    """The pin that a message carries."""
    return message.fields["Nats-Pin-Id"]


def shown(client: Client) -> dict[str, Any]:
    """The state of the first group, as consumer information shows it."""
    (state,) = client.api("CONSUMER.INFO.S.c")["priority_groups"]
    found: dict[str, Any] = state
    return found


# -- overflow ----------------------------------------------------------------------------------


def test_overflow_serves_a_request_while_its_threshold_is_reached(client: Client) -> None:
    consumer(client, "overflow")
    busy, idle = Puller(client, "busy"), Puller(client, "idle")
    assert idle.ask(batch=10, min_pending=3) == []
    client.store("s.a")
    client.store("s.b")
    assert idle.take() == []
    client.store("s.c")
    assert subjects(idle.take()) == ["s.a"]
    client.store("s.d")
    assert subjects(idle.take()) == ["s.b"]
    assert subjects(busy.ask(batch=9)) == ["s.c", "s.d"]
    client.store("s.e")
    assert subjects(busy.take()) == ["s.e"]
    assert idle.take() == []


def test_overflow_serves_a_request_once_enough_wait_for_acknowledgement(client: Client) -> None:
    consumer(client, "overflow")
    busy, idle = Puller(client, "busy"), Puller(client, "idle")
    idle.ask(batch=10, min_ack_pending=2, min_pending=1000)
    assert busy.ask(batch=2) == []
    for token in "abcd":
        client.store(f"s.{token}")
    (first, _) = busy.take()
    assert subjects(idle.take()) == ["s.c", "s.d"]
    for message in (first, first):
        busy.client.publish(message.reply)
    assert client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 3


def test_overflow_without_patience_is_told_that_there_is_nothing(client: Client) -> None:
    consumer(client, "overflow")
    client.store("s.a")
    idle = Puller(client, "idle")
    assert subjects(idle.ask(no_wait=True, expires=0, min_pending=2)) == ["404 No Messages"]
    assert idle.ask(no_wait=True, expires=SECOND, min_pending=2) == []
    client.driver.advance(SECOND)
    assert subjects(idle.take()) == ["408 Request Timeout"]


def test_what_waits_below_its_threshold_still_has_heartbeats(client: Client) -> None:
    consumer(client, "overflow")
    client.store("s.a")
    idle = Puller(client, "idle")
    idle.ask(min_pending=2, idle_heartbeat=SECOND)
    client.driver.advance(3 * SECOND)
    assert subjects(idle.take()) == ["100 Idle Heartbeat"] * 3


# -- pinned ------------------------------------------------------------------------------------


def test_the_first_to_be_served_is_pinned_and_the_others_stand_by(client: Client) -> None:
    consumer(client, "pinned_client", priority_timeout=MINUTE)
    one, two = Puller(client, "one"), Puller(client, "two")
    one.ask(batch=2)
    two.ask(batch=2)
    assert shown(client) == {"group": "A", "pinned_ts": "0001-01-01T00:00:00Z"}
    for token in "abc":
        client.store(f"s.{token}")
    got = one.take()
    assert subjects(got) == ["s.a", "s.b"]
    assert {pin_of(message) for message in got} == {shown(client)["pinned_client_id"]}
    assert two.take() == []
    assert subjects(one.ask(id=pin_of(got[0]))) == ["s.c"]


def test_a_pin_ends_when_nobody_names_it_any_more(client: Client) -> None:
    consumer(client, "pinned_client", priority_timeout=10 * SECOND, ack_wait=10 * MINUTE)
    watcher = client.driver.client()
    watcher.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.S.c", 5)
    one, two = Puller(client, "one"), Puller(client, "two")
    client.store("s.a")
    (first,) = one.ask()
    two.ask(batch=5)
    for _ in range(3):
        client.driver.advance(8 * SECOND)
        client.store("s.x")
        assert subjects(one.ask(id=pin_of(first))) == ["s.x"]
    client.store("s.b")
    client.driver.advance(9 * SECOND)
    assert two.take() == []
    client.driver.advance(SECOND)
    (second,) = two.take()
    assert second.subject == "s.b"
    assert pin_of(second) not in ("", pin_of(first))
    told = [message.json() for message in watcher.take() if message.sid == "5"]
    assert [(a["type"].rsplit(".", 1)[1], a.get("reason")) for a in told] == [
        ("consumer_group_pinned", None), ("consumer_group_unpinned", "timeout"),
        ("consumer_group_pinned", None),
    ]  # fmt: skip
    assert told[2]["pinned_id"] == pin_of(second)
    assert (told[2]["group"], told[2]["account"]) == ("A", "$G")


def test_who_names_a_pin_that_has_ended_is_told_so(client: Client) -> None:
    consumer(client, "pinned_client", priority_timeout=MINUTE)
    one, two = Puller(client, "one"), Puller(client, "two")
    client.store("s.a")
    pin = pin_of(one.ask()[0])
    two.ask(batch=9)
    one.ask(id=pin, batch=3)
    assert client.api("CONSUMER.UNPIN.S.c", {"group": "A"}).keys() == {"type"}
    assert "pinned_client_id" not in shown(client)
    client.store("s.b")
    assert subjects(two.take()) == ["s.b"]
    client.store("s.c")
    (told,) = one.take()
    assert told.status == "423 Nats-Wrong-Pin-Id"
    assert told.fields == {"Nats-Pending-Messages": "3", "Nats-Pending-Bytes": "0"}
    (told,) = one.ask(id=pin)
    assert (told.status, told.fields) == ("423 Nats-Pin-Id mismatch", {})
    assert one.ask() == []
    assert subjects(two.take()) == ["s.c"]


def test_what_is_delivered_again_goes_to_the_pinned_client(client: Client) -> None:
    consumer(client, "pinned_client", ack_wait=5 * SECOND)
    one, two = Puller(client, "one"), Puller(client, "two")
    one.ask(batch=9)
    two.ask(batch=9)
    client.store("s.a")
    client.driver.advance(6 * SECOND)
    assert subjects(one.take()) == ["s.a", "s.a"]
    assert two.take() == []


def test_a_client_that_has_gone_is_not_pinned(client: Client) -> None:
    consumer(client, "pinned_client")
    one, two = Puller(client, "one"), Puller(client, "two")
    one.ask()
    one.client.send(b"UNSUB 9\r\n")
    two.ask()
    client.store("s.a")
    assert subjects(two.take()) == ["s.a"]


def test_an_update_to_another_policy_ends_the_pin(client: Client) -> None:
    consumer(client, "pinned_client")
    one, two = Puller(client, "one"), Puller(client, "two")
    client.store("s.a")
    one.ask()
    two.ask()
    consumer(client, "overflow")
    client.store("s.b")
    assert subjects(two.take()) == ["s.b"]
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
    answer = client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert "priority_groups" not in answer
    client.store("s.c")
    assert subjects(two.ask()) == ["s.c"]


# -- prioritized -------------------------------------------------------------------------------


def test_a_lower_number_is_served_first_and_equal_ones_take_turns(client: Client) -> None:
    consumer(client, "prioritized")
    late, first, second = (Puller(client, name) for name in ("late", "first", "second"))
    late.ask(batch=2, priority=5)
    first.ask(batch=2, priority=1)
    second.ask(batch=2, priority=1)
    for token in "abcdef":
        client.store(f"s.{token}")
    assert subjects(first.take()) == ["s.a", "s.c"]
    assert subjects(second.take()) == ["s.b", "s.d"]
    assert subjects(late.take()) == ["s.e", "s.f"]


@pytest.mark.parametrize(
    ("policy", "request_", "problem"),
    [
        ("overflow", {"group": ""}, "Priority Group missing"),
        ("overflow", {"group": "B"}, "Invalid Priority Group"),
        ("overflow", {"id": "x"}, "Not a Pinned Client Priority consumer"),
        ("prioritized", {"min_pending": 1}, "Not a Overflow Priority consumer"),
        ("pinned_client", {"min_ack_pending": 1}, "Not a Overflow Priority consumer"),
        ("prioritized", {"priority": 10}, "Priority must be between 0 and 9"),
    ],
)
def test_a_request_that_does_not_fit_the_policy_is_refused(
    client: Client, policy: str, request_: dict[str, Any], problem: str
) -> None:
    consumer(client, policy)
    client.store("s.a")
    assert subjects(Puller(client, "x").ask(**request_)) == [f"400 Bad Request - {problem}"]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"priority_policy": "overflow"}, 10159),
        ({"priority_policy": "overflow", "priority_groups": [""]}, 10161),
        ({"priority_policy": "overflow", "priority_groups": ["a b"]}, 10162),
        ({"priority_policy": "overflow", "deliver_subject": "d"}, 10178),
        ({"priority_groups": ["A"]}, 10196),
        ({"priority_timeout": SECOND}, 10197),
        ({"priority_policy": "pinned", "priority_groups": ["A"]}, 10025),
    ],
)
def test_what_is_no_priority_group_is_refused(
    client: Client, config: dict[str, Any], code: int
) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    asked = {"stream_name": "S", "config": {"name": "c", **config}}
    assert client.api("CONSUMER.CREATE.S.c", asked)["error"]["err_code"] == code


def test_an_explanation_says_that_a_group_holds_requests_back(client: Client) -> None:
    consumer(client, "overflow")
    client.store("s.a")
    Puller(client, "x").ask(min_pending=5)
    told = client.request("$SLIPSTREAM.CONSUMER.EXPLAIN.S.c").json()
    blocking = [reason["code"] for reason in told["reasons"] if reason["blocks"]]
    assert blocking == ["priority_group"]
