"""Batches whose messages are stored all together, or not at all."""

import errno
from random import Random
from typing import Any

import pytest

from slipstream.engine.protocol.options import BatchLimits, EngineOptions, JetStreamLimits
from slipstream.engine.stream import atomic_batches
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk

ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"


def create(client: Client, **options: Any) -> None:
    """The stream S, which takes batches."""
    config = {"name": "S", "subjects": ["s.>"], "allow_atomic": True, **options}
    answer = client.api("STREAM.CREATE.S", config)
    assert "error" not in answer, answer


def add(client: Client, batch: str, number: int, commit: str = "", **headers: str) -> Message:
    """A message of a batch, and its answer."""
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    if commit:
        fields["Nats-Batch-Commit"] = commit
    return client.request(f"s.{number}", b"%d" % number, fields)


def messages(client: Client) -> int:
    found: int = client.api("STREAM.INFO.S")["state"]["messages"]
    return found


def error(message: Message) -> int:
    found: int = message.json()["error"]["err_code"]
    return found


def test_nothing_of_a_batch_is_there_before_all_of_it_is(client: Client) -> None:
    create(client)
    for number in range(1, 6):
        assert add(client, "b", number).body == b""
        assert messages(client) == 0
    assert add(client, "b", 6, "1").json() == {"stream": "S", "seq": 6, "batch": "b", "count": 6}
    assert messages(client) == 6


def test_messages_without_a_reply_subject_get_no_answer(client: Client) -> None:
    create(client)
    headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    client.publish("s.1", b"1", headers=headers)
    assert client.take() == []
    assert add(client, "b", 2, "1").json()["count"] == 2


def test_batches_that_are_open_together_do_not_mix(client: Client) -> None:
    create(client)
    add(client, "a", 1)
    add(client, "b", 1)
    add(client, "a", 2)
    assert client.store("s.x")["seq"] == 1
    assert add(client, "b", 2, "1").json()["seq"] == 3
    assert add(client, "a", 3, "1").json()["seq"] == 6


def test_a_batch_waits_ten_seconds_for_its_next_message(client: Client) -> None:
    create(client)
    client.subscribe(ABANDONED)
    add(client, "b", 1)
    client.driver.advance(9 * SECOND)
    add(client, "b", 2)
    client.driver.advance(9 * SECOND)
    assert client.take() == []
    client.driver.advance(SECOND)
    advisory = client.take()[0].json()
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    assert (advisory["stream"], advisory["batch"], advisory["reason"]) == ("S", "b", "timeout")
    assert error(add(client, "b", 3, "1")) == 10176
    assert client.driver.engine.staged.bytes == client.driver.engine.staged.batches == 0


@pytest.mark.parametrize(
    ("number", "headers", "reason"),
    [(3, {}, "incomplete"), (2, {"Nats_Required_Api_Level": "99"}, "unsupported")],
)
def test_who_listens_is_told_why_a_batch_was_abandoned(
    client: Client, number: int, headers: dict[str, str], reason: str
) -> None:
    create(client)
    client.subscribe(ABANDONED)
    add(client, "b", 1)
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    client.publish("s.x", b"x", headers=fields)
    assert [message.json()["reason"] for message in client.take()] == [reason]


def test_the_system_account_hears_of_it_with_the_accounts_name(driver: Driver) -> None:
    client, watcher = driver.client(), driver.client(driver.engine.system_account)
    create(client)
    watcher.subscribe(ABANDONED)
    add(client, "b", 1)
    add(client, "b", 3)
    assert watcher.take()[0].json()["account"] == "$G"


def test_the_number_of_open_batches_has_bounds() -> None:
    limits = JetStreamLimits(batch=BatchLimits(max_inflight_per_stream=2, max_inflight_total=3))
    driver = Driver(options=EngineOptions(jetstream=True, jetstream_limits=limits)).start()
    client = driver.client()
    create(client)
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "allow_atomic": True})
    assert add(client, "a", 1).body == add(client, "b", 1).body == b""
    assert error(add(client, "c", 1)) == 10210
    headers = {"Nats-Batch-Id": "a", "Nats-Batch-Sequence": "1"}
    assert client.request("t", b"", headers).body == b""
    assert client.request("t", b"", headers | {"Nats-Batch-Id": "b"}).json()["error"]["code"] == 429
    client.api("STREAM.DELETE.S")
    assert client.request("t", b"", headers | {"Nats-Batch-Id": "b"}).body == b""


