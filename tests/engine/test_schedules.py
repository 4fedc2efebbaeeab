"""Messages that are published later, once or again and again."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.protocol.options import SECOND
from slipstream.engine.protocol.rfc3339 import utc_text
from slipstream.log.disk import OsDisk
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


def test_what_is_overdue_is_published_at_once(client: Client) -> None:
    create(client)
    plan(client, "s.a", "@at 2001-01-01T00:00:00Z")
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
