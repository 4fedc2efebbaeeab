"""A disk that refuses leaves everything as it was, and says so: nobody is left half changed, and
what one stream or consumer suffers is not felt by another."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

PIECE = 2048  # messages that a batched get sends before it waits for its next turn
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S."
BUSY = OSError(errno.ENFILE, "Too many open files in system")


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine with small segments on it."""
    return Driver(disk, segment_bytes=1000).start()


@pytest.fixture
def client(driver: Driver) -> Client:
    """A client of a stream S, listening at `in`."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.subscribe("in")
    return client


def consume(client: Client, name: str, **config: Any) -> Any:
    """Create or change a durable consumer."""
    durable = {"durable_name": name, "ack_policy": "explicit", **config}
    return client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": durable})


def subjects(client: Client) -> list[str]:
    """Of the messages that came."""
    return [message.subject for message in client.take() if not message.status]


def again(driver: Driver, disk: SimulatedDisk) -> Driver:
    """The power fails; a server on what is left."""
    disk.crash()
    return Driver(disk, now=driver.clock.now + SECOND, segment_bytes=1000).start()


@pytest.mark.parametrize(
    ("policy", "pending"),
    [("new", 2), ("last", 3), ("last_per_subject", 3), ("all", 4), ("by_start_time", 2)],
)
def test_where_a_consumer_begins_survives_a_crash_before_its_first_delivery(
    driver: Driver, disk: SimulatedDisk, client: Client, policy: str, pending: int
) -> None:
    client.store("s.a")
    client.store("s.a")
    when = {"opt_start_time": "2100-01-01T00:00:00Z"} if policy == "by_start_time" else {}
    made = consume(client, "C", deliver_policy=policy, filter_subject="s.>", **when)
    client.store("s.b")
    client.store("s.b")
    survivor = again(driver, disk).client()
    info = survivor.api("CONSUMER.INFO.S.C")
    assert info["num_pending"] == pending
    assert info["delivered"]["stream_seq"] == made["delivered"]["stream_seq"]


def test_a_new_consumer_gets_what_takes_the_place_of_messages_lost_in_a_crash(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    driver.runner.hold()
    client.publish("s.lost", b"1")
    client.publish("s.lost", b"2")
    asked = {"stream_name": "S", "config": {"durable_name": "C", "deliver_policy": "new"}}
    client.ask("$JS.API.CONSUMER.DURABLE.CREATE.S.C", asked)
    driver.settle_log()
    survivor = again(driver, disk).client()
    assert survivor.api("STREAM.INFO.S")["state"]["last_seq"] == 0
    survivor.store("s.new")
    survivor.subscribe("in")
    survivor.publish(NEXT + "C", b"1", "in")
    assert subjects(survivor) == ["s.new"]


def test_a_change_that_can_not_be_saved_leaves_the_consumer_as_it_was(
    disk: SimulatedDisk, client: Client
) -> None:
    consume(client, "C", filter_subject="s.a")
    disk.fail("sync")
    assert consume(client, "C", filter_subject="s.b")["error"]["err_code"] == 10104
    client.publish(NEXT + "C", b"5", "in")
    client.publish("s.a")
    assert subjects(client) == ["s.a"]
    assert client.api("CONSUMER.INFO.S.C")["config"]["filter_subject"] == "s.a"


def test_a_pause_that_can_not_be_saved_is_none(disk: SimulatedDisk, client: Client) -> None:
    consume(client, "C")
    disk.fail("sync")
    answer = client.api("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
    assert answer["error"]["err_code"] == 10104
    assert not client.api("CONSUMER.INFO.S.C").get("paused")


DELETIONS = {"consumer": "CONSUMER.DELETE.S.C", "stream": "STREAM.DELETE.S"}


@pytest.mark.parametrize("operation", ["rename", "sync_dir"])
@pytest.mark.parametrize("what", DELETIONS)
@pytest.mark.parametrize("crashes", [False, True])
def test_what_was_deleted_is_gone_though_the_disk_keeps_its_files_for_a_while(
    driver: Driver, disk: SimulatedDisk, client: Client, operation: str, what: str, crashes: bool
) -> None:
    consume(client, "C")
    driver.advance(3 * SECOND)
    disk.fail(operation)
    assert client.api(DELETIONS[what])["success"]
    assert "tried again" in driver.js.problems[0]
    path = "store/jetstream/$G/S" + ("/consumers/C" if what == "consumer" else "")
    assert disk.exists(path) == (operation == "rename")
    if crashes:
        driver = again(driver, disk)
    driver.advance(11 * SECOND)
    assert not disk.exists(path)
    assert driver.js.problems == []
    found = driver.client().api(f"{what.upper()}.INFO.S" + ".C" * (what == "consumer"))
    assert found["error"]["code"] == 404


@pytest.mark.parametrize("what", DELETIONS)
def test_a_deletion_that_the_log_can_not_record_is_an_error(
    driver: Driver, disk: SimulatedDisk, client: Client, what: str
) -> None:
    consume(client, "C")
    disk.fail("sync")
    assert "Input/output error" in client.api(DELETIONS[what])["error"]["description"]
    assert any("cannot be written" in problem for problem in driver.js.problems)
    survivor = again(driver, disk).client()
    assert "error" not in survivor.api("CONSUMER.INFO.S.C")


def test_an_inactive_consumer_that_can_not_be_deleted_goes_on(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    consume(client, "C", inactive_threshold=SECOND)
    disk.fail("sync")
    consume(client, "D")
    driver.advance(3 * SECOND)
    assert client.api("CONSUMER.INFO.S.C")["name"] == "C"
    survivor = again(driver, disk)
    survivor.advance(3 * SECOND)
    assert survivor.client().api("CONSUMER.INFO.S.C")["error"]["err_code"] == 10014


def test_a_consumer_that_the_disk_refuses_is_served_later_and_others_at_once(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    for n in range(60):  # a few segments
        client.store(f"s.{n}", b"x" * 100)
    for name in ("C1", "C2"):
        consume(client, name, deliver_policy="by_start_sequence", opt_start_seq=30)
    again_driver = again(driver, disk)
    survivor = again_driver.client()
    survivor.subscribe("in")
    disk.fail("pread", error=BUSY)
    one = f"PUB {NEXT}C1 in 1\r\n1\r\n".encode()
    survivor.send(one + one.replace(b"C1", b"C2"))
    assert subjects(survivor) == ["s.29"]
    again_driver.advance(2 * SECOND)
    assert subjects(survivor) == ["s.29"]


def test_a_read_that_the_disk_refuses_is_an_error_of_the_call(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    for n in range(60):
        client.store(f"s.{n}", b"x" * 100)
    survivor = again(driver, disk).client()
    disk.fail("pread", error=BUSY)
    assert survivor.api("STREAM.MSG.GET.S", {"seq": 30})["error"]["err_code"] == 10051
    assert survivor.api("STREAM.MSG.GET.S", {"seq": 30})["message"]["subject"] == "s.29"


def test_a_disk_that_fails_while_a_batched_get_waits_ends_it_with_an_error(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d"], "allow_direct": True})
    for _ in range(PIECE + 50):
        client.publish("d", b"x" * 20)
    survivor = again(driver, disk)
    client = survivor.client()
    client.subscribe("in")
    asked = b'{"seq":1,"batch":%d}' % (PIECE + 50)
    asking = b"PUB $JS.API.DIRECT.GET.D in %d\r\n%b\r\n" % (len(asked), asked)
    client.session.receive(asking)  # the first piece; the rest waits for the end of the turn
    disk.fail("pread", error=BUSY)
    survivor.finish()
    statuses = [message.status for message in client.take() if message.status]
    assert statuses == ["500 Storage Failure"]


def test_a_disk_that_refuses_amid_a_packed_answer_ends_the_batch_behind_what_was_read(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d"], "allow_direct": True})
    for _ in range(300):
        client.publish("d", b"x" * 700)
    client = again(driver, disk).client()
    client.api("STREAM.MSG.GET.D", {"seq": 1})  # so what lies behind it is in memory
    asked = {"seq": 1, "batch": 300, "packed": True}
    disk.fail("pread", 2, BUSY)
    packed, end = client.ask("$JS.API.DIRECT.GET.D", asked)
    assert end.status == "500 Storage Failure"
    assert 0 < int(packed.fields["Slipstream-Packed"]) < 300
    packed, end = client.ask("$JS.API.DIRECT.GET.D", asked)
    assert packed.fields["Slipstream-Packed"] == "300"
    assert end.status == "204 EOB"


class Faulty:
    """A consumer, and a stream, with a bug."""

    def pump(self) -> None:
        """Fail."""
        raise RuntimeError("a bug")


def test_a_fault_in_one_consumer_does_not_cost_the_others_their_turn(
    driver: Driver, client: Client
) -> None:
    consume(client, "C")
    client.store("s.a")
    driver.engine.turn.ready.append(Faulty())
    request = f"PUB {NEXT}C in 1\r\n1\r\n".encode()
    with pytest.raises(RuntimeError, match="a bug"):
        client.send(request)
    driver.finish()
    assert subjects(client) == ["s.a"]


def test_a_server_starts_on_a_full_disk_with_damage_at_the_end_of_a_stream(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.store("s.a", b"cut off")
    disk.crash()
    (path,) = disk.files(".seg")
    disk.cut(path, disk.read(path).index(b"cut off") + 3)
    disk.capacity = disk.used()
    survivor = Driver(disk, segment_bytes=1000).start().client()
    state = survivor.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["lost"]["msgs"]) == (0, [1])
    disk.capacity *= 2
    assert survivor.store("s.a")["seq"] == 2


def test_a_stream_that_can_not_be_closed_does_not_keep_another_from_it(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "persist_mode": "async"})
    driver.runner.hold()
    client.publish("s.a")
    client.publish("t.a")
    disk.fail("sync")
    driver.engine.close()
    survivor = again(driver, disk).client()
    assert survivor.api("STREAM.INFO.T")["state"]["messages"] == 1


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_settled_is_gone_after_a_crash_before_the_stream_could_say_so(
    driver: Driver, disk: SimulatedDisk, client: Client, retention: str
) -> None:
    config = {"name": "W", "subjects": ["w.>"], "retention": retention}
    client.api("STREAM.CREATE.W", config)
    durable = {"durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.W.C", {"stream_name": "W", "config": durable})
    for n in range(4):
        client.store(f"w.{n}")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.W.C", b"3", "in")
    deliveries = client.take()
    driver.advance(2 * SECOND)
    driver.runner.hold()
    client.publish(deliveries[1].reply, b"", "in")
    driver.settle_log()
    assert len(client.take()) == 1  # it is confirmed
    survivor = again(driver, disk).client()
    assert survivor.api("STREAM.INFO.W")["state"]["messages"] == 3
    assert "error" in survivor.api("STREAM.MSG.GET.W", {"seq": 2})


def test_a_consumer_whose_position_is_damaged_gets_all_that_an_interest_stream_holds(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.api("STREAM.CREATE.W", {"name": "W", "subjects": ["w.>"], "retention": "interest"})
    durable = {"durable_name": "C", "ack_policy": "explicit", "deliver_policy": "new"}
    client.api("CONSUMER.DURABLE.CREATE.W.C", {"stream_name": "W", "config": durable})
    client.store("w.1")
    for _ in range(2):  # both copies of the position
        client.publish("$JS.API.CONSUMER.MSG.NEXT.W.C", b"1", "in")
        driver.advance(2 * SECOND)
    for name in disk.files():
        if "/state." in name:
            disk.flip(name, 200)
    survivor = again(driver, disk)
    assert any("begins anew" in problem for problem in survivor.js.problems)
    assert survivor.client().api("CONSUMER.INFO.W.C")["num_pending"] == 1


def test_a_message_found_to_be_damaged_is_not_waited_for(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    consume(client, "C", filter_subject="s.>")
    for n in range(20):
        client.store(f"s.{n}", b"x" * 100)
    driver.stop()  # then footers tell what there is, and damage shows when it is read
    for path in disk.files(".seg"):
        disk.flip(path, 600)
    survivor = Driver(disk, now=driver.clock.now, segment_bytes=1000).start().client()
    before = survivor.api("CONSUMER.INFO.S.C")["num_pending"]
    survivor.subscribe("in")
    survivor.publish(NEXT + "C", b"100", "in")
    found = len(subjects(survivor))
    assert 0 < found < before
    assert survivor.api("CONSUMER.INFO.S.C")["num_pending"] == 0
    assert survivor.api("STREAM.INFO.S")["state"]["messages"] == found


def test_why_is_answered_where_the_disk_does_not_give_a_message(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    consume(client, "C")
    for n in range(20):
        client.store(f"s.{n}", b"x" * 100)
    client.subscribe("in")
    client.publish(NEXT + "C", b"20", "in")
    driver.stop()
    survivor = Driver(disk, now=driver.clock.now, segment_bytes=1000).start().client()
    disk.fail("pread", error=BUSY)
    facts = survivor.request("$SLIPSTREAM.CONSUMER.EXPLAIN.S.C").json()["facts"]
    assert facts["num_ack_pending"] == 20
    assert len(facts["outstanding"]) < 10


def test_a_first_position_that_a_full_disk_does_not_take_is_in_the_log(
    driver: Driver, disk: SimulatedDisk, client: Client
) -> None:
    client.store("s.a")
    client.publish(NEXT + "C", b"1", "in")
    disk.capacity = disk.used()
    assert "error" not in consume(client, "C")
    client.publish(NEXT + "C", b"1", "in")
    (message,) = [message for message in client.take() if message.reply]
    client.publish(message.reply, b"+ACK")
    for _ in range(2):
        driver.advance(3 * SECOND)
        assert not [path for path in disk.files() if "/C/meta" in path]
        driver = again(driver, disk)
        info = driver.client().api("CONSUMER.INFO.S.C")
        assert info["ack_floor"]["stream_seq"] == 1
    disk.capacity *= 2
    driver.advance(11 * SECOND)
    assert [path for path in disk.files() if "/C/meta" in path]
    assert driver.js.problems == []


@pytest.mark.parametrize("allow_msg_ttl", [False, True])
@pytest.mark.parametrize("operation", ["open", "pread"])
def test_an_age_limit_goes_on_once_the_disk_can_be_read_again(
    driver: Driver, disk: SimulatedDisk, operation: str, allow_msg_ttl: bool
) -> None:
    config = {"max_age": 5 * SECOND, "allow_msg_ttl": allow_msg_ttl}
    client = driver.client()
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], **config})
    for _ in range(2):
        for _ in range(50):
            client.store("t", bytes(40))
        driver.advance(2 * SECOND)
    driver.stop()
    driver = Driver(disk, now=driver.clock.now, segment_bytes=1000).start()
    client = driver.client()
    for held in (50, 0):
        disk.fail(operation, error=BUSY)
        driver.advance(2 * SECOND)
        disk.heal()
        driver.advance(SECOND // 10)
        assert client.api("STREAM.INFO.T")["state"]["messages"] == held


def dead_letter(client: Client) -> None:
    """Have D take one."""
    client.publish(NEXT + "C", b"1", "in")
    (message,) = client.take()
    client.publish(message.reply, b"+TERM")


def fast_batch(client: Client) -> None:
    """Have D take one that has one message."""
    client.publish("d.x", b"x" * 500, "_INBOX.f.id.10.fail.1.2.$FI")


def publish(client: Client) -> None:
    """Have D take a message."""
    client.publish("d.x", b"x" * 500)


@pytest.mark.parametrize("store", [dead_letter, fast_batch, publish])
def test_a_stream_that_the_disk_fails_says_so_however_it_is_written_to(
    driver: Driver, disk: SimulatedDisk, client: Client, store: Callable[[Client], None]
) -> None:
    client.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d.>"], "allow_batched": True})
    consume(client, "C", dead_letter="d.x")
    for _ in range(2):
        client.store("s.a", b"x" * 500)
    store(client)
    driver.advance(SECOND)
    disk.fail("reserve")  # for a second segment
    store(client)
    driver.advance(SECOND)
    (problem,) = driver.js.problems
    assert problem.startswith("stream '$G > D': the log in store/jetstream/$G/D/msgs")
