"""Changes of streams and consumers that overtake each other, names that are taken again, and files
that are late: what was answered last is what a crash leaves."""

import errno
import json
from typing import Any

import pytest

from slipstream.engine.commit import state_commit
from slipstream.engine.commit.state_commit import CheckpointJob, OwnFile
from slipstream.engine.consumer import life
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, Held, encode
from slipstream.testing.simulated_disk import SimulatedDisk

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine on it."""
    return Driver(disk).start()


@pytest.fixture
def client(driver: Driver) -> Client:
    """A client of a stream S."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    return client


def call(operation: str, body: Any, inbox: str) -> bytes:
    """A request to the API, as a frame."""
    content = json.dumps(body).encode() if body else b""
    return encode(f"$JS.API.{operation}", content, f"_INBOX.t.{inbox}")


def update(text: str, inbox: str) -> bytes:
    """A request that gives consumer C another description."""
    durable = {"durable_name": "C", "ack_policy": "explicit", "description": text}
    return call("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable}, inbox)


def answers(client: Client) -> dict[str, Any]:
    """The answers that have come, by the last word of the inbox."""
    found = [m for m in client.take() if m.subject.startswith("_INBOX.t.")]
    return {message.subject[9:]: message.json() for message in found if message.body}


def again(driver: Driver, disk: SimulatedDisk) -> Client:
    """The power fails; a client of a server on what is left."""
    disk.crash()
    return Driver(disk, now=driver.clock.now + SECOND).start().client()


def waiting(driver: Driver, kind: type) -> list[Held]:
    """The jobs of a kind that wait for the disk."""
    return [held for held in driver.runner.waiting if isinstance(held.job, kind)]


def finish(driver: Driver, held: Held) -> None:
    """One job is finished, before others that began earlier."""
    driver.runner.waiting.remove(held)
    held.finish()
    driver.finish()


# -- names that are taken again -------------------------------------------------------------------


def test_a_removal_never_costs_the_next_stream_of_that_name_a_message(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    driver.runner.hold()
    client.send(call("STREAM.DELETE.S", None, "d"))
    client.send(call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}, "c"))
    driver.make_places()
    client.send(encode("s.a", b"new", "_INBOX.t.p"))
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    assert answers(client)["p"]["seq"] == 1
    assert again(driver, disk).api("STREAM.INFO.S")["state"]["messages"] == 1


def test_what_the_log_has_of_a_stream_is_not_applied_to_the_next_one_of_that_name(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "description": "old"})
    client.send(update("old", "u"))
    driver.runner.hold()
    create = call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}, "c")
    client.send(call("STREAM.DELETE.S", None, "d") + create)
    driver.make_places()
    assert driver.settle_log() == 2  # both are durable, and in the log alone
    survivor = again(driver, disk)
    assert "description" not in survivor.api("STREAM.INFO.S")["config"]
    assert not survivor.api("CONSUMER.NAMES.S")["consumers"]


def test_a_consumer_that_was_made_anew_outlives_the_files_of_the_one_before(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    driver.runner.hold()
    client.send(update("old", "1"))
    driver.settle_log()
    driver.advance(3 * SECOND)
    (checkpoint,) = waiting(driver, CheckpointJob)
    disk.fail("mkdir", error=FULL)
    checkpoint.run()
    disk.heal()
    for number, frame in enumerate((call("CONSUMER.DELETE.S.C", None, "2"), update("new", "3"))):
        client.send(frame)
        assert driver.settle_log(), number
    finish(driver, checkpoint)
    driver.runner.held = False
    driver.runner.release()
    driver.finish()
    driver.advance(60 * SECOND)
    survivor = again(driver, disk)
    assert survivor.api("CONSUMER.INFO.S.C")["config"]["description"] == "new"


# -- changes on their way --------------------------------------------------------------------------


def test_the_last_of_two_updates_on_their_way_counts(driver: Driver, client: Client) -> None:
    client.send(update("a", "0"))
    client.send(update("b", "1") + update("a", "2"))
    assert len(answers(client)) == 3
    assert client.api("CONSUMER.INFO.S.C")["config"]["description"] == "a"


@pytest.mark.parametrize("pause_first", [False, True])
def test_a_pause_and_an_update_on_their_way_both_count(
    driver: Driver, disk: SimulatedDisk, client: Client, pause_first: bool
) -> None:
    client.send(update("a", "0"))
    pause = call("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"}, "1")
    frames = [pause, update("b", "2")]
    client.send(b"".join(frames if pause_first else reversed(frames)))
    assert len(answers(client)) == 3
    info = again(driver, disk).api("CONSUMER.INFO.S.C")
    assert info["config"]["description"] == "b"
    assert info["paused"]


