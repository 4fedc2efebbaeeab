"""Small files and directories: a crash leaves the old or the new, never half of either."""

from random import Random

import pytest

from slipstream.errors import CorruptionError
from slipstream.log.stream_store import Store, TwinFile
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
        store.stream("$G", "GONE").delete()
    disk.crash()
    again = Store(disk, "root")
    found = {name: stream.open_log().messages for name, stream in again.streams("$G")}
    assert found in ({"KEPT": 1}, {"KEPT": 1, "GONE": 1})
    if "GONE" in found:
        again.stream("$G", "GONE").delete()
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
