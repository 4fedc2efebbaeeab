"""What is published to a stream: acknowledged when durable, checked by headers, kept by limits."""

from pathlib import Path
from typing import Any

import pytest

from slipstream.log.disk import OsDisk
from slipstream.testing.driver import Client, Driver

SECOND = 1_000_000_000


def state(client: Client, name: str = "S", **asked: Any) -> dict[str, Any]:
    """The stream's state."""
    found: dict[str, Any] = client.api(f"STREAM.INFO.{name}", asked or b"")["state"]
    return found


def create(client: Client, **config: Any) -> None:
    """Create stream S on s.>."""
    answer = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
    assert "error" not in answer, answer


def refusal(answer: dict[str, Any]) -> tuple[int, int, str]:
    """Code, err_code and description of an error."""
    error = answer["error"]
    return error["code"], error["err_code"], error["description"]


# -- acknowledgements --------------------------------------------------------------------------


def test_an_acknowledgement_is_these_bytes(client: Client) -> None:
    create(client)
    assert client.request("s.a").body == b'{"stream":"S","seq":1}'
    headers = {"Nats-Msg-Id": "1"}
    assert client.request("s.a", b"", headers).body == b'{"stream":"S","seq":2}'
    assert client.request("s.a", b"", headers).body == b'{"stream":"S","seq":2,"duplicate":true}'
    assert client.request("s.a", b"", {"Nats-Expected-Stream": "T"}).body == (
        b'{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},'
        b'"stream":"S","seq":0}'
    )


def test_acknowledgements_wait_for_the_disk_and_share_one_sync(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client)
    client.store("s.a")  # a segment is begun
    file_driver.runner.hold()
    syncs = file_driver.runner.runs
    for i in range(50):
        client.send(b"PUB s.a _INBOX.t.%d 1\r\nx\r\n" % i)
    assert client.take() == []
    file_driver.runner.release()
    file_driver.finish()
    first = client.take()
    file_driver.runner.release()
    file_driver.finish()
    answers = first + client.take()
    assert [answer.json()["seq"] for answer in answers] == list(range(2, 52))
    assert file_driver.runner.runs - syncs == 2


def test_a_duplicate_is_acknowledged_no_sooner_than_its_original(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client)
    file_driver.runner.hold()
    for _ in range(2):
        client.publish("s.a", b"x", "_INBOX.t.x", {"Nats-Msg-Id": "1"})
    assert client.take() == []
    for _ in range(3):
        file_driver.runner.release()
        file_driver.finish()
    first, second = client.take()
    assert first.json() == {"stream": "S", "seq": 1}
    assert second.json() == {"stream": "S", "seq": 1, "duplicate": True}


def test_when_the_disk_fails_nothing_is_acknowledged_any_more(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client)
    assert client.store("s.a")["seq"] == 1
    file_driver.runner.hold()
    client.publish("s.a", b"lost", "_INBOX.t.x")
    file_driver.runner.release(OSError("the disk is broken"))
    file_driver.finish()
    (answer,) = client.take()
    assert refusal(answer.json())[:2] == (503, 10077)
    assert refusal(client.store("s.b"))[:2] == (503, 10077)
    assert client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["seq"] == 1
    assert file_driver.js.problems


def test_a_stream_without_acknowledgements_is_silent_even_about_errors(client: Client) -> None:
    create(client, no_ack=True)
    assert client.ask("s.a") == []
    assert client.ask("s.a", b"", {"Nats-Expected-Stream": "T"}) == []
    assert state(client)["messages"] == 1


def test_a_relaxed_stream_acknowledges_at_once(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client, persist_mode="async")
    file_driver.runner.hold()
    assert client.store("s.a")["seq"] == 1


# -- headers -----------------------------------------------------------------------------------


