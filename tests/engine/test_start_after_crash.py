"""A start after a crash with many streams that were in use: what it waits for the disk."""

import errno
from random import Random

import pytest

from slipstream.errors import StorageError
from slipstream.model.durations import SECOND
from slipstream.testing.driver import APPLIED_FIRST, Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk

STREAMS = 20


def crashed() -> tuple[SimulatedDisk, int]:
    """A disk that a power failure has left, with streams that were written to until then, and when
    that was."""
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    for n in range(STREAMS):
        client.api(f"STREAM.CREATE.S{n}", {"name": f"S{n}", "subjects": [f"s{n}"]})
        client.store(f"s{n}")
    driver.advance(5 * SECOND)
    for n in range(STREAMS):
        client.store(f"s{n}")
    disk.crash()
    return disk, driver.clock.now + SECOND


def test_it_syncs_each_stream_that_was_in_use_once_and_its_directory() -> None:
    disk, now = crashed()
    before = disk.calls["sync"], disk.calls["sync_dir"]
    driver = Driver(disk, now=now).start()
    assert driver.client().api("STREAM.NAMES")["total"] == STREAMS
    assert disk.calls["sync"] - before[0] <= STREAMS + 2  # and the commit log
    assert disk.calls["sync_dir"] - before[1] <= STREAMS + 2


def test_where_the_logs_end_is_kept_a_moment_later() -> None:
    disk, now = crashed()
    driver = Driver(disk, now=now).start()
    driver.advance(3 * SECOND)
    disk.crash()
    [segment] = [path for path in disk.files(".seg") if "/S7/" in path]
    disk.overwrite(segment, 0, bytes(4096))
    survivor = Driver(disk, now=driver.clock.now + SECOND).start()
    [problem] = survivor.js.problems
    assert "'$G > S7' has lost 2 messages" in problem
    assert survivor.client().store("s7")["seq"] == 3


LIMITS = (
    ({"max_msgs_per_subject": 1}, 1),
    ({"max_msgs_per_subject": 2}, 2),
    ({"max_msgs": 1}, 1),
)


def pushed_out(limits: dict[str, int]) -> SimulatedDisk:
    """A disk whose power fails once a stream has messages that have pushed others out."""
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.K", {"name": "K", "subjects": ["k.>"], **limits})
    for body in (b"1", b"2", b"3", b"4"):
        client.store("k.a", body)
    disk.crash()
    return disk


@pytest.mark.parametrize(("limits", "most"), LIMITS)
def test_the_limits_hold_wherever_the_end_of_the_log_was_torn(
    limits: dict[str, int], most: int
) -> None:
    """Also where a message is there, and not that it has pushed another one out."""
    [segment] = pushed_out(limits).files(".seg")
    end = len(pushed_out(limits).read(segment).rstrip(b"\0"))
    seen = set()
    for size in range(end - 250, end + 1):
        disk = pushed_out(limits)
        disk.cut(segment, size)
        driver = Driver(disk).start()
        state = driver.client().api("STREAM.INFO.K")["state"]
        assert state["messages"] <= most
        seen.add(state["last_seq"])
        disk.crash()
        again = Driver(disk).start().client().api("STREAM.INFO.K")["state"]
        assert (again["messages"], again["last_seq"]) == (state["messages"], state["last_seq"])
    assert len(seen) > 1


def test_small_files_are_left_to_the_first_checkpoint() -> None:
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    names = [f"c{n:02}" for n in range(20)]
    for name in names:
        client.api(f"CONSUMER.CREATE.S.{name}", durable(name))
    disk.crash()
    for _ in range(2):  # what was left once may be left again
        driver = Driver(disk).start()
        assert driver.client().api("CONSUMER.NAMES.S")["consumers"] == names
        assert len(disk.files("meta.0")) <= APPLIED_FIRST + 1  # another one at the next start
        disk.crash()
    driver = Driver(disk).start()
    driver.client().api("CONSUMER.DELETE.S.c07")
    driver.advance(5 * SECOND)
    there = [path.split("/")[-2] for path in disk.files("meta.0") if "/consumers/" in path]
    assert sorted(there) == sorted(set(names) - {"c07"})
    disk.crash()
    survivor = Driver(disk).start().client()
    assert survivor.api("CONSUMER.NAMES.S")["consumers"] == [n for n in names if n != "c07"]


def durable(name: str, **config: object) -> dict[str, object]:
    """The request for a consumer that is kept."""
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    return {"stream_name": "S", "config": config}


