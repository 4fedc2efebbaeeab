"""Messages that are published later, once or again and again."""

import errno
from random import Random
from typing import Any

import pytest

from slipstream.engine.stream.schedules import Schedules
from slipstream.log.disk import OsDisk
from slipstream.model.durations import SECOND
from slipstream.model.times import utc_text
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

HOUR = 3600 * SECOND


def create(client: Client, **options: Any) -> None:
    """The stream S, which has schedules."""
    config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True, **options}
    answer = client.api("STREAM.CREATE.S", config)
    assert "error" not in answer, answer


def plan(client: Client, subject: str, schedule: str, body: bytes = b"x", **headers: str) -> Any:
    """Store a schedule, for the target s.t unless `headers` say otherwise."""
    fields = {"Nats_Schedule": schedule, "Nats_Schedule_Target": "s.t", **headers}
    return client.store(subject, body, **fields)


def after(client: Client, seconds: float) -> str:
    """A schedule that is due once, so many seconds from now."""
    return "@at " + utc_text(client.driver.clock.now + int(seconds * SECOND))


def counts(client: Client) -> dict[str, int]:
    """How many messages each subject has."""
    asker = client.driver.client()  # the other one is gone after an hour without a PONG
    state = asker.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    found: dict[str, int] = state.get("subjects", {})
    return found


def published(client: Client, subject: str = "s.t") -> tuple[dict[str, str], bytes]:
    """The last message on a subject: its fields and its body."""
    client = client.driver.client()
    stream = client.driver.js.streams["S"]
    if stream.direct is None:
        config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True}
        extra = {"allow_direct": True, "allow_msg_ttl": stream.config.allow_msg_ttl}
        client.api("STREAM.UPDATE.S", config | extra)
    message = client.request("$JS.API.DIRECT.GET.S", {"last_by_subj": subject})
    own = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
    return {k: v for k, v in message.fields.items() if k not in own}, message.body


