"""Reads show nothing that a crash could take back, and wait for at most one sync."""

import json
from base64 import b64decode
from random import Random
from typing import Any

import pytest

from slipstream.testing.driver import Client, Driver, Message, encode
from slipstream.testing.simulated_disk import SimulatedDisk


@pytest.fixture
def client() -> Client:
    """Of a server with a stream of one durable message, whose disk does nothing by itself."""
    client = Driver(SimulatedDisk(Random(1))).start().client()
    config = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
    client.api("STREAM.CREATE.S", config)
    client.store("s.a", b"one")
    client.driver.runner.hold()
    return client


def ask(client: Client, asked: dict[str, Any]) -> list[Message]:
    """The answers to a direct get so far."""
    return client.ask("$JS.API.DIRECT.GET.S", asked)


def work(client: Client) -> list[Message]:
    """The disk does all that it was asked for; what the client is sent."""
    while client.driver.runner.step():
        client.driver.finish()
    return client.take()


@pytest.mark.parametrize(
    "asked", [{"seq": 2}, {"last_by_subj": "s.a"}, {"multi_last": ["s.>"]}, {"seq": 2, "batch": 5}]
)
def test_a_get_of_what_is_on_its_way_to_the_disk_is_answered_when_it_is_there(
    client: Client, asked: dict[str, Any]
) -> None:
    client.publish("s.a", b"two", "_INBOX.t.ack")
    assert ask(client, asked) == []
    acknowledgement, found, *_ = work(client)
    assert acknowledgement.json()["seq"] == 2
    assert found.body == b"two"


def test_a_get_does_not_wait_for_what_is_published_after_it(client: Client) -> None:
    client.publish("s.a", b"two")
    ask(client, {"last_by_subj": "s.a"})
    client.publish("s.a", b"three")
    client.driver.runner.step()
    client.driver.runner.step()
    client.driver.finish()
    assert [message.body for message in client.take()] == [b"two"]
    assert client.driver.runner.waiting


@pytest.mark.parametrize("subject", ["DIRECT.GET.S", "STREAM.MSG.GET.S"])
def test_a_get_waits_for_what_waits_for_a_batch_under_way(client: Client, subject: str) -> None:
    client.publish("s.a", b"two")
    client.publish("s.a", b"three")  # in the next batch
    client.ask(f"$JS.API.{subject}", {"last_by_subj": "s.a"})
    client.driver.runner.step()
    client.driver.runner.step()
    client.driver.finish()
    assert client.take() == []
    (found,) = work(client)
    is_api = found.body.startswith(b"{")
    assert (b64decode(found.json()["message"]["data"]) if is_api else found.body) == b"three"


def test_what_was_replaced_is_not_missing_until_its_successor_is_durable() -> None:
    client = Driver(SimulatedDisk(Random(1))).start().client()
    client.api("STREAM.CREATE.K", {"name": "K", "subjects": ["k"], "max_msgs_per_subject": 1})
    client.store("k", b"one")
    client.driver.runner.hold()
    client.publish("k", b"two")
    client.publish("k", b"three")
    client.ask("$JS.API.STREAM.MSG.GET.K", {"last_by_subj": "k"})
    (found,) = work(client)
    assert b64decode(found.json()["message"]["data"]) == b"three"


def test_a_refusal_does_not_name_what_a_crash_could_take_back(client: Client) -> None:
    client.publish("s.a", b"two")
    expected = {"Nats-Expected-Last-Subject-Sequence": "1"}
    assert client.ask("s.a", b"three", expected) == []
    (refusal,) = work(client)
    assert refusal.json()["error"]["description"] == "wrong last sequence: 2"


def test_a_refusal_by_what_the_disk_refuses_says_so(client: Client) -> None:
    client.publish("s.a", b"two")
    client.ask("s.a", b"three", {"Nats-Expected-Last-Subject-Sequence": "1"})
    client.driver.runner.release(OSError(5, "Input/output error"))
    client.driver.finish()
    (refusal,) = client.take()
    assert refusal.json()["error"]["err_code"] == 10077


