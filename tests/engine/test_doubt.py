"""A damaged copy of a configuration is reported, and removes nothing: what is left may be older."""

import json
import zlib
from random import Random
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.server.monitoring.endpoints.healthz import problem_of
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

MESSAGES = 50
SOON = 3 * SECOND  # after which a checkpoint has written a change to its files


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine on it."""
    return Driver(disk).start()


def restart(driver: Driver, disk: SimulatedDisk, *, in_order: bool = True) -> Driver:
    """The server stops, in order or by the loss of power; one on what is left."""
    if in_order:
        driver.stop()
    else:
        disk.crash()
    return Driver(disk, now=driver.clock.now + SECOND).start()


def stream_copies(disk: SimulatedDisk) -> list[str]:
    """The copies of the stream's configuration, the first one first."""
    return [path for path in disk.files() if "/S/meta." in path]


def damage(disk: SimulatedDisk, path: str, how: str) -> None:
    """Damage a file."""
    if how == "flip":
        disk.flip(path, 300)
    elif how == "lose":
        disk.lose(path)
    else:
        disk.cut(path, 40)


LIMITS: list[dict[str, Any]] = [
    {"max_msgs": 5},
    {"max_bytes": 200},
    {"max_msgs_per_subject": 1},
    {"max_age": SECOND, "duplicate_window": SECOND},
]
HOW = ["flip", "lose", "cut"]


def widen(driver: Driver, limit: dict[str, Any]) -> Client:
    """A stream whose limit was lifted, with messages that exceed what it was."""
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"], "max_msgs": -1}
    assert "error" not in client.api("STREAM.CREATE.S", config | limit)
    driver.advance(SECOND // 2)
    assert "error" not in client.api("STREAM.UPDATE.S", config | {"duplicate_window": SECOND})
    for _ in range(MESSAGES):
        client.store("s.a", b"x" * 20)
    return client


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: next(iter(limit)))
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("in_order", [True, False], ids=["stopped", "power lost"])
def test_a_damaged_copy_of_a_configuration_removes_nothing(
    driver: Driver, disk: SimulatedDisk, limit: dict[str, Any], how: str, in_order: bool
) -> None:
    client = widen(driver, limit)
    if in_order:
        driver.stop()
    else:
        driver.advance(SOON)
        disk.crash()
    damage(disk, stream_copies(disk)[0], how)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    client = again.client()
    client.store("s.a", b"x" * 20)
    again.advance(10 * SECOND)
    client.store("s.a", b"x" * 20)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == MESSAGES + 2
    (problem,) = again.js.problems
    assert "may have an older configuration" in problem
    assert "docs/storage.md" in problem


@pytest.mark.parametrize("how", HOW)
def test_the_newest_configuration_survives_damage_to_either_copy(
    driver: Driver, disk: SimulatedDisk, how: str
) -> None:
    widen(driver, {"max_msgs": 5})
    driver.advance(SOON)
    for copy in (0, 1):
        disk.crash()
        damage(disk, stream_copies(disk)[copy], how)
        again = Driver(disk, now=driver.clock.now + SECOND).start()
        client = again.client()
        assert client.api("STREAM.INFO.S")["config"]["max_msgs"] == -1
        config = {"name": "S", "subjects": ["s.>"], "duplicate_window": SECOND}
        client.api("STREAM.UPDATE.S", config)
        again.advance(SOON)


def test_a_damaged_second_copy_is_reported_and_written_anew(
    driver: Driver, disk: SimulatedDisk
) -> None:
    widen(driver, {"max_msgs": 5})
    driver.stop()
    first, second = stream_copies(disk)
    disk.flip(second, 300)
    again = restart(driver, disk, in_order=False)
    assert any("has a damaged copy" in problem for problem in again.js.problems)
    again.advance(SOON)
    assert disk.read(second) == disk.read(first)
    assert restart(again, disk).js.problems == []


