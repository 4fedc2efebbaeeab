"""What nobody waits for takes its time, and makes way for what somebody waits for."""

from slipstream.engine.commit.state_commit import CHANGES_AT_ONCE
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk

STREAMS = 40


def _many_streams(disk: SimulatedDisk) -> Driver:
    """A server that has just made many streams, and has their configurations in its log alone."""
    driver = Driver(disk).start()
    client = driver.client()
    for n in range(STREAMS):
        client.api(f"STREAM.CREATE.S{n}", {"name": f"S{n}", "subjects": [f"s.{n}"]})
    return driver


def _written(disk: SimulatedDisk) -> int:
    """How many streams have their configuration in files."""
    return sum(disk.exists(f"store/jetstream/$G/S{n}/meta.1") for n in range(STREAMS))


def _run_held(driver: Driver) -> int:
    """Run what waits for the disk, and nothing that follows from it; how many jobs that were."""
    waiting = list(driver.runner.waiting)
    driver.runner.waiting.clear()
    for held in waiting:
        held.run()
        held.finish()
        driver.finish()
    return len(waiting)


def test_a_checkpoint_that_nobody_waits_for_goes_on_bit_by_bit(disk: SimulatedDisk) -> None:
    driver = _many_streams(disk)
    driver.runner.hold()
    written, parts = 0, 0
    while written < STREAMS:
        driver.advance(3 * SECOND)
        _run_held(driver)
        assert _written(disk) - written <= CHANGES_AT_ONCE
        written = _written(disk)
        parts += 1
        assert parts < 2 * STREAMS
    assert parts >= STREAMS // CHANGES_AT_ONCE


def test_a_checkpoint_under_way_makes_way_for_one_that_makes_room(disk: SimulatedDisk) -> None:
    driver = _many_streams(disk)
    state = driver.engine.state
    assert state is not None
    driver.runner.hold()
    driver.advance(3 * SECOND)
    _run_held(driver)
    assert 0 < _written(disk) < STREAMS
    client = driver.client()
    client.send(encode("$JS.API.STREAM.DELETE.S0", b"", "_INBOX.t.d"))
    rounds = 0
    while disk.exists("store/jetstream/$G/S0"):
        _run_held(driver)
        rounds += 1
        assert rounds < 10, "it waits for no pause"
    assert _written(disk) == STREAMS - 1
