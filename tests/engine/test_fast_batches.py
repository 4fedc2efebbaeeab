"""Many messages that are acknowledged together; `tests/compatibility/test_fast_batches.py` has the
answers in each case."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.stream import fast_batches
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

START, APPEND, COMMIT, END, PING = range(5)


def create(client: Client, name: str = "S", **options: Any) -> None:
    """A stream that takes fast batches."""
    config = {"name": name, "subjects": [f"{name.lower()}.>"], "allow_batched": True, **options}
    answer = client.api(f"STREAM.CREATE.{name}", config)
    assert "error" not in answer, answer


def send(
    client: Client, batch: str, number: int, operation: int = APPEND, flow: int = 10,
    mode: str = "fail", subject: str = "s.a", **headers: str,
) -> list[Any]:  # fmt: skip
    """Publish a message of a batch; what came back."""
    reply = f"_INBOX.f.{batch}.{flow}.{mode}.{number}.{operation}.$FI"
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    client.publish(subject, b"%d" % number, reply, fields or None)
    return [message.json() for message in client.take()]


@pytest.fixture
def publisher(client: Client) -> Client:
    """A connection that hears all that its batches are sent."""
    client.send(b"SUB _INBOX.f.> 3\r\n")
    return client


def test_messages_are_acknowledged_together(publisher: Client) -> None:
    create(publisher)
    assert send(publisher, "b", 1, START, flow=3) == [{"type": "ack", "seq": 0, "msgs": 3}]
    assert send(publisher, "b", 2) == []
    assert send(publisher, "b", 3) == [{"type": "ack", "seq": 3, "msgs": 3}]
    final = {"stream": "S", "seq": 4, "batch": "b", "count": 4}
    assert send(publisher, "b", 4, COMMIT) == [final]


def test_batches_share_what_may_be_on_its_way(publisher: Client) -> None:
    create(publisher)
    assert send(publisher, "a", 1, START, flow=400)[0]["msgs"] == 400
    assert [ack["msgs"] for ack in send(publisher, "b", 1, START, flow=400)] == [1, 2]
    found = [send(publisher, "b", number) for number in range(2, 600)]
    assert max(ack["msgs"] for acks in found for ack in acks) == 250


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_a_gap_is_told_and_ends_a_batch_that_may_have_none(publisher: Client, mode: str) -> None:
    create(publisher)
    send(publisher, "b", 1, START, mode=mode)
    gap = {"type": "gap", "last_seq": 2, "seq": 3}
    final = {"stream": "S", "seq": 1, "batch": "b", "count": 1}
    assert send(publisher, "b", 3) == ([gap, final] if mode == "fail" else [gap])


def test_a_refused_message_is_told(publisher: Client) -> None:
    create(publisher)
    send(publisher, "b", 1, START, mode="ok")
    answer = send(publisher, "b", 2, Nats_Expected_Last_Sequence="9")
    assert (answer[0]["type"], answer[0]["error"]["err_code"]) == ("err", 10071)
    assert send(publisher, "b", 3, COMMIT)[0]["count"] == 3


def test_messages_in_a_row_are_looked_at_as_any_other(publisher: Client) -> None:
    """Most are stored by a shorter way: what is no such message is still found among them."""
    create(publisher, max_msgs=8, discard="new")
    for batch in ("a", "b"):
        send(publisher, batch, 1, START, mode="ok", flow=50)
    for number in (2, 3):
        for batch in ("a", "b"):
            send(publisher, batch, number, mode="ok", flow=50)
    gap = {"type": "gap", "last_seq": 4, "seq": 6}
    assert gap in send(publisher, "a", 5, PING, mode="ok", flow=50)
    assert {"type": "gap", "last_seq": 6, "seq": 4} in send(publisher, "a", 4, mode="ok", flow=50)
    send(publisher, "b", 4, mode="ok", flow=50)
    send(publisher, "b", 5, mode="ok", flow=50)
    [full] = [one for one in send(publisher, "b", 6, mode="ok", flow=50) if one["type"] == "err"]
    assert full["error"]["err_code"] == 10077
    assert send(publisher, "b", 7, END, mode="ok", flow=50)[-1]["seq"] == 8
    assert publisher.api("STREAM.INFO.S")["state"]["messages"] == 8


def test_acknowledgements_wait_until_the_messages_are_durable() -> None:
    driver = Driver(SimulatedDisk(Random(1))).start()
    client = driver.client()
    client.send(b"SUB _INBOX.f.> 3\r\n")
    create(client)
    client.take()
    driver.runner.hold()
    assert send(client, "b", 1, START, flow=2) == send(client, "b", 2) == []
    assert send(client, "b", 3, COMMIT) == []
    driver.runner.release()
    driver.finish()
    driver.runner.release()
    driver.finish()
    answers = [message.json() for message in client.take()]
    assert [answer.get("type", "final") for answer in answers] == ["ack", "ack", "final"]


def test_a_batch_that_goes_quiet_is_forgotten(publisher: Client) -> None:
    create(publisher)
    send(publisher, "b", 1, START)
    publisher.driver.advance(9 * SECOND)
    send(publisher, "b", 2)
    publisher.driver.advance(9 * SECOND)
    assert publisher.driver.engine.staged.fast == 1
    publisher.driver.advance(SECOND)
    assert publisher.driver.engine.staged.fast == 0
    assert send(publisher, "b", 3)[0]["error"]["err_code"] == 10208
    assert publisher.api("STREAM.INFO.S")["state"]["messages"] == 2


def test_the_number_of_open_batches_has_bounds(
    publisher: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_batches, "INFLIGHT_PER_STREAM", 2)
    monkeypatch.setattr(fast_batches, "INFLIGHT_TOTAL", 3)
    create(publisher)
    create(publisher, "T")
    for batch in "ab":
        assert "type" in send(publisher, batch, 1, START)[0]
    assert send(publisher, "c", 1, START)[0]["error"]["code"] == 429
    assert "type" in send(publisher, "a", 1, START, subject="t.a")[0]
    assert send(publisher, "b", 1, START, subject="t.a")[0]["error"]["err_code"] == 10211


def test_a_stream_without_fast_batches_stores_nothing_of_one(publisher: Client) -> None:
    create(publisher, allow_batched=False)
    assert send(publisher, "b", 1, START)[0]["error"]["err_code"] == 10205
    assert publisher.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_switching_fast_batches_off_ends_those_that_are_open(publisher: Client) -> None:
    create(publisher)
    send(publisher, "b", 1, START)
    publisher.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert publisher.driver.engine.staged.fast == 0
    assert send(publisher, "b", 2)[0]["error"]["err_code"] == 10205


@pytest.mark.parametrize("mode", ["fail", "ok"])
def test_a_message_that_is_too_large_is_refused_and_leaves_a_gap(
    publisher: Client, mode: str
) -> None:
    create(publisher, max_msg_size=50)
    send(publisher, "b", 1, START, mode=mode)
    refused = send(publisher, "b", 2, mode=mode, A="x" * 50)
    assert [answer["error"]["err_code"] for answer in refused] == [10054]
    assert refused[0]["seq"] == 0
    gap, final = send(publisher, "b", 3, COMMIT, mode=mode)
    assert gap == {"type": "gap", "last_seq": 2, "seq": 3}
    count = 3 if mode == "ok" else 1
    assert final == {"stream": "S", "seq": 2 if mode == "ok" else 1, "batch": "b", "count": count}


def test_a_first_message_that_is_too_large_begins_no_batch(publisher: Client) -> None:
    create(publisher, max_msg_size=50)
    refused = send(publisher, "b", 1, START, A="x" * 50)
    assert [answer["error"]["err_code"] for answer in refused] == [10054]
    assert send(publisher, "b", 2, COMMIT)[0]["error"]["err_code"] == 10208


def test_a_reply_subject_without_a_prefix_is_refused(client: Client) -> None:
    create(client)
    client.send(b"SUB b.> 3\r\n")
    client.publish("s.a", b"1", "b.10.ok.1.0.$FI")
    assert [message.json()["error"]["err_code"] for message in client.take()] == [10206]
