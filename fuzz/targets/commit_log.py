"""The commit log after damage to its files: it is read, or refused, and says nothing that was not
kept.

A log with entries in both files is written, its files are damaged, and they are read. Then each
change that is found is one that was kept; the newest ones are found, or entries are reported as
lost, or the damage lies where a torn end would be; and a log that goes on there reads alike.
"""

from random import Random
from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput
from fuzz.targets.recovery import damaged

LOG_BYTES = 8_192 + 2_000
ENTRIES_MAX = 60
NAMES = 5
DICTIONARY = [b"SLIPLOG1", b"SLEN", b"\0" * 8]


def seeds() -> list[bytes]:
    """Logs of each length class with one damage of each kind."""
    return [
        bytes([count, damage, which, 32, 1, 2, 100, 30, 7])
        for count in (3, 20, 59)
        for damage in range(8)
        for which in (0, 200)
    ]


def make(plain: Build, _compiled: Build) -> OneInput:
    """Damage a log, and read it; it has no compiled part."""
    logs = _Logs(plain)

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        count = choices.byte() % ENTRIES_MAX
        files, kept = logs.written(count)
        logs.check(damaged(files, choices), kept)

    return one_input


class _Logs:
    """Logs on a simulated disk."""

    def __init__(self, build: Build) -> None:
        self._disk = build("slipstream.testing.simulated_disk").SimulatedDisk
        self._log = build("slipstream.log.commit_log").CommitLog
        self._twin = build("slipstream.log.stream_store").TwinFile
        self._replay = build("slipstream.log.commit_replay").replay
        self._errors = build("slipstream.errors")
        self._known: dict[int, tuple[dict[str, bytes], set[tuple[str, bytes]]]] = {}

    def written(self, count: int) -> tuple[dict[str, bytes], set[tuple[str, bytes]]]:
        """The files of a log with so many entries, and all that was kept in it."""
        if count not in self._known:
            self._known[count] = self._write(count)
        return self._known[count]

    def _write(self, count: int) -> tuple[dict[str, bytes], set[tuple[str, bytes]]]:
        disk = self._disk(Random(1))
        files = [self._twin(disk, f"root/{name}/state") for name in range(NAMES)]
        for name in range(NAMES):
            disk.makedirs(f"root/{name}")
        log = self._begin(disk)
        kept = set()
        for number in range(count):
            file = files[number * 7 % NAMES]
            content = b"%d " % number * (number % 20)
            kept.add((file.path.removeprefix("root/"), content))
            log.keep(file, content)
            self._commit(log)
            if log.is_half_full() and (checkpoint := log.checkpoint()) is not None:
                checkpoint.run()
                log.ended(checkpoint)
                self._commit(log)
        return {path: disk.read(path) for path in disk.files(".log")}, kept

    def _begin(self, disk: Any) -> Any:
        log = self._log(disk, "root", LOG_BYTES)
        log.open()
        log.begin()
        return log

    def _commit(self, log: Any) -> None:
        batch = log.prepare_sync()
        if batch is not None:
            batch.run()
            log.finish_sync(batch)

    def check(self, files: dict[str, bytes], kept: set[tuple[str, bytes]]) -> None:
        """Read damaged files, go on in them, and read again."""
        paths = ("root/commit-log/0.log", "root/commit-log/1.log")
        try:
            found = self._replay([files.get(path, b"") for path in paths])
        except self._errors.StorageError:  # of a later version, or not of one time
            return
        for record in found.changes:
            if (record.path, record.content) not in kept:
                raise Finding(f"{record.path} was never to have {record.content[:40]!r}")
        disk = self._disk(Random(2))
        disk.makedirs("root/commit-log")
        for name in range(NAMES):
            disk.makedirs(f"root/{name}")
        for path in paths:
            file = disk.open(path)
            file.append(files.get(path, b""))
            file.sync()
        log = self._begin(disk)
        log.keep(self._twin(disk, "root/0/state"), b"later")
        self._commit(log)
        again = self._replay([disk.read(path) for path in paths])
        if [record.content for record in again.changes] != [b"later"] or again.lost:
            raise Finding(f"after the damage a change is not found: {again}")
