"""A start after a crash with many streams that were in use: what it waits for the disk."""

from random import Random

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver
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
