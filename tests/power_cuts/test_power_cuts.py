"""A few cuts of a real server; `make power-cuts` makes a thousand."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.power_cuts.campaign import (
    Cut,
    Recording,
    check,
    cuts_of,
    disks,
    escaped,
    processors,
    record,
)
from tests.power_cuts.disk_model import DiskModel, Loss
from tests.power_cuts.recorded_server import build_recorder
from tests.power_cuts.trace import Flag, Kind, Record, TraceError, read_trace

pytestmark = [
    pytest.mark.xdist_group("power_cuts"),  # all look at one recording
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="the recorder knows the calls of Linux"),
]
CUTS = 12
SEED = 7


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_recorder(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="module")
def recording(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A server that was killed once and stopped in order once, under load."""
    directory = tmp_path_factory.mktemp("recording") / "one"
    return record(SEED, directory, library, lives=2, seconds=1.5)


def broken_after(
    recording: Recording, cuts: list[Cut], library: Path, directory: Path, drop: "Forgets | None"
) -> Iterator[str]:
    with ThreadPoolExecutor(processors()) as threads:
        checks = [
            threads.submit(check, cut, path, recording.promises, library)
            for cut, path in disks(recording, cuts, directory, drop)
        ]
        for one in checks:
            yield from one.result().broken


def test_the_trace_has_every_change_of_the_store(recording: Recording, tmp_path: Path) -> None:
    assert recording.promises.answers > 100
    assert escaped(recording, tmp_path) == []


def test_what_was_answered_is_there_after_a_power_cut(
    recording: Recording, library: Path, tmp_path: Path
) -> None:
    cuts = cuts_of(recording, CUTS)
    assert list(broken_after(recording, cuts, library, tmp_path, None)) == []
    assert not [text for text in recording.promises.failures if text.startswith("violation")]


class Forgets:
    """A disk that answers a sync of some files at once, and does nothing."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix  # of their names; "/" for directories
        self._concerned: set[tuple[int, int]] = set()

    def __call__(self, one: Record) -> bool:
        key = one.process, one.fd
        if one.kind is Kind.OPEN:
            path = one.path + ("/" if Flag.IS_DIRECTORY in one.flags else "")
            self._concerned.discard(key)
            if path.endswith(self._suffix):
                self._concerned.add(key)
        return one.kind in (Kind.SYNC_BEGIN, Kind.SYNC_END) and key in self._concerned


def test_the_trace_of_a_server_that_was_killed_may_end_within_a_record(
    recording: Recording, tmp_path: Path
) -> None:
    short = tmp_path / "trace"
    short.write_bytes(recording.trace.read_bytes()[:-3])
    assert list(read_trace(short, was_killed=True)) == list(read_trace(recording.trace))[:-1]
    with pytest.raises(TraceError, match="ends within a record"):
        list(read_trace(short))


@pytest.mark.parametrize("suffix", [".seg", ".log", "/"])
def test_a_disk_that_forgets_a_sync_is_found_out(
    recording: Recording, library: Path, tmp_path: Path, suffix: str
) -> None:
    times = [one.time for one in read_trace(recording.trace)]
    after = Random(SEED).sample(range(len(times) // 2, len(times)), 4)
    cuts = [Cut(SEED, n, Loss.ALL, times[n]) for n in sorted(after)]
    broken = list(broken_after(recording, cuts, library, tmp_path, Forgets(suffix)))
    assert broken


class TestDiskModel:
    """What a cut may leave of a file and of a name."""

    def record(self, kind: Kind, fd: int = 3, **fields: object) -> Record:
        blank = Record(0, kind, Flag(0), 1, 1, fd, 1, 0, 0, "", "", b"")
        return replace(blank, **fields)  # type: ignore[arg-type]

    def left(self, model: DiskModel, to: Path) -> dict[str, bytes]:
        model.write_after_cut(to, Random(1), Loss.ALL)
        return {path.name: path.read_bytes() for path in to.iterdir() if path.is_file()}

    def made(self, root: Path, *, sync_name: bool) -> DiskModel:
        root.mkdir()
        model = DiskModel(root)
        model.play(self.record(Kind.OPEN, path=f"{root}/a", flags=Flag.CREATED))
        model.play(self.record(Kind.WRITE, data=b"x" * 600, size=600))
        model.play(self.record(Kind.SYNC_BEGIN))
        model.play(self.record(Kind.SYNC_END))
        if sync_name:
            model.play(self.record(Kind.OPEN, 4, path=str(root), flags=Flag.IS_DIRECTORY))
            model.play(self.record(Kind.SYNC_BEGIN, 4, number=2))
            model.play(self.record(Kind.SYNC_END, 4, number=2))
        return model

    def test_a_synced_file_without_a_synced_name_is_gone(self, tmp_path: Path) -> None:
        model = self.made(tmp_path / "root", sync_name=False)
        assert self.left(model, tmp_path / "left") == {}

    def test_what_is_written_while_a_sync_runs_is_not_covered(self, tmp_path: Path) -> None:
        model = self.made(tmp_path / "root", sync_name=True)
        model.play(self.record(Kind.SYNC_BEGIN, number=3))
        model.play(self.record(Kind.WRITE, data=b"y" * 600, size=600))
        model.play(self.record(Kind.SYNC_END, number=3))
        assert self.left(model, tmp_path / "left") == {"a": b"x" * 600}

    def test_a_torn_write_is_torn_at_sectors(self, tmp_path: Path) -> None:
        model = self.made(tmp_path / "root", sync_name=True)
        model.play(self.record(Kind.WRITE, data=b"y" * 600, size=600))
        seen = set()
        for seed in range(60):
            to = tmp_path / str(seed)
            model.write_after_cut(to, Random(seed), Loss.SECTORS)
            data = (to / "a").read_bytes()
            seen.add((data[:512], data[512:]))
        both = [(a * 512, b * 88) for a in (b"x", b"y") for b in (b"x", b"y")]
        assert seen == set(both)

    def test_a_rename_that_was_not_synced_leaves_the_old_name(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        model = self.made(root, sync_name=True)
        model.play(self.record(Kind.RENAME, path=f"{root}/a", other=f"{root}/b"))
        assert self.left(model, tmp_path / "left") == {"a": b"x" * 600}
