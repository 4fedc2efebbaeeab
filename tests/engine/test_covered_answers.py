"""Answers that show streams and consumers show nothing that a crash could take back: they are made
at once, and leave with the commit that covers them."""

import json
from random import Random
from typing import Any

import pytest

from slipstream.engine.rounds import READS_MAX
from slipstream.errors import DiskFullError
from slipstream.log.disk import File
from slipstream.log.record import Record
from slipstream.log.segment import erased
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, Message, encode
from slipstream.testing.simulated_disk import SimulatedDisk

EIO = OSError(5, "Input/output error")


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def client(disk: SimulatedDisk) -> Client:
    """Of a server with a stream of one durable message and a consumer, at rest; from now on its
    disk does nothing by itself."""
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    durable = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": durable})
    client.store("s.a", b"one")
    client.driver.advance(10 * SECOND)
    client.driver.runner.hold()
    return client


def work(client: Client) -> list[Any]:
    """The disk does all that it was asked for; the answers that the client is sent."""
    while client.driver.runner.step():
        client.driver.finish()
    return [message.json() for message in client.take() if message.body.startswith(b"{")]


def fail(client: Client) -> list[Any]:
    """All that the disk was asked for fails; the answers that the client is sent."""
    client.driver.runner.release(EIO)
    client.driver.finish()
    return [message.json() for message in client.take() if message.body.startswith(b"{")]


def after_a_crash(client: Client, disk: SimulatedDisk) -> Client:
    """The power fails; a client of a server on what is left."""
    disk.crash()
    return Driver(disk, now=client.driver.clock.now + SECOND).start().client()


def fetch(client: Client) -> Message:
    """A message that a consumer delivers at once."""
    client.subscribe("_INBOX.f", 7)
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", "_INBOX.f")
    (message,) = client.take()
    return message


SHOWN = ["STREAM.INFO.S", "STREAM.LIST", "CONSUMER.INFO.S.c", "CONSUMER.LIST.S", "INFO"]


@pytest.mark.parametrize("subject", [*SHOWN, "STREAM.NAMES", "CONSUMER.NAMES.S"])
def test_where_all_is_durable_the_answer_leaves_at_once(client: Client, subject: str) -> None:
    assert "error" not in client.api(subject)
    assert not client.driver.runner.waiting


@pytest.mark.parametrize("subject", SHOWN)
@pytest.mark.parametrize("change", ["publish", "purge", "delete"])
def test_what_shows_messages_leaves_with_the_commit_that_covers_them(
    client: Client, subject: str, change: str
) -> None:
    if change == "publish":
        client.publish("s.a", b"two")
    elif change == "purge":
        client.publish("$JS.API.STREAM.PURGE.S")
    else:
        client.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1,"no_erase":true}')
    assert client.ask("$JS.API." + subject) == []
    (answer,) = work(client)
    assert "error" not in answer


@pytest.mark.parametrize(
    "subject", ["STREAM.NAMES", "STREAM.LIST", "CONSUMER.NAMES.S", "CONSUMER.LIST.S", "INFO"]
)
@pytest.mark.parametrize("change", ["create", "delete"])
def test_what_shows_which_streams_and_consumers_there_are_waits_until_that_is_durable(
    client: Client, subject: str, change: str
) -> None:
    if change == "create":
        durable = {"durable_name": "d", "ack_policy": "explicit"}
        asked = json.dumps({"stream_name": "S", "config": durable}).encode()
        client.publish("$JS.API.CONSUMER.DURABLE.CREATE.S.d", asked)
    else:
        client.publish("$JS.API.CONSUMER.DELETE.S.c")
    assert client.ask("$JS.API." + subject) == []
    (answer,) = work(client)
    if subject == "CONSUMER.NAMES.S":
        assert answer["consumers"] == (["c", "d"] if change == "create" else [])