def test_the_status_in_a_header_is_not_stored(client: Client) -> None:
    create(client, allow_direct=True)
    block = b"NATS/1.0 503 No Responders\r\nA: b\r\n\r\n"
    client.send(b"HPUB s.a %d %d\r\n%b\r\n" % (len(block), len(block), block))
    assert client.request("$JS.API.DIRECT.GET.S", {"seq": 1}).header.startswith(
        b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\n"
    )


def test_what_the_server_tells_of_a_request_is_not_stored(client: Client) -> None:
    create(client)
    client.store("s.a", Nats_Request_Info="{}")
    assert "hdrs" not in client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]


@pytest.mark.parametrize("name", ["A", "Nats-Msg-Id", "Nats-Expected-Stream"])
def test_headers_of_more_than_64_kib_are_refused(client: Client, name: str) -> None:
    create(client)
    answer = client.request("s.a", b"", {name: "x" * 65_536}).json()
    assert refusal(answer) == (400, 10097, "header size exceeds maximum allowed of 64k")
    assert client.store("s.a")["seq"] == 1


def test_the_size_limit_comes_before_all_other_checks(client: Client) -> None:
    create(client, max_msg_size=40)
    assert client.store("s.a", b"x" * 40)["seq"] == 1
    too_large = (400, 10054, "message size exceeds maximum allowed")
    assert refusal(client.store("s.a", b"x" * 41)) == too_large
    assert refusal(client.store("s.a", b"x" * 30, Nats_Expected_Stream="T")) == too_large
    assert refusal(client.store("s.a", b"x" * 30, Nats_Msg_Id="1")) == too_large
    assert client.store("s.a", b"x", Nats_Msg_Id="1")["seq"] == 2


def test_an_expected_sequence_guards_against_a_writer_in_between(client: Client) -> None:
    create(client)
    assert client.store("s.a", Nats_Expected_Last_Sequence="0")["seq"] == 1
    assert refusal(client.store("s.a", Nats_Expected_Last_Sequence="0")) == (
        400, 10071, "wrong last sequence: 1",
    )  # fmt: skip
    assert client.store("s.b", Nats_Expected_Last_Subject_Sequence="0")["seq"] == 2
    assert refusal(client.store("s.b", Nats_Expected_Last_Subject_Sequence="1")) == (
        400, 10071, "wrong last sequence: 2",
    )  # fmt: skip
    other = {
        "Nats-Expected-Last-Subject-Sequence": "2",
        "Nats-Expected-Last-Subject-Sequence-Subject": "s.*",
    }
    assert client.request("s.c", b"", other).json()["seq"] == 3


def test_of_two_writers_in_one_turn_only_one_wins(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client)
    block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
    frame = b"HPUB s.a _INBOX.t.%d %d %d\r\n%b\r\n"
    client.send(b"".join(frame % (i, len(block), len(block), block) for i in range(2)))
    won, lost = sorted((m.json() for m in client.take()), key=lambda answer: "error" in answer)
    assert won == {"stream": "S", "seq": 1}
    assert refusal(lost)[1] == 10071


def test_the_last_message_id_can_be_expected(client: Client) -> None:
    create(client)
    client.store("s.a", Nats_Msg_Id="1")
    assert refusal(client.store("s.a", Nats_Expected_Last_Msg_Id="2")) == (
        400, 10070, "wrong last msg ID: 1",
    )  # fmt: skip
    assert client.store("s.a", Nats_Expected_Last_Msg_Id="1")["seq"] == 2
    assert refusal(client.store("s.a", Nats_Expected_Last_Msg_Id="1"))[1] == 10070


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"Nats-TTL": "1s"}, 10166), ({"Nats-TTL": "x"}, 10165), ({"Nats-Incr": "1"}, 10168),
        ({"Nats-Incr": "x"}, 10171), ({"Nats-Batch-Id": "x"}, 10174),
        ({"Nats-Schedule": "@at x"}, 10188), ({"Nats-Scheduler": "x"}, 10212),
        ({"Nats-Stream-Source": "x"}, 10227), ({"Nats-Rollup": "sub"}, 10111),
        ({"Nats-Expected-Last-Subject-Sequence-Subject": "s.a"}, 10193),
    ],
)  # fmt: skip
def test_headers_of_features_that_are_off_are_refused(
    client: Client, headers: dict[str, str], error: int
) -> None:
    create(client)
    assert client.request("s.a", b"", headers).json()["error"]["err_code"] == error
    assert state(client)["messages"] == 0


