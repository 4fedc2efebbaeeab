"""Messages that live for a time of their own, and the markers of what has gone."""

import base64
from random import Random
from typing import Any

import pytest

from slipstream.engine.stream.ttl import INVALID, NEVER, MessageTtls, parse_ttl
from slipstream.log.disk import OsDisk
from slipstream.log.record import Record
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

MINUTE = 60 * SECOND


def create(client: Client, **options: Any) -> Any:
    """The stream S, whose messages may have TTLs."""
    config = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True, **options}
    answer = client.api("STREAM.CREATE.S", config)
    assert "error" not in answer, answer
    return answer["config"]


def stored(client: Client) -> dict[int, str]:
    """Every message of S: its subject by its sequence."""
    return {seq: message.subject for seq, message in client.messages("S").items()}


def header(client: Client, seq: int) -> dict[str, str]:
    """The header's fields of a message of S."""
    message = client.api("STREAM.MSG.GET.S", {"seq": seq})["message"]
    lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if line)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 1), ("01", 1), ("1s", 1), ("1999ms", 1), ("1h1m", 3660), ("", 0), ("00", 0),
        ("never", NEVER), ("NEVER", NEVER), ("0", INVALID), ("500ms", INVALID), ("-1", INVALID),
        ("+1", INVALID), ("1.5", INVALID), ("1 ", INVALID), ("x", INVALID), ("9" * 18, 2**33),
        ("9" * 4000, INVALID),
    ],
)  # fmt: skip
def test_a_ttl_is_read_as_nats_server_reads_it(text: str, seconds: int) -> None:
    assert parse_ttl(text.encode()) == seconds


def test_a_message_goes_when_its_time_is_over_and_not_before(client: Client) -> None:
    create(client)
    client.store("s.a", Nats_TTL="5")
    client.store("s.b")
    client.store("s.c", Nats_TTL="1m30s")
    client.store("s.d", Nats_TTL="never")
    client.driver.advance(5 * SECOND - 1)
    assert list(stored(client)) == [1, 2, 3, 4]
    client.driver.advance(SECOND)
    assert list(stored(client)) == [2, 3, 4]
    client.driver.advance(90 * SECOND)
    assert list(stored(client)) == [2, 4]


