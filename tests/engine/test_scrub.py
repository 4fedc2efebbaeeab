"""The scrub reads again what is stored, at its rate, and says what it finds without changing it."""

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from slipstream.engine.jetstream import scrub as scrubbing
from slipstream.engine.jetstream.scrub import FIRST_AFTER, PASS_EVERY, Scrub
from slipstream.engine.protocol.options import EngineOptions
from slipstream.log import scrub as reading
from slipstream.log.disk import Disk, OsDisk
from slipstream.model.durations import SECOND
from slipstream.testing import driver as driving
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulation import Simulation

RATE = 1000  # bytes a second
ADVISORY = "$JS.EVENT.ADVISORY.STREAM.DAMAGED.S"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is read in several pieces."""
    monkeypatch.setattr(reading, "PIECE_BYTES", 250)


def _started(disk: Disk, rate: int = RATE, now: int = 0) -> Driver:
    options = EngineOptions(server_name="here", jetstream=True, scrub_rate=rate)
    begin = {"now": now} if now else {}
    return Driver(disk, options, segment_bytes=1000, **begin).start()


def _stored(driver: Driver, count: int = 40) -> Client:
    """A client of a stream S with so many messages."""
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for n in range(count):
        client.store(f"s.{n % 3}", b"message %d" % n)
    return client


def _scrub(driver: Driver) -> Scrub:
    found = driver.engine.scrub
    assert found is not None
    return found


def _closed(driver: Driver) -> list[Any]:
    return [segment for segment in driver.js.streams["S"].log.blocks if segment.footed]


def _flip(disk: SimulatedDisk, driver: Driver, seq: int) -> None:
    """One bit of a message on disk is another one."""
    log: Any = driver.js.streams["S"].log
    segment = next(one for one in reversed(log.blocks) if one.base <= seq)
    if segment.ids is None:
        log.reader.load(segment)
    disk.flip(segment.path, 8 * (segment.offsets.get(seq - segment.base) + 30))


def test_a_pass_begins_after_a_while_and_takes_the_time_that_its_rate_allows(
    disk: SimulatedDisk,
) -> None:
    driver = _started(disk)
    _stored(driver)
    scrub = _scrub(driver)
    driver.advance(FIRST_AFTER - SECOND)
    assert scrub.read_bytes == 0
    driver.advance(SECOND)
    begun = driver.clock.now
    before = scrub.read_bytes
    assert 0 < before <= 2 * 250
    assert 0 < scrub.progress < 1
    driver.advance(SECOND)
    assert scrub.read_bytes - before <= RATE + 2 * 250
    assert scrub.last_pass == 0
    driver.advance(PASS_EVERY - 2 * SECOND)
    assert scrub.pass_read >= scrub.pass_bytes == sum(one.records_end for one in _closed(driver))
    assert (scrub.last_pass - begun) >= (scrub.pass_read - 2 * 250) * SECOND // RATE
    assert scrub.progress == 1
    assert driver.js.problems == []


def test_a_pass_begins_once_a_day(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    scrub = _scrub(driver)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    once, ended = scrub.read_bytes, scrub.last_pass
    assert ended
    driver.advance(2 * PASS_EVERY)
    assert scrub.read_bytes == 3 * once
    assert scrub.last_pass > ended + PASS_EVERY


def test_damage_is_reported_once_and_nothing_is_changed(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    said: list[str] = []
    driver.engine.on_problem = said.append
    _flip(disk, driver, 5)
    files = {one.path: disk.read(one.path) for one in _closed(driver)}
    driver.advance(FIRST_AFTER - SECOND)
    client = driver.client()
    client.subscribe(ADVISORY, 9)
    driver.advance(60 * SECOND)
    (problem,) = said
    assert "stream '$G > S': the scrub found damage in " in problem
    assert "where message 5 is or was" in problem
    (advisory,) = (one.json() for one in client.take())
    assert advisory["stream"] == "S"
    assert advisory["reason"].startswith("00000000000000000001.seg: ")
    assert "message 5" in advisory["reason"]
    driver.advance(2 * PASS_EVERY)
    assert driver.js.problems == said == [problem]
    assert {path: disk.read(path) for path in files} == files
    assert driver.js.streams["S"].log.lost.count == 0
    assert [key[2] for key in _scrub(driver).damaged] == [1]


def test_a_disk_that_is_well_again_is_none_to_worry_about(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    _flip(disk, driver, 5)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    assert driver.js.problems
    _flip(disk, driver, 5)
    driver.advance(PASS_EVERY)
    assert driver.js.problems == []
    assert _scrub(driver).damaged == {}


def test_damage_goes_with_the_segment_that_has_it(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    _flip(disk, driver, 5)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    assert driver.js.problems
    driver.client().api("STREAM.PURGE.S", {})
    driver.advance(PASS_EVERY)
    assert driver.js.problems == []


def test_a_message_that_was_read_and_lost_meanwhile_stays_reported(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    _flip(disk, driver, 5)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    assert driver.js.problems
    assert 5 not in driver.client().messages("S")
    driver.advance(PASS_EVERY)
    assert driver.js.problems


def test_what_goes_while_it_is_read_is_left(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    client = _stored(driver)
    client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
    for _ in range(40):
        client.store("t", b"x" * 50)
    driver.advance(FIRST_AFTER)
    client = driver.client()
    client.api("STREAM.PURGE.S", {})
    client.api("STREAM.DELETE.T")
    driver.advance(PASS_EVERY)
    assert _scrub(driver).last_pass
    assert driver.js.problems == []


def test_a_piece_that_is_read_while_the_server_stops_does_no_harm(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    driver.runner.hold()
    driver.advance(FIRST_AFTER)
    assert driver.runner.waiting
    driver.stop()
    assert driver.engine.scrub is None


def test_its_rate_can_change_and_it_can_be_off(disk: SimulatedDisk) -> None:
    driver = _started(disk, rate=0)
    assert driver.engine.scrub is None
    _stored(driver)
    driver.engine.set_scrub_rate(RATE)
    driver.advance(FIRST_AFTER)
    scrub = _scrub(driver)
    driver.engine.set_scrub_rate(100 * RATE)
    begun = scrub.read_bytes
    driver.advance(SECOND)
    assert scrub.last_pass
    assert scrub.read_bytes > begun
    driver.engine.set_scrub_rate(0)
    read = scrub.read_bytes
    driver.advance(2 * PASS_EVERY)
    assert scrub.read_bytes == read


def test_a_flipped_bit_in_a_real_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = _started(OsDisk())
    _stored(driver)
    path = Path(_closed(driver)[1].path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    (problem,) = driver.js.problems
    assert str(path) in problem
    driver.stop()


@pytest.mark.parametrize("size", [0, 10, 300, 333, 700])
def test_a_file_that_was_cut_short_is_found(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = _started(OsDisk())
    _stored(driver)
    path = Path(_closed(driver)[1].path)
    os.truncate(path, size)
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    (problem,) = driver.js.problems
    assert str(path) in problem
    driver.stop()


def test_many_streams_with_nothing_to_read_are_passed_over_in_several_turns(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "STEPS_MAX", 2)
    driver = _started(disk)
    client = _stored(driver)
    for n in range(9):
        client.api(f"STREAM.CREATE.T{n}", {"name": f"T{n}", "subjects": [f"t{n}"]})
    driver.advance(FIRST_AFTER + PASS_EVERY - SECOND)
    scrub = _scrub(driver)
    assert scrub.pass_read >= scrub.pass_bytes > 0
    assert scrub.last_pass


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_a_stream_lives_through_looks_like_damage(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "FIRST_AFTER", 1)
    monkeypatch.setattr(scrubbing, "PASS_EVERY", SECOND // 10)
    always = functools.partial(EngineOptions, scrub_rate=10 * RATE)
    monkeypatch.setattr(driving, "EngineOptions", always)
    life = Simulation(seed)
    read = 0
    for _ in range(40):
        life.run(steps=10)
        assert [one for one in life.driver.js.problems if "scrub" in one] == []
        read += _scrub(life.driver).read_bytes
    assert read