# -- the duplicate window ----------------------------------------------------------------------


def test_an_id_is_remembered_for_the_window_and_forgotten_after_it(driver: Driver) -> None:
    client = driver.client()
    create(client, duplicate_window=10 * SECOND)
    assert client.store("s.a", Nats_Msg_Id="1")["seq"] == 1
    driver.advance(9 * SECOND)
    assert client.store("s.a", Nats_Msg_Id="1")["duplicate"]
    driver.advance(2 * SECOND)
    assert client.store("s.a", Nats_Msg_Id="1") == {"stream": "S", "seq": 2}


def test_a_purge_does_not_forget_ids(client: Client) -> None:
    create(client)
    client.store("s.a", Nats_Msg_Id="1")
    client.api("STREAM.PURGE.S")
    assert client.store("s.a", Nats_Msg_Id="1")["duplicate"]


def test_the_window_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    driver = Driver(OsDisk()).start()
    create(driver.client(), duplicate_window=10 * SECOND)
    driver.client().store("s.a", Nats_Msg_Id="1")
    driver.advance(SECOND)
    driver.stop()
    again = Driver(OsDisk(), now=driver.clock.now).start()
    client = again.client()
    assert client.store("s.a", Nats_Expected_Last_Msg_Id="1", Nats_Msg_Id="2")["seq"] == 2
    assert client.store("s.a", Nats_Msg_Id="1")["duplicate"]
    again.advance(11 * SECOND)
    assert client.store("s.a", Nats_Msg_Id="1")["seq"] == 3
    again.stop()


# -- rollups, age, limits ----------------------------------------------------------------------


def test_a_rollup_leaves_the_message_itself(client: Client) -> None:
    create(client, allow_rollup_hdrs=True)
    for subject in ("s.a", "s.b", "s.a", "s.b"):
        client.store(subject)
    client.store("s.a", Nats_Rollup="sub")
    assert state(client, subjects_filter=">")["subjects"] == {"s.a": 1, "s.b": 2}
    client.store("s.c", Nats_Rollup="all")
    found = state(client)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (1, 6, 6)


def test_messages_go_when_they_are_too_old(driver: Driver) -> None:
    client = driver.client()
    create(client, max_age=10 * SECOND)
    for _ in range(3):
        client.store("s.a")
        driver.advance(4 * SECOND)
    assert state(client)["first_seq"] == 2
    driver.advance(20 * SECOND)
    found = state(client)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (0, 4, 3)
    assert found["first_ts"] == "0001-01-01T00:00:00Z"
    assert client.store("s.a")["seq"] == 4


def test_a_stream_without_messages_sets_no_timer(driver: Driver) -> None:
    client = driver.client()
    driver.advance(3 * SECOND)
    client.send(b"PONG\r\n")
    before = driver.engine.timers.next_at()
    create(client, max_age=SECOND)
    assert driver.engine.timers.next_at() == before


