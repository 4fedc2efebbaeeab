"""An answer that says success means that the change survives a crash; one that cannot says why."""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk

MESSAGES = 6
Removal = Callable[[Client], Any]


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine on it."""
    return Driver(disk).start()


def fill(driver: Driver, **config: Any) -> Client:
    """A client of a stream S with messages."""
    client = driver.client()
    asked = {"name": "S", "subjects": ["s.>"], "allow_rollup_hdrs": True, **config}
    assert "error" not in client.api("STREAM.CREATE.S", asked)
    for n in range(MESSAGES):
        client.store(f"s.{n % 2}", b"secret %d" % n)
    return client


def again(driver: Driver, disk: SimulatedDisk) -> Client:
    """The power fails; a client of a server on what is left."""
    disk.crash()
    return Driver(disk, now=driver.clock.now + SECOND).start().client()


def answered(client: Client) -> list[Any]:
    """The answers that came since the last look."""
    return [m.json() for m in client.take() if m.subject.startswith("_INBOX.")]


REMOVALS: dict[str, tuple[str, bytes, int]] = {
    "purge": ("STREAM.PURGE.S", b"", 0),
    "purge by subject": ("STREAM.PURGE.S", b'{"filter":"s.0"}', MESSAGES // 2),
    "purge up to": ("STREAM.PURGE.S", b'{"seq":3}', MESSAGES - 2),
    "purge but the newest": ("STREAM.PURGE.S", b'{"keep":1}', 1),
    "delete": ("STREAM.MSG.DELETE.S", b'{"seq":2,"no_erase":true}', MESSAGES - 1),
    "delete with its bytes": ("STREAM.MSG.DELETE.S", b'{"seq":2}', MESSAGES - 1),
    "delete the newest": ("STREAM.MSG.DELETE.S", b'{"seq":6}', MESSAGES - 1),
    "tighter limits": (
        "STREAM.UPDATE.S",
        b'{"name":"S","subjects":["s.>"],"allow_rollup_hdrs":true,"max_msgs":2}',
        2,
    ),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_is_answered_once_it_is_durable(
    driver: Driver, disk: SimulatedDisk, removal: str
) -> None:
    subject, body, left = REMOVALS[removal]
    client = fill(driver)
    driver.runner.hold()
    assert client.ask("$JS.API." + subject, body) == []
    for _ in range(2):  # of tighter limits the configuration first, then what they remove
        driver.runner.release()
        driver.finish()
    (answer,) = answered(client)
    assert "error" not in answer
    assert again(driver, disk).api("STREAM.INFO.S")["state"]["messages"] == left


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_failed_sync_is_the_answer_to_a_removal_that_waits_for_it(
    driver: Driver, removal: str
) -> None:
    subject, body, _ = REMOVALS[removal]
    client = fill(driver)
    driver.runner.hold()
    assert client.ask("$JS.API." + subject, body) == []
    driver.runner.release(OSError("Input/output error"))
    driver.finish()
    (answer,) = answered(client)
    assert answer["error"]["code"] == 500
    assert "Input/output error" in answer["error"]["description"]


@pytest.mark.parametrize(("rollup", "left"), [("all", 1), ("sub", MESSAGES // 2 + 1)])
def test_what_a_rollup_removed_is_gone_when_it_is_acknowledged(
    driver: Driver, disk: SimulatedDisk, rollup: str, left: int
) -> None:
    client = fill(driver)
    driver.runner.hold()
    client.publish("s.0", b"x", "_INBOX.t.r", {"Nats-Rollup": rollup})
    assert answered(client) == []
    driver.runner.release()
    driver.finish()
    assert answered(client)[0]["seq"] == MESSAGES + 1
    assert again(driver, disk).api("STREAM.INFO.S")["state"]["messages"] == left


@pytest.mark.parametrize("removal", ["purge", "delete"])
def test_a_removal_from_a_failed_stream_is_answered_with_why_it_failed(
    driver: Driver, removal: str
) -> None:
    subject, body, _ = REMOVALS[removal]
    client = fill(driver)
    driver.runner.hold()
    client.publish("s.a")
    driver.runner.release(OSError("Input/output error"))
    driver.finish()
    answered(client)
    client.publish("$JS.API." + subject, body, "_INBOX.t.removed")
    driver.runner.release()
    driver.finish()
    assert "cannot be written" in answered(client)[-1]["error"]["description"]


def test_a_deletion_from_a_failed_stream_destroys_nothing(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    disk.fail("append")
    assert "error" in client.store("s.a", b"refused")
    refused = client.api("STREAM.MSG.DELETE.S", {"seq": 2})["error"]
    assert refused["err_code"] == 10057
    assert "cannot be written" in refused["description"]
    assert client.api("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2
    found = again(driver, disk)
    assert found.api("STREAM.MSG.GET.S", {"seq": 2})["message"]["seq"] == 2
    assert "lost" not in found.api("STREAM.INFO.S")["state"]


def test_removals_share_the_sync_of_what_is_published_with_them(driver: Driver) -> None:
    client = fill(driver)
    syncs = driver.runner.runs
    client.send(
        b"PUB s.a _INBOX.t.a 1\r\nx\r\n"
        b'PUB $JS.API.STREAM.MSG.DELETE.S _INBOX.t.b 9\r\n{"seq":2}\r\n'
        b'PUB $JS.API.STREAM.MSG.DELETE.S _INBOX.t.c 9\r\n{"seq":4}\r\n'
    )
    assert len(answered(client)) == 3
    assert driver.runner.runs == syncs + 1


def test_a_removal_after_a_batch_was_prepared_waits_for_the_next(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    driver.runner.hold()
    client.publish("s.a", b"x", "_INBOX.t.a")
    assert client.ask("$JS.API.STREAM.PURGE.S", b"") == []
    for _ in range(2):  # it runs, and is finished
        driver.runner.step()
        driver.finish()
    assert [answer["seq"] for answer in answered(client)] == [MESSAGES + 1]
    driver.runner.release()
    driver.finish()
    assert answered(client)[0]["success"]


def test_with_two_batches_on_their_way_a_removal_waits_for_its_own(driver: Driver) -> None:
    client = fill(driver)
    driver.runner.hold()
    driver.engine.commit.queued_bytes_min = 0  # a second batch follows whatever its size
    client.publish("s.a", b"x", "_INBOX.t.a")
    assert client.ask("$JS.API.STREAM.PURGE.S", b"") == []
    # Nothing is left to sync for this one, whose change is in a batch on its way.
    assert client.ask("$JS.API.STREAM.PURGE.S", b"") == []
    counts = []
    while driver.runner.step():
        driver.finish()
        counts.append(len(answered(client)))
    assert counts[0] == 0
    assert counts[1] == 1
    assert sum(counts) == 3


@pytest.mark.parametrize(
    "config", [{"persist_mode": "async"}, {"storage": "memory"}], ids=["async", "memory"]
)
def test_with_relaxed_durability_a_removal_is_answered_at_once(
    driver: Driver, config: dict[str, Any]
) -> None:
    client = fill(driver, **config)
    driver.runner.hold()
    assert client.api("STREAM.MSG.DELETE.S", {"seq": 2})["success"]
    assert client.api("STREAM.PURGE.S")["success"]


def test_a_removal_that_the_full_disk_cannot_record_is_answered_with_that(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    for n in range(200):
        client.store("s.x", b"%d" % n)
    disk.capacity = disk.used()
    gone = []
    error = {}
    for seq in range(2, 200, 2):  # until the room that is kept for such records is used up
        answer = client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
        if "error" in answer:
            error = answer["error"]
            break
        gone.append(seq)
    assert gone
    assert "no space left on the disk to record what was removed" in error["description"]
    survivor = again(driver, disk)
    for seq in gone:
        assert "error" in survivor.api("STREAM.MSG.GET.S", {"seq": seq})


def test_the_end_of_a_stream_is_an_answer_to_what_waits_for_it(driver: Driver) -> None:
    client = fill(driver)
    driver.runner.hold()
    assert client.ask("$JS.API.STREAM.PURGE.S", b"") == []
    client.publish("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d")
    assert driver.settle_log()
    answers = answered(client)
    assert len(answers) == 2
    assert "has ended" in answers[0]["error"]["description"]
    assert answers[1]["success"]


def test_what_an_interest_stream_lets_go_with_a_consumer_is_gone_when_that_is_answered(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": "interest"})
    for name, pattern in (("A", "s.a"), ("B", "s.b")):
        durable = {"durable_name": name, "ack_policy": "explicit", "filter_subject": pattern}
        asked = {"stream_name": "S", "config": durable}
        client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", asked)
    for _ in range(3):
        client.store("s.a")
    driver.runner.hold()
    assert client.ask("$JS.API.CONSUMER.DELETE.S.A") == []
    driver.runner.release()
    driver.finish()
    assert answered(client)[0]["success"]
    assert again(driver, disk).api("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_reset_is_answered_when_the_position_is_saved_or_could_not_be(
    driver: Driver, disk: SimulatedDisk, fails: bool
) -> None:
    client = fill(driver)
    durable = {"durable_name": "C", "ack_policy": "none"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"6", "in")
    driver.advance(2 * SECOND)
    client.take()
    driver.runner.hold()
    assert client.ask("$JS.API.CONSUMER.RESET.S.C", b'{"seq":2}') == []
    if fails:
        disk.fail("sync")
    driver.runner.release()
    driver.finish()
    (answer,) = answered(client)
    if fails:
        assert "Input/output error" in answer["error"]["description"]
    else:
        assert answer["reset_seq"] == 2
        assert again(driver, disk).api("CONSUMER.INFO.S.C")["delivered"]["stream_seq"] == 1


STEPS = [
    (op, n) for op in ("mkdir", "open", "append", "sync", "sync_dir", "rename") for n in (1, 2)
]


@pytest.mark.parametrize(("operation", "nth"), STEPS)
@pytest.mark.parametrize("crashes", [False, True])
def test_a_stream_or_consumer_that_could_not_be_created_leaves_nothing(
    driver: Driver, disk: SimulatedDisk, operation: str, nth: int, crashes: bool
) -> None:
    client = fill(driver)
    durable = {"stream_name": "S", "config": {"durable_name": "C", "deliver_policy": "new"}}
    for subject, body in (
        ("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]}),
        ("CONSUMER.DURABLE.CREATE.S.C", durable),
    ):
        disk.fail(operation, nth)
        first = client.api(subject, body)
        disk.heal()
        if "error" not in first:  # it was done before that
            continue
        if crashes or driver.engine.state.log.failed:
            client = again(driver, disk)
            driver = client.driver
            assert driver.js.problems == []
        assert "error" not in client.api(subject, body)
    driver.stop()
    survivor = Driver(disk, now=driver.clock.now + SECOND).start()
    assert survivor.js.problems == []
    assert sorted(survivor.js.streams) == ["S", "T"]
    assert list(survivor.js.streams["S"].consumers) == ["C"]


@pytest.mark.parametrize("seed", range(30))
def test_a_creation_that_a_crash_cut_off_leaves_nothing_or_the_whole(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    driver = Driver(disk).start()
    client = fill(driver)
    operation, nth = Random(seed).choice(STEPS)
    disk.fail(operation, nth, error=OSError("the power fails"))
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": {"name": "E"}})
    durable = {"stream_name": "S", "config": {"durable_name": "C"}}
    client.api("CONSUMER.DURABLE.CREATE.S.C", durable)
    survivor = again(driver, disk)
    assert survivor.driver.js.problems == []
    assert "error" not in survivor.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
    assert "error" not in survivor.api("CONSUMER.DURABLE.CREATE.S.C", durable)


def test_a_stream_without_messages_that_could_not_be_read_can_be_created_anew(
    driver: Driver, disk: SimulatedDisk
) -> None:
    asked = {"name": "S", "subjects": ["s.>"]}
    driver.client().api("STREAM.CREATE.S", asked)
    driver.stop()
    for path in disk.files():
        disk.flip(path, 300)
    survivor = again(driver, disk)
    assert "could not be recovered" in survivor.driver.js.problems[0]
    assert "error" not in survivor.api("STREAM.CREATE.S", asked)
    assert survivor.driver.js.problems == []
    assert again(survivor.driver, disk).driver.js.problems == []


def test_a_directory_that_could_not_be_read_is_not_taken_over_by_a_new_stream(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    driver.advance(5 * SECOND)
    for path in disk.files():
        if "/meta." in path:
            disk.flip(path, 300)
    survivor = again(driver, disk)
    before = {path: disk.read(path) for path in disk.files() if "/jetstream/" in path}
    answer = survivor.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert answer["error"]["err_code"] == 10049
    assert "could not be read when the server started" in answer["error"]["description"]
    after = {path: disk.read(path) for path in disk.files() if "/jetstream/" in path}
    assert after == before
    assert client.driver is driver


# -- how many syncs a consumer costs ------------------------------------------------------------


def test_an_ephemeral_consumer_is_answered_before_anything_is_written_for_it(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    driver.runner.hold()
    before = disk.calls["sync"] + disk.calls["append"]
    asked = {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}}
    assert "error" not in client.api("CONSUMER.CREATE.S.E", asked)
    assert disk.calls["sync"] + disk.calls["append"] == before
    driver.advance(SECOND)
    assert driver.settle_log() == 1
    assert "error" not in again(driver, disk).api("CONSUMER.INFO.S.E")


def test_ephemeral_consumers_are_there_after_an_orderly_stop(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    asked = {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}}
    client.api("CONSUMER.CREATE.S.E", asked)
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.E", b"2", "in")
    for message in client.take():
        client.publish(message.reply)
    driver.stop()
    again = Driver(disk, now=driver.clock.now + SECOND).start()
    info = again.client().api("CONSUMER.INFO.S.E")
    assert info["ack_floor"]["stream_seq"] == 2


@pytest.mark.parametrize("seed", range(20))
def test_after_a_crash_an_ephemeral_consumer_is_there_or_gone_and_no_problem(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    driver = Driver(disk).start()
    client = fill(driver)
    client.subscribe("in")
    config = {"name": "E", "ack_policy": "explicit", "inactive_threshold": 60 * SECOND}
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.E", b"2", "in")
    driver.advance(random.choice((0, SECOND // 5, 3 * SECOND)))
    if random.random() < 0.3:
        disk.fail("sync_dir")
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config | {"ack_wait": SECOND}})
    disk.heal()
    survivor = again(driver, disk)
    assert survivor.driver.js.problems == []
    assert "error" not in survivor.api(
        "CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config}
    )


def test_an_ephemeral_consumer_that_was_deleted_at_once_does_not_come_back(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    driver.runner.hold()
    asked = {"stream_name": "S", "config": {"name": "E"}}
    client.api("CONSUMER.CREATE.S.E", asked)
    client.ask("$JS.API.CONSUMER.DELETE.S.E")
    driver.stop()
    assert not [path for path in disk.files() if "ephemeral" in path]


def test_an_ephemeral_consumer_that_the_disk_does_not_let_go_keeps_its_name_until_the_next_start(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver)
    asked = {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}}
    client.api("CONSUMER.CREATE.S.E", asked)
    driver.stop()
    for path in disk.files():
        if "/ephemeral/E/meta." in path:
            disk.flip(path, 300)
    disk.crash()
    disk.fail("rename", error=OSError(errno.EIO, "Input/output error"))
    client = Driver(disk, now=driver.clock.now + SECOND).start().client()
    error = client.api("CONSUMER.CREATE.S.E", asked)["error"]
    assert "could not be read when the server started" in error["description"]
    other = {"stream_name": "S", "config": {"name": "F", "ack_policy": "explicit"}}
    assert "error" not in client.api("CONSUMER.CREATE.S.F", other)
    assert "error" not in again(client.driver, disk).api("CONSUMER.CREATE.S.E", asked)


def test_a_confirmed_acknowledgement_of_an_ephemeral_consumer_survives(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver, retention="workqueue")
    config = {"name": "E", "ack_policy": "explicit", "inactive_threshold": 3600 * SECOND}
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.E", b"2", "in")
    first = next(message for message in client.take() if message.reply)
    driver.runner.hold()
    client.publish(first.reply, b"", "_INBOX.t.confirmed")
    while not [m for m in client.take() if m.subject == "_INBOX.t.confirmed"]:
        assert driver.runner.step()
        driver.finish()
    assert again(driver, disk).api("CONSUMER.INFO.S.E")["ack_floor"]["stream_seq"] == 1


def test_an_ephemeral_consumer_whose_files_the_disk_refuses_lives_on_in_memory(
    driver: Driver, disk: SimulatedDisk
) -> None:
    logged: list[str] = []
    driver.engine.on_problem = logged.append
    client = fill(driver)
    disk.fail("sync")
    durable = {"stream_name": "S", "config": {"durable_name": "D"}}
    assert "error" in client.api("CONSUMER.DURABLE.CREATE.S.D", durable)  # the log has failed
    asked = {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}}
    assert "error" not in client.api("CONSUMER.CREATE.S.E", asked)
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.E", b"1", "in")
    (message,) = [m for m in client.take() if m.reply]
    assert len(client.ask(message.reply)) == 1
    driver.advance(2 * SECOND)
    assert any("in memory only" in line for line in logged)
    assert client.api("CONSUMER.DELETE.S.E")["success"]


@pytest.mark.parametrize("policy", ["all", "new"])
def test_a_durable_consumer_costs_one_sync_before_the_answer(
    driver: Driver, disk: SimulatedDisk, policy: str
) -> None:
    client = fill(driver)
    driver.runner.hold()
    before = disk.calls["sync"] + disk.calls["sync_dir"]
    config = {"durable_name": "C", "deliver_policy": policy}
    asked = {"stream_name": "S", "config": config}
    assert client.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.C", asked) == []
    driver.settle_log()
    assert "error" not in answered(client)[0]
    assert disk.calls["sync"] + disk.calls["sync_dir"] == before + 1


def test_what_changes_of_many_streams_and_consumers_in_a_turn_shares_one_sync(
    driver: Driver, disk: SimulatedDisk
) -> None:
    fill(driver)
    before = disk.calls["sync"] + disk.calls["sync_dir"]
    others = [driver.client() for _ in range(4)]
    for n, other in enumerate(others):
        asked = b'{"stream_name":"S","config":{"durable_name":"C%d"}}' % n
        subject = b"$JS.API.CONSUMER.DURABLE.CREATE.S.C%d" % n
        other.session.receive(b"PUB %b _INBOX.t.c %d\r\n%b\r\n" % (subject, len(asked), asked))
    driver.finish()
    assert all("config" in answered(other)[0] for other in others)
    assert disk.calls["sync"] + disk.calls["sync_dir"] == before + 1
    found = again(driver, disk).api("CONSUMER.NAMES.S")["consumers"]
    assert len(found) == 4


def test_a_position_says_nothing_of_a_sequence_that_a_crash_gives_to_another_message(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver, retention="workqueue")
    config = {"durable_name": "D", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})
    driver.runner.hold()
    client.publish("s.0", b"on its way to the disk")
    client.publish("s.0", b"not on its way yet")
    client.publish("$JS.API.STREAM.PURGE.S", b"", "_INBOX.t.purge")
    driver.advance(SECOND)  # the position, after all of that, is to be saved
    driver.runner.step()  # the first batch, not the one with the purge
    driver.runner.step()
    driver.finish()
    assert not driver.settle_log()  # it waits for the purge
    survivor = again(driver, disk)
    last = survivor.api("STREAM.INFO.S")["state"]["last_seq"]
    survivor.store("s.0", b"acknowledged")
    second = again(survivor.driver, disk)
    state = second.api("STREAM.INFO.S")["state"]
    assert state["last_seq"] == last + 1 == MESSAGES + 2
    second.subscribe("in")
    second.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", b"20", "in")
    second.driver.finish()
    assert b"acknowledged" in [m.body for m in second.take() if m.sid == "2"]


def test_a_position_beyond_what_a_power_failure_left_is_moved_back_for_good(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = fill(driver, retention="workqueue", persist_mode="async")
    config = {"durable_name": "D", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})
    driver.runner.hold()
    client.publish("s.0", b"acknowledged and not durable")
    client.subscribe("in")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", b"20", "in")
    for message in [m for m in client.take() if m.sid == "2"]:
        client.publish(message.reply, b"+ACK")
    driver.advance(2 * SECOND)
    assert driver.settle_log()
    survivor = again(driver, disk)
    survivor.store("s.0", b"durable")
    survivor.driver.advance(2 * SECOND)  # it is synced after a second
    second = again(survivor.driver, disk)
    assert second.api("STREAM.INFO.S")["state"]["messages"] == 1
    second.subscribe("in")
    second.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", b"20", "in")
    second.driver.finish()
    assert [m.body for m in second.take() if m.sid == "2"] == [b"durable"]


@pytest.mark.parametrize("seed", range(30))
def test_an_erasure_that_a_crash_tears_costs_a_batch_nothing_else(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_atomic": True})
    driver.runner.hold()
    for number in range(1, 10):
        fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
        if number == 9:
            fields["Nats-Batch-Commit"] = "1"
        client.publish(f"s.{number}", bytes(1500), "_INBOX.batch", fields)
    driver.runner.step()  # the batch is synced, and the engine has not been told
    client.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":9}', "_INBOX.deleted")
    driver.runner.step()
    driver.finish()
    state = again(driver, disk).api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["last_seq"]) == (8, 9)


def test_a_skipped_sequence_that_a_full_disk_cannot_record_is_not_acknowledged() -> None:
    disk = SimulatedDisk(Random(3))
    driver = Driver(disk, segment_bytes=40_000).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": "interest"})
    durable = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "s.w.>"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": durable})
    for _ in range(5):
        client.store("s.w.1", bytes(1000))
    disk.capacity = disk.used()
    acknowledged = []
    for number in range(12):  # an erasure is one more reason for a sync
        erasure = b'{"seq":%d}' % (number // 4 + 2)
        client.send(
            encode("$JS.API.STREAM.MSG.DELETE.S", erasure, "_INBOX.t.deleted")
            + encode("s.v.1", b"x", "_INBOX.t.stored")
        )
        stored = [m.json() for m in client.take() if m.subject == "_INBOX.t.stored"]
        acknowledged += [answer["seq"] for answer in stored if "seq" in answer]
    disk.crash()
    disk.capacity = 1 << 40
    client = Driver(disk, now=driver.clock.now + SECOND).start().client()
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] >= max(acknowledged)


def test_who_has_published_to_a_stream_that_is_deleted_hears_so() -> None:
    driver = Driver(SimulatedDisk(Random(1))).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    driver.runner.hold()
    client.publish("s.a", b"x", "_INBOX.t.stored")
    client.publish("s.a", b"x", "_INBOX.t.refused", {"Nats-Expected-Last-Sequence": "7"})
    client.publish("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.deleted")
    while driver.runner.step():
        driver.finish()
    answers = {message.subject: message.json() for message in client.take()}
    assert answers["_INBOX.t.deleted"]["success"]
    for asked in ("stored", "refused"):
        assert answers[f"_INBOX.t.{asked}"]["error"]["err_code"] == 10077


def test_who_repeats_what_the_disk_has_not_taken_hears_so_again(driver: Driver) -> None:
    client = fill(driver)
    driver.runner.hold()
    client.publish("s.a", b"x", "_INBOX.t.first", {"Nats-Msg-Id": "7"})
    driver.runner.release(OSError(errno.EIO, "no more"))
    driver.finish()
    client.publish("s.a", b"x", "_INBOX.t.again", {"Nats-Msg-Id": "7"})
    while driver.runner.step():
        driver.finish()
    assert [answer["error"]["err_code"] for answer in answered(client)] == [10077, 10077]