def pulled(client: Client, consumer: str) -> list[Message]:
    """What a consumer of S has now, up to five messages."""
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", b"5", client.inbox)
    return client.take()


# Which consumers: those that have delivered all and have files, or new ones behind what there is.
@pytest.mark.parametrize("policy", ["all", "new"])
@pytest.mark.parametrize("refused", [False, True])
def test_a_position_that_was_left_never_passes_over_messages_that_came_later(
    policy: str, refused: bool
) -> None:
    """Its stream has lost what it had delivered, and gives those sequences to others. What the disk
    refuses of another stream does not matter."""
    lost = 0
    for seed in range(8):
        disk = SimulatedDisk(Random(seed))
        driver = Driver(disk).start()
        client = driver.client()
        config = {"name": "S", "subjects": ["s"], "persist_mode": "async"}
        client.api("STREAM.CREATE.S", config)
        if policy == "all":
            make_three(client, policy)
        driver.advance(5 * SECOND)
        for _ in range(5):
            client.store("s")
        if policy == "new":
            make_three(client, policy)
        for name in ("a", "b", "c"):
            assert len(pulled(client, name)) == (5 if policy == "all" else 0)
        client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
        driver.advance(SECOND // 4)  # the positions are durable, and the messages are not
        disk.crash()
        driver = Driver(disk, now=driver.clock.now + SECOND)
        if refused:
            disk.fail("rename", 1)
        driver.start()
        disk.heal()
        client = driver.client()
        left = client.api("STREAM.INFO.S")["state"]["last_seq"]
        lost += left < 5
        for _ in range(5):
            client.store("s")
        driver.advance(3 * SECOND)
        disk.crash()
        survivor = Driver(disk, now=driver.clock.now + SECOND).start().client()
        for name in ("a", "b", "c"):
            state = survivor.api(f"CONSUMER.INFO.S.{name}")
            assert (state["num_pending"], seed) == (5, seed)
    assert lost


def make_three(client: Client, policy: str) -> None:
    """Consumers a, b and c of S."""
    for name in ("a", "b", "c"):
        client.api(f"CONSUMER.CREATE.S.{name}", durable(name, deliver_policy=policy))


@pytest.mark.parametrize("harm", ["damaged", "lost"])
def test_a_stream_that_cannot_be_read_keeps_its_name_for_consumers_that_were_left(
    harm: str,
) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    driver.advance(5 * SECOND)
    for name in ("a", "b", "c"):
        client.api(f"CONSUMER.CREATE.S.{name}", durable(name))
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})  # which the start writes
    disk.crash()
    for copy in (0, 1):
        path = f"store/jetstream/$G/S/meta.{copy}"
        if harm == "damaged":
            disk.overwrite(path, 0, b"damaged!")
        else:
            disk.lose(path)
    driver = Driver(disk, now=driver.clock.now + SECOND).start()
    [problem] = driver.js.problems
    assert "stream '$G > S' could not be recovered" in problem
    answer = driver.client().api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    assert "could not be read" in answer["error"]["description"]


def test_a_position_of_a_consumer_that_a_start_has_dropped_goes() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"name": "e", "ack_policy": "explicit", "inactive_threshold": 3600 * SECOND}
    client.api("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": config})
    client.api("CONSUMER.CREATE.S.a", durable("a"))
    client.store("s")
    driver.advance(5 * SECOND)
    for name in ("a", "e"):
        assert pulled(client, name)
    driver.advance(SECOND // 4)
    disk.crash()
    for copy in (0, 1):
        disk.overwrite(f"store/jetstream/$G/S/ephemeral/e/meta.{copy}", 0, b"damaged!")
    for _ in range(2):
        driver = Driver(disk, now=driver.clock.now + SECOND).start()
        disk.crash()
    driver = Driver(disk, now=driver.clock.now + SECOND).start()
    driver.advance(30 * SECOND)
    assert driver.js.problems == []
    assert driver.store is not None
    assert driver.store.commit_log.is_applied()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENFILE])
def test_a_log_that_cannot_be_begun_starts_no_server(code: int) -> None:
    disk = SimulatedDisk(Random(1))
    client = Driver(disk).start().client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for name in ("a", "b", "c"):
        client.api(f"CONSUMER.CREATE.S.{name}", durable(name))
    disk.crash()
    disk.fail("reserve", 1, OSError(code, "refused"))
    with pytest.raises((OSError, StorageError), match="refused"):
        Driver(disk)
    disk.heal()
    names = Driver(disk).start().client().api("CONSUMER.NAMES.S")["consumers"]
    assert names == ["a", "b", "c"]
