"""The scrub reads again what is stored, at its rate, and says what it finds without changing it."""

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from slipstream.engine.commit.state_commit import Reports
from slipstream.engine.jetstream import scrub as scrubbing
from slipstream.engine.jetstream.scrub import FIRST_AFTER, PASS_EVERY, Scrub
from slipstream.engine.protocol.options import EngineOptions
from slipstream.log import scrub as reading
from slipstream.log.disk import Disk, OsDisk
from slipstream.log.segment import HEADER_SIZE
from slipstream.model.durations import SECOND
from slipstream.testing import driver as driving
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulation import Simulation

RATE = 1000  # bytes a second
ADVISORY = "$JS.EVENT.ADVISORY.STREAM.DAMAGED.S"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is read in several pieces, and so are small files."""
    monkeypatch.setattr(reading, "PIECE_BYTES", 250)
    monkeypatch.setattr(reading, "COPIES_AT_ONCE", 2)
    monkeypatch.setattr(reading, "COPY_BYTES_MIN", 1)


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


def _after_a_pass(driver: Driver) -> Driver:
    """The driver, when a pass that has not begun yet has ended."""
    ended = _scrub(driver).last_pass
    driver.advance(PASS_EVERY if ended else FIRST_AFTER + PASS_EVERY // 2)
    assert _scrub(driver).last_pass > ended
    return driver


def _stored_and_read(driver: Driver) -> Client:
    """A client of a stream S with messages, and of its consumer C, which has acknowledged some. All
    of it is in files, and the commit log knows that."""
    client = _stored(driver)
    made = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    client.api("CONSUMER.DURABLE.CREATE.S.C", made)
    for _ in range(2):  # each of the two copies of a position has had one
        for message in client.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", {"batch": 3}):
            client.publish(message.reply, b"+ACK")
        driver.advance(5 * SECOND)
    return client


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
    blocks = driver.js.streams["S"].log.blocks
    assert len(blocks) > len(_closed(driver)) > 1
    assert scrub.pass_read >= scrub.pass_bytes == sum(one.records_end for one in blocks)
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


def test_damage_in_the_segment_that_is_written_to_is_found(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored(driver)
    last = driver.js.streams["S"].log.last_seq
    _flip(disk, driver, last - 1)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert f"where message {last - 1} is or was" in problem
    assert driver.client().store("s.0")["seq"] == last + 1


def test_the_end_of_the_segment_that_is_written_to_is_read_as_far_as_messages_go(
    disk: SimulatedDisk,
) -> None:
    driver = _started(disk)
    _stored(driver)
    last = driver.js.streams["S"].log.last_seq
    _flip(disk, driver, last)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert f"where message {last} is or was" in problem


def test_what_is_not_durable_yet_is_not_read(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    client = _stored(driver, 3)
    driver.runner.hold()
    client.publish("s.0", b"on its way")
    log: Any = driver.js.streams["S"].log
    (segment,) = log.blocks
    assert HEADER_SIZE < log.durable_end(segment) < segment.records_end
    driver.runner.release()
    driver.finish()
    assert log.durable_end(segment) == segment.records_end


COPIES = ("meta", "end", "consumers/C/meta", "consumers/C/state")


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("name", COPIES)
def test_a_damaged_copy_of_a_configuration_or_position_is_found(
    name: str, slot: int, disk: SimulatedDisk
) -> None:
    driver = _started(disk)
    _stored_and_read(driver)
    (path,) = (one for one in disk.files() if one.endswith(f"/S/{name}.{slot}"))
    disk.flip(path, 8 * 30)
    before = disk.read(path)
    driver.advance(FIRST_AFTER - 60 * SECOND)
    client = driver.client()
    client.subscribe(ADVISORY, 9)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert "stream '$G > S': the scrub found damage in " in problem
    assert f"{path}: it is damaged" in problem
    (advisory,) = (one.json() for one in client.take() if one.subject == ADVISORY)
    assert advisory["reason"] == f"{name}.{slot}: it is damaged"
    assert disk.read(path) == before
    disk.flip(path, 8 * 30)
    _after_a_pass(driver)
    assert driver.js.problems == []


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_is_missing_or_older_than_it_was_is_found(
    name: str, disk: SimulatedDisk
) -> None:
    driver = _started(disk)
    client = _stored_and_read(driver)
    (path,) = (one for one in disk.files() if one.endswith(f"/S/{name}.1"))
    content = disk.read(path)
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>", "t"]})
    made = {"durable_name": "C", "ack_policy": "explicit", "description": "new"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": made})
    for _ in range(3):
        client.store("t")
        for message in client.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", {"batch": 3}):
            client.publish(message.reply, b"+ACK")
        driver.advance(5 * SECOND)
    assert disk.read(path) != content
    disk.overwrite(path, 0, content)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert f"{path}: it " in problem
    disk.lose(path)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert f"{path}: it is missing" in problem


def test_the_next_content_of_a_copy_ends_the_report(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored_and_read(driver)
    (path,) = (one for one in disk.files() if one.endswith("/S/meta.0"))
    disk.flip(path, 8 * 30)
    _after_a_pass(driver)
    assert len(driver.js.problems) == 1
    driver.client().api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>", "t"]})
    _after_a_pass(driver)
    assert driver.js.problems == []


def test_damaged_copies_go_with_their_consumer(disk: SimulatedDisk) -> None:
    driver = _started(disk)
    _stored_and_read(driver)
    (path,) = (one for one in disk.files() if one.endswith("/C/state.0"))
    disk.flip(path, 8 * 30)
    _after_a_pass(driver)
    assert len(driver.js.problems) == 1
    driver.client().api("CONSUMER.DELETE.S.C")
    _after_a_pass(driver)
    assert driver.js.problems == []


@pytest.mark.parametrize("at", [10, 4096 + 10, 8192 + 10, 8192 + 500])
def test_damage_in_the_file_of_the_commit_log_that_is_written_to_is_found(
    at: int, disk: SimulatedDisk
) -> None:
    driver = _started(disk)
    _stored_and_read(driver)
    disk.flip("store/commit-log/0.log", 8 * at)
    _after_a_pass(driver)
    (problem,) = driver.js.problems
    assert "the scrub found damage in store/commit-log/0.log: " in problem
    disk.flip("store/commit-log/0.log", 8 * at)
    driver.client().store("s.0")
    _after_a_pass(driver)
    assert driver.js.problems == []
    assert _scrub(driver).damaged == {}


def test_a_file_of_the_commit_log_that_is_begun_anew_is_damaged_no_more(
    disk: SimulatedDisk,
) -> None:
    driver = _started(disk)
    _stored_and_read(driver)
    disk.flip("store/commit-log/0.log", 8 * 8202)
    _after_a_pass(driver)
    assert len(driver.js.problems) == 1
    driver.client().api("STREAM.MSG.DELETE.S", {"seq": 3})  # the log keeps no copy of it
    _after_a_pass(driver)
    assert driver.js.problems == []


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_a_stream_lives_through_looks_like_damage(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "FIRST_AFTER", 1)
    monkeypatch.setattr(scrubbing, "PASS_EVERY", SECOND // 10)
    always = functools.partial(EngineOptions, scrub_rate=1000 * RATE)
    monkeypatch.setattr(driving, "EngineOptions", always)
    said: list[str] = []
    say = Scrub._say

    def noting(scrub: Scrub, key: scrubbing.Key, told: Reports, text: str) -> bool:
        said.append(text)
        return say(scrub, key, told, text)

    monkeypatch.setattr(Scrub, "_say", noting)
    life = Simulation(seed)
    for _ in range(40):
        life.run(steps=10)  # which ends with a crash, and a start
        scrub = _scrub(life.driver)
        for _ in range(10_000):  # until all that has come of it was read: some have little
            if scrub.last_pass:
                break
            life.driver.advance(SECOND // 1000)
            life.driver.runner.release()
            life.driver.finish()
        assert scrub.last_pass
        assert scrub.read_bytes
    assert [text for text in said if text] == []
    assert len(said) > 40