def test_a_stream_that_is_on_its_way_is_named_once_it_is_durable(client: Client) -> None:
    client.publish("$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}')
    client.driver.make_places()
    assert client.ask("$JS.API.STREAM.NAMES") == []
    (answer,) = work(client)
    assert answer["streams"] == ["S", "T"]


def test_an_answer_does_not_wait_for_what_is_published_after_it(client: Client) -> None:
    client.publish("s.a", b"two")
    client.ask("$JS.API.STREAM.INFO.S")
    client.publish("s.a", b"three")
    client.driver.runner.step()
    client.driver.runner.step()
    client.driver.finish()
    (answer,) = [message.json() for message in client.take()]
    assert (answer["state"]["last_seq"], answer["state"]["messages"]) == (2, 2)
    assert client.driver.runner.waiting


def test_an_answer_takes_no_sync_of_its_own(client: Client) -> None:
    runs = client.driver.runner.runs
    client.publish("s.a", b"two")
    client.ask("$JS.API.STREAM.INFO.S")
    client.ask("$JS.API.INFO")
    client.publish("s.a", b"three")
    client.ask("$JS.API.STREAM.INFO.S")
    assert len(work(client)) == 3
    assert client.driver.runner.runs == runs + 2


def test_what_an_answer_has_shown_is_there_after_a_crash(
    client: Client, disk: SimulatedDisk
) -> None:
    client.publish("s.a", b"two")
    client.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1,"no_erase":true}')
    client.ask("$JS.API.STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})
    (told,) = work(client)
    found = after_a_crash(client, disk).api("STREAM.INFO.S", {"subjects_filter": ">"})
    assert found["state"] | {"last_ts": ""} == told["state"] | {"last_ts": ""}


@pytest.mark.parametrize("relaxed", [{"storage": "memory"}, {"persist_mode": "async"}])
def test_where_nothing_waits_for_the_disk_neither_do_answers(
    client: Client, relaxed: dict[str, str]
) -> None:
    client.publish(
        "$JS.API.STREAM.CREATE.R", json.dumps({"name": "R", "subjects": ["r"]} | relaxed).encode()
    )
    work(client)
    client.publish("r", b"one")
    assert client.api("STREAM.INFO.R")["state"]["last_seq"] == 1


def test_a_stream_in_memory_is_shown_while_others_wait(client: Client) -> None:
    client.api("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"})
    client.publish("s.a", b"two")
    client.publish("$JS.API.CONSUMER.DELETE.S.c")
    assert client.api("STREAM.INFO.M")["state"]["messages"] == 0


# -- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["CONSUMER.INFO.S.c", "CONSUMER.LIST.S"])
def test_a_position_is_shown_once_it_is_durable(
    client: Client, disk: SimulatedDisk, subject: str
) -> None:
    message = fetch(client)
    client.publish(message.reply, b"+ACK")  # nobody waits for it
    assert client.ask("$JS.API." + subject) == []
    (answer,) = work(client)
    (info,) = answer.get("consumers", [answer])
    assert info["ack_floor"]["stream_seq"] == 1
    found = after_a_crash(client, disk).api("CONSUMER.INFO.S.c")
    assert (found["ack_floor"], found["delivered"]) == (info["ack_floor"], info["delivered"])


def store_second(client: Client) -> None:
    """Another message, durable, with nothing on its way to the disk."""
    client.publish("s.a", b"two")
    work(client)
    client.driver.advance(10 * SECOND)
    work(client)


def test_a_look_at_a_position_that_waits_for_a_removal_to_be_durable_is_answered(
    client: Client,
) -> None:
    store_second(client)
    message = fetch(client)
    client.publish(message.reply, b"+ACK")
    client.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":2,"no_erase":true}')
    client.driver.advance(SECOND)  # the position is saved, with nobody waiting
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    (answer,) = work(client)
    assert answer["ack_floor"]["stream_seq"] == 1


