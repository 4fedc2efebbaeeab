"""Creating a stream: nothing is synced for it but an entry of the commit log, which its answer and
whatever is published to it wait for."""

import errno
from random import Random
from typing import Any

import pytest

from slipstream.engine.commit.state_commit import StateCommit
from slipstream.errors import DiskFullError
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine on it; the account has a stream already."""
    driver = Driver(disk).start()
    driver.client().api("STREAM.CREATE.FIRST", {"name": "FIRST", "subjects": ["first"]})
    return driver


def create(name: str) -> bytes:
    """A request for a stream with the subjects `name`.>, as a frame."""
    body = b'{"name":"%b","subjects":["%b.>"]}' % (name.encode(), name.encode())
    return encode(f"$JS.API.STREAM.CREATE.{name}", body, f"_INBOX.t.{name}")


def answers(client: Client) -> dict[str, Any]:
    """The answers that have come, by the last word of the inbox."""
    return {message.subject[9:]: message.json() for message in client.take() if message.body}


def again(driver: Driver, disk: SimulatedDisk) -> Driver:
    """The power fails, and a server starts on what is left."""
    disk.crash()
    return Driver(disk, now=driver.clock.now + SECOND).start()


def test_creating_streams_costs_one_sync_for_all_that_come_in_a_turn(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    before = disk.calls["sync"] + disk.calls["sync_dir"]
    client.send(b"".join(create(f"S{n}") for n in range(3)))
    assert driver.make_places() == 3
    assert disk.calls["sync"] + disk.calls["sync_dir"] == before
    assert not client.take()
    driver.runner.release()
    driver.finish()
    assert disk.calls["sync"] + disk.calls["sync_dir"] == before + 1
    assert len(answers(client)) == 3
    assert again(driver, disk).client().api("STREAM.NAMES")["total"] == 4


def test_what_is_published_to_a_new_stream_is_acknowledged_after_its_creation_is_durable(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    driver.make_places()
    client.send(encode("S.a", b"1", "_INBOX.t.p"))
    assert len(driver.runner.waiting) == 1  # the entry, and no batch of the stream
    driver.runner.release()
    driver.finish()
    assert list(answers(client)) == ["S"]
    driver.runner.release()
    driver.finish()
    assert answers(client)["p"] == {"stream": "S", "seq": 1}
    survivor = again(driver, disk).client()
    assert survivor.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_stream_that_the_disk_refuses_takes_what_was_published_to_it_along(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    driver.make_places()
    client.send(encode("S.a", b"1", "_INBOX.t.p"))
    driver.runner.release(error=OSError("the disk is broken"))
    driver.finish()
    found = answers(client)
    assert found["S"]["error"]["err_code"] == 10049
    assert found["p"]["error"]["err_code"] == 10077
    assert client.api("STREAM.NAMES")["streams"] == ["FIRST"]
    survivor = again(driver, disk)
    assert survivor.client().api("STREAM.NAMES")["streams"] == ["FIRST"]
    assert survivor.js.problems == []


def test_a_new_stream_that_was_not_durable_leaves_its_name_free(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    driver.make_places()
    client.send(encode("S.a", b"1", "_INBOX.t.p"))
    disk.sync_dir("store/jetstream/$G")
    disk.sync_dir("store/jetstream/$G/S")
    survivor = again(driver, disk)
    client = survivor.client()
    assert survivor.js.problems == []
    assert client.api("STREAM.NAMES")["streams"] == ["FIRST"]
    client.send(create("S"))
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert client.store("S.a")["seq"] == 1


def test_a_stream_that_was_deleted_before_it_was_durable_leaves_its_name_free(
    disk: SimulatedDisk,
) -> None:
    driver = Driver(disk, segment_bytes=1_000).start()
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    driver.make_places()
    for _ in range(5):  # more than a segment holds
        client.send(encode("S.a", bytes(400)))
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.deleted"))
    assert not client.take()
    survivor = Driver(disk, now=driver.clock.now + SECOND).start()  # the process was killed
    assert survivor.js.problems == []
    client = survivor.client()
    client.send(create("S"))
    assert client.store("S.a")["seq"] == 1


def test_a_stream_takes_a_name_whose_files_are_still_to_be_removed(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    client.store("S.a")
    driver.advance(5 * SECOND)
    driver.runner.hold()
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d") + create("S"))
    driver.make_places()
    assert any("/.aside-" in path for path in disk.files(".seg"))
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    driver.advance(5 * SECOND)
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    assert not any("/." in path for path in disk.files())
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_a_stream_and_its_consumer_come_and_go_in_one_turn(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    consumer = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
    client.send(
        create("S")
        + encode("$JS.API.CONSUMER.DURABLE.CREATE.S.C", consumer, "_INBOX.t.c")
        + encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d")
        + create("S")
    )
    assert "error" not in answers(client)["S"]
    survivor = again(driver, disk).client()
    assert survivor.api("CONSUMER.NAMES.S")["consumers"] == []


@pytest.mark.parametrize("seed", range(12))
def test_messages_of_a_deleted_stream_do_not_come_back_in_the_next_one_of_its_name(
    seed: int,
) -> None:
    disk = SimulatedDisk(Random(seed))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    client.store("S.a")
    driver.runner.hold()
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d") + create("S"))
    driver.make_places()
    assert driver.settle_log() == 2  # both are durable, and in the log alone
    survivor = again(driver, disk)
    assert survivor.client().api("STREAM.INFO.S")["state"]["messages"] == 0
    assert survivor.js.problems == []


class KeepingDisk(SimulatedDisk):
    """A disk that lets go of no directory while it `keeps`."""

    keeps = False

    def rename(self, old: str, new: str) -> None:
        """Raises OSError."""
        if self.keeps and "/.removed-" in new:
            raise OSError(errno.EIO, "Input/output error")
        super().rename(old, new)


@pytest.mark.parametrize("seed", range(12))
def test_a_start_goes_on_where_the_disk_does_not_let_go_of_a_deleted_stream(seed: int) -> None:
    disk = KeepingDisk(Random(seed))
    driver = Driver(disk).start()
    client = driver.client()
    client.send(create("FIRST"))
    client.send(create("S"))
    client.store("FIRST.a")
    client.store("S.a")
    driver.advance(5 * SECOND)
    driver.runner.hold()
    consumer = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d") + create("S"))
    driver.make_places()
    client.send(encode("$JS.API.CONSUMER.DURABLE.CREATE.S.C", consumer, "_INBOX.t.c"))
    assert driver.settle_log() == 2  # all of it is durable, and in the log alone
    disk.keeps = True
    driver = again(driver, disk)
    assert driver.client().api("STREAM.INFO.FIRST")["state"]["messages"] == 1
    driver.advance(5 * SECOND)  # a checkpoint fares no better
    disk.keeps = False
    driver.advance(30 * SECOND)  # and another one does
    survivor = again(driver, disk)
    assert survivor.client().api("STREAM.INFO.S")["state"]["messages"] == 0
    assert survivor.client().api("CONSUMER.NAMES.S")["consumers"] == ["C"]
    assert survivor.js.problems == []
    assert not any("/." in path for path in disk.files())


@pytest.mark.parametrize("persist_mode", ["default", "async"])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_a_new_stream_is_answered_or_read_before_it_is_durable(
    driver: Driver, persist_mode: str, fails: bool
) -> None:
    client = driver.client()
    driver.runner.hold()
    config = b'{"name":"S","subjects":["S.>"],"allow_direct":true,"persist_mode":"%b"}'
    client.send(encode("$JS.API.STREAM.CREATE.S", config % persist_mode.encode(), "_INBOX.t.S"))
    driver.make_places()
    client.send(
        encode("S.a", b"1", "_INBOX.t.p")
        + encode("$JS.API.DIRECT.GET.S", b'{"seq":1}', "_INBOX.t.direct")
        + encode("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}', "_INBOX.t.get")
        + encode("$JS.API.STREAM.PURGE.S", b'{"filter":"S.b"}', "_INBOX.t.purge")
    )
    assert not client.take()
    driver.runner.release(OSError("the disk is broken") if fails else None)
    driver.finish()
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    found = {message.subject[9:]: message for message in client.take()}
    assert set(found) == {"S", "p", "direct", "get", "purge"}
    if fails:
        assert all("error" in found[name].json() for name in ("S", "p", "get", "purge"))
        assert found["direct"].status
    else:
        assert found["p"].json() == {"stream": "S", "seq": 1}
        assert found["direct"].body == b"1"
        assert "message" in found["get"].json()
        assert found["purge"].json()["success"]


def test_a_stream_that_was_set_aside_is_not_removed_because_it_cannot_be_read_just_now() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.send(create("S"))
    client.store("S.a")
    driver.advance(5 * SECOND)
    driver.runner.hold()
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d") + create("S"))
    driver.make_places()
    assert any("/.aside-" in path for path in disk.files())  # the process ends
    disk.fail("read", error=OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(OSError, match="Too many"):
        Driver(disk, now=driver.clock.now + SECOND)
    survivor = Driver(disk, now=driver.clock.now + 2 * SECOND).start()
    assert survivor.client().api("STREAM.INFO.S")["state"]["messages"] == 1
    assert survivor.js.problems == []


def test_a_stream_that_cannot_be_made_durable_nor_removed_does_no_harm(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    driver.make_places()
    disk.fail("rename")
    driver.runner.release(OSError(errno.EIO, "Input/output error"))
    driver.finish()
    calls = disk.calls["rename"]
    driver.runner.release()
    assert disk.calls["rename"] == calls + 1
    assert "error" in answers(client)["S"]
    client = again(driver, disk).client()
    assert client.api("STREAM.NAMES")["total"] == 1
    client.send(create("S"))
    assert "error" not in answers(client)["S"]


# -- requests that wait for a place ---------------------------------------------------------------


def finish_all(driver: Driver) -> None:
    """The disk does all that it was asked for, and what follows."""
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()


def directories(disk: SimulatedDisk) -> list[str]:
    """What lies in the account's directory."""
    return disk.list("store/jetstream/$G")