def test_the_memory_of_batches_has_bounds(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    create(client)
    monkeypatch.setattr(atomic_batches, "BATCH_BYTES_MAX", 400)
    add(client, "b", 1)
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2"}
    answer = client.request("s.1", bytes(500), fields).json()
    assert answer["error"]["description"] == "atomic publish batch is too large: 400 bytes"
    monkeypatch.setattr(atomic_batches, "BATCH_BYTES_MAX", 4000)
    monkeypatch.setattr(atomic_batches, "STAGED_BYTES_MAX", 800)
    add(client, "c", 1)
    assert error(client.request("s.1", bytes(500), fields | {"Nats-Batch-Id": "c"})) == 10210
    assert client.driver.engine.staged.bytes == 0


def test_a_batch_that_is_refused_leaves_nothing(client: Client) -> None:
    create(client, discard="new", max_msgs=3)
    for number in range(1, 4):
        add(client, "b", number, Nats_Msg_Id=f"id-{number}")
    assert error(add(client, "b", 4, "1")) == 10077
    assert messages(client) == 0
    assert client.store("s.a", Nats_Msg_Id="id-1") == {"stream": "S", "seq": 1}


def test_ids_of_a_batch_are_remembered(client: Client) -> None:
    create(client)
    add(client, "b", 1, Nats_Msg_Id="x")
    add(client, "b", 2, "1")
    assert client.store("s.a", Nats_Msg_Id="x") == {"stream": "S", "seq": 1, "duplicate": True}


def test_consumers_get_what_a_batch_stored(client: Client) -> None:
    create(client)
    config = {"durable_name": "c", "deliver_subject": "d", "ack_policy": "none"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.subscribe("d")
    add(client, "b", 1)
    assert client.take() == []
    client.publish(
        "s.2", b"2",
        headers={"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"},
    )  # fmt: skip
    assert [message.body for message in client.take()] == [b"1", b"2"]


def test_a_commit_is_acknowledged_when_it_is_durable(client: Client) -> None:
    create(client)
    assert client.driver.js.streams["S"].store is None
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    create(client)
    add(client, "b", 1)
    driver.runner.hold()
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    client.publish("s.2", b"2", "_INBOX.t.c", fields)
    assert client.take() == []
    driver.runner.release()
    driver.finish()
    assert client.take()[0].json()["count"] == 2


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_leaves_all_of_a_batch_or_nothing(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    driver = Driver(disk, segment_bytes=8_000).start()
    client = driver.client()
    create(client, max_msgs=random.choice((-1, 40)))
    sizes = {}
    done = set()
    driver.runner.hold()
    for n in range(12):
        size = sizes[f"b{n}"] = random.randint(2, 9)
        for number in range(1, size + 1):
            fields = {"Nats-Batch-Id": f"b{n}", "Nats-Batch-Sequence": str(number)}
            if number == size:
                fields["Nats-Batch-Commit"] = "1"
            body = bytes(random.choice((10, 900)))
            client.publish(f"s.b{n}.{number}", body, f"_INBOX.t.b{n}", fields)
        if random.random() < 0.6:
            driver.runner.release()
            driver.finish()
        done |= {m.subject[9:] for m in client.take() if b'"count"' in m.body}
    for item in driver.runner.waiting:
        if item.batch is not None:
            item.batch.flush()
    disk.crash()
    client = Driver(disk, segment_bytes=8_000).start().client()
    state = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    there: dict[str, int] = {}
    for subject in state.get("subjects", {}):
        batch = subject.split(".")[1]
        there[batch] = there.get(batch, 0) + 1
    oldest = min(there, key=lambda name: int(name[1:]), default="b0")
    for batch, size in sizes.items():
        if int(batch[1:]) > int(oldest[1:]):  # limits may have taken a part of the oldest
            assert there.get(batch, 0) in (0, size), (batch, there)
            assert batch not in done or there.get(batch) == size


def fields_of_size(size: int, **fields: str) -> dict[str, str]:
    """Header fields, filled up with one more so that their block has `size` bytes."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return named | {"X": "y" * (size - len(f"NATS/1.0\r\n{lines}X: \r\n\r\n"))}


SCHEDULE = {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "s.t"}


def test_a_header_block_that_the_server_makes_too_long_is_refused(client: Client) -> None:
    create(client, allow_msg_schedules=True)
    fields = fields_of_size(65_535, **SCHEDULE)
    assert error(client.request("s.a", b"x", fields)) == 10097
    fields = fields_of_size(65_535 - len("Nats-Rollup: sub\r\n"), **SCHEDULE)
    assert client.request("s.a", b"x", fields).json()["seq"] == 1


def test_a_batch_with_a_header_block_that_gets_too_long_leaves_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    create(client, allow_msg_schedules=True)
    for number in range(1, 10):
        fields = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": str(number)}
        if number == 2:
            fields |= SCHEDULE
        size = 65_535 if number == 2 else 200
        client.request(f"s.{number}", b"x", fields_of_size(size, **fields))
    assert error(add(client, "b", 10, "1")) == 10097
    assert messages(client) == 0
    for seq in range(1, 4):
        assert client.store(f"s.after{seq}")["seq"] == seq
    disk.crash()
    assert messages(Driver(disk).start().client()) == 3


def test_an_end_of_a_batch_that_makes_a_header_block_too_long_is_refused(client: Client) -> None:
    create(client)
    fields = fields_of_size(65_535, Nats_Batch_Id="b", Nats_Batch_Sequence="1")
    client.request("s.1", b"x", fields)
    assert error(add(client, "b", 2, "eob")) == 10097
    assert messages(client) == 0


@pytest.mark.parametrize("nth", [1, 2])
def test_a_read_error_while_a_batch_is_stored_costs_nothing_that_comes_after_it(nth: int) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=8_000).start()
    create(driver.client(), allow_rollup_hdrs=True)
    for n in range(100):
        driver.client().store(f"s.old{n % 10}", bytes(500))
    driver.stop()
    driver = Driver(disk, segment_bytes=8_000).start()
    client = driver.client()
    for number in range(1, 10):
        fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
        if number == 2:
            client.request("s.old3", b"new", fields | {"Nats-Rollup": "sub"})
        else:
            client.request(f"s.{number}", b"new", fields)
    disk.fail("pread", nth, OSError(errno.ENOMEM, "Cannot allocate memory"))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        add(client, "b", 10, "1")
    disk.heal()
    driver.finish()
    client = driver.client()
    assert [client.store(f"s.after{n}")["seq"] for n in range(3)] == [111, 112, 113]
    driver.runner.hold()
    disk.crash()
    client = Driver(disk, segment_bytes=8_000).start().client()
    subjects = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
    assert {f"s.after{n}" for n in range(3)} < set(subjects)
    assert {f"s.{number}" for number in range(1, 11) if number != 2} < set(subjects)


def test_a_fault_in_the_middle_of_a_batch_is_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    create(client)
    assert client.store("s.before")["seq"] == 1
    for number in range(1, 4):
        add(client, "b", number)
    stream = driver.js.streams["S"]

    def break_second(stream: Any, subject: bytes, message: Any, *_: Any) -> None:
        if subject == b"s.2":
            message.end += 1000  # what a fault of the server would do

    monkeypatch.setattr(atomic_batches, "check_room_for", break_second)
    with pytest.raises(IndexError):
        add(client, "b", 4, "1")
    driver.finish()
    client = driver.client()
    answer = client.store("s.after")
    assert answer["error"]["err_code"] == 10077
    assert "stored in part" in answer["error"]["description"]
    assert "stored in part" in stream.failed
    disk.crash()
    client = Driver(disk).start().client()
    assert messages(client) == 1
    assert client.store("s.after")["seq"] == 2


def test_a_message_of_a_batch_may_replace_a_schedule_that_one_before_it_ended(
    client: Client,
) -> None:
    create(client, allow_msg_schedules=True)
    fields = {name.replace("_", "-"): value for name, value in SCHEDULE.items()}
    client.request("s.plan", b"old", fields)
    add(client, "b", 1, Nats_Scheduler="s.plan", Nats_Schedule_Next="purge")
    batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    assert client.request("s.plan", b"new", fields | batch).json()["seq"] == 3
    state = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    assert state["subjects"] == {"s.1": 1, "s.plan": 1}


def test_a_batch_is_republished_with_the_sequences_before_it(client: Client) -> None:
    create(client, republish={"src": "s.>", "dest": "r.>"})
    client.store("s.1")
    client.subscribe("r.>")
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    client.request("s.1", b"x", fields)
    client.request("s.1", b"y", fields | {"Nats-Batch-Sequence": "2"})
    client.publish(
        "s.2", b"z", headers=fields | {"Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
    )
    sent = [message.fields for message in client.take()]
    assert [f["Nats-Sequence"] for f in sent] == ["2", "3", "4"]
    assert [f["Nats-Last-Sequence"] for f in sent] == ["1", "2", "0"]


def test_an_empty_commit_is_refused_and_ends_the_batch(client: Client) -> None:
    create(client)
    add(client, "b", 1)
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": ""}
    assert error(client.request("s.2", b"2", fields)) == 10200
    assert error(add(client, "b", 3, "1")) == 10176
