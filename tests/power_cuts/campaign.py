"""Cuts by the hundred: a recorded workload, disks as of cuts in it, a server on each of them."""

import asyncio
import filecmp
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.power_cuts.disk_model import DiskModel, Loss
from tests.power_cuts.inspection import look
from tests.power_cuts.promises import Promises
from tests.power_cuts.recorded_server import Server, build_recorder
from tests.power_cuts.trace import Kind, Record, read_trace
from tests.power_cuts.workload import Clients

Drop = Callable[[Record], bool]  # a record that the disks are to know nothing of: a planted bug
LIFE_SECONDS_MAX = 60.0
AGAIN_SHARE = 0.2  # of the cuts, that are followed by one while the server recovers


@dataclass
class Outcome:
    """What a campaign has found."""

    cuts: int = 0
    records: int = 0
    syncs: int = 0
    answers: int = 0
    broken: list[str] = field(default_factory=list)  # promises, each with how to see it again
    alarms: list[str] = field(default_factory=list)  # losses that were reported without damage
    escaped: list[str] = field(default_factory=list)  # files that are not as the trace says
    loads: list[str] = field(default_factory=list)  # what clients were refused

    def add(self, checked: "Checked") -> None:
        """One more cut was looked at."""
        self.broken += checked.broken
        self.alarms += checked.alarms


@dataclass
class Recording:
    """A workload that has run: what the server did, and what clients were promised."""

    seed: int
    directory: Path
    promises: Promises

    @property
    def store(self) -> Path:
        """The store as the last life of the server has left it."""
        return self.directory / "store"

    @property
    def trace(self) -> Path:
        """What was recorded."""
        return self.directory / "trace"


def record(seed: int, directory: Path, library: Path, lives: int, seconds: float) -> Recording:
    """Run a workload: all lives but the last end by kill -9, that one in order after `seconds`."""
    directory.mkdir(parents=True)
    recording = Recording(seed, directory, Promises())
    recording.store.mkdir()
    random = Random(f"{seed}/lives")
    for life in range(lives):
        is_last = life == lives - 1
        records = 0 if is_last else random.randint(200, 4000)
        server = Server(
            recording.store, directory / f"life-{life}", library, recording.trace, records
        )
        try:
            if server.wait_until_ready():
                clients = Clients(server.url, recording.promises, seed, life)
                asyncio.run(_live(clients, server, seconds, is_last))
        finally:
            server.kill()
    return recording


async def _live(clients: Clients, server: Server, seconds: float, is_last: bool) -> None:
    async def ended() -> None:
        if is_last:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(server.stop)
        else:
            try:
                await asyncio.to_thread(server.process.wait, LIFE_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                server.kill()

    await clients.run(ended())


def escaped(recording: Recording, directory: Path) -> list[str]:
    """Files that differ from what the trace says they are: something was not recorded."""
    model = DiskModel(recording.store)
    for one in read_trace(recording.trace):
        model.play(one)
    said = directory / "said"
    model.write_now(said)
    different = list(_different(filecmp.dircmp(recording.store, said, ignore=[]), ""))
    shutil.rmtree(said)
    return different


def _different(compared: "filecmp.dircmp[str]", above: str) -> Iterator[str]:
    for name in (*compared.left_only, *compared.right_only, *compared.common_funny):
        yield f"{above}{name}"
    left, right = Path(compared.left), Path(compared.right)
    for name in compared.common_files:
        if (left / name).read_bytes() != (right / name).read_bytes():
            yield f"{above}{name}"
    for name, inner in compared.subdirs.items():
        yield from _different(inner, f"{above}{name}/")


@dataclass
class Cut:
    """A power cut after some records of a trace."""

    seed: int
    after: int  # records
    loss: Loss
    at: int  # ns: the time of the next record

    def __str__(self) -> str:
        return f"seed {self.seed}, cut after record {self.after}, {self.loss.value}"


def cuts_of(recording: Recording, count: int) -> list[Cut]:
    """Moments of the trace, each with a way of losing; most of them just before or after a sync."""
    random = Random(f"{recording.seed}/cuts")
    times, near = [], []
    for n, one in enumerate(read_trace(recording.trace)):
        times.append(one.time)
        if one.kind is Kind.SYNC_END:
            near += [n, n + 1]
    chosen = [random.choice(near) if random.random() < 0.5 else random.randrange(len(times))
              for _ in range(count)]  # fmt: skip
    losses = list(Loss)
    after_all = 1 << 62
    return [
        Cut(recording.seed, n, random.choice(losses), times[n] if n < len(times) else after_all)
        for n in sorted(chosen)
    ]


def disks(
    recording: Recording, cuts: list[Cut], directory: Path, drop: Drop | None = None
) -> Iterator[tuple[Cut, Path]]:
    """The store after each cut, in a directory of its own."""
    model = DiskModel(recording.store)
    trace = read_trace(recording.trace)
    played = 0
    for n, cut in enumerate(cuts):
        while played < cut.after:
            one = next(trace)
            if drop is None or not drop(one):
                model.play(one)
            played += 1
        path = directory / f"cut-{cut.seed}-{n}"
        path.mkdir()
        model.write_after_cut(path / "store", Random(f"{cut}/{n}"), cut.loss)
        yield cut, path


@dataclass
class Checked:
    """What one cut has shown."""

    broken: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)


