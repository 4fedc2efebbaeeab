"""Small files and directories: a crash leaves the old or the new, never half of either."""

import threading
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slipstream.errors import CorruptionError, StorageError
from slipstream.log import stream_store
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.stream_store import (
    Closing,
    ConsumerStore,
    Late,
    Store,
    StreamStore,
    TwinFile,
)
from slipstream.testing.simulated_disk import SimulatedDisk


@pytest.mark.parametrize("seed", range(40))
def test_what_was_saved_with_a_sync_is_never_lost(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    disk.makedirs("d")
    twin = TwinFile(disk, "d/state")
    promised = -1
    for n in range(60):
        sync = random.random() < 0.3
        twin.save(b"%d." % n * random.randrange(1, 400), sync)
        if sync:
            promised = n
        if random.random() < 0.15:
            disk.crash()
            twin = TwinFile(disk, "d/state")
            try:
                found = int(twin.load().split(b".")[0])
            except CorruptionError:
                found = -1
            assert promised <= found <= n


@pytest.mark.parametrize("seed", range(8))
def test_what_a_failed_sync_left_readable_is_not_taken_for_durable(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    disk.makedirs("d")
    twin = TwinFile(disk, "d/state")
    twin.save(b"1", True)
    twin.save(b"2", True)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        twin.save(b"3", True)
    twin = TwinFile(disk, "d/state")  # the process starts again, the system does not
    assert twin.load() == b"3"
    twin.save(b"4", False)
    disk.crash()
    assert TwinFile(disk, "d/state").load() in (b"3", b"4")


def test_a_full_disk_leaves_what_was_saved() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("d")
    twin = TwinFile(disk, "d/state")
    twin.save(b"first", True)
    disk.capacity = disk.used()
    for _ in range(4):
        with pytest.raises(Exception, match="no space left"):
            twin.save(b"second" * 100, True)
    assert TwinFile(disk, "d/state").load() == b"first"
    disk.capacity += 10_000
    twin.save(b"third", True)
    assert TwinFile(disk, "d/state").load() == b"third"


def test_a_full_disk_takes_what_is_no_longer_than_before() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("d")
    twin = TwinFile(disk, "d/state")
    for content in (b"first", b"other"):
        twin.save(content, True)
    disk.capacity = disk.used()
    for content in (b"third", b"4"):
        twin.save(content, True)
        assert TwinFile(disk, "d/state").load() == content


def test_one_damaged_copy_leaves_the_other() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("d")
    twin = TwinFile(disk, "d/meta")
    twin.save(b"older", True)
    twin.save(b"newer", True)
    newer = next(path for path in disk.files() if b"newer" in disk.read(path))
    for bit in range(len(disk.read(newer)) * 8):
        disk.flip(newer, bit)
        assert TwinFile(disk, "d/meta").load() == b"older"
        disk.flip(newer, bit)
    assert TwinFile(disk, "d/meta").load() == b"newer"


def stop(disk: SimulatedDisk, consumer: ConsumerStore, position: bytes) -> None:
    """An orderly stop of a server with this consumer."""
    closing = Closing(disk)
    closing.add(consumer, position)
    closing.run()


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("size", [3, 3000])
def test_after_an_orderly_stop_damage_to_either_copy_is_found_and_costs_nothing(
    copy: int, size: int
) -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("d")
    consumer = ConsumerStore(disk, "d", Late(disk))
    for n in range(3):
        consumer.state.save(b"%d" % n * size, sync=False)
    stop(disk, consumer, b"the last" * size)
    for harm in (lambda: disk.flip(f"d/state.{copy}", 250), lambda: disk.lose(f"d/state.{copy}")):
        harm()
        again = TwinFile(disk, "d/state")
        assert again.load() == b"the last" * size
        assert again.damaged.startswith(f"the copy state.{copy} is ")
        assert not again.torn


@pytest.mark.parametrize("seed", range(60))
def test_what_a_power_failure_tears_after_an_orderly_stop_is_not_taken_for_damage(
    seed: int,
) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    disk.makedirs("d")
    consumer = ConsumerStore(disk, "d", Late(disk))
    consumer.state.save(b"0" * random.randrange(1, 2000), sync=True)
    for _ in range(4):
        if random.random() < 0.7:
            stop(disk, consumer, b"1" * random.randrange(1, 2000))
        consumer = ConsumerStore(disk, "d", Late(disk))
        twin = consumer.state
        twin.load()
        assert twin.damaged == ""
        for _ in range(random.randrange(4)):
            twin.save(b"2" * random.randrange(1, 2000), sync=random.random() < 0.5)
        disk.crash()
        consumer = ConsumerStore(disk, "d", Late(disk))
        consumer.state.load()
        assert consumer.state.damaged == ""


def change(store: Store, stream: StreamStore, content: bytes) -> None:
    """A configuration goes into the commit log and from there to its files. Raises OSError."""
    store.commit_log.keep(stream.meta, content)
    store.commit_log.apply_all()


@pytest.mark.parametrize("operation", ["open", "append", "sync", "sync_dir", "rename", "truncate"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_configuration_is_the_old_or_the_new_one_whatever_fails_and_crashes(
    operation: str, nth: int, seed: int
) -> None:
    disk = SimulatedDisk(Random(seed))
    store = Store(disk, "root")
    stream = store.stream("$G", "S")
    stream.create(b"first")
    disk.fail(operation, nth)
    promised, possible = b"first", {b"first"}
    for content in (b"second" * 200, b"third" * 400):
        possible.add(content)
        try:
            change(store, stream, content)
            promised, possible = content, {content}
        except (OSError, StorageError):
            pass
    disk.crash()
    again = Store(disk, "root").stream("$G", "S").meta
    assert again.load() in possible
    assert promised in possible
    assert not again.doubt
    assert not again.damaged
    assert not again.is_stale


def test_a_configuration_that_a_full_disk_refuses_is_in_the_log() -> None:
    disk = SimulatedDisk(Random(1))
    store = Store(disk, "root")
    stream = store.stream("$G", "S")
    stream.create(b"first")
    disk.capacity = disk.used()
    with pytest.raises(StorageError, match="no space left"):
        change(store, stream, b"second" * 2_000)
    for _ in range(2):
        disk.crash()
        again = Store(disk, "root").stream("$G", "S").meta
        assert again.load() == b"second" * 2_000
    disk.capacity *= 2
    disk.crash()
    Store(disk, "root")
    assert b"second" in disk.read("root/jetstream/$G/S/meta.0")


def test_nothing_at_all_is_an_error_and_no_guess() -> None:
    with pytest.raises(CorruptionError, match="missing or damaged"):
        TwinFile(SimulatedDisk(Random(1)), "d/meta").load()


@pytest.mark.parametrize("seed", range(20))
def test_a_removed_stream_is_gone_or_whole_after_a_crash(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    store = Store(disk, "root")
    for name in ("KEPT", "GONE"):
        stream = store.stream("$G", name)
        stream.create(b"meta of " + name.encode())
        log = stream.open_log()
        log.append(b"s", b"body", 0, 0, 4, 1)
        log.close()
    disk.fail("sync_dir", 1)
    with pytest.raises(OSError, match="Input/output"):
        store.stream("$G", "GONE").discard()
    disk.crash()
    again = Store(disk, "root")
    found = {name: stream.open_log().messages for name, stream in again.streams("$G")}
    assert found in ({"KEPT": 1}, {"KEPT": 1, "GONE": 1})
    if "GONE" in found:
        again.stream("$G", "GONE").discard()
        disk.crash()
        assert [name for name, _ in Store(disk, "root").streams("$G")] == ["KEPT"]
    assert not [path for path in disk.files() if ".removed" in path]


def test_a_directory_without_content_is_no_stream() -> None:
    disk = SimulatedDisk(Random(1))
    store = Store(disk, "root")
    disk.makedirs("root/jetstream/$G/CUT")
    assert list(store.streams("$G")) == []


@pytest.mark.parametrize("name", ["plain", "with space", "a/b", "..", ".", "ünï", "%2F", "$SYS"])
def test_any_name_is_a_directory_of_its_own(name: str) -> None:
    disk = SimulatedDisk(Random(1))
    store = Store(disk, "root")
    store.stream("$G", name).create(b"meta")
    assert [found for found, _ in store.streams("$G")] == [name]
    assert store.stream("$G", name).meta.load() == b"meta"


@pytest.mark.parametrize("waits", [True, False])
def test_logs_that_several_threads_open_are_those_that_one_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    now = count(step=1)  # seconds, between two looks at the clocks of a thread
    busy = count(step=0 if waits else 1)
    monkeypatch.setattr(stream_store, "_times_of_thread", lambda: (next(now), next(busy)))
    used = set()
    open_one = StreamStore.open_log

    def open_log(self: StreamStore, *arguments: Any) -> FileLog:
        used.add(threading.get_ident())
        return open_one(self, *arguments)

    monkeypatch.setattr(StreamStore, "open_log", open_log)
    store = Store(OsDisk(), str(tmp_path))
    for n in range(20):
        stream = store.stream("$G", f"S{n}")
        stream.belongs_to(1 + n)
        stream.create(b"{}")
        log = stream.begin_log()
        for k in range(n):
            log.append(b"s.%d" % k, b"body", 0, 0, 4, 1 + k)
        log.close()
    found = []
    for threads in (1, 8):
        again = Store(OsDisk(), str(tmp_path), threads=threads)
        logs = again.open_logs([(again.stream("$G", f"S{n}"), 1) for n in range(20)])
        found.append([log.messages for log in logs if isinstance(log, FileLog)])
        for log in logs:
            if isinstance(log, FileLog):
                log.close()
    assert found == [list(range(20))] * 2
    assert (len(used) > 1) == waits  # threads that would take turns cost more than they save
