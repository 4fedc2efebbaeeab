"""A seeded life of a stream keeps every promise, and bugs planted into it are found.

A planted bug shows that the simulation would see such a bug if somebody made it: the simulated
parts around the engine are replaced, the engine is what it always is.
"""

import zlib
from random import Random
from typing import Any

import pytest

from slipstream.engine.api import covered, messages, stream_info
from slipstream.engine.api.dispatch import WhenDurable
from slipstream.engine.commit.commit import BatchJob
from slipstream.engine.consumer import life
from slipstream.engine.consumer.dead_letters import DeadLetters
from slipstream.engine.consumer.letter_box import LetterBox
from slipstream.engine.consumer.life import ConsumerLife
from slipstream.engine.jetstream import jetstream
from slipstream.engine.stream.stream import CommittedStream, Stream
from slipstream.engine.stream.ttl import MessageTtls
from slipstream.log import recovery
from slipstream.log.durability import Job
from slipstream.log.segment import SEQUENCE_MAX, decode_header, scan_records
from slipstream.log.stream_store import ConfigurationFile
from slipstream.testing.configuration_simulation import ConfigurationSimulation
from slipstream.testing.driver import HandRunner
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulation import GUESSED_SALT, Simulation

from .planted import SEEDS_UNTIL_FOUND, LazyFile, found

STEPS = 200


@pytest.mark.parametrize("seed", range(16))
def test_every_promise_is_kept_whatever_happens(seed: int) -> None:
    Simulation(seed).run(STEPS)


@pytest.mark.parametrize("seed", range(100, 108))
def test_damage_costs_the_damaged_message_and_is_reported(seed: int) -> None:
    Simulation(seed, damage=True).run(STEPS)


@pytest.mark.parametrize("seed", [*range(200, 210), 8012])
def test_full_and_failing_disks_break_no_promise(seed: int) -> None:
    Simulation(seed, trouble=True).run(STEPS)


@pytest.mark.parametrize("seed", range(700, 716))
def test_reads_that_the_disk_takes_its_time_for_break_no_promise(seed: int) -> None:
    Simulation(seed, cold=True, trouble=seed % 2 == 0, letters=seed % 4 == 0).crashing().run(STEPS)


@pytest.mark.parametrize("seed", range(300, 316))
def test_messages_expire_in_time_and_never_before_it_whatever_happens(seed: int) -> None:
    Simulation(seed, trouble=seed % 2 == 0, ttls=True).run(STEPS)


@pytest.mark.parametrize("seed", range(500, 524))
def test_what_is_given_up_is_a_dead_letter_or_still_to_be_delivered(seed: int) -> None:
    Simulation(seed, letters=True, trouble=seed % 3 == 0).crashing().run(STEPS)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_messages_of_which_some_are_given_up_break_no_promise(seed: int) -> None:
    Simulation(seed, letters=True, damage=True).run(STEPS)


@pytest.mark.parametrize(
    "seed", [1020, 1750, 2035, 6582, 7540, 12490, 12670, 20231, 23500, 23801, 5920768]
)
def test_dead_letters_that_expire_on_a_failing_disk_break_no_promise(seed: int) -> None:
    Simulation(seed, letters=True, trouble=True, ttls=True).run(300)


@pytest.mark.parametrize("seed", [*range(8), 300088])
def test_letters_on_a_disk_on_which_anything_may_fail_break_no_promise(seed: int) -> None:
    Simulation(seed, letters=True, damage=True).failing().run(STEPS)


@pytest.mark.parametrize("seed", [*range(16), 5983])
def test_limits_remove_only_what_a_configuration_says_whatever_is_damaged(seed: int) -> None:
    assert ConfigurationSimulation(seed).run(STEPS).subjects


@pytest.mark.parametrize("seed", range(300, 310))
def test_what_is_missing_is_reported_and_no_sequence_given_out_again(seed: int) -> None:
    Simulation(seed, ends=True).run(STEPS)


@pytest.mark.parametrize("damage", [False, True])
@pytest.mark.parametrize("seed", range(400, 405))
def test_what_one_crash_leaves_the_next_one_does_not_take(seed: int, damage: bool) -> None:
    Simulation(seed, damage=damage).crashing().run(STEPS)