def test_a_shorter_age_counts_for_what_is_there(driver: Driver) -> None:
    client = driver.client()
    create(client)
    client.store("s.a")
    driver.advance(5 * SECOND)
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_age": 2 * SECOND})
    driver.advance(SECOND)
    assert state(client)["messages"] == 0


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"max_msgs": 2}, [4, 5]),
        ({"max_msgs_per_subject": 1}, [4, 5]),
        ({"max_bytes": 100}, [3, 4, 5]),
    ],
)
def test_old_messages_make_room(client: Client, config: dict[str, Any], kept: list[int]) -> None:
    create(client, **config)
    for i in range(5):
        client.store(f"s.{i % 2}", b"x" * 10)
    found = state(client, deleted_details=True)
    first, last = found["first_seq"], found["last_seq"]
    assert [s for s in range(first, last + 1) if s not in found.get("deleted", [])] == kept


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"max_msgs": 2}, "maximum messages exceeded"),
        ({"max_bytes": 60}, "maximum bytes exceeded"),
        (
            {"max_msgs_per_subject": 2, "discard_new_per_subject": True},
            "maximum messages per subject exceeded",
        ),
    ],
)
def test_new_messages_are_refused_where_that_is_wanted(
    client: Client, config: dict[str, Any], text: str
) -> None:
    create(client, discard="new", **config)
    for seq in (1, 2):
        assert client.store("s.a", b"x" * 10)["seq"] == seq
    assert refusal(client.store("s.a", b"x" * 10)) == (503, 10077, text)
    client.api("STREAM.PURGE.S")
    assert client.store("s.a")["seq"] == 3


def test_a_full_stream_takes_what_is_no_larger_than_what_it_replaces(client: Client) -> None:
    create(client, discard="new", max_msgs_per_subject=1, max_bytes=58)
    client.store("s.a", b"x" * 10)
    client.store("s.b", b"x" * 10)
    assert client.store("s.a", b"y" * 10)["seq"] == 3
    assert refusal(client.store("s.a", b"y" * 11))[2] == "maximum bytes exceeded"


def test_a_message_larger_than_the_stream_empties_it(client: Client) -> None:
    create(client, max_bytes=50)
    client.store("s.a")
    assert client.store("s.a", b"x" * 100)["seq"] == 2
    assert state(client)["messages"] == 0


# -- republish and transforms ------------------------------------------------------------------


def test_what_is_stored_is_published_again_with_its_place(driver: Driver) -> None:
    client = driver.client()
    create(client, republish={"src": "s.*", "dest": "r.{{wildcard(1)}}"}, max_msgs_per_subject=1)
    client.subscribe("r.>", 9)
    client.publish("s.a", b"one")
    client.publish("s.a", b"two", headers={"A": "b"})
    one, two = client.take()
    assert (one.subject, one.body) == ("r.a", b"one")
    assert one.header == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\nNats-Last-Sequence: 0\r\n\r\n"
    )
    assert two.fields["A"] == "b"
    assert two.fields["Nats-Last-Sequence"] == "1"


def test_messages_that_the_limits_drop_in_the_same_turn_are_published_again_too(
    file_driver: Driver,
) -> None:
    client = file_driver.client()
    create(client, republish={"src": ">", "dest": "r.>"}, max_msgs=1)
    client.subscribe("r.>", 9)
    file_driver.runner.hold()
    client.send(b"PUB s.a 1\r\n1\r\nPUB s.a 1\r\n2\r\nPUB s.a 1\r\n3\r\n")
    assert client.take() == []  # not before they are durable
    file_driver.runner.release()
    file_driver.finish()
    assert [message.body for message in client.take()] == [b"1", b"2", b"3"]


def test_only_headers_are_published_again_where_that_is_wanted(client: Client) -> None:
    create(client, republish={"src": ">", "dest": "r.>", "headers_only": True})
    client.subscribe("r.>", 9)
    client.publish("s.a", b"body")
    (message,) = client.take()
    assert message.body == b""
    assert message.fields["Nats-Msg-Size"] == "4"


def test_a_transform_changes_the_subject_before_anything_is_checked(client: Client) -> None:
    create(client, subject_transform={"src": "s.*", "dest": "t.{{wildcard(1)}}"})
    client.store("s.a")
    client.store("s.b.c")
    assert state(client, subjects_filter=">")["subjects"] == {"t.a": 1, "s.b.c": 1}
    assert client.store("s.a", Nats_Expected_Last_Subject_Sequence="1")["seq"] == 3


# -- retention ---------------------------------------------------------------------------------


