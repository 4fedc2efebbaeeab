"""Streams that count: what is stored is the total of each subject."""

import base64
from random import Random
from typing import Any

import pytest

from slipstream.engine.stream.counters import DIGITS_MAX
from slipstream.log.disk import OsDisk
from slipstream.testing.driver import Client, Driver, encode


def create(client: Client, **options: Any) -> None:
    """The stream C, which counts."""
    config = {"name": "C", "subjects": ["c.>"], "allow_msg_counter": True, **options}
    answer = client.api("STREAM.CREATE.C", config)
    assert "error" not in answer, answer


def count(client: Client, subject: str, increment: str, **headers: str) -> Any:
    """The answer to an increment."""
    return client.store(subject, b"", Nats_Incr=increment, **headers)


def total(client: Client, subject: str) -> bytes:
    message = client.api("STREAM.MSG.GET.C", {"last_by_subj": subject})["message"]
    return base64.b64decode(message["data"])


def test_increments_add_up_for_each_subject(client: Client) -> None:
    create(client)
    assert count(client, "c.a", "5") == {"stream": "C", "seq": 1, "val": "5"}
    assert count(client, "c.b", "-3")["val"] == "-3"
    assert count(client, "c.a", "+2")["val"] == "7"
    assert (total(client, "c.a"), total(client, "c.b")) == (b'{"val":"7"}', b'{"val":"-3"}')


def test_a_total_has_as_many_digits_as_it_takes(client: Client) -> None:
    create(client)
    count(client, "c.a", "9" * 400)
    assert count(client, "c.a", "1")["val"] == "1" + "0" * 400


def test_a_number_that_is_too_long_is_refused(client: Client) -> None:
    create(client)
    assert count(client, "c.a", "9" * (DIGITS_MAX + 1))["error"]["err_code"] == 10171
    assert count(client, "c.a", "9" * DIGITS_MAX)["seq"] == 1
    for _ in range(9):
        count(client, "c.a", "9" * DIGITS_MAX)
    assert count(client, "c.a", "9" * DIGITS_MAX)["error"]["err_code"] == 10171
    assert count(client, "c.a", "-1")["seq"] == 11


def test_a_duplicate_counts_once(client: Client) -> None:
    create(client)
    count(client, "c.a", "5", Nats_Msg_Id="x")
    assert count(client, "c.a", "5", Nats_Msg_Id="x") == {
        "stream": "C", "seq": 1, "duplicate": True,
    }  # fmt: skip
    assert total(client, "c.a") == b'{"val":"5"}'


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, 10169), (b"x", {}, 10169), (b"x", {"Nats_Incr": "1"}, 10170),
        (b"", {"Nats_Incr": "x"}, 10171), (b"", {"Nats_Incr": "1", "Nats_Rollup": "sub"}, 10171),
        (b"", {"Nats_Msg_Id": "m"}, 10169), (b"", {"A": "b"}, 10169),
    ],
)  # fmt: skip
def test_what_is_no_increment_is_refused(
    client: Client, body: bytes, headers: dict[str, str], code: int
) -> None:
    create(client)
    assert client.store("c.a", body, **headers)["error"]["err_code"] == code


def test_a_total_that_is_invalid_is_reported(client: Client) -> None:
    create(client)
    count(client, "c.a", "1")
    client.driver.js.streams["C"].log.append(b"c.a", b"{}", 0, 0, 2, 1)
    assert count(client, "c.a", "1")["error"]["err_code"] == 10172


def test_totals_survive_a_restart(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client, max_msgs_per_subject=1)
    count(client, "c.a", "5")
    count(client, "c.a", "6")
    file_driver.stop()
    client = Driver(OsDisk(), now=file_driver.clock.now).start().client()
    assert count(client, "c.a", "-1") == {"stream": "C", "seq": 3, "val": "10"}


@pytest.mark.parametrize("sources", ['{"X":{"x.a":"5"}}', "null", '{"X":null}', "x"])
def test_what_a_message_says_of_sources_counts_alike_before_and_after_a_restart(
    file_driver: Driver, sources: str
) -> None:
    client = file_driver.client()
    create(client)
    for subject in ("c.a", "c.b"):
        count(client, subject, "5", Nats_Counter_Sources=sources)
    before = count(client, "c.a", "1")
    fields = client.api("STREAM.MSG.GET.C", {"last_by_subj": "c.a"})["message"]["hdrs"]
    file_driver.stop()
    client = Driver(OsDisk(), now=file_driver.clock.now).start().client()
    after = count(client, "c.b", "1")
    assert client.api("STREAM.MSG.GET.C", {"last_by_subj": "c.b"})["message"]["hdrs"] == fields
    assert (before.get("val"), before.get("error")) == (after.get("val"), after.get("error"))
    assert before.get("val") == (None if sources == "x" else "6")


def test_sources_that_are_not_utf8_break_their_counter_and_nothing_else(client: Client) -> None:
    create(client)
    headers = {"Nats-Incr": "5", "Nats-Counter-Sources": '{"?":null}'}
    client.send(encode("c.a", b"", headers=headers).replace(b"?", b"\xff"))
    assert count(client, "c.a", "1")["error"]["err_code"] == 10172
    assert count(client, "c.b", "1")["val"] == "1"


def test_within_a_batch_each_increment_adds_to_the_one_before(client: Client) -> None:
    create(client, allow_atomic=True)
    count(client, "c.a", "10")
    for number in "123":
        headers = {"Nats-Incr": "1", "Nats-Batch-Id": "b", "Nats-Batch-Sequence": number}
        if number == "3":
            headers["Nats-Batch-Commit"] = "1"
        answer = client.request("c.a", b"", headers)
    assert answer.json() == {"stream": "C", "seq": 4, "batch": "b", "count": 3}
    assert total(client, "c.a") == b'{"val":"13"}'


@pytest.mark.parametrize("seed", range(5))
def test_a_total_is_that_of_the_last_message_that_is_there(
    client: Client, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.counters.TOTALS_MAX", 3)
    random = Random(seed)
    create(client, allow_rollup_hdrs=True, allow_atomic=True)
    totals: dict[str, list[tuple[int, int]]] = {f"c.{n}": [] for n in range(6)}
    for _ in range(300):
        subject = random.choice(list(totals))
        before = totals[subject]
        kind = random.choice(("count", "count", "count", "delete", "purge"))
        if kind == "count":
            by = random.randint(-5, 5)
            answer = count(client, subject, str(by))
            expected = by + (before[-1][1] if before else 0)
            assert answer["val"] == str(expected)
            before.append((answer["seq"], expected))
        elif kind == "delete" and before:
            client.api("STREAM.MSG.DELETE.C", {"seq": before.pop()[0]})
        elif kind == "purge":
            client.api("STREAM.PURGE.C", {"filter": subject, "keep": 1})
            del before[:-1]
    for subject, known in totals.items():
        if known:
            assert total(client, subject) == b'{"val":"%d"}' % known[-1][1]
