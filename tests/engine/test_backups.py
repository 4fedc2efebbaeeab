"""A stream that is restored is the one that was backed up, at one moment, with its consumers."""

from random import Random
from typing import Any

import pytest

from slipstream.archive.s2 import S2Writer
from slipstream.engine.backup import snapshot, unpacking
from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.protocol.options import EngineOptions
from slipstream.log.commit_log import Removal
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.engine.backups import (
    INBOX,
    archive,
    ask_backup,
    back_up,
    begin_restore,
    encode_json,
    receive,
    restore,
)

SEGMENT_BYTES = 64 * 1024


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine on it, with small segments."""
    return Driver(disk, segment_bytes=SEGMENT_BYTES).start()


@pytest.fixture
def client(driver: Driver) -> Client:
    """A client of it."""
    return driver.client()


def config_of(name: str = "S", **fields: Any) -> dict[str, Any]:
    """A configuration."""
    return {"name": name, "subjects": [f"{name.lower()}.>"], **fields}


def fill(client: Client, config: dict[str, Any], count: int = 40, size: int = 10) -> None:
    """Create a stream with `count` messages."""
    assert "error" not in client.api(f"STREAM.CREATE.{config['name']}", config)
    name = config["name"].lower()
    for i in range(count):
        client.store(f"{name}.{i % 3}", Random(i).randbytes(size), Nats_Msg_Id=f"id{i}")


def bodies(client: Client, name: str = "S") -> dict[int, tuple[str, str]]:
    """Subject and body (base64) of each message, by sequence."""
    state = client.api(f"STREAM.INFO.{name}")["state"]
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = client.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "error" not in answer:
            stored = answer["message"]
            found[seq] = (stored["subject"], stored["data"], stored["time"])
    return found


def without_times(info: dict[str, Any]) -> dict[str, Any]:
    """What is the same of a stream or consumer at two moments, and after a restore."""
    places = ("delivered", "ack_floor")
    return {
        name: {k: v for k, v in value.items() if k != "last_active"} if name in places else value
        for name, value in info.items()
        if name not in ("ts", "created")
    }


def shown(client: Client, name: str = "S") -> list[dict[str, Any]]:
    """A stream and its consumers."""
    consumers = client.api(f"CONSUMER.LIST.{name}")["consumers"]
    return [without_times(one) for one in (client.api(f"STREAM.INFO.{name}"), *consumers)]


def add_consumers(client: Client, name: str = "S") -> None:
    """Consumers in many states."""
    for config in (
        {"durable_name": "busy", "ack_policy": "explicit"},
        {"durable_name": "memory", "ack_policy": "explicit", "mem_storage": True},
        {"durable_name": "newest", "deliver_policy": "new", "ack_policy": "none"},
        {"durable_name": "last", "deliver_policy": "last_per_subject", "ack_policy": "explicit",
         "filter_subject": f"{name.lower()}.*"},
        {"name": "passing", "ack_policy": "all", "inactive_threshold": 60 * SECOND},
    ):  # fmt: skip
        consumer = config.get("durable_name", config.get("name"))
        asked = {"stream_name": name, "config": config}
        assert "error" not in client.api(f"CONSUMER.CREATE.{name}.{consumer}", asked)
    for consumer, count in (("busy", 5), ("last", 1), ("passing", 3)):
        got = pull(client, f"{name}.{consumer}", count)
        client.publish(got[0].reply, b"+ACK")
        if consumer == "busy":
            client.publish(got[2].reply, b"-NAK")
            pull(client, f"{name}.{consumer}", 1)


def pull(client: Client, consumer: str, count: int) -> list[Message]:
    """That many messages of a consumer."""
    asked = encode_json({"batch": count})
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", asked, "_INBOX.t.pull")
    return [m for m in client.take() if m.reply.startswith("$JS.ACK")]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("compression", ["none", "s2"])
def test_a_restored_stream_is_what_it_was_and_goes_on(
    driver: Driver, client: Client, storage: str, compression: str
) -> None:
    config = config_of(storage=storage, compression=compression, allow_direct=True)
    fill(client, config, size=300)
    for seq in (7, 8, 20):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq})
    add_consumers(client)
    before, stored = shown(client), bodies(client)
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    answer = restore(client, config, data)
    assert "error" not in answer
    assert without_times(answer)["state"] == before[0]["state"]
    assert shown(client) == before
    assert bodies(client) == stored
    assert client.store("s.1", b"again", Nats_Msg_Id="id39") == {
        "stream": "S", "seq": 40, "duplicate": True,
    }  # fmt: skip
    assert client.store("s.1")["seq"] == 41
    got = pull(client, "S.busy", 1)
    assert got[0].reply.split(".")[5] == "6"


def test_what_was_answered_survives_a_power_failure(disk: SimulatedDisk, client: Client) -> None:
    config = config_of()
    fill(client, config, 300, 1000)
    add_consumers(client)
    before, stored = shown(client), bodies(client)
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    assert "error" not in restore(client, config, data, 100_000)
    disk.crash()
    again = Driver(disk, segment_bytes=SEGMENT_BYTES).start().client()
    kept = [one for one in before if one.get("name") not in ("memory", "passing")]
    assert [one for one in shown(again) if one.get("name") not in ("memory", "passing")][1:] == (
        kept[1:]
    )
    assert bodies(again) == stored


def test_an_empty_stream_and_one_that_lost_its_beginning_keep_their_sequences(
    client: Client,
) -> None:
    for name, purge in (("A", {}), ("B", {"seq": 31})):
        config = config_of(name)
        fill(client, config, 40)
        client.api(f"STREAM.PURGE.{name}", purge)
        state = client.api(f"STREAM.INFO.{name}")["state"]
        data = back_up(client, name)
        client.api(f"STREAM.DELETE.{name}")
        assert restore(client, config, data)["state"] == state
        assert client.store(f"{name.lower()}.x")["seq"] == 41


def test_it_may_come_back_under_another_name_and_in_memory(client: Client) -> None:
    fill(client, config_of())
    data = back_up(client, "S", no_consumers=True)
    answer = restore(client, config_of("T", subjects=["other"], storage="memory"), data)
    assert answer["state"]["messages"] == 40
    assert answer["config"]["storage"] == "memory"
    assert set(bodies(client, "T")) == set(bodies(client, "S"))


def test_without_consumers_there_are_none(client: Client) -> None:
    fill(client, config_of())
    add_consumers(client)
    data = back_up(client, "S", no_consumers=True)
    client.api("STREAM.DELETE.S")
    assert restore(client, config_of(), data)["state"]["consumer_count"] == 0


# -- flow ------------------------------------------------------------------------------------------


def test_no_more_is_on_its_way_than_the_window_has(driver: Driver, client: Client) -> None:
    fill(client, config_of(), 100, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=4096)
    chunks = [m for m in client.take() if m.subject == INBOX]
    assert [len(m.body) for m in chunks] == [1024] * 4
    assert chunks[2].reply.endswith(".1024.3")
    client.publish(chunks[0].reply)
    client.publish(chunks[0].reply)  # once more says nothing
    client.publish(chunks[0].reply[:-1] + "99")
    assert len([m for m in client.take() if m.subject == INBOX]) == 1
    for chunk in chunks[1:]:
        client.publish(chunk.reply)
    while found := [m for m in client.take() if m.subject == INBOX]:
        chunks += found
        for chunk in found:
            client.publish(chunk.reply)
    assert len(chunks) > 90


def test_a_client_that_does_not_acknowledge_hears_why_it_ended(
    driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 100, 1000)
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.*.S")
    ask_backup(client, "S", chunk_size=1024, window_size=4096)
    client.take()
    driver.advance(5 * SECOND)
    found = client.take()
    assert [m.status for m in found if m.subject == INBOX] == ["408 No Flow Response"]
    [complete] = [m.json() for m in found if "COMPLETE" in m.subject]
    assert complete["error"] == "no flow response"
    assert back_up(client, "S")


def test_nobody_is_sent_anything_where_nobody_listens(driver: Driver, client: Client) -> None:
    fill(client, config_of())
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    ask_backup(client, "S", deliver_subject="nobody")
    driver.advance(2 * SECOND)
    [complete] = [m.json() for m in client.take() if "COMPLETE" in m.subject]
    assert complete["error"] == "no interest"
    assert driver.js.transfers == set()


def test_who_listens_a_moment_later_gets_it(driver: Driver, client: Client) -> None:
    fill(client, config_of())
    ask_backup(client, "S", deliver_subject="late")
    driver.advance(SECOND)
    client.subscribe("late")
    driver.advance(SECOND)
    assert [m.subject for m in client.take()][-2:] == ["late", "late"]
    assert driver.js.transfers == set()


def test_who_listens_to_all_answers_may_subscribe_to_the_archive_after_the_answer(
    driver: Driver, client: Client
) -> None:
    """As the `nats` tool does."""
    fill(client, config_of())
    ask_backup(client, "S", deliver_subject="_INBOX.t.mine")
    assert [m.subject for m in client.take()] == ["_INBOX.t.asked"]
    client.subscribe("_INBOX.t.mine")
    driver.advance(0)
    chunk, end = [m for m in client.take() if m.sid == "2"]
    assert chunk.body
    assert not end.body
    assert driver.js.transfers == set()


def test_who_listens_to_all_answers_alone_gets_it_a_moment_later(
    driver: Driver, client: Client
) -> None:
    fill(client, config_of())
    ask_backup(client, "S", deliver_subject="_INBOX.t.mine")
    driver.advance(SECOND)
    assert [m.subject for m in client.take()][-2:] == ["_INBOX.t.mine", "_INBOX.t.mine"]
    assert driver.js.transfers == set()


def test_a_client_that_has_gone_costs_nothing_for_long(driver: Driver, client: Client) -> None:
    fill(client, config_of(), 100, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=4096)
    client.session.close("Client Closed")
    driver.finish()
    driver.advance(2 * SECOND)
    assert driver.js.transfers == set()


def test_the_end_of_the_stream_is_the_end_of_its_snapshot(client: Client) -> None:
    fill(client, config_of(), 100, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=4096)
    client.take()
    client.publish("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.deleted")
    found = [m for m in client.take() if m.subject == INBOX]
    assert [m.status for m in found] == ["500 stream S was deleted"]


def test_a_disk_that_is_slow_is_not_taken_for_a_silent_client(
    driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 100, 1000)
    driver.runner.hold()
    ask_backup(client, "S")
    driver.advance(SECOND)
    while driver.runner.step():
        driver.finish()
        driver.advance(7 * SECOND)
    _, end = receive(client)
    assert end is not None
    assert end.status in ("", "204")


def test_a_listener_who_comes_back_gets_the_rest(driver: Driver, client: Client) -> None:
    fill(client, config_of(), 100, 1000)
    client.subscribe("moving")
    ask_backup(client, "S", deliver_subject="moving", chunk_size=1024, window_size=4096)
    first = [m for m in client.take() if m.subject == "moving"]
    client.send(b"UNSUB 2\r\n")
    driver.advance(SECOND)
    client.subscribe("moving", 3)
    for chunk in first:
        client.publish(chunk.reply)
    driver.advance(2 * SECOND)
    assert len([m for m in client.take() if m.subject == "moving"]) == 4


def test_a_snapshot_may_go_straight_into_a_restore(driver: Driver, client: Client) -> None:
    """Each chunk is acknowledged before the next one is sent, within one turn."""
    fill(client, config_of(), 400, 1000)
    config = config_of("T")
    subject = begin_restore(client, config)["deliver_subject"]
    ask_backup(client, "S", deliver_subject=subject, chunk_size=1024, window_size=2048)
    driver.advance(SECOND)
    assert client.api("STREAM.INFO.T")["state"]["messages"] == 400
    assert driver.js.transfers == set()


def test_pieces_that_end_in_another_order_are_sent_in_theirs(
    driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 300, 1000)
    driver.runner.hold()
    ask_backup(client, "S")
    driver.runner.step()  # what is sent becomes durable
    driver.finish()
    at_once = 0
    while driver.runner.waiting:
        at_once = max(at_once, len(driver.runner.waiting))
        item = driver.runner.waiting.pop()
        item.run()
        item.finish()
        driver.finish()
    data, end = receive(client)
    assert end is not None
    assert at_once > 2
    driver.runner.held = False
    assert restore(client, config_of("T"), data)["state"]["messages"] == 300
    stored = bodies(client, "S")
    assert bodies(client, "T") == stored


def test_a_server_that_stops_meanwhile_leaves_nothing_half(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 100, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=1024)
    subject = begin_restore(client, config_of("T"))["deliver_subject"]
    client.request(subject, GOOD)
    busy = begin_restore(client, config_of("U"))["deliver_subject"]
    driver.runner.hold()
    client.request(busy, GOOD)
    driver.stop()
    assert driver.js.transfers == set()
    assert not [path for path in disk.files() if ".new-" in path]
    again = Driver(disk, segment_bytes=SEGMENT_BYTES).start().client()
    assert again.api("STREAM.NAMES")["streams"] == ["S"]


def test_requests_that_can_not_be(client: Client) -> None:
    fill(client, config_of(), 1)
    for body, code in (
        (b"", 10003),
        (b"{}", 10003),
        (b"x", 10025),
        ({"deliver_subject": "a.*"}, 10015),
        ({"deliver_subject": ""}, 10015),
    ):
        assert client.api("STREAM.SNAPSHOT.S", body)["error"]["err_code"] == code
    assert client.api("STREAM.SNAPSHOT.N", {"deliver_subject": "a"})["error"]["err_code"] == 10059
    for body, code in (
        (b"", 10003),
        ({"config": {"name": "S"}, "state": {}}, 10130),
        ({"config": {"name": "T"}, "state": {}}, 10056),
    ):
        assert client.api("STREAM.RESTORE.S", body)["error"]["err_code"] == code


# -- one moment ------------------------------------------------------------------------------------


def test_a_snapshot_is_of_the_moment_when_it_was_asked_for(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    """Whatever is removed, acknowledged or stored while it is sent."""
    config = config_of(retention="workqueue", max_msgs=200)
    fill(client, config, 200, 1000)
    asked = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    client.api("CONSUMER.CREATE.S.c", asked)
    before, stored = shown(client), bodies(client)
    ask_backup(client, "S", chunk_size=1024, window_size=2048)
    chunks = [m for m in client.take() if m.subject == INBOX]
    for i in range(150):
        client.store("s.new", b"%d" % i)
    for message in pull(client, "S.c", 20):
        client.publish(message.reply, b"+ACK")
    client.api("STREAM.PURGE.S", {"filter": "s.1"})
    data = b"".join(m.body for m in chunks)
    for chunk in chunks:
        client.publish(chunk.reply)
    rest, end = receive(client)
    assert end is not None
    assert end.status == "204"
    after = bodies(client)
    client.api("STREAM.DELETE.S")
    assert restore(client, config, data + rest)["state"] == before[0]["state"]
    assert bodies(client) == stored
    assert shown(client) == before
    assert after != stored


def test_files_that_a_snapshot_has_kept_go_when_it_ends(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 300, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=1024)
    held = len(disk.files(".seg"))
    client.api("STREAM.PURGE.S")
    client.store("s.1")
    driver.advance(SECOND)
    assert len(disk.files(".seg")) >= held
    driver.advance(5 * SECOND)  # it ends for want of acknowledgements
    assert len(disk.files(".seg")) < held
    disk.crash()
    again = Driver(disk, segment_bytes=SEGMENT_BYTES).start().client()
    assert again.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_crash_while_files_are_kept_brings_nothing_back(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 300, 1000)
    ask_backup(client, "S", chunk_size=1024, window_size=1024)
    client.api("STREAM.PURGE.S")
    client.store("s.1")
    driver.advance(SECOND)
    disk.crash()
    again = Driver(disk, segment_bytes=SEGMENT_BYTES).start()
    state = again.client().api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (1, 301)
    assert not again.js.problems


def test_a_damaged_message_is_reported_and_the_next_snapshot_is_without_it(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    fill(client, config_of(), 100, 1000)
    disk.flip(disk.files(".seg")[0], 8 * 5000)
    ask_backup(client, "S", jsck=True)
    _, end = receive(client)
    assert end is not None
    assert end.status.startswith("500 message 5 is damaged")
    data = back_up(client, "S")
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 99
    answer = restore(client, config_of("T", subjects=["t"]), data)
    assert answer["state"]["messages"] == 99


def test_a_disk_that_fails_while_damage_is_looked_at_is_no_reason_to_be_silent(
    disk: SimulatedDisk, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: object, seq: int) -> None:
        raise OSError("the disk cannot be read")

    monkeypatch.setattr(snapshot, "find_damage", fail)
    fill(client, config_of(), 100, 1000)
    disk.flip(disk.files(".seg")[0], 8 * 5000)
    ask_backup(client, "S")
    _, end = receive(client)
    assert end is not None
    assert end.status.startswith("500 message 5 is damaged")


def test_with_relaxed_durability_it_has_what_was_acknowledged(disk: SimulatedDisk) -> None:
    options = EngineOptions(server_name="here", jetstream=True, sync_always=False)
    client = Driver(disk, options, segment_bytes=SEGMENT_BYTES).start().client()
    fill(client, config_of(), 100, 1000)
    data = back_up(client, "S")
    assert restore(client, config_of("T"), data)["state"]["messages"] == 100


def test_a_consumer_that_was_ahead_of_the_messages_goes_back(
    driver: Driver, client: Client
) -> None:
    """As in an archive of nats-server, which reads one after the other."""
    state = {
        "delivered": {"consumer_seq": 9, "stream_seq": 9},
        "ack_floor": {"consumer_seq": 8, "stream_seq": 8},
        "pending": {"9": {"Sequence": 9, "Timestamp": 1}},
        "redelivered": {"9": 1},
    }
    data = archive([(1, b"s.1", b"a"), (5, b"s.2", b"b")], c=CONSUMER | {"state": state})
    assert "error" not in restore(client, config_of(), data)
    info = client.api("CONSUMER.INFO.S.c")
    assert (info["delivered"]["stream_seq"], info["num_ack_pending"]) == (5, 0)
    assert client.store("s.1")["seq"] == 6
    assert [m.reply.split(".")[5] for m in pull(client, "S.c", 1)] == ["6"]
    assert not driver.js.problems


@pytest.mark.parametrize(
    ("delivered", "own"),
    [({}, None), ({"consumer_seq": 3, "stream_seq": 3}, {"next_seq": 4, "initial": [1, 2]})],
    ids=["nothing was delivered", "some are to be delivered first"],
)
def test_what_is_out_and_has_not_been_delivered_is_delivered_once(
    client: Client, delivered: dict[str, int], own: dict[str, Any] | None
) -> None:
    """A position that contradicts itself, as no server writes it."""
    out = {str(seq): {"Sequence": seq, "Timestamp": 1} for seq in (1, 2)}
    entry = CONSUMER | {"state": {"delivered": delivered, "pending": out}, "slipstream": own}
    messages = [(seq, b"s.1", b"a") for seq in (1, 2, 3)]
    assert "error" not in restore(client, config_of(), archive(messages, c=entry))
    came = [message.reply.split(".")[5] for message in pull(client, "S.c", 9)]
    assert came == (["1", "2"] if own else ["1", "2", "3"])
    assert client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == len(came)


def test_a_consumer_of_last_messages_of_nats_server_misses_none(client: Client) -> None:
    config = {
        "durable_name": "c", "ack_policy": "explicit", "deliver_policy": "last_per_subject",
        "filter_subject": "s.*", "ack_wait": SECOND,
    }  # fmt: skip
    messages = [(seq, b"s.%d" % (seq % 2), b"x") for seq in range(1, 7)]
    for begun, expected in ((0, ["5", "6"]), (3, ["4", "5", "6"])):
        place = {"consumer_seq": begun and 1, "stream_seq": begun}
        state = {"delivered": place, "ack_floor": place}
        data = archive(messages, c={"config": config, "state": state})
        assert "error" not in restore(client, config_of(), data)
        assert [m.reply.split(".")[5] for m in pull(client, "S.c", 9)] == expected
        client.api("STREAM.DELETE.S")


# -- what does not become a stream -----------------------------------------------------------------

GOOD = archive([(1, b"s.1", b"a"), (5, b"s.2", b"b")])
CONSUMER = {"config": {"durable_name": "c", "ack_policy": "explicit", "ack_wait": SECOND}}
WRONG: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cut off"),
    "no frame": (b"hello, this is no archive", "s2 is expected"),
    "a frame of something else": (
        b"\xff\x06\x00\x00sNaPpY\x01\x0a\x00\x00" + bytes(10), "checksum",
    ),
    "cut off": (GOOD[:-9], "cut off"),
    "no end": (GOOD[: GOOD.index(b"\xff", 1)] if b"\xff" in GOOD[1:] else GOOD[:20], "cut off"),
    "out of order": (archive([(5, b"s.1", b"a"), (5, b"s.2", b"b")]), "out of order"),
    "a subject with a space": (archive([(5, b"s. x", b"a")]), "no valid subject"),
    "a sequence beyond all": (archive([(1 << 62, b"s.1", b"a")], 1 << 63), "cannot be"),
    "a number that is too large": (
        archive([], c={"config": CONSUMER["config"] | {"max_deliver": 1 << 64}}), "max_deliver",
    ),
    "a place that is too far": (
        archive([], c=CONSUMER | {"state": {"ack_floor": {"consumer_seq": 1 << 63}}}), "cannot be",
    ),
    "a count that is too large": (
        archive([], c=CONSUMER | {"state": {"redelivered": {"1": (1 << 63) - 1}}}), "cannot be",
    ),
    "a consumer that cannot be": (
        archive([], c={"config": {"durable_name": "c", "max_deliver": "x"}}), "cannot be read",
    ),
    "a consumer of another name": (
        archive([], d={"config": {"durable_name": "c"}}), "another name",
    ),
    "a consumer without sense": (
        archive([], c={"config": {"durable_name": "c", "filter_subject": "a..b"}}), "consumer c",
    ),
    "a consumer at no place": (
        archive([], c=CONSUMER | {"state": {"delivered": {"consumer_seq": -1}}}), "cannot be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_archive_is_refused_and_leaves_nothing(
    disk: SimulatedDisk, driver: Driver, client: Client, what: str
) -> None:
    data, why = WRONG[what]
    before = disk.files()
    answer = restore(client, config_of(), data)
    assert answer["error"]["err_code"] == 10062
    assert why in answer["error"]["description"]
    assert [path for path in disk.files() if path not in before and "commit-log" not in path] == []
    assert client.api("STREAM.NAMES")["streams"] is None
    assert restore(client, config_of(), GOOD)["state"]["last_seq"] == 5


@pytest.mark.parametrize("step", ["feed", "finish", "complete"])
def test_whatever_goes_wrong_is_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(unpacking.Unpacked, step, fail)
        answer = restore(client, config_of(), GOOD)
    assert answer["error"]["description"].endswith("no more")
    assert restore(client, config_of(), GOOD)["state"]["last_seq"] == 5


@pytest.mark.parametrize("at", range(0, len(GOOD) - 1, 3))
def test_no_flipped_bit_goes_unnoticed(client: Client, at: int) -> None:
    flipped = bytearray(GOOD)
    flipped[at] ^= 4
    answer = restore(client, config_of(), bytes(flipped))
    if "error" not in answer:
        assert bodies(client).keys() == {1, 5}


def test_a_name_or_a_subject_that_is_taken_meanwhile_is_kept(
    driver: Driver, client: Client
) -> None:
    for taken, code in ((config_of(), 10130), (config_of("T", subjects=["s.1"]), 10062)):
        subject = begin_restore(client, config_of())["deliver_subject"]
        client.request(subject, GOOD)
        client.api(f"STREAM.CREATE.{taken['name']}", taken)
        answer = client.request(subject, b"").json()
        assert answer["error"]["err_code"] == code
        assert client.api(f"STREAM.DELETE.{taken['name']}")["success"]
    assert not driver.js.claims.owners("s.1")


@pytest.mark.parametrize("what", ["goes on", "is slow", "jetstream stops"])
def test_a_restore_that_waits_for_its_place_ends_once(
    what: str,
    disk: SimulatedDisk,
    driver: Driver,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.>")
    subject = begin_restore(client, config_of())["deliver_subject"]
    client.request(subject, GOOD)
    leaving, asked = StateCommit.leaving, []

    def slow(state: StateCommit, path: str) -> Removal | None:
        asked.append(path)
        driver.runner.hold()
        return leaving(state, path)

    monkeypatch.setattr(StateCommit, "leaving", slow)
    assert client.ask(subject, b"") == []
    assert len(asked) == 1
    if what == "is slow":
        driver.advance(60 * SECOND)
    elif what == "jetstream stops":
        driver.engine.stop_account(driver.engine.default_account)
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    came = [message.subject for message in client.take()]
    ends = 0 if what == "jetstream stops" else 1
    assert came.count(client.inbox) == ends
    assert len([one for one in came if "RESTORE_COMPLETE" in one]) == ends
    if not ends:
        assert not [path for path in disk.files() if ".new-" in path]
    else:
        assert list(bodies(client)) == [1, 5]


@pytest.mark.parametrize("slow", range(12))
def test_a_restore_is_answered_once_however_slow_the_disk_is(
    slow: int, driver: Driver, client: Client
) -> None:
    fill(client, config_of())
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    config = config_of(max_msgs_per_subject=2)  # so that the disk has to take removals, too
    subject = begin_restore(client, config)["deliver_subject"]
    client.request(subject, data)
    driver.runner.hold()
    assert client.ask(subject, b"") == []
    steps = 0
    while driver.runner.waiting:
        if steps == slow:
            driver.advance(20 * SECOND)
        driver.runner.step()
        driver.finish()
        steps += 1
    (answer,) = [message.json() for message in client.take() if message.body]
    assert answer["state"]["messages"] == 6


def test_a_client_that_stops_sending_leaves_nothing(
    disk: SimulatedDisk, driver: Driver, client: Client
) -> None:
    subject = begin_restore(client, config_of())["deliver_subject"]
    client.request(subject, GOOD[:20])
    driver.advance(5 * SECOND)
    assert driver.js.transfers == set()
    assert not [path for path in disk.files() if "msgs" in path]
    assert client.request(subject, GOOD[20:]).status == "503"


def test_more_is_unpacked_while_the_disk_writes(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, client: Client
) -> None:
    monkeypatch.setattr(unpacking, "WRITTEN_AT_ONCE", 30_000)
    config = config_of()
    fill(client, config, 300, 1000)
    stored = bodies(client)
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    subject = begin_restore(client, config)["deliver_subject"]
    driver.runner.hold()
    client.publish(subject, data, "_INBOX.t.part")
    client.publish(subject, b"", "_INBOX.t.part")
    at_once = 0
    while driver.runner.step():
        driver.finish()
        at_once = max(at_once, len(driver.runner.waiting))
    assert at_once == 2
    driver.runner.held = False
    answers = [m.json() for m in client.take() if m.subject == "_INBOX.t.part" and m.body]
    assert [answer["state"]["messages"] for answer in answers] == [300]
    assert bodies(client) == stored


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_streams": 0}, "10027"),
        ({"max_storage": 20}, "may not store that much"),
        ({"max_consumers": 0}, "10026"),
    ],
)
def test_an_account_gets_no_more_than_it_may_have(
    disk: SimulatedDisk, limits: dict[str, Any], code: str
) -> None:
    client = Driver(disk).start(**limits).client()
    data = archive([(1, b"s.1", b"a" * 100)], c=CONSUMER)
    answer = restore(client, config_of(), data)
    assert code in encode_json(answer["error"]).decode()
    assert client.api("STREAM.NAMES")["streams"] is None


def test_what_clients_published_to_a_wildcard_comes_back(client: Client) -> None:
    fill(client, config_of(), 1)
    client.publish("s.*", b"as a word")
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    assert restore(client, config_of(), data)["state"]["messages"] == 2
    assert bodies(client)[2][0] == "s.*"


@pytest.mark.parametrize("limits", [{"max_storage": 10_000_000}, {"max_memory": 10_000_000}])
def test_a_small_archive_that_unpacks_to_much_is_refused_before_it_has(
    disk: SimulatedDisk, limits: dict[str, Any]
) -> None:
    client = Driver(disk).start(**limits).client()
    storage = "file" if "max_storage" in limits else "memory"
    tar = S2Writer().write(bytes(1024 * 1024))
    block = tar[10:]  # without the name in front
    before = disk.used()
    answer = restore(client, config_of(storage=storage), tar + block * 200)
    assert "may not store that much" in answer["error"]["description"]
    assert disk.used() == before


def test_only_so_many_are_under_way_at_a_time(client: Client) -> None:
    fill(client, config_of(), 100, 1000)
    for i in range(16):
        assert "error" not in begin_restore(client, config_of(f"R{i}"))
        ask_backup(client, "S", chunk_size=1024, window_size=1024)
    assert "under way" in begin_restore(client, config_of("R"))["error"]["description"]
    refused = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": INBOX})
    assert "under way" in refused["error"]["description"]


def test_advisories_tell_of_both(client: Client) -> None:
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
    config = config_of()
    fill(client, config, 3)
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    client.take()
    restore(client, config, data)
    client.take()
    ask_backup(client, "S")
    found = {m.subject.split(".")[4]: m.json() for m in client.take() if "EVENT" in m.subject}
    assert found["SNAPSHOT_CREATE"]["state"]["messages"] == 3
    assert found["SNAPSHOT_COMPLETE"]["client"]["host"] == "127.0.0.1"


# -- the power fails -------------------------------------------------------------------------------


def steps_of(driver: Driver) -> int:
    """Let the disk do one thing; 0 if there is nothing to do."""
    done = driver.runner.step()
    driver.finish()
    return done


@pytest.mark.parametrize("after", range(14))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("written_at_once", [30_000, 1_000_000])
def test_a_power_failure_leaves_the_whole_stream_or_none(
    monkeypatch: pytest.MonkeyPatch, after: int, seed: int, written_at_once: int
) -> None:
    """After so many steps of the disk; what was answered is there."""
    monkeypatch.setattr(unpacking, "WRITTEN_AT_ONCE", written_at_once)
    disk = SimulatedDisk(Random(seed))
    driver = Driver(disk, segment_bytes=SEGMENT_BYTES).start()
    client = driver.client()
    config = config_of()
    fill(client, config, 150, 1000)
    asked = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    client.api("CONSUMER.CREATE.S.c", asked)
    for message in pull(client, "S.c", 3)[:1]:
        client.publish(message.reply, b"+ACK")
    before, stored = shown(client), bodies(client)
    data = back_up(client, "S")
    client.api("STREAM.DELETE.S")
    subject = begin_restore(client, config)["deliver_subject"]
    half = len(data) // 2
    driver.runner.hold()
    for part in (data[:half], data[half:], b""):
        client.publish(subject, part, "_INBOX.t.part")
        for _ in range(after // 2 if part else after):
            if not steps_of(driver):
                break
    answered = [m.json() for m in client.take() if m.subject == "_INBOX.t.part" and m.body]
    disk.crash()
    again = Driver(disk, segment_bytes=SEGMENT_BYTES).start()
    other = again.client()
    there = other.api("STREAM.NAMES")["streams"]
    if answered:
        assert "error" not in answered[0]
        assert there == ["S"]
    if there:
        assert bodies(other) == stored
        assert shown(other)[1:] == before[1:]
    assert not again.js.problems
    assert not [path for path in disk.files() if ".new-" in path]
    if not there:
        assert "error" not in restore(other, config, data)


@pytest.mark.parametrize(
    "operation", ["open", "mkdir", "append", "reserve", "sync", "rename", "sync_dir"]
)
@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("written_at_once", [20_000, 1_000_000])
def test_a_disk_that_fails_costs_the_restore_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, operation: str, nth: int, written_at_once: int
) -> None:
    monkeypatch.setattr(unpacking, "WRITTEN_AT_ONCE", written_at_once)
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=SEGMENT_BYTES).start()
    client = driver.client()
    config = config_of()
    data = archive([(i, b"s.1", bytes(1000)) for i in range(1, 200)], c=CONSUMER)
    disk.fail(operation, nth)
    answer = restore(client, config, data)
    disk.heal()
    there = client.api("STREAM.NAMES")["streams"]
    assert there == (None if "error" in answer else ["S"])
    disk.crash()
    other = Driver(disk, segment_bytes=SEGMENT_BYTES).start().client()
    if "error" not in answer:
        assert len(bodies(other)) == 199
        assert other.api("CONSUMER.INFO.S.c")["num_pending"] == 199
    elif other.api("STREAM.NAMES")["streams"] is None:
        assert "error" not in restore(other, config, data)