def test_a_late_consumer_can_not_show_interest_after_the_fact(client: Client) -> None:
    create(client, retention="interest")
    for seq in (1, 2, 3):
        assert client.store("s.a")["seq"] == seq
    found = state(client)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (0, 4, 3)
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.a"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.store("s.a")
    client.store("s.b")  # nobody's
    found = state(client)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (1, 4, 5)
    client.api("CONSUMER.DELETE.S.c")
    found = state(client)
    assert (found["messages"], found["first_seq"], found["last_seq"]) == (0, 6, 5)


def test_a_work_queue_keeps_what_nobody_has_taken(client: Client) -> None:
    create(client, retention="workqueue")
    client.store("s.a")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", "_INBOX.t.pull")
    (job,) = client.take()
    assert (job.subject, job.body) == ("s.a", b"x")
    client.api("CONSUMER.DELETE.S.c")
    assert state(client)["messages"] == 1


# -- purging -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "purged", "left"),
    [
        (b"", 6, []),
        ({"seq": 4}, 3, [4, 5, 6]),
        ({"seq": 1}, 0, [1, 2, 3, 4, 5, 6]),
        ({"keep": 2}, 4, [5, 6]),
        ({"filter": "s.0"}, 3, [2, 4, 6]),
        ({"filter": "s.0", "seq": 4}, 2, [2, 4, 5, 6]),
        ({"filter": "s.0", "keep": 1}, 2, [2, 4, 5, 6]),
        ({"filter": "s.*", "keep": 1}, 5, [6]),
        ({"filter": "zz"}, 0, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_purge_removes_what_it_says(
    client: Client, asked: Any, purged: int, left: list[int]
) -> None:
    create(client)
    for i in range(6):
        client.store(f"s.{i % 2}")
    assert client.api("STREAM.PURGE.S", asked) == {
        "type": "io.nats.jetstream.api.v1.stream_purge_response",
        "success": True,
        "purged": purged,
    }
    found = state(client, deleted_details=True)
    gone = found.get("deleted", [])
    sequences = range(found["first_seq"], found["last_seq"] + 1)
    assert [s for s in sequences if s not in gone] == left
    assert found["last_seq"] == 6


def test_a_purge_beyond_the_end_jumps(client: Client) -> None:
    create(client)
    client.store("s.a")
    client.api("STREAM.PURGE.S", {"seq": 50})
    assert client.store("s.a")["seq"] == 50


def test_a_purge_can_be_denied_or_contradict_itself(client: Client) -> None:
    create(client, deny_purge=True, deny_delete=True)
    client.store("s.a")
    purge = client.api("STREAM.PURGE.S")
    assert refusal(purge) == (500, 10110, "stream purge not permitted")
    assert purge["purged"] == 0
    assert refusal(client.api("STREAM.PURGE.S", {"seq": 1, "keep": 1}))[1] == 10003
    assert refusal(client.api("STREAM.MSG.DELETE.S", {"seq": 1})) == (
        500, 10057, "message delete not permitted",
    )  # fmt: skip


def test_what_is_not_there_can_not_be_deleted(client: Client) -> None:
    create(client)
    for _ in range(4):
        client.store("s.a")
    delete = "STREAM.MSG.DELETE.S"
    assert client.api(delete, {"seq": 3})["success"] is True
    assert refusal(client.api(delete, {"seq": 3})) == (400, 10043, "sequence 3 not found")
    assert client.api(delete, {"seq": 1, "no_erase": True})["success"] is True
    assert refusal(client.api(delete, {"seq": 1})) == (500, 10057, "no message found")
    assert refusal(client.api(delete, {"seq": 9})) == (500, 10057, "stream store EOF")
    assert refusal(client.api(delete, b""))[1] == 10003


def test_memory_has_one_word_for_all_that_is_not_there(client: Client) -> None:
    create(client, storage="memory")
    client.store("s.a")
    for sequence in (0, 2, 9):
        answer = client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
        assert refusal(answer) == (400, 10043, f"sequence {sequence} not found")