@pytest.mark.parametrize("phase", [0, 1, SECOND // 10, SECOND // 2, SECOND - 1])
def test_a_message_goes_within_a_tenth_of_a_second_of_its_time(client: Client, phase: int) -> None:
    create(client)
    client.driver.advance(-client.driver.clock.now % SECOND + phase)
    client.store("s.a", Nats_TTL="1")
    client.driver.advance(SECOND + SECOND // 10)
    assert stored(client) == {}


def test_a_ttl_needs_a_stream_that_allows_it_and_a_value_that_is_one(client: Client) -> None:
    create(client, allow_msg_ttl=False)
    assert client.store("s.a", Nats_TTL="1")["error"]["err_code"] == 10166
    assert client.store("s.a", Nats_TTL="x")["error"]["err_code"] == 10165
    asked = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True}
    assert client.api("STREAM.UPDATE.S", asked)["config"]["allow_msg_ttl"]
    assert client.store("s.a", Nats_TTL="x")["error"]["err_code"] == 10165
    assert client.store("s.a", Nats_TTL="1")["seq"] == 1
    error = client.api("STREAM.UPDATE.S", asked | {"allow_msg_ttl": False})["error"]
    assert error["description"] == "message TTL status can not be disabled"


def test_ttls_survive_a_restart_and_what_expired_meanwhile_goes_at_once(
    file_driver: Driver,
) -> None:
    client = file_driver.client()
    create(client)
    for n in range(10):
        client.store(f"s.{n}", Nats_TTL=str(10 * (n + 1)))
        client.store(f"s.{n}")
    file_driver.stop()
    driver = Driver(OsDisk(), now=file_driver.clock.now + 35 * SECOND).start()
    client = driver.client()
    driver.advance(SECOND)
    assert list(stored(client)) == [2, 4, 6, *range(7, 21)]
    driver.advance(65 * SECOND)
    assert list(stored(client)) == list(range(2, 21, 2))


def test_a_stream_works_while_its_ttls_are_looked_for_after_a_start(
    file_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.ttl.READ_PER_TURN", 3)
    client = file_driver.client()
    create(client)
    for _ in range(20):
        client.store("s.old", Nats_TTL="5")
    file_driver.stop()
    driver = Driver(OsDisk(), now=file_driver.clock.now + SECOND).start()
    client = driver.client()
    assert client.store("s.new", Nats_TTL="1")["seq"] == 21
    driver.advance(2 * SECOND)
    assert list(stored(client)) == list(range(1, 21))
    driver.advance(5 * SECOND)
    assert stored(client) == {}


def test_segments_without_headers_are_not_read_for_ttls_at_the_start(
    file_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = file_driver.client()
    create(client)
    for _ in range(50):
        client.store("s.a")
    file_driver.stop()
    looked_at: list[Any] = []
    monkeypatch.setattr("slipstream.engine.stream.ttl.ttl_of", looked_at.append)
    driver = Driver(OsDisk(), now=file_driver.clock.now).start()
    driver.advance(SECOND)
    assert not looked_at


def test_nothing_goes_early_when_the_clock_is_set_back(client: Client) -> None:
    driver = client.driver
    create(client, max_age=MINUTE)
    client.store("s.a", Nats_TTL="10")
    client.store("s.b")
    driver.clock.now -= 3600 * SECOND
    client.store("s.c", Nats_TTL="10")
    driver.advance(9 * SECOND)
    assert list(stored(client)) == [1, 2, 3]
    driver.advance(2 * SECOND)
    assert list(stored(client)) == [1, 2]
    driver.advance(3600 * SECOND)
    assert list(stored(client)) == [2]
    driver.advance(MINUTE)
    assert stored(client) == {}


def test_age_takes_what_lives_longer_and_spares_what_never_expires(client: Client) -> None:
    create(client, max_age=10 * SECOND)
    client.store("s.a", Nats_TTL="1h")
    for _ in range(3):
        client.store("s.b", Nats_TTL="never")
    client.store("s.c")
    client.driver.advance(5 * SECOND)
    client.store("s.d")
    client.driver.advance(6 * SECOND)
    assert list(stored(client)) == [2, 3, 4, 6]
    client.driver.advance(5 * SECOND)
    assert list(stored(client)) == [2, 3, 4]
    client.store("s.e")
    client.driver.advance(11 * SECOND)
    assert list(stored(client)) == [2, 3, 4]


def test_what_never_expires_is_looked_at_once_and_not_at_each_expiry(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client, max_age=10 * SECOND)
    for _ in range(200):
        client.store("s.kept", Nats_TTL="never")
    client.driver.advance(11 * SECOND)
    looked_at = []

    def count(record: Any) -> int:
        looked_at.append(record.seq)
        return 0

    monkeypatch.setattr("slipstream.engine.stream.ttl.ttl_of", count)
    for _ in range(20):
        client.store("s.a")
        client.driver.advance(11 * SECOND)
    assert looked_at == list(range(201, 221))


def test_old_messages_go_together_where_none_has_to_stay(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client, max_age=10 * SECOND)
    for _ in range(100):
        client.store("s.a")
        client.store("s.a", Nats_TTL="1h", Other="x")
    monkeypatch.delattr("slipstream.engine.stream.ttl.MessageTtls.expire_by_age")
    client.driver.advance(5 * SECOND)
    client.store("s.b")
    client.driver.advance(6 * SECOND)
    assert stored(client) == {201: "s.b"}


def test_many_old_messages_behind_one_that_stays_do_not_wait_for_one_another(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.ttl.EXPIRED_PER_TURN", 10)
    create(client, max_age=10 * SECOND)
    client.store("s.kept", Nats_TTL="never")
    for _ in range(100):
        client.store("s.a")
    client.driver.advance(10 * SECOND + SECOND // 10)
    assert list(stored(client)) == [1]


def test_what_goes_by_its_ttl_is_not_waited_for_by_a_consumer(client: Client) -> None:
    create(client, retention="workqueue")
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.store("s.a", Nats_TTL="2")
    client.store("s.b", Nats_TTL="1m")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":2}', "_INBOX.t.pull")
    assert [message.subject for message in client.take()] == ["s.a"]
    client.driver.advance(3 * SECOND)
    assert [message.subject for message in client.take()] == ["s.b"]
    info = client.api("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["num_pending"]) == (1, 0)
    assert list(stored(client)) == [2]


def test_a_message_that_nobody_wants_needs_no_valid_ttl(client: Client) -> None:
    create(client, retention="interest")
    assert client.store("s.a", Nats_TTL="x")["seq"] == 1
    assert client.store("s.a", Nats_TTL="1")["seq"] == 2
    client.driver.advance(5 * SECOND)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 2


def test_a_sealed_stream_still_lets_go_of_what_expires(client: Client) -> None:
    create(client, subject_delete_marker_ttl=SECOND)
    client.store("s.a", Nats_TTL="2")
    config = client.api("STREAM.INFO.S")["config"] | {"sealed": True}
    assert client.api("STREAM.UPDATE.S", config)["config"]["sealed"]
    client.driver.advance(5 * SECOND)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 1


# -- delete markers ----------------------------------------------------------------------------


def test_delete_markers_switch_on_what_they_need(client: Client) -> None:
    config = create(
        client, allow_msg_ttl=False, deny_purge=True, subject_delete_marker_ttl=2 * SECOND
    )
    assert (config["allow_msg_ttl"], config["allow_rollup_hdrs"]) == (True, True)
    assert config["deny_purge"] is False
    assert config["metadata"]["_nats.req.level"] == "1"


@pytest.mark.parametrize("by", ["ttl", "age"])
def test_a_marker_takes_the_place_of_the_last_message_of_a_subject(client: Client, by: str) -> None:
    create(client, subject_delete_marker_ttl=3 * SECOND, max_age=10 * SECOND * (by == "age"))
    for _ in range(3):
        client.store("s.a", **({"Nats_TTL": "10"} if by == "ttl" else {}))
    client.driver.advance(10 * SECOND)
    client.driver.advance(SECOND)
    assert stored(client) == {4: "s.a"}
    assert header(client, 4) == {
        "Nats-Marker-Reason": "MaxAge", "Nats-TTL": "3s", "Nats-Rollup": "sub",
    }  # fmt: skip
    client.driver.advance(4 * SECOND)
    assert stored(client) == {}
    client.driver.advance(MINUTE)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 4


def test_no_marker_stands_for_what_is_a_marker_itself(client: Client) -> None:
    create(client, subject_delete_marker_ttl=2 * SECOND)
    client.store("s.a", Nats_TTL="2", KV_Operation="PURGE", Nats_Rollup="sub")
    client.store("s.b", Nats_TTL="2", KV_Operation="DEL")
    client.driver.advance(3 * SECOND)
    assert stored(client) == {3: "s.b"}


def test_no_marker_hides_messages_that_are_still_there(client: Client) -> None:
    create(client, subject_delete_marker_ttl=SECOND)
    client.store("s.a")
    client.store("s.a", Nats_TTL="2")
    client.driver.advance(5 * SECOND)
    assert stored(client) == {1: "s.a"}


def test_a_ttl_below_that_of_the_markers_is_raised_to_it(client: Client) -> None:
    create(client, subject_delete_marker_ttl=5 * SECOND)
    client.store("s.a", Nats_TTL="1s", Other="x")
    client.store("s.a", Nats_TTL="10s", Other="x")
    assert header(client, 1) == {"Other": "x", "Nats-TTL": "5"}
    assert header(client, 2) == {"Other": "x", "Nats-TTL": "10s"}
    client.api("STREAM.UPDATE.S", {
        "name": "S", "subjects": ["s.>"], "subject_delete_marker_ttl": 5 * SECOND,
        "max_msgs_per_subject": 1,
    })  # fmt: skip
    client.store("s.b", Nats_TTL="1s")
    assert header(client, 3) == {"Nats-TTL": "1s"}


def test_a_full_stream_that_refuses_messages_still_expires_them_into_markers(
    client: Client,
) -> None:
    create(client, subject_delete_marker_ttl=5 * SECOND, discard="new", max_msgs=2)
    client.store("s.a", Nats_TTL="5")
    client.store("s.b")
    client.driver.advance(6 * SECOND)
    assert stored(client) == {2: "s.b", 3: "s.a"}


def test_a_consumer_is_sent_the_marker(client: Client) -> None:
    create(client, subject_delete_marker_ttl=2 * SECOND)
    client.subscribe("here")
    config = {"deliver_subject": "here", "ack_policy": "none"}
    client.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    client.store("s.a", Nats_TTL="2")
    client.take()
    client.driver.advance(3 * SECOND)
    (marker,) = client.take()
    assert (marker.subject, marker.body) == ("s.a", b"")
    assert marker.fields["Nats-Marker-Reason"] == "MaxAge"


def test_a_marker_that_the_disk_has_no_room_for_is_put_later() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    create(client, subject_delete_marker_ttl=100 * SECOND, max_msgs_per_subject=1)
    for n in range(300):
        client.store(f"s.{n}", Nats_TTL="2")
    disk.capacity = disk.used()
    driver.advance(20 * SECOND)
    assert "s.299" in stored(client).values()
    disk.capacity = 1 << 40
    driver.advance(20 * SECOND)
    found = stored(client)
    assert set(found.values()) == {f"s.{n}" for n in range(300)}
    assert all(header(client, seq).get("Nats-Marker-Reason") for seq in found)


def test_a_million_messages_of_one_second_expire_a_bounded_number_in_each_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.ttl.EXPIRED_PER_TURN_IN_RUNS", 10)
    monkeypatch.setattr("slipstream.engine.loop.deadlines.RUN_MAX", 10)
    create(client)
    for _ in range(100):
        client.store("s.a", Nats_TTL="1")
    driver = client.driver
    driver.clock.now += 2 * SECOND
    left = []
    while driver.js.streams["S"].log.messages:
        driver.engine.tick()
        driver.finish()
        left.append(driver.js.streams["S"].log.messages)
    assert left == list(range(90, -1, -10))


def test_messages_that_expire_between_others_go_fewer_in_each_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.ttl.EXPIRED_PER_TURN_IN_RUNS", 10)
    monkeypatch.setattr("slipstream.engine.stream.ttl.EXPIRED_PER_TURN", 5)
    monkeypatch.setattr("slipstream.engine.loop.deadlines.RUN_MAX", 10)
    create(client)
    for n in range(40):  # 20 at the front, then every other one
        client.store("s.a", **({"Nats_TTL": "1"} if n < 20 or n % 2 else {}))
    driver = client.driver
    driver.clock.now += 2 * SECOND
    left = [40]
    while left[-1] > 10:
        driver.engine.tick()
        driver.finish()
        left.append(driver.js.streams["S"].log.messages)
    assert left == [40, 30, 20, 15, 10]


def test_messages_that_expire_together_between_others_are_not_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client)
    reader = {"durable_name": "c", "ack_policy": "none", "filter_subject": "s.b"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": reader})
    for n in range(60):  # 20 stay, 20 go, 10 stay, 10 go
        goes = 20 <= n < 40 or n >= 50
        client.store("s.b" if n % 2 else "s.a", b"x" * n, **({"Nats_TTL": "1"} if goes else {}))
    log = client.driver.js.streams["S"].log
    stayed = [seq for seq in range(1, 61) if not (20 < seq <= 40 or seq > 50)]
    record = Record()
    left = sum(log.record_size(record) for seq in stayed if log.read(seq, record))
    taken: list[bool] = []
    drop_run = MessageTtls._drop_run
    monkeypatch.setattr(
        MessageTtls, "_drop_run", lambda *run: taken.append(drop_run(*run)) or taken[-1]
    )
    client.driver.advance(3 * SECOND)
    assert taken == [True, True]
    assert list(stored(client)) == stayed
    assert client.api("STREAM.INFO.S")["state"]["bytes"] == left
    assert client.api("CONSUMER.INFO.S.c")["num_pending"] == 15


@pytest.mark.parametrize("is_read_again", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_of_many_with_different_ttls_just_those_go_whose_time_is_over(
    seed: int, is_read_again: bool
) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    driver = Driver(disk, segment_bytes=4096).start()
    client = driver.client()
    create(client)
    reader = {"durable_name": "c", "ack_policy": "none"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": reader})
    ends: dict[int, int] = {}
    length, ttl = 0, 0
    for seq in range(1, 200):
        if not length:  # runs, as bursts leave them
            length, ttl = random.randint(1, 30), random.choice((0, 1, 1, 2, 3))
        length -= 1
        fields = {"Nats_TTL": str(ttl)} if ttl else {}
        client.store("s.a", **fields)
        ends[seq] = driver.clock.now + ttl * SECOND if ttl else 1 << 62
    for seq in random.sample(range(1, 200), 20):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq})
        del ends[seq]
    if is_read_again:
        now = driver.clock.now
        driver.stop()
        driver = Driver(disk, now=now, segment_bytes=4096).start()
        client = driver.client()
    for _ in range(4):
        driver.advance(SECOND)
        expected = [seq for seq, end in ends.items() if end > driver.clock.now]
        assert list(stored(client)) == expected
        assert client.api("CONSUMER.INFO.S.c")["num_pending"] == len(expected)


@pytest.mark.parametrize("is_read", [False, True])
def test_that_messages_have_expired_is_recorded_soon_and_before_a_read_is_answered(
    is_read: bool,
) -> None:
    client = Driver(SimulatedDisk(Random(1))).start().client()
    create(client)
    client.store("s.a")
    for _ in range(10):
        client.store("s.a", Nats_TTL="1")
    log = client.driver.js.streams["S"].log
    while log.messages > 1:
        client.driver.advance(SECOND // 20)
    assert log.owes_removals()
    if is_read:
        assert client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]["seq"] == 1
    else:
        client.driver.advance(2 * SECOND)
    assert not log.owes_removals()


def test_what_is_noted_when_it_is_stored_is_not_read_for_its_ttl() -> None:
    driver = Driver(SimulatedDisk(Random(1)), segment_bytes=4096).start()
    client = driver.client()
    create(client)
    for _ in range(200):  # in several segments
        client.store("s.a", Nats_TTL="100")
    client.store("s.a", Nats_TTL="1")
    ttls = driver.js.streams["S"].ttls
    assert ttls is not None
    noted = ttls.size
    driver.advance(2 * SECOND)
    assert ttls.size <= noted