@pytest.mark.parametrize("action", ["create", "update"])
def test_both_copies_hold_the_newest_configuration_soon(
    driver: Driver, disk: SimulatedDisk, action: str
) -> None:
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"]}
    client.api("STREAM.CREATE.S", config)
    durable = {"durable_name": "C", "description": "old"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    driver.advance(SOON)
    if action == "update":
        client.api("STREAM.UPDATE.S", config | {"description": "new"})
        asked = {"stream_name": "S", "config": durable | {"description": "new"}}
        client.api("CONSUMER.DURABLE.CREATE.S.C", asked)
        driver.advance(SOON)
    copies = [path for path in disk.files() if "/meta." in path]
    assert len(copies) == 4
    disk.crash()
    contents = [disk.read(path) for path in copies]
    assert contents[0] == contents[1]
    assert contents[2] == contents[3]
    assert action == "create" or all(b'"new"' in content for content in contents)


def test_a_change_is_written_to_both_copies_after_the_answer_and_off_the_loop(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"]}
    client.api("STREAM.CREATE.S", config)
    before = [disk.read(path) for path in stream_copies(disk)]
    assert "error" not in client.api("STREAM.UPDATE.S", config | {"description": "new"})
    driver.runner.hold()
    driver.advance(SOON)
    assert [disk.read(path) for path in stream_copies(disk)] == before
    driver.runner.release()
    assert all(b'"new"' in disk.read(path) for path in stream_copies(disk))


@pytest.mark.parametrize("how", HOW)
def test_damage_to_a_configuration_that_the_commit_log_has_is_mended_by_it(
    driver: Driver, disk: SimulatedDisk, how: str
) -> None:
    widen(driver, {"max_msgs": 5})
    disk.crash()
    for path in stream_copies(disk):
        damage(disk, path, how)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    assert again.js.problems == []
    assert again.client().api("STREAM.INFO.S")["config"]["max_msgs"] == -1


def test_copies_that_the_disk_refuses_are_reported_and_attempted_again(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"]}
    client.api("STREAM.CREATE.S", config)
    client.api("STREAM.UPDATE.S", config | {"description": "new"})
    disk.fail("rename")
    driver.advance(SOON)
    assert any("could not be written" in problem for problem in driver.js.problems)
    driver.advance(20 * SECOND)
    assert driver.js.problems == []
    assert all(b'"new"' in disk.read(path) for path in stream_copies(disk))


@pytest.mark.parametrize("seed", range(40))
def test_no_crash_in_the_middle_of_an_update_is_taken_for_damage(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    driver = Driver(disk).start()
    client = driver.client()
    config = {"name": "S", "subjects": ["s.>"]}
    client.api("STREAM.CREATE.S", config)
    answered = ""
    for n in range(12):
        driver.runner.held = random.random() < 0.5
        asked = "x" * random.randrange(2000) + str(n)
        operation = random.choice(("open", "append", "sync", "sync_dir", "rename", "none"))
        if operation != "none":
            disk.fail(operation, random.randint(1, 3))
        answers = client.ask("$JS.API.STREAM.UPDATE.S", config | {"description": asked})
        accepted = {answered, asked}
        if answers and "error" not in answers[0].json():
            accepted = {asked}
        driver.advance(SECOND // 20 * random.randint(1, 3))
        if random.random() < 0.5:
            driver.runner.step()
            driver.finish()
        disk.crash()
        driver = Driver(disk, now=driver.clock.now).start()
        assert driver.js.problems == []
        client = driver.client()
        found = client.api("STREAM.INFO.S")["config"].get("description", "")
        assert found in accepted
        answered = found


def in_doubt(driver: Driver, disk: SimulatedDisk) -> Driver:
    """A server of a stream whose limits were lifted, with a damaged first copy."""
    widen(driver, {"max_msgs": 5})
    driver.stop()
    disk.flip(stream_copies(disk)[0], 300)
    return Driver(disk, now=driver.clock.now + SECOND).start()


def test_an_update_settles_the_doubt(driver: Driver, disk: SimulatedDisk) -> None:
    again = in_doubt(driver, disk)
    client = again.client()
    config = {"name": "S", "subjects": ["s.>"], "max_msgs": 10}
    assert client.api("STREAM.UPDATE.S", config | {"subjects": ["s.>", "s.a"]})["error"]
    assert again.js.problems  # a refused one does not
    assert "error" not in client.api("STREAM.UPDATE.S", config)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 10
    assert again.js.problems == []
    again.advance(SOON)
    third = restart(again, disk)
    assert third.js.problems == []
    assert third.client().api("STREAM.INFO.S")["config"]["max_msgs"] == 10


def test_a_copy_on_a_bad_sector_is_a_damaged_one(driver: Driver, disk: SimulatedDisk) -> None:
    widen(driver, {"max_msgs": 5})
    driver.stop()
    disk.fail("read")  # of the first copy
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    assert "the copy meta.0 is damaged" in again.js.problems[0]
    again.client().store("s.a")
    assert again.client().api("STREAM.INFO.S")["state"]["messages"] == MESSAGES + 1


def test_doubt_outlasts_a_restart(driver: Driver, disk: SimulatedDisk) -> None:
    again = in_doubt(driver, disk)
    again.advance(SOON)
    third = restart(again, disk)
    assert "may have an older configuration" in third.js.problems[0]
    client = third.client()
    client.store("s.a")
    assert client.api("STREAM.INFO.S")["state"]["messages"] == MESSAGES + 1


def test_doubt_is_advised_of_until_it_is_settled(driver: Driver, disk: SimulatedDisk) -> None:
    again = in_doubt(driver, disk)
    client = again.client()
    client.subscribe("$JS.EVENT.ADVISORY.STREAM.FALLBACK.>")
    again.advance(130 * SECOND)
    found = client.take()
    assert [message.subject for message in found] == ["$JS.EVENT.ADVISORY.STREAM.FALLBACK.S"] * 2
    body = found[0].json()
    assert body["type"] == "io.nats.jetstream.advisory.v1.fallback"
    assert body["stream"] == "S"
    assert "meta.0" in body["reason"]
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    again.advance(130 * SECOND)
    assert client.take() == []


def test_the_deletion_of_a_stream_ends_what_is_reported_of_it(
    driver: Driver, disk: SimulatedDisk
) -> None:
    again = in_doubt(driver, disk)
    assert again.client().api("STREAM.DELETE.S")["success"]
    assert again.js.problems == []


# -- what an earlier version wrote --------------------------------------------------------------


def as_earlier_version(disk: SimulatedDisk, newest: dict[str, Any]) -> list[str]:
    """Two copies in turn, of which the second one is newer, as they were written before."""
    paths = []
    kept = json.loads(disk.read("store/jetstream/$G/S/meta.0")[24:])
    for slot, (generation, change) in enumerate(((1, {"max_msgs": 5}), (2, newest))):
        path = f"store/jetstream/$G/S/meta.{slot}"
        file = disk.open(path)
        kept["config"] |= change
        content = json.dumps(kept).encode()
        number = generation.to_bytes(8, "little")
        crc = zlib.crc32(content, zlib.crc32(number)).to_bytes(4, "little")
        packed = b"SLIPMETA" + number + crc + len(content).to_bytes(4, "little") + content
        file.truncate(0)
        file.append(packed)
        file.sync()
        paths.append(path)
    disk.sync_dir("store/jetstream/$G/S")
    return paths


@pytest.mark.parametrize("damaged", [None, 0, 1])
def test_copies_of_an_earlier_version_are_read_and_doubted_where_either_is_damaged(
    driver: Driver, disk: SimulatedDisk, damaged: int | None
) -> None:
    driver.client().api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    driver.stop()
    paths = as_earlier_version(disk, {"max_msgs": 7})
    if damaged is not None:
        disk.flip(paths[damaged], 300)
    again = Driver(disk).start()
    info = again.client().api("STREAM.INFO.S")
    assert info["config"]["max_msgs"] == (5 if damaged == 1 else 7)
    assert bool(again.js.problems) == (damaged is not None)
    again.advance(SOON)
    if damaged is None:
        assert disk.read(paths[0]) == disk.read(paths[1])


# -- consumers ----------------------------------------------------------------------------------


def interest(driver: Driver, retention: str = "interest") -> Client:
    """A stream with consumers A and B (a work queue: of different subjects)."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": retention})
    for name in ("A", "B"):
        pattern = "s.>" if retention == "interest" else f"s.{name.lower()}"
        durable = {"durable_name": name, "ack_policy": "explicit", "filter_subject": pattern}
        asked = {"stream_name": "S", "config": durable}
        assert "error" not in client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", asked)
    return client


def consume(driver: Driver, client: Client, name: str) -> list[int]:
    """Pull and acknowledge all that a consumer has; the sequences."""
    client.subscribe(f"in.{name}", 7)
    client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b'{"batch":100,"no_wait":true}', f"in.{name}"
    )
    got = [m for m in client.take() if m.reply]
    for message in got:
        client.publish(message.reply)
    driver.advance(2 * SECOND)
    return [int(message.reply.split(".")[5]) for message in got]


@pytest.mark.parametrize("copies", [(0, 1), (0,)], ids=["lost", "in doubt"])
def test_an_interest_stream_keeps_what_a_consumer_with_a_damaged_configuration_may_need(
    driver: Driver, disk: SimulatedDisk, copies: tuple[int, ...]
) -> None:
    client = interest(driver)
    for _ in range(5):
        client.store("s.a")
    driver.stop()
    for copy in copies:
        disk.flip(f"store/jetstream/$G/S/consumers/B/meta.{copy}", 300)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    client = again.client()
    assert any("'$G > S > B'" in problem for problem in again.js.problems)
    assert consume(again, client, "A") == [1, 2, 3, 4, 5]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 5
    again = restart(again, disk)
    client = again.client()
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 5
    durable = {"durable_name": "B", "ack_policy": "explicit", "filter_subject": "s.>"}
    asked = {"stream_name": "S", "config": durable}
    assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S.B", asked)
    assert again.js.problems == []
    assert consume(again, client, "B") == [1, 2, 3, 4, 5]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_an_unreadable_consumer_can_be_deleted_and_keeps_nothing_then(
    driver: Driver, disk: SimulatedDisk, retention: str
) -> None:
    client = interest(driver, retention)
    client.store("s.a")
    driver.stop()
    for copy in (0, 1):
        disk.flip(f"store/jetstream/$G/S/consumers/B/meta.{copy}", 300)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    client = again.client()
    consume(again, client, "A")
    assert client.api("CONSUMER.DELETE.S.B")["success"]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert again.js.problems == []
    assert restart(again, disk).js.problems == []


def test_a_consumer_with_an_older_filter_passes_nothing_over(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    durable = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "s.a"}
    asked = {"stream_name": "S", "config": durable}
    client.api("CONSUMER.DURABLE.CREATE.S.C", asked)
    driver.advance(SOON)
    second = "store/jetstream/$G/S/consumers/C/meta.1"
    older = disk.read(second)
    durable["filter_subject"] = "s.>"
    client.api("CONSUMER.DURABLE.CREATE.S.C", asked)
    for subject in ("s.a", "s.b", "s.a"):
        client.store(subject)
    driver.advance(SOON)
    disk.crash()
    disk.lose(second)  # and what is there instead is the copy of a backup
    disk.open(second).append(older)
    disk.flip("store/jetstream/$G/S/consumers/C/meta.0", 300)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    client = again.client()
    assert consume(again, client, "C") == [1, 3]
    assert client.api("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})["error"]
    assert "error" not in client.api("CONSUMER.DURABLE.CREATE.S.C", asked)
    assert consume(again, client, "C") == [1, 2, 3]


def test_a_consumer_in_doubt_is_not_given_up_for_inactivity(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    durable = {"durable_name": "C", "inactive_threshold": 10 * SECOND}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    driver.stop()
    disk.flip("store/jetstream/$G/S/consumers/C/meta.0", 300)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    again.advance(60 * SECOND)
    assert list(again.js.streams["S"].consumers) == ["C"]


@pytest.mark.parametrize("policy", ["new", "last", "last_per_subject", "all"])
def test_a_consumer_without_its_position_skips_nothing(
    driver: Driver, disk: SimulatedDisk, policy: str
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.store("s.a")
    client.store("s.b")
    durable = {
        "durable_name": "C",
        "ack_policy": "explicit",
        "deliver_policy": policy,
        "filter_subject": "s.>",
    }
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    for _ in range(2):
        client.store("s.a")
        consume(driver, client, "C")
    client.store("s.c")
    driver.stop()
    for path in disk.files():
        if "/state." in path:
            disk.flip(path, 300)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    assert "begins anew" in again.js.problems[0]
    expected = {"new": [3, 4, 5], "last": [2, 3, 4, 5], "last_per_subject": [1, 2, 3, 4, 5]}
    got = consume(again, again.client(), "C")
    assert got == expected.get(policy, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("how", ["flip", "lose"])
def test_after_an_orderly_stop_a_damaged_copy_of_a_position_costs_nothing_and_is_reported(
    driver: Driver, disk: SimulatedDisk, copy: int, how: str
) -> None:
    client = interest(driver)
    for _ in range(3):
        client.store("s.a")
        consume(driver, client, "A")
    driver.stop()
    damage(disk, f"store/jetstream/$G/S/consumers/A/state.{copy}", how)
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    assert "has a damaged copy of its position" in again.js.problems[0]
    assert consume(again, again.client(), "A") == []
    assert restart(again, disk).js.problems == []


def test_a_position_that_a_power_failure_tore_is_logged_and_no_damage(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = interest(driver)
    for _ in range(3):
        client.store("s.a")
        consume(driver, client, "A")
        driver.advance(SOON)
    disk.crash()
    disk.flip("store/jetstream/$G/S/consumers/A/state.0", 300)
    logged: list[str] = []
    again = Driver(disk, now=driver.clock.now + SECOND)
    again.engine.on_problem = logged.append
    again.start()
    assert again.js.problems == []
    assert any("as a power failure leaves one" in line for line in logged)
    for _ in range(3):  # nor is what follows
        again.client().store("s.a")
        disk.crash()
        again = Driver(disk, now=again.clock.now + SECOND).start()
        assert again.js.problems == []


def test_healthz_of_one_stream_reports_its_doubt(driver: Driver, disk: SimulatedDisk) -> None:
    again = in_doubt(driver, disk)
    found = problem_of(again.js.streams["S"], "")
    assert found is not None
    assert "may have an older configuration" in found.error