@pytest.mark.parametrize("asked", [{"seq": 1}, {"last_by_subj": "s.a"}])
def test_a_message_is_not_said_to_be_gone_while_a_crash_could_bring_it_back(
    client: Client, asked: dict[str, Any]
) -> None:
    client.publish("$JS.API.STREAM.PURGE.S")
    assert client.ask("$JS.API.STREAM.MSG.GET.S", asked) == []
    assert client.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 1}) == []
    got, deleted = work(client)
    assert got.json()["error"]["err_code"] == 10037
    assert deleted.json()["error"]["err_code"] == 10057


def test_streams_and_consumers_are_not_said_to_be_gone_while_a_crash_could_bring_them_back(
    client: Client,
) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit"}
    client.driver.runner.release()
    client.publish(
        "$JS.API.CONSUMER.DURABLE.CREATE.S.c",
        json.dumps({"stream_name": "S", "config": config}).encode(),
    )
    work(client)
    client.publish("$JS.API.CONSUMER.DELETE.S.c")
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    (found,) = work(client)
    assert found.json()["error"]["err_code"] == 10014
    client.publish("$JS.API.STREAM.DELETE.S")
    assert client.ask("$JS.API.STREAM.INFO.S") == []
    (found,) = work(client)
    assert found.json()["error"]["err_code"] == 10059
    assert client.api("STREAM.INFO.S")["error"]["err_code"] == 10059


def test_a_new_consumer_is_shown_once_it_is_durable(client: Client) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit"}
    asked = json.dumps({"stream_name": "S", "config": config}).encode()
    client.publish("$JS.API.CONSUMER.DURABLE.CREATE.S.c", asked)
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    (found,) = work(client)
    assert found.json()["name"] == "c"
    assert client.api("CONSUMER.INFO.S.c")["name"] == "c"


def test_a_batch_ends_before_what_is_not_durable(client: Client) -> None:
    client.publish("s.a", b"two")
    ask(client, {"seq": 1, "batch": 5})
    client.publish("s.a", b"three")
    client.driver.runner.step()
    client.driver.runner.step()
    client.driver.finish()
    assert [message.body for message in client.take()][:2] == [b"one", b"two"]
    assert [message.status for message in work(client)] == []


def test_a_get_whose_message_the_disk_refuses_says_so_and_later_ones_do_not_find_it(
    client: Client,
) -> None:
    client.publish("s.a", b"two")
    assert ask(client, {"seq": 2}) == []
    client.driver.runner.release(OSError(5, "Input/output error"))
    client.driver.finish()
    assert [message.status for message in client.take()] == ["500 Storage Failure"]
    assert [message.status for message in ask(client, {"seq": 2})] == ["404 Message Not Found"]
    assert [message.body for message in ask(client, {"seq": 1})] == [b"one"]
    answer = client.api("STREAM.MSG.GET.S", {"seq": 2})
    assert answer["error"]["err_code"] == 10037


@pytest.mark.parametrize("relaxed", [{"storage": "memory"}, {"persist_mode": "async"}])
def test_where_nothing_waits_for_the_disk_reads_do_not(relaxed: dict[str, str]) -> None:
    client = Driver(SimulatedDisk(Random(1))).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "allow_direct": True} | relaxed)
    client.driver.runner.hold()
    client.publish("s", b"one")
    assert [message.body for message in ask(client, {"seq": 1})] == [b"one"]


def test_a_full_disk_that_cannot_record_removals_keeps_nobody_from_reading() -> None:
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    for _ in range(80):
        client.store("s.a", b"x")
    client.driver.advance(4_000_000_000)
    disk.capacity = disk.used()
    seq = 2
    while "error" not in client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True}):
        seq += 2
    removal = encode("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":79,"no_erase":true}', "_INBOX.t.d")
    client.send(removal + encode("$JS.API.DIRECT.GET.S", b'{"seq":1}', "_INBOX.t.g"))
    assert b"x" in [message.body for message in client.take()]


def test_a_read_of_a_relaxed_stream_does_not_wait_for_its_interval() -> None:
    client = Driver(SimulatedDisk(Random(1))).start().client()
    config = {"name": "S", "subjects": ["s"], "allow_direct": True, "persist_mode": "async"}
    client.api("STREAM.CREATE.S", config)
    client.store("s", b"one")
    client.driver.runner.hold()
    client.driver.advance(2_000_000_000)  # the sync of it is on its way
    client.publish("s", b"two")
    assert [message.body for message in ask(client, {"seq": 2})] == [b"two"]
