"""Bugs that are planted into the commit log, and found by the simulation of a server."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.api import consumers
from slipstream.engine.api.dispatch import WhenDurable
from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.stream import Stream
from slipstream.log.commit_entry import KEEP, REMOVE, WRITE, Record
from slipstream.log.commit_log import Change, Checkpoint, CommitLog
from slipstream.log.durability import Touched
from slipstream.log.segment_bytes import Reference
from slipstream.log.stream_place import StreamPlace
from slipstream.log.stream_store import Store, StreamStore
from slipstream.log.written_again import UnwrittenSegment
from slipstream.testing import driver
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulation import Simulation

from .planted import LazyFile, found

LOST = ("consumer:", "configuration:", "confirmed:", "durable:", "api:", "streams:")


def busy(seed: int, disk: SimulatedDisk | None = None) -> Simulation:
    return Simulation(seed, disk).busy()


@pytest.mark.parametrize("seed", range(500, 510))
def test_what_was_answered_is_there_after_every_crash(seed: int) -> None:
    busy(seed).run(200)


class DiskWithLazyLog(SimulatedDisk):
    """Planted: entries are not synced."""

    def open(self, path: str) -> Any:
        file = super().open(path)
        return LazyFile(file) if "commit-log" in path else file


def test_an_entry_that_is_not_synced_is_found() -> None:
    assert found(lambda seed: busy(seed, DiskWithLazyLog(Random(seed)))).startswith(LOST)


def test_a_checkpoint_that_applies_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Change, "apply", lambda change, touched: None)
    assert found(busy).startswith(LOST)


def test_a_log_that_is_said_to_be_applied_too_early_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = CommitLog.checkpoint

    def hasty(log: CommitLog, makes_room: bool = False) -> Checkpoint | None:
        log._applied = log._durable
        return checkpoint(log, makes_room)

    monkeypatch.setattr(CommitLog, "checkpoint", hasty)
    monkeypatch.setattr(driver, "APPLIED_FIRST", None)  # what a start leaves is not the matter
    assert found(busy).startswith(LOST)


class HastyAnswer(WhenDurable):
    """Planted: an answer does not wait for the log."""

    def __init__(self, wait: Any, fields: Any, failure: int = 0) -> None:
        def at_once(done: Any) -> None:
            wait(lambda error: None)
            done(None)

        super().__init__(at_once, fields)


def test_an_answer_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "WhenDurable", HastyAnswer)
    assert found(busy).startswith(LOST)


@pytest.mark.parametrize("kind", [KEEP, REMOVE])
def test_a_start_that_leaves_something_out_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    apply = Store._apply

    def leave_out(store: Store, path: str, record: Record, touched: Touched) -> None:
        if record.kind != kind:
            apply(store, path, record, touched)

    monkeypatch.setattr(Store, "_apply", leave_out)
    assert found(busy).startswith(LOST)


def test_a_start_that_leaves_out_bytes_of_segments_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UnwrittenSegment, "apply", lambda segment, content, touched: None)
    assert found(busy).startswith(LOST)


def test_a_checkpoint_that_does_not_sync_segments_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Change.apply

    def leave_out(change: Change, touched: Touched) -> None:
        if change.record.kind != WRITE:
            apply(change, touched)

    monkeypatch.setattr(Change, "apply", leave_out)
    assert found(busy).startswith(LOST)


def test_a_shared_batch_that_does_not_wait_for_the_log_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StateCommit, "when_carried", lambda state, done: done(None))
    assert found(busy).startswith(LOST)


def test_messages_of_a_new_stream_that_do_not_wait_for_it_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = JetStream._make

    def make_and_release(js: JetStream, config: StreamConfig, place: StreamPlace) -> Stream:
        stream = make(js, config, place)
        js.engine.commit.release(stream.committed)
        stream.relax()
        return stream

    monkeypatch.setattr(JetStream, "_make", make_and_release)
    assert found(busy).startswith(LOST)


def test_a_start_that_does_not_make_a_new_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_is_creation", lambda store, path, record, known: False)
    assert found(busy).startswith(LOST)


def test_a_new_stream_whose_directories_are_not_synced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin_log = StreamStore.begin_log

    def hasty(store: StreamStore, first_seq: int = 1) -> Any:
        log = begin_log(store, first_seq)
        log.unsynced_above = []
        return log

    monkeypatch.setattr(StreamStore, "begin_log", hasty)
    assert found(busy).startswith(LOST)


def test_references_to_more_than_is_durable_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    refer = StateCommit.refer

    def boast(state: StateCommit, references: list[Reference]) -> None:
        for one in references:
            one.last_seq += 1
        refer(state, references)

    monkeypatch.setattr(StateCommit, "refer", boast)
    assert found(busy).startswith("lost:")