def test_who_creates_the_same_stream_at_once_shares_it(driver: Driver, disk: SimulatedDisk) -> None:
    client = driver.client()
    driver.runner.hold()
    for name, more in (("first", b""), ("second", b""), ("third", b',"max_msgs":7')):
        body = b'{"name":"S","subjects":["S.>"]%b}' % more
        client.send(encode("$JS.API.STREAM.CREATE.S", body, f"_INBOX.t.{name}"))
    assert driver.make_places() == 1
    driver.settle_log()
    found = answers(client)
    first, second, third = (found[name] for name in ("first", "second", "third"))
    assert first["did_create"]
    assert second["created"] == first["created"]
    assert third["error"]["err_code"] == 10058
    finish_all(driver)
    assert again(driver, disk).client().api("STREAM.NAMES")["total"] == 2


def test_who_waits_for_a_place_may_have_lost_its_subjects_then_and_leaves_nothing(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    rival = b'{"name":"RIVAL","subjects":["S.a"]}'
    client.send(create("S") + encode("$JS.API.STREAM.CREATE.RIVAL", rival, "_INBOX.t.RIVAL"))
    assert driver.make_places() == 2
    assert "RIVAL" in directories(disk)
    finish_all(driver)
    found = answers(client)
    assert "error" not in found["S"]
    assert found["RIVAL"]["error"]["err_code"] == 10065
    assert directories(disk) == ["FIRST", "S"]
    assert client.ask("$JS.API.STREAM.CREATE.RIVAL", {"name": "RIVAL", "subjects": ["r"]}) == []
    finish_all(driver)
    assert sorted(driver.js.streams) == ["FIRST", "RIVAL", "S"]


def test_what_the_disk_refuses_is_refused_to_all_who_wait_and_may_be_asked_again(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    client.send(create("S"))
    disk.fail("mkdir", error=OSError(errno.ENOSPC, "No space left on device"))
    finish_all(driver)
    refused = [message.json()["error"] for message in client.take()]
    assert [error["err_code"] for error in refused] == [10049, 10049]
    assert all("No space left" in error["description"] for error in refused)
    client.send(create("S"))
    finish_all(driver)
    assert "error" not in answers(client)["S"]
    assert driver.js.problems == []


def test_a_creation_that_the_log_refuses_leaves_nothing(
    driver: Driver, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise DiskFullError("the commit log is full")

    client = driver.client()
    with monkeypatch.context() as patch:
        patch.setattr(StateCommit, "keep", full)
        client.send(create("S"))
    assert "the commit log is full" in answers(client)["S"]["error"]["description"]
    assert directories(disk) == ["FIRST"]
    client.send(create("S"))
    assert client.store("S.a")["seq"] == 1


def test_a_stream_that_got_no_file_takes_messages_once_there_is_space(
    driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    disk.fail("open", error=OSError(errno.ENOSPC, "No space left on device"))
    finish_all(driver)
    driver.runner.held = False
    assert "error" not in answers(client)["S"]
    assert not [path for path in disk.files(".spare") if "/S/" in path]
    disk.capacity = disk.used()
    assert client.store("S.a", bytes(1000))["error"]["err_code"] == 10077
    disk.capacity *= 2
    assert client.store("S.a", bytes(1000))["seq"] == 1
    survivor = again(driver, disk).client()
    assert survivor.api("STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_start_removes_what_is_left_of_streams_that_were_not_durable_and_nothing_else(
    is_orderly: bool, driver: Driver, disk: SimulatedDisk
) -> None:
    above = "store/jetstream/$G"
    if is_orderly:  # its job had run
        disk.makedirs(f"{above}/S/created-1")
        disk.makedirs(f"{above}/S/msgs")
        disk.open(f"{above}/S/msgs/a.spare").append(bytes(4096))
        driver.stop()
    else:
        driver.runner.hold()
        driver.client().send(create("S"))
        driver.make_places()
        disk.sync_dir(above)
        disk.sync_dir(f"{above}/S")
        disk.crash()
    assert "S" in disk.list(above)
    disk.open(f"{above}/a note").append(b"of somebody")
    driver = Driver(disk, now=driver.clock.now + SECOND).start()
    assert disk.list(above) == ["FIRST", "a note"]
    assert driver.js.problems == []


@pytest.mark.parametrize("has_run", [False, True])
def test_jetstream_that_stops_while_a_stream_has_no_place_leaves_its_name_free(
    has_run: bool, driver: Driver, disk: SimulatedDisk
) -> None:
    client = driver.client()
    driver.runner.hold()
    client.send(create("S"))
    if has_run:
        assert driver.runner.step()
    account = driver.engine.default_account
    driver.engine.stop_account(account)
    finish_all(driver)
    assert answers(client) == {}
    driver.engine.start_account(account, driver.store)
    client.send(create("S"))
    finish_all(driver)
    assert "error" not in answers(client)["S"]
    assert again(driver, disk).client().api("STREAM.NAMES")["total"] == 2


def test_the_first_message_needs_no_file_also_after_a_start(
    driver: Driver, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_file = SimulatedDisk.open

    def noted(disk: SimulatedDisk, path: str) -> Any:
        opened.append(path)
        return open_file(disk, path)

    client = driver.client()
    client.send(create("S") + create("T"))
    monkeypatch.setattr(SimulatedDisk, "open", noted)
    assert client.store("S.a")["seq"] == 1
    driver.stop()
    client = Driver(disk, now=driver.clock.now + SECOND).start().client()
    opened.clear()
    assert client.store("T.a")["seq"] == 1
    assert not [path for path in opened if "/msgs/" in path]
    assert [path for path in disk.files(".seg") if "/T/" in path]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("steps", range(1, 8))
def test_a_name_that_changes_hands_is_one_of_the_two_streams_after_a_crash(
    seed: int, steps: int
) -> None:
    disk = SimulatedDisk(Random(seed))
    driver = Driver(disk).start()
    client = driver.client()
    client.send(create("S"))
    client.store("S.a", b"old")
    driver.advance(Random(seed).choice((0, 5 * SECOND)))
    driver.runner.hold()
    client.send(encode("$JS.API.STREAM.DELETE.S", b"", "_INBOX.t.d") + create("S"))
    for _ in range(steps):
        driver.runner.step()
        driver.finish()
    client.send(encode("S.a", b"new", "_INBOX.t.p"))
    for _ in range(Random(seed).randrange(6)):
        driver.runner.step()
        driver.finish()
    found = answers(client)
    survivor = again(driver, disk)
    assert survivor.js.problems == []
    there = survivor.client()
    stored = [message.body for message in there.messages("S").values()]
    if "p" in found and "seq" in found["p"]:
        assert stored[-1:] == [b"new"]
    elif "S" in found:
        assert stored in ([], [b"new"])
    elif "d" in found:
        assert b"old" not in stored
    else:
        assert stored in ([b"old"], [], [b"new"])
    there.send(create("S"))
    assert there.store("S.a")["seq"] >= 1