def test_a_seed_tells_the_same_story_again() -> None:
    stories = [Simulation(4711).run(STEPS).history for _ in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > STEPS / 2


class LazyRunner(HandRunner):
    """Planted: what should be synced is only said to be."""

    def blocking(self, job: Job) -> None:
        if not isinstance(job, BatchJob):
            super().blocking(job)


def test_a_lazy_fsync_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, runner=LazyRunner))
    assert violation.startswith(("durable:", "consumer:", "info:"))


class DiskWithoutChecksums(SimulatedDisk):
    """Planted: damage goes unnoticed, as if records had no checksum; each one is made to fit."""

    def flip(self, path: str, bit: int) -> None:
        data = self.read(path)
        base = int(path.split("/")[-1].split(".")[0])
        salt = decode_header(data).salt
        for record, start in scan_records(data, base, salt):
            if record.body_start * 8 <= bit < record.end * 8:
                super().flip(path, bit)
                harmed = self.read(path)
                sum_ = zlib.crc32(harmed[start + 4 : record.end], salt)
                self.overwrite(path, start, sum_.to_bytes(4, "little"))
                return


def test_an_answer_that_shows_what_is_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: answers leave at once, whatever they show."""
    monkeypatch.setattr(covered, "covered", lambda js, fields, streams=(), consumers=(): fields)
    assert found(Simulation).startswith("info: the stream ends at")


def test_a_purge_that_is_shown_and_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: only what is stored is waited for."""

    def hasty(js: Any, fields: Any, streams: Any = (), consumers: Any = ()) -> Any:
        streams = [one for one in streams if one.log.last_seq > one.log.durable_seq]
        return answer(js, fields, streams, consumers)

    answer = covered.covered
    monkeypatch.setattr(covered, "covered", hasty)
    assert found(Simulation).startswith("info: [")


def test_a_position_that_is_shown_and_not_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: plain acknowledgements are shown before their commit."""
    monkeypatch.setattr(ConsumerLife, "is_shown", True)
    assert "was shown at" in found(lambda seed: Simulation(seed).crashing())


def test_a_position_that_is_shown_as_a_later_one_than_was_saved_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a position among messages that are not durable yet counts as saved."""
    monkeypatch.setattr(life, "is_ahead", lambda consumer: False)
    assert "was shown at" in found(Simulation)


def test_a_stream_that_has_failed_and_shows_what_is_not_durable_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: it shows what it has in memory."""

    def boast(stream: Stream) -> Any:
        counts = stream.log.counts()
        return {"first_seq": counts.first_seq, "last_seq": counts.last_seq}

    monkeypatch.setattr(stream_info, "stream_state", boast)
    violation = found(lambda seed: Simulation(seed, trouble=True))
    assert violation.startswith("info: the stream ends at")


def test_a_missing_checksum_is_found() -> None:
    def simulate(seed: int) -> Simulation:
        return Simulation(seed, DiskWithoutChecksums(Random(seed)), damage=True)

    assert found(simulate).startswith(("checksum:", "forged:"))


def test_a_torn_batch_whose_removals_are_believed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: recovery believes every removal that it can read."""
    monkeypatch.setattr(recovery._Scan, "make_void", lambda scan: scan.believe(SEQUENCE_MAX))
    violation = found(lambda seed: Simulation(100 + seed).crashing())
    assert violation.startswith("durable:")


class DiskWithoutSecrets(SimulatedDisk):
    """Planted: the salt of every segment is known."""

    def random_bytes(self, size: int) -> bytes:
        return GUESSED_SALT.to_bytes(size, "little")


def test_a_salt_that_clients_know_is_found() -> None:
    def simulate(seed: int) -> Simulation:
        return Simulation(seed, DiskWithoutSecrets(Random(seed)), damage=True).crashing()

    assert found(simulate).startswith(("forged:", "durable:", "checksum:"))


class DiskWithoutEnds(SimulatedDisk):
    """Planted: what is kept of where a log ends is not looked at."""

    def read(self, path: str) -> bytes:
        if "/end." in path:
            raise FileNotFoundError(path)
        return super().read(path)


