"""A seeded life of a stream keeps every promise, and bugs planted into it are found.

A planted bug shows that the simulation would see such a bug if somebody made it: the simulated
parts around the engine are replaced, the engine is what it always is.
"""

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from slipstream.engine.stream import Stream
from slipstream.log.durability import SyncBatch
from slipstream.log.segment import salt_of, scan_records
from slipstream.testing.driver import HandCommitter
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulation import Simulation

STEPS = 200
SEEDS_UNTIL_FOUND = 20


@pytest.mark.parametrize("seed", range(16))
def test_every_promise_is_kept_whatever_happens(seed: int) -> None:
    Simulation(seed).run(STEPS)


@pytest.mark.parametrize("seed", range(100, 108))
def test_damage_costs_the_damaged_message_and_is_reported(seed: int) -> None:
    Simulation(seed, damage=True).run(STEPS)


@pytest.mark.parametrize("seed", range(200, 210))
def test_full_and_failing_disks_break_no_promise(seed: int) -> None:
    Simulation(seed, trouble=True).run(STEPS)


def test_a_seed_tells_the_same_story_again() -> None:
    stories = [Simulation(4711).run(STEPS).history for _ in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > STEPS / 2


def found(simulate: Callable[[int], Simulation]) -> str:
    """The first violation that a few seeds come upon."""
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            simulate(seed).run(STEPS)
        except ViolationError as error:
            return str(error)
    return "nothing"


class LazyCommitter(HandCommitter):
    """Planted: what should be synced is only said to be."""

    def blocking(self, work: Any) -> None:
        if not isinstance(work, SyncBatch):
            super().blocking(work)


def test_a_lazy_fsync_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, committer=LazyCommitter))
    assert violation.startswith("durable:")


class DiskWithoutChecksums(SimulatedDisk):
    """Planted: damage goes unnoticed, as if records had no checksum; each one is made to fit."""

    def flip(self, path: str, bit: int) -> None:
        data = self.read(path)
        base = int(path.split("/")[-1].split(".")[0])
        salt = salt_of(base)
        for record, start in scan_records(data, base, salt):
            if record.body_start * 8 <= bit < record.end * 8:
                super().flip(path, bit)
                harmed = self.read(path)
                sum_ = zlib.crc32(harmed[start + 4 : record.end], salt)
                self.overwrite(path, start, sum_.to_bytes(4, "little"))
                return


def test_a_missing_checksum_is_found() -> None:
    def simulate(seed: int) -> Simulation:
        return Simulation(seed, DiskWithoutChecksums(Random(seed)), damage=True)

    assert found(simulate).startswith("checksum:")


class ForgetfulCommitter(HandCommitter):
    """Planted: whom a finished sync woke up is not looked at; a waiting pull goes on waiting."""

    def synced(self, stream: Stream, batch: Any) -> None:
        super().synced(stream, batch)
        for consumer in stream.turn.ready:
            consumer.queued = False
        stream.turn.ready = []


def test_a_lost_wake_up_of_a_waiting_pull_is_found() -> None:
    violation = found(lambda seed: Simulation(seed, committer=ForgetfulCommitter))
    assert violation.startswith("stall:")