def test_a_position_on_its_way_to_the_disk_is_waited_for(client: Client) -> None:
    message = fetch(client)
    client.publish(message.reply, b"+ACK")
    client.driver.advance(SECOND // 10)  # it is in the commit log, and not in an entry yet
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    (answer,) = work(client)
    assert answer["num_ack_pending"] == 0
    assert client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 0


def test_answers_that_show_one_position_share_its_commit(client: Client) -> None:
    message = fetch(client)
    client.publish(message.reply, b"+ACK")
    runs = client.driver.runner.runs
    for _ in range(3):
        client.ask("$JS.API.CONSUMER.INFO.S.c")
    assert len(work(client)) == 3
    assert client.driver.runner.runs <= runs + 2


def test_a_position_is_shown_where_it_is_if_the_commit_log_has_failed(client: Client) -> None:
    message = fetch(client)
    client.publish(message.reply, b"+ACK")
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    (answer,) = fail(client)
    assert answer["ack_floor"]["stream_seq"] == 1
    assert client.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 1


def test_a_second_look_at_a_position_is_answered_if_the_commit_log_fails_under_the_first(
    client: Client,
) -> None:
    store_second(client)
    for message in (fetch(client), fetch(client)):
        client.publish(message.reply, b"+ACK")
        assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    client.driver.advance(SECOND)  # a disk that fails takes its time for that
    assert [answer["ack_floor"]["stream_seq"] for answer in fail(client)] == [1, 2]


@pytest.mark.parametrize("gone", ["CONSUMER.DELETE.S.c", "STREAM.DELETE.S"])
def test_a_look_at_a_position_is_answered_if_that_goes_before_the_purge_is_durable_that_moved_it(
    client: Client, gone: str
) -> None:
    client.publish("s.a", b"two")
    client.publish("$JS.API.STREAM.PURGE.S")
    assert client.ask("$JS.API.CONSUMER.INFO.S.c") == []
    client.publish("$JS.API." + gone)
    (answer,) = work(client)
    assert answer["type"].endswith("consumer_info_response")


# -- answers to changes --------------------------------------------------------------------------


def test_the_answer_to_an_update_shows_nothing_that_followed_it_and_is_not_durable(
    client: Client,
) -> None:
    asked = {"name": "S", "subjects": ["s.>"], "allow_direct": True, "description": "d"}
    update = encode("$JS.API.STREAM.UPDATE.S", json.dumps(asked).encode(), "_INBOX.t.u")
    client.send(update)
    client.publish("s.a", b"two")
    client.driver.settle_log()
    assert client.take() == []
    (answer,) = work(client)
    assert (answer["config"]["description"], answer["state"]["last_seq"]) == ("d", 2)


def test_a_new_consumer_is_answered_once_the_messages_are_durable_that_it_counts(
    client: Client,
) -> None:
    client.publish("s.a", b"two")
    durable = {"durable_name": "d", "ack_policy": "explicit"}
    asked = {"stream_name": "S", "config": durable}
    assert client.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.d", asked) == []
    client.driver.settle_log()
    assert client.take() == []
    (answer,) = work(client)
    assert answer["num_pending"] == 2


def test_a_stream_that_is_there_is_answered_once_its_messages_are_durable(client: Client) -> None:
    client.publish("s.a", b"two")
    asked = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
    assert client.ask("$JS.API.STREAM.CREATE.S", asked) == []
    (answer,) = work(client)
    assert (answer["did_create"], answer["state"]["messages"]) == (True, 2)


# -- disks that refuse ---------------------------------------------------------------------------


def test_a_stream_whose_disk_fails_meanwhile_shows_what_is_durable(
    client: Client, disk: SimulatedDisk
) -> None:
    client.publish("s.b", b"two")
    work(client)
    client.publish("s.a", b"three")
    client.publish("$JS.API.STREAM.PURGE.S", b'{"filter":"s.b"}')
    details = {"deleted_details": True, "subjects_filter": ">"}
    assert client.ask("$JS.API.STREAM.INFO.S", details) == []
    (answer,) = fail(client)
    state = answer["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (1, 2, 2)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 2
    found = after_a_crash(client, disk).api("STREAM.INFO.S")["state"]
    for name in ("messages", "bytes", "first_seq", "last_seq"):
        assert found[name] == state[name]


def test_the_first_batch_of_a_stream_that_fails_leaves_nothing_to_show(disk: SimulatedDisk) -> None:
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    client.driver.runner.hold()
    client.publish("s", b"one")
    client.ask("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"})
    (answer,) = fail(client)
    state = answer["state"]
    assert (state["messages"], state["bytes"], state["first_seq"], state["last_seq"]) == (0,) * 4
    assert "num_subjects" not in state
    assert "subjects" not in state


def test_a_list_shows_the_streams_whose_disk_has_not_failed(client: Client) -> None:
    client.publish("$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}')
    work(client)
    client.publish("s.a", b"two")
    client.publish("t", b"one")
    client.ask("$JS.API.STREAM.LIST")
    client.driver.runner.waiting[0].job.batch.error = EIO  # type: ignore[attr-defined]
    (answer,) = work(client)
    states = [stream["state"]["last_seq"] for stream in answer["streams"]]
    assert states == [1, 1]


def test_a_stream_that_could_not_be_created_was_never_shown(client: Client) -> None:
    client.publish("$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}')
    client.driver.make_places()
    assert client.ask("$JS.API.STREAM.NAMES") == []
    assert client.ask("$JS.API.STREAM.INFO.T") == []
    names, info = fail(client)
    assert names["streams"] == ["S"]
    assert info["error"]["err_code"] == 10059


def test_a_stream_that_is_deleted_meanwhile_is_not_found(client: Client) -> None:
    client.publish("s.a", b"two")
    client.ask("$JS.API.STREAM.INFO.S")
    client.publish("$JS.API.STREAM.DELETE.S")
    (answer,) = work(client)
    assert answer["error"]["err_code"] == 10059


def remove_on_a_full_disk(disk: SimulatedDisk) -> tuple[Client, int]:
    """A client of a server with 80 messages that has removed some, and the one whose removal the
    disk had no space to record."""
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for _ in range(80):
        client.store("s.a", b"x")
    client.driver.advance(4 * SECOND)
    disk.capacity = disk.used()
    seq = 2
    while "error" not in client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True}):
        seq += 2
    return client, seq


def test_a_full_disk_that_cannot_record_removals_keeps_nobody_from_looking(
    disk: SimulatedDisk,
) -> None:
    client, _ = remove_on_a_full_disk(disk)
    removal = encode("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":79,"no_erase":true}', "_INBOX.t.d")
    client.send(removal + encode("$JS.API.STREAM.INFO.S", b"", "_INBOX.t.i"))
    assert [m.json()["state"]["last_seq"] for m in client.take() if m.subject[-1] == "i"] == [80]


def test_what_a_full_disk_could_not_record_is_recorded_before_it_is_shown(
    disk: SimulatedDisk,
) -> None:
    plenty = disk.capacity
    client, seq = remove_on_a_full_disk(disk)
    disk.capacity = plenty
    shown = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert seq in shown["deleted"]
    found = after_a_crash(client, disk).api("STREAM.INFO.S", {"deleted_details": True})
    assert found["state"]["deleted"] == shown["deleted"]


def refuse_all_files(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no space for the files of consumers."""

    def refuse(path: str) -> File:
        if "/consumers/" in path:
            raise DiskFullError("no space left")
        return SimulatedDisk.open(disk, path)

    monkeypatch.setattr(disk, "open", refuse)


def creation(n: int) -> bytes:
    """The request for one more consumer, which takes a part of the commit log."""
    config = {"durable_name": f"c{n}", "description": "x" * 900}
    asked = json.dumps({"stream_name": "S", "config": config}).encode()
    return encode(f"$JS.API.CONSUMER.DURABLE.CREATE.S.c{n}", asked, "_INBOX.t.c")


def fill_log(client: Client) -> None:
    """Create consumers until the commit log waits for the disk; they are not answered."""
    state = client.driver.engine.state
    assert state is not None
    count = 0
    while not state.log.is_held():
        count += 1
        client.send(creation(count))
        client.driver.settle_log()
    client.take()


LOOKS = encode("$JS.API.STREAM.NAMES", b"", "_INBOX.t.n") + b"".join(
    encode("$JS.API." + subject, b"", "_INBOX.t.i")
    for subject in ("STREAM.INFO.S", "CONSUMER.INFO.S.c1", "STREAM.INFO.MISSING")
)


def test_a_commit_log_that_a_full_disk_keeps_full_keeps_nobody_from_looking(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Driver(disk, log_bytes=60_000).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    refuse_all_files(disk, monkeypatch)
    fill_log(client)
    client.send(creation(1000) + LOOKS)  # it changes something, and waits
    assert [message.subject[-1] for message in client.take()] == ["n", "i", "i", "i"]


def test_while_a_full_disk_keeps_the_commit_log_full_what_is_not_durable_is_not_shown(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Driver(disk, log_bytes=60_000).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.store("s.a", b"one")
    refuse_all_files(disk, monkeypatch)
    fill_log(client)
    client.driver.runner.hold()
    client.publish("s.a", b"two")
    info = client.api("STREAM.INFO.S", {"subjects_filter": ">"})
    assert info["state"]["last_seq"] == info["state"]["messages"] == 1
    assert info["state"]["subjects"] == {"s.a": 1}
    client.publish("$JS.API.STREAM.PURGE.S", b'{"seq":4000000000000}')
    client.publish("s.a", b"far behind")
    info = client.api("STREAM.INFO.S", {"subjects_filter": ">"})
    assert info["state"]["last_seq"] == 1


def test_what_needs_no_commit_is_shown_while_the_commit_log_is_full(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Driver(disk, log_bytes=60_000).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a"], "persist_mode": "async"})
    refuse_all_files(disk, monkeypatch)
    fill_log(client)
    client.driver.runner.hold()
    assert client.store("a", b"one")["seq"] == 1
    assert client.api("STREAM.INFO.A")["state"]["messages"] == 1


def test_a_message_whose_bytes_are_gone_counts_as_removed_once_that_is_durable(
    disk: SimulatedDisk,
) -> None:
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for body in (b"one", b"two", b"three"):
        client.store("s.a", body)
    client.driver.runner.hold()
    log = client.driver.js.streams["S"].log
    (segment,), record = log.blocks, Record()
    assert log.next(2, None, record)
    segment.file.pwrite(segment.offsets.get(1), erased(segment, 1, record))
    log.reader.changed(segment)
    assert client.ask("$JS.API.STREAM.MSG.GET.S", {"seq": 2}) == []
    assert client.ask("$JS.API.STREAM.INFO.S", {"deleted_details": True}) == []
    missing, info = work(client)
    assert missing["error"]["err_code"] == 10037
    assert info["state"]["deleted"] == [2]
    found = after_a_crash(client, disk).api("STREAM.INFO.S", {"deleted_details": True})
    assert found["state"]["deleted"] == [2]


def test_who_looks_while_the_commit_log_is_full_is_answered_once_the_disk_has_refused_it(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Driver(disk, log_bytes=60_000).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    refuse_all_files(disk, monkeypatch)
    client.driver.runner.hold()
    fill_log(client)
    client.send(creation(1000) + LOOKS)
    assert client.take() == []
    answers = [answer["type"].rpartition(".")[2] for answer in work(client)]
    looks = ["stream_names_response", "stream_info_response", "consumer_info_response"]
    assert [answers.count(look) for look in looks] == [1, 2, 1]


def test_who_looks_at_what_an_account_has_until_it_has_no_jetstream_is_told_so(
    client: Client,
) -> None:
    engine = client.driver.engine
    client.publish("s.a", b"two")
    for subject in ("STREAM.INFO.S", "CONSUMER.INFO.S.c"):
        assert client.ask("$JS.API." + subject) == []
    account = engine.default_account
    account.limits.jetstream = None
    engine.stop_account(account)
    engine.start_account(account, client.driver.store)
    client.driver.finish()
    answers = [message.json() for message in client.take()]
    assert [answer["error"]["err_code"] for answer in answers] == [10039, 10039]


# -- many who look -------------------------------------------------------------------------------


def test_while_too_many_answers_wait_for_a_disk_those_who_ask_are_not_read_from(
    client: Client,
) -> None:
    client.publish("s.a", b"two")
    for _ in range(READS_MAX):
        client.ask("$JS.API.STREAM.INFO.S")
    other = client.driver.client()
    assert other.api("STREAM.NAMES")["streams"] == ["S"]
    assert client.ask("$JS.API.STREAM.NAMES") == []
    assert not client.transport.is_read
    assert len(work(client)) == READS_MAX + 1
    assert client.transport.is_read


# -- batches of direct gets ----------------------------------------------------------------------


def test_what_a_batch_says_is_pending_is_durable(client: Client) -> None:
    client.publish("s.a", b"two")
    client.ask("$JS.API.DIRECT.GET.S", {"seq": 1, "batch": 1})
    client.publish("s.a", b"three")
    client.driver.runner.step()
    client.driver.runner.step()
    client.driver.finish()
    one, end = client.take()
    assert (one.body, one.fields["Nats-Num-Pending"]) == (b"one", "1")
    assert end.fields["Nats-Num-Pending"] == "1"