def check(
    cut: Cut, path: Path, promises: Promises, library: Path, keep: Path | None = None
) -> Checked:
    """Start a server on the disk, and look; `keep` gets disks on which something is broken."""
    random = Random(f"{cut}/again")
    checked = Checked()
    if keep is not None:
        shutil.copytree(path / "store", path / "before")
    if random.random() < AGAIN_SHARE:
        _cut_again(path, random, library, checked)
    _inspect(path, promises, cut, checked)
    if checked.broken and keep is not None:
        shutil.move(path, keep / path.name)
    else:
        shutil.rmtree(path)
    for texts in (checked.broken, checked.alarms):
        texts[:] = [f"{cut}: {text}" for text in texts]
    return checked


def _inspect(path: Path, promises: Promises, cut: Cut, checked: Checked) -> None:
    server = Server(path / "store", path / "server")
    try:
        if server.wait_until_ready():
            found = asyncio.run(look(server))
            checked.broken += promises.broken(found, cut.at)
            checked.alarms += promises.false_alarms(found)
        else:
            checked.broken.append(f"the server does not start: {server.log[-2000:]}")
    finally:
        server.kill()


def _cut_again(path: Path, random: Random, library: Path, checked: Checked) -> None:
    """The power fails again while the server recovers, or soon after it has."""
    trace = path / "trace-again"
    model = DiskModel(path / "store")
    model.load(path / "store")
    server = Server(path / "store", path / "server-again", library, trace)
    try:
        if not server.wait_until_ready():
            checked.broken.append(f"the server does not start: {server.log[-2000:]}")
            return
    finally:
        server.kill()
    records = list(read_trace(trace, was_killed=True))
    for one in records[: random.randint(0, len(records))]:
        model.play(one)
    shutil.rmtree(path / "store")
    model.write_after_cut(path / "store", random, random.choice(list(Loss)))


def run(
    cuts: int,
    seed: int,
    *,
    each: int = 100,
    lives: int = 3,
    seconds: float = 4.0,
    workers: int = 4,
    keep: Path | None = None,
    drop: Drop | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """`cuts` cuts, `each` in a workload; `keep` is for the disks on which something is broken."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="power-cuts-") as name:
        base = Path(name)
        library = build_recorder(base)
        while outcome.cuts < cuts:
            known = len(outcome.broken)
            recording = record(seed, base / f"seed-{seed}", library, lives, seconds)
            _cut(recording, min(each, cuts - outcome.cuts), library, workers, keep, drop, outcome)
            shutil.rmtree(recording.directory)
            say(
                f"seed {seed}: {outcome.cuts} cuts, {outcome.records} records, {outcome.syncs} "
                f"syncs, {outcome.answers} answers; {len(outcome.broken)} broken promises"
            )
            for text in outcome.broken[known:]:
                say(f"  {text}")
            seed += 1
    return outcome


def _cut(
    recording: Recording, count: int, library: Path, workers: int, keep: Path | None,
    drop: Drop | None, outcome: Outcome,
) -> None:  # fmt: skip
    directory = recording.directory
    outcome.escaped += escaped(recording, directory)
    kinds = [one.kind for one in read_trace(recording.trace)]
    outcome.records += len(kinds)
    outcome.syncs += kinds.count(Kind.SYNC_END)
    outcome.answers += recording.promises.answers
    outcome.loads += recording.promises.failures
    outcome.broken += [f for f in recording.promises.failures if f.startswith("violation")]
    cuts = cuts_of(recording, count)
    with ThreadPoolExecutor(workers) as threads:
        waiting: deque[Future[Checked]] = deque()
        for cut, path in disks(recording, cuts, directory, drop):
            promises = recording.promises
            waiting.append(threads.submit(check, cut, path, promises, library, keep))
            if len(waiting) > 2 * workers:  # so that few disks exist at a time
                outcome.add(waiting.popleft().result())
        while waiting:
            outcome.add(waiting.popleft().result())
    outcome.cuts += len(cuts)


def processors() -> int:
    """How many checks to run at a time: each waits for some of its time."""
    return 2 * (os.cpu_count() or 1)