def test_tighter_limits_that_could_not_be_kept_remove_nothing(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    for _ in range(10):
        client.store("s.a")
    disk.fail("sync")
    asked = {"name": "S", "subjects": ["s.>"], "max_msgs": 2}
    assert "error" in client.api("STREAM.UPDATE.S", asked)
    assert again(driver, disk).api("STREAM.INFO.S")["state"]["messages"] == 10


def test_a_large_position_does_not_overtake_a_smaller_one_that_came_later(
    driver: Driver, disk: SimulatedDisk, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (state_commit, life):
        monkeypatch.setattr(module, "CONTENT_BYTES_MAX", 300)
    config = {"durable_name": "C", "ack_policy": "all", "max_ack_pending": 1_000}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    for _ in range(400):
        client.store("s.a")
    driver.advance(5 * SECOND)
    driver.runner.hold()
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":400,"no_wait":true}', "in")
    delivered = [message for message in client.take() if message.reply]
    driver.advance(SECOND)
    (own,) = waiting(driver, OwnFile)
    client.publish(delivered[-1].reply, b"+ACK", "_INBOX.t.ack")  # all are acknowledged
    driver.settle_log()
    own.run()
    finish(driver, own)
    driver.runner.held = False
    driver.runner.release()
    driver.finish()
    driver.advance(SECOND)
    info = again(driver, disk).api("CONSUMER.INFO.S.C")
    assert info["ack_floor"]["stream_seq"] == 400


# -- starting and stopping -------------------------------------------------------------------------


def test_jetstream_that_is_switched_off_and_on_keeps_what_follows(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.send(update("a", "0"))
    driver.engine.stop_jetstream()
    second = Driver(disk, now=driver.clock.now + SECOND)  # a store that is opened anew
    driver.engine.start_jetstream(second.store)
    driver.finish()
    assert driver.client().api("CONSUMER.INFO.S.C")["config"]["description"] == "a"
    late = driver.client()
    late.send(update("b", "1"))
    assert again(driver, disk).api("CONSUMER.INFO.S.C")["config"]["description"] == "b"


def test_a_position_is_there_after_a_stop_though_the_disk_refuses_another_file(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.send(update("a", "0"))
    for _ in range(10):
        client.store("s.a")
    driver.advance(5 * SECOND)
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":10,"no_wait":true}', "in")
    for message in [message for message in client.take() if message.reply]:
        client.publish(message.reply)
    client.send(update("b", "1"))
    disk.fail("rename", error=FULL)
    driver.stop()
    assert again(driver, disk).api("CONSUMER.INFO.S.C")["ack_floor"]["stream_seq"] == 10


def test_what_the_disk_refuses_at_the_start_counts_and_goes_with_its_consumer(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.send(update("a", "0"))
    disk.crash()
    disk.fail("mkdir", error=FULL)
    second = Driver(disk, now=driver.clock.now + SECOND).start()
    late = second.client()
    assert late.api("CONSUMER.INFO.S.C")["config"]["description"] == "a"
    assert late.api("CONSUMER.DELETE.S.C")["success"]
    second.advance(30 * SECOND)
    assert not again(second, disk).api("CONSUMER.NAMES.S")["consumers"]


def test_a_removal_that_is_refused_once_does_not_take_what_was_made_anew(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.send(update("old", "0"))
    driver.advance(3 * SECOND)
    disk.fail("rename")
    client.send(call("CONSUMER.DELETE.S.C", None, "1") + update("new", "2"))
    driver.advance(30 * SECOND)
    assert driver.js.problems == []
    survivor = again(driver, disk)
    assert survivor.api("CONSUMER.INFO.S.C")["config"]["description"] == "new"


def test_a_removal_that_is_refused_at_the_start_does_not_take_what_was_made_anew(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.send(update("old", "0"))
    driver.advance(3 * SECOND)
    client.send(call("CONSUMER.DELETE.S.C", None, "1") + update("new", "2"))
    disk.crash()
    disk.fail("rename")
    second = Driver(disk, now=driver.clock.now + SECOND).start()
    assert second.client().api("CONSUMER.INFO.S.C")["config"]["description"] == "new"
    second.advance(30 * SECOND)
    assert again(second, disk).api("CONSUMER.INFO.S.C")["config"]["description"] == "new"


def test_an_update_that_changes_nothing_waits_for_the_one_before_it(
    driver: Driver, client: Client
) -> None:
    client.send(update("a", "0"))
    driver.runner.hold()
    client.send(update("b", "1") + update("b", "2"))
    assert set(answers(client)) == {"0"}
    driver.settle_log()
    assert {
        inbox: answer["config"]["description"] for inbox, answer in answers(client).items()
    } == {
        "1": "b",
        "2": "b",
    }


def test_who_takes_a_name_waits_for_the_jobs_that_may_use_it(
    driver: Driver, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside: list[Any] = []
    monkeypatch.setattr(driver.runner, "start_aside", lambda job, _: aside.append(job))
    client.api("STREAM.DELETE.S")
    client.send(call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}, "new"))
    assert "new" not in answers(client)
    for job in aside:
        held = Held(driver.runner, job)
        held.run()
        held.finish()
    driver.finish()
    assert answers(client)["new"]["config"]["name"] == "S"
