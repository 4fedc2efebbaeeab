"""By no order of events is a consumer with work, room and a waiting client left silent."""

from typing import Any

import pytest

from slipstream.engine.commit.commit import BatchJob
from slipstream.engine.consumer import acks, redelivery
from slipstream.engine.consumer.life import ConsumerLife
from slipstream.engine.consumer.pending import DUE
from slipstream.log.durability import Job, SyncBatch
from slipstream.testing.driver import HandRunner

from .world import StalledError, World

EVENTS = 150
SEEDS_TO_FIND = 60


@pytest.mark.parametrize("seed", range(16))
def test_a_consumer_with_work_room_and_somebody_waiting_delivers(seed: int) -> None:
    World(seed).run(EVENTS)


def _finds(runner: type[HandRunner] = HandRunner) -> bool:
    for seed in range(SEEDS_TO_FIND):
        try:
            World(seed, runner, counts=False).run(EVENTS)
        except StalledError:
            return True
    return False


class ForgetfulRunner(HandRunner):
    """Tells consumers nothing of what was synced late: a waiting pull is not woken."""

    def finished(self, job: Job) -> None:
        if self.held and isinstance(job, BatchJob) and isinstance(job.batch, SyncBatch):
            job.stream.stream.visible_seq = job.batch.last_seq
        super().finished(job)


def test_a_wake_up_lost_when_a_sync_is_late_is_found() -> None:
    assert _finds(ForgetfulRunner)


def test_a_wake_up_lost_on_resume_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(life: ConsumerLife, until: int, _text: str) -> None:
        life.consumer.paused_until = until if until > life.consumer.clock.now else 0
        life.watch(life.consumer.paused_until)

    monkeypatch.setattr(ConsumerLife, "_pause", pause)
    assert _finds()


def test_a_wake_up_lost_on_a_negative_acknowledgement_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nak(consumer: Any, seq: int, delay: int) -> None:
        place = consumer.pending.find(seq)
        if delay:
            redelivery.nak(consumer, seq, delay)
        elif place >= 0 and consumer.pending.deadline(place) != DUE:
            consumer.pending.set_deadline(place, DUE)
            consumer.due.append(seq)

    monkeypatch.setattr(acks, "nak", nak)
    assert _finds()
