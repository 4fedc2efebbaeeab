"""Group commit on an event loop: when a batch follows another before that is durable."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.log.disk import OsDisk
from slipstream.log.recovery import open_log
from slipstream.server.commit import INLINE_BYTES_MAX, QUEUED_BYTES_MIN, GroupCommitter
from tests.log.storing import put

LARGE = bytes(QUEUED_BYTES_MIN)
SMALL = bytes(INLINE_BYTES_MAX // 4)


class HeldDisk(OsDisk):
    """The first batch creates a file: its directory is synced when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def sync_dir(self, path: str) -> None:
        assert self.may_go_on.wait(60)
        super().sync_dir(path)


class OneStream(SimpleNamespace):
    """What a committer sees of a stream, and what it tells it."""

    def __init__(self, log: Any, committer: GroupCommitter, ack_at_once: bool = False) -> None:
        super().__init__(
            log=log, dirty=False, closed=False, syncing=0, sync_again=False, ack_at_once=ack_at_once
        )
        self.committer = committer
        self.durable: list[int] = []
        self.rested = asyncio.Event()

    def __hash__(self) -> int:
        return id(self)

    def store(self, body: bytes, count: int = 6) -> None:
        for _ in range(count):  # six are more than what is synced on the loop
            put(self.log, b"s", body)
        self.committer.commit(self)  # type: ignore[arg-type]

    def prepare_sync(self, instead_of: Any = None) -> Any:
        return self.log.prepare_sync(instead_of)

    def synced(self, batch: Any) -> None:
        if batch is None:
            return
        self.log.finish_sync(batch)
        self.durable.append(self.log.durable_seq)
        if self.log.durable_seq == self.log.last_seq:
            self.rested.set()

    def mark_dirty(self) -> None:
        self.committer.commit(self)  # type: ignore[arg-type]


def run_turn(callback: Callable[[], None]) -> None:
    callback()


@pytest.mark.parametrize(
    ("body", "batches"),
    [(LARGE, [6, 12, 18]), (SMALL, [6, 18])],
    ids=["large ones queue", "small ones gather"],
)
async def test_what_waits_for_a_batch(tmp_path: Path, body: bytes, batches: list[int]) -> None:
    disk = HeldDisk()
    log = open_log(disk, str(tmp_path))
    committer = GroupCommitter(asyncio.get_running_loop(), run_turn)
    stream = OneStream(log, committer)
    for _ in range(3):
        stream.store(body)
    disk.may_go_on.set()
    await stream.rested.wait()
    assert stream.durable == batches
    committer.close()
    log.close()


async def test_a_commit_of_few_bytes_is_durable_at_once_however_many_messages_it_has(
    tmp_path: Path,
) -> None:
    log = open_log(OsDisk(), str(tmp_path))
    committer = GroupCommitter(asyncio.get_running_loop(), run_turn)
    stream = OneStream(log, committer)
    stream.store(b"x" * 100, count=100)
    assert stream.durable == [100]
    stream.rested.clear()
    stream.store(SMALL)
    assert stream.durable == [100]  # more bytes are waited for elsewhere
    await stream.rested.wait()
    assert stream.durable == [100, 106]
    committer.close()
    log.close()


async def test_with_an_interval_one_batch_stands_for_all_since_the_last(tmp_path: Path) -> None:
    log = open_log(OsDisk(), str(tmp_path))
    committer = GroupCommitter(asyncio.get_running_loop(), run_turn, sync_interval=0.001)
    stream = OneStream(log, committer, ack_at_once=True)
    for _ in range(2):
        stream.rested.clear()
        for _ in range(3):
            stream.store(SMALL)
        await stream.rested.wait()
    assert stream.durable == [18, 36]
    committer.close()
    log.close()