def test_a_message_is_published_once_at_its_time(client: Client) -> None:
    create(client)
    assert plan(client, "s.a", after(client, 60), b"later", A="b")["seq"] == 1
    client.driver.advance(60 * SECOND - 1)
    assert counts(client) == {"s.a": 1}
    client.driver.advance(SECOND // 10)
    assert counts(client) == {"s.t": 1}
    client.driver.advance(HOUR)
    assert counts(client) == {"s.t": 1}
    fields = {"A": "b", "Nats-Scheduler": "s.a", "Nats-Schedule-Next": "purge"}
    assert published(client) == (fields, b"later")


@pytest.mark.parametrize("year", [1900, 1970, 2001])
def test_what_is_overdue_is_published_at_once(client: Client, year: int) -> None:
    create(client)
    plan(client, "s.a", f"@at {year}-01-01T00:00:00Z")
    client.driver.advance(SECOND // 10)
    assert counts(client) == {"s.t": 1}


def test_an_interval_goes_on_until_the_schedule_is_deleted(client: Client) -> None:
    create(client)
    plan(client, "s.a", "@every 10s")
    client.driver.advance(35 * SECOND)
    assert counts(client) == {"s.a": 1, "s.t": 3}
    due = client.driver.clock.now // SECOND * SECOND + 5 * SECOND
    assert published(client)[0]["Nats-Schedule-Next"] == utc_text(due)
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    client.driver.advance(HOUR)
    assert counts(client) == {"s.t": 3}


def test_what_was_missed_counts_once(client: Client) -> None:
    create(client)
    plan(client, "s.a", "@every 10s")
    client.driver.clock.now += HOUR
    client.driver.advance(0)
    assert counts(client) == {"s.a": 1, "s.t": 1}
    client.driver.advance(10 * SECOND)
    assert counts(client) == {"s.a": 1, "s.t": 2}


def test_a_schedule_replaces_the_one_before_on_its_subject(client: Client) -> None:
    create(client)
    plan(client, "s.a", after(client, 10), b"old")
    plan(client, "s.a", after(client, 20), b"new")
    client.driver.advance(15 * SECOND)
    assert counts(client) == {"s.a": 1}
    client.driver.advance(10 * SECOND)
    assert published(client)[1] == b"new"


def test_a_plain_message_on_its_subject_ends_a_schedule(client: Client) -> None:
    create(client)
    plan(client, "s.a", after(client, 10))
    client.store("s.a")
    client.driver.advance(HOUR)
    assert counts(client) == {"s.a": 2}


def test_a_purge_and_a_message_that_says_so_end_a_schedule(client: Client) -> None:
    create(client)
    plan(client, "s.a", after(client, 10))
    plan(client, "s.b", after(client, 10))
    client.api("STREAM.PURGE.S", {"filter": "s.a"})
    client.store("s.done", Nats_Scheduler="s.b", Nats_Schedule_Next="purge")
    client.driver.advance(HOUR)
    assert counts(client) == {"s.done": 1}


def test_the_last_message_of_the_source_is_published(client: Client) -> None:
    create(client)
    plan(client, "s.a", after(client, 10), b"own", B="own", Nats_Schedule_Source="s.data")
    client.store("s.data", b"old")
    client.store("s.data", b"new", A="b", Nats_Msg_Id="m")
    client.driver.advance(11 * SECOND)
    fields = {"A": "b", "Nats-Scheduler": "s.a", "Nats-Schedule-Next": "purge"}
    assert published(client) == (fields, b"new")


def test_what_is_published_may_have_a_ttl(client: Client) -> None:
    create(client, allow_msg_ttl=True)
    plan(client, "s.a", after(client, 10), Nats_Schedule_TTL="5s")
    client.driver.advance(11 * SECOND)
    assert published(client)[0]["Nats-TTL"] == "5s"
    client.driver.advance(5 * SECOND)
    assert counts(client) == {}


def test_what_is_published_may_replace_what_was_published_before(client: Client) -> None:
    create(client)
    plan(client, "s.a", "@every 1s", Nats_Schedule_Rollup="sub")
    client.driver.advance(5 * SECOND)
    assert counts(client) == {"s.a": 1, "s.t": 1}


def test_consumers_get_what_is_published(client: Client) -> None:
    create(client)
    config = {"durable_name": "c", "deliver_subject": "d", "filter_subject": "s.t"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.subscribe("d")
    plan(client, "s.a", after(client, 1))
    client.driver.advance(2 * SECOND)
    assert [message.subject for message in client.take()] == ["s.t"]


def test_ten_thousand_schedules_are_published_in_time(client: Client) -> None:
    create(client)
    start = client.driver.clock.now
    for n in range(10_000):
        at = "@at " + utc_text(start + 10 * SECOND + n * SECOND // 10_000)
        fields = {"Nats-Schedule": at, "Nats-Schedule-Target": "s.t"}
        client.publish(f"s.{n}", b"", headers=fields)
    client.driver.advance(10 * SECOND + SECOND // 2)
    assert counts(client)["s.t"] >= 4_500
    client.driver.advance(SECOND // 2 + SECOND // 10)
    assert counts(client) == {"s.t": 10_000}


def test_schedules_survive_a_restart(file_driver: Driver) -> None:
    client = file_driver.client()
    create(client)
    plan(client, "s.once", after(client, 60))
    plan(client, "s.missed", after(client, 20))
    plan(client, "s.often", "@every 40s", Nats_Schedule_Target="s.again")
    plan(client, "s.over", after(client, 10))
    client.store("s.over")
    file_driver.stop()
    driver = Driver(OsDisk(), now=file_driver.clock.now + 30 * SECOND).start()
    client = driver.client()
    driver.advance(SECOND)
    assert counts(client) == {"s.once": 1, "s.often": 1, "s.over": 2, "s.t": 1}
    driver.advance(10 * SECOND)
    assert counts(client)["s.again"] == 1
    driver.advance(60 * SECOND)
    assert counts(client) == {"s.often": 1, "s.over": 2, "s.t": 2, "s.again": 2}


@pytest.mark.parametrize("consumed", [False, True])
def test_what_was_published_before_a_restart_is_not_published_again(
    file_driver: Driver, consumed: bool
) -> None:
    client = file_driver.client()
    create(client)
    plan(client, "s.often", "@every 1h")
    file_driver.advance(3 * HOUR + SECOND)
    assert counts(client) == {"s.often": 1, "s.t": 3}
    if consumed:
        file_driver.client().api("STREAM.PURGE.S", {"filter": "s.t"})
    file_driver.stop()
    driver = Driver(OsDisk(), now=file_driver.clock.now + HOUR // 2).start()
    client = driver.client()
    driver.advance(SECOND)
    before = 0 if consumed else 3
    assert counts(client).get("s.t", 0) == before
    driver.advance(HOUR // 2)
    assert counts(client)["s.t"] == before + 1


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_publishes_nothing_twice_and_forgets_nothing(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    driver = Driver(disk).start()
    client = driver.client()
    create(client)
    for n in range(20):
        at = after(client, random.uniform(1, 20))
        plan(client, f"s.{n}", at, Nats_Schedule_Target=f"s.t.{n}")
    driver.advance(random.randint(0, 10) * SECOND)
    driver.runner.hold()
    driver.advance(random.randint(0, 10) * SECOND)
    for item in driver.runner.waiting:
        if item.batch is not None:
            item.batch.flush()
    disk.crash()
    driver = Driver(disk, now=driver.clock.now).start()
    driver.advance(30 * SECOND)
    found = counts(driver.client())
    lost = driver.js.streams["S"].log.lost.count  # a torn message is published once more
    assert all(count == 1 for count in found.values())
    assert set(found) >= {f"s.t.{n}" for n in range(20)} or lost


def test_a_full_disk_delays_what_is_due() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    create(client)
    plan(client, "s.a", after(client, 10), bytes(500_000))
    disk.capacity = disk.used()
    driver.advance(20 * SECOND)
    assert counts(client) == {"s.a": 1}
    disk.capacity = 1 << 40
    driver.advance(2 * SECOND)
    assert counts(client) == {"s.t": 1}


def test_schedules_that_were_replaced_take_no_memory(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.stream.schedules.SWEEP_MIN", 10)
    create(client)
    for _ in range(200):
        plan(client, "s.a", after(client, 3600))
    schedules = client.driver.js.streams["S"].schedules
    assert schedules is not None
    assert schedules.size <= 11


def fields_of_size(size: int, **fields: str) -> dict[str, str]:
    """Header fields, filled up with one more so that their block has `size` bytes."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return named | {"X": "y" * (size - len(f"NATS/1.0\r\n{lines}X: \r\n\r\n"))}


def test_a_schedule_whose_message_gets_too_long_a_header_is_removed_and_reported_once() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    reports: list[str] = []
    driver.engine.on_problem = reports.append
    client = driver.client()
    create(client)
    fields = {"Nats_Schedule": "@every 5s", "Nats_Schedule_Target": "s.t", "Nats_Rollup": "sub"}
    for name in ("a", "b"):
        subject = "s." + name * 300
        assert client.request(subject, b"x", fields_of_size(65_535, **fields)).json()["seq"]
    plan(client, "s.other", "@every 5s", Nats_Schedule_Target="s.t2")
    driver.advance(12 * SECOND)
    assert counts(client) == {"s.other": 1, "s.t2": 2}
    assert len(reports) == 1
    assert "was removed" in reports[0]
    driver.stop()
    driver = Driver(disk, now=driver.clock.now).start()
    driver.advance(10 * SECOND)
    assert counts(driver.client()) == {"s.other": 1, "s.t2": 4}


def test_a_schedule_that_the_account_has_no_room_for_does_not_hold_up_the_others() -> None:
    driver = Driver().start(max_storage=320_000)
    client = driver.client()
    create(client)
    for n in range(30):
        plan(client, f"s.a{n}", after(client, 10), bytes(10_000), Nats_Schedule_Target="s.large")
    client.store("s.fill", bytes(10_000))
    plan(client, "s.z", after(client, 10))
    driver.advance(11 * SECOND)
    assert len(counts(client)) == 32
    assert counts(client)["s.t"] == 1
    driver.client().api("STREAM.PURGE.S", {"filter": "s.fill"})
    driver.advance(2 * SECOND)
    assert counts(client) == {"s.large": 30, "s.t": 1}


@pytest.mark.parametrize("nth", range(1, 60, 5))
@pytest.mark.parametrize("restart", [False, True])
def test_a_read_error_delays_a_schedule_and_forgets_none(nth: int, restart: bool) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=500_000).start()
    client = driver.client()
    create(client)
    names = [f"s.t.{n}" for n in range(12)]
    for n, target in enumerate(names):
        plan(client, f"s.{n}", after(client, 10), bytes(200_000), Nats_Schedule_Target=target)
    driver.stop()
    driver = Driver(disk, now=driver.clock.now, segment_bytes=500_000).start()
    if not restart:
        driver.advance(5 * SECOND)
    disk.fail("pread", nth, OSError(errno.ENOMEM, "Cannot allocate memory"))
    driver.advance(15 * SECOND)
    disk.heal()
    driver.advance(15 * SECOND)
    found = counts(driver.client())
    assert [name for name in names if found.get(name) != 1] == []


def test_a_fault_in_one_schedule_does_not_end_the_others(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(client)
    plan(client, "s.a", after(client, 10))
    plan(client, "s.b", after(client, 10), Nats_Schedule_Target="s.t1")
    plan(client, "s.c", after(client, 20), Nats_Schedule_Target="s.t2")
    monkeypatch.setattr(Schedules, "_message", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        client.driver.advance(11 * SECOND)
    monkeypatch.undo()
    client.driver.advance(0)
    assert counts(client) == {"s.a": 1, "s.t1": 1, "s.c": 1}
    client.driver.advance(11 * SECOND)
    assert counts(client) == {"s.a": 1, "s.t1": 1, "s.t2": 1}


def test_a_long_pattern_is_refused(client: Client) -> None:
    create(client)
    fields = {"Nats_Schedule": "0,".ljust(245, "0") + " * * * * *", "Nats_Schedule_Target": "s.t"}
    refused = client.store("s.a", **fields | {"Nats_Schedule": "0," * 124 + "0 * * * * *"})
    assert refused["error"]["err_code"] == 10189
    accepted = client.store("s.a", **fields | {"Nats_Schedule": "0," * 122 + "0 * * * * *"})
    assert accepted["seq"] == 1


@pytest.mark.parametrize("restart", [False, True])
def test_one_turn_takes_a_bounded_number_of_schedules(file_driver: Driver, restart: bool) -> None:
    client = file_driver.client()
    create(client)
    begin = file_driver.clock.now // SECOND
    for n in range(600):
        client.publish(
            f"s.{n}", b"",
            headers={"Nats-Schedule": "0 0 * * * *", "Nats-Schedule-Target": f"s.t.{n}"},
        )  # fmt: skip
    driver = file_driver
    if restart:
        driver.stop()
        driver = Driver(OsDisk(), now=file_driver.clock.now).start()
    due = (begin // 3600 + 1) * 3600 * SECOND
    if restart:
        due = driver.clock.now + SECOND
    log = driver.js.streams["S"].log
    schedules = driver.js.streams["S"].schedules
    assert schedules is not None
    most = 0
    while (at := driver.engine.timers.next_at()) and at <= due + SECOND:
        driver.clock.now = max(at, driver.clock.now)
        before = log.last_seq + len(schedules._due)
        driver.engine.rounds.go_on()
        driver.engine.tick()
        most = max(most, log.last_seq + len(schedules._due) - before)
        driver.finish()
    if restart:
        assert len(schedules._due) == 600
    else:
        assert log.last_seq == 1200
    assert 0 < most <= 100