def test_an_end_that_is_not_compared_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, DiskWithoutEnds(Random(seed)), ends=True))
    assert violation.startswith(("durable:", "acknowledged:"))


class ForgetfulRunner(HandRunner):
    """Planted: whom a finished sync woke up is not looked at; a waiting pull goes on waiting."""

    def finished(self, job: Job) -> None:
        super().finished(job)
        if isinstance(job, BatchJob) and isinstance(job.stream, CommittedStream):
            turn = job.stream.stream.turn
            for consumer in turn.ready:
                consumer.queued = False
            turn.ready = []


def test_a_lost_wake_up_of_a_waiting_pull_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, runner=ForgetfulRunner))
    assert violation.startswith("stall:")


class EagerTtls(MessageTtls):
    """Planted: a message is taken for expired before its time."""

    def stored(self, seq: int, ttl: int) -> None:
        super().stored(seq, min(ttl, 2))


def test_a_message_that_goes_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.engine.stream.stream.MessageTtls", EagerTtls)
    monkeypatch.setattr("slipstream.engine.stream.ttl.ttl_of", lambda record: 1)
    assert found(lambda seed: Simulation(seed, ttls=True)).startswith("durable:")


class ForgetfulTtls(MessageTtls):
    """Planted: a start looks for no TTLs among what is stored."""

    def _read_on(self) -> None:
        self._read_seq = self._read_last + 1


def test_a_ttl_that_a_restart_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.engine.stream.stream.MessageTtls", ForgetfulTtls)
    assert found(lambda seed: Simulation(seed, ttls=True)).startswith("expiry:")


def test_dead_letters_that_a_start_does_not_take_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LetterBox, "take_back", lambda box: None)
    violation = found(lambda seed: Simulation(seed, letters=True).crashing())
    assert violation.startswith("dead letter:")


def test_dead_letters_whose_messages_are_settled_too_early_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a message is settled when its dead letter is stored, and not with it."""
    take = DeadLetters.take

    def settle_at_once(letters: DeadLetters, seq: int, cause: str, reason: str) -> None:
        take(letters, seq, cause, reason)
        letters.dying[seq].is_gone = True
        letters.consumer.settle(letters.consumer.pending.find(seq))

    monkeypatch.setattr(DeadLetters, "take", settle_at_once)
    violation = found(lambda seed: Simulation(seed, letters=True).crashing())
    assert violation.startswith(("dead letter:", "durable:"))  # no letter, and no message


class HastyAnswer(WhenDurable):
    """Planted: an answer does not wait for what it says."""

    def __init__(self, wait: Any, fields: dict[str, Any], failure: int = 0) -> None:
        super().__init__(lambda done: done(None), fields)


def test_a_removal_that_is_answered_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "WhenDurable", HastyAnswer)
    assert found(Simulation).startswith("removed:")


class DiskWithLazyConfigurations(SimulatedDisk):
    """Planted: what a configuration is replaced by is not synced before it is renamed."""

    def open(self, path: str) -> Any:
        file = super().open(path)
        return LazyFile(file) if "/meta." in path else file


def test_a_configuration_that_is_renamed_before_it_is_durable_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, DiskWithLazyConfigurations(Random(seed))))
    # Of a stream without a configuration the messages are gone, too.
    assert violation.startswith(("configuration:", "consumer:", "api:", "durable:"))


def configuration_violation() -> str:
    """The first violation that a few lives of a stream with changing limits come upon."""
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            ConfigurationSimulation(seed).run(STEPS)
        except ViolationError as error:
            return str(error)
    return "nothing"


def test_a_copy_that_falls_back_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ConfigurationFile.load

    def load_in_silence(file: ConfigurationFile) -> bytes:
        content = load(file)
        file.doubt = file.damaged = ""
        return content

    monkeypatch.setattr(ConfigurationFile, "load", load_in_silence)
    assert configuration_violation().startswith(("limits:", "report:"))


def test_limits_of_an_older_configuration_that_remove_messages_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def report_alone(stream: Stream, reason: str) -> None:
        stream.js.doubts.report(stream.name, "", f"a copy is damaged: {reason}", reason)

    monkeypatch.setattr(jetstream, "doubt_stream", report_alone)
    assert configuration_violation().startswith("limits:")
