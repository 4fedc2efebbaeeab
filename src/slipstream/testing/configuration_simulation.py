"""A stream whose limits change, on a disk that crashes, fails and damages copies, under a seed.

One `ConfigurationSimulation` is one life. Limits are tightened and lifted, messages are published,
the power fails at any step of an update, and now and then one copy of the configuration is damaged
while the server is down. A message may go only if a configuration that the stream may have had
since it was published allows that. Damage has to be reported, and a crash must not be taken for it.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from slipstream.model.durations import SECOND
from slipstream.testing.driver import BEGIN, Driver
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_disk import SimulatedDisk

STREAM = "S"
SUBJECTS = ("s.a", "s.b", "s.c")
LIMITS: tuple[dict[str, int], ...] = (
    {},
    {"max_msgs": 5},
    {"max_msgs": 20},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 4},
)
HISTORY_SHOWN = 30


class ConfigurationSimulation:
    """See the module's text."""

    def __init__(self, seed: int, disk: SimulatedDisk | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.disk = disk or SimulatedDisk(Random(seed + 1))
        self.history: list[str] = []
        self.subjects: dict[int, str] = {}  # of all messages that the stream has had
        self.acknowledged: set[int] = set()
        self.held: set[int] = set()  # of these, what was there after the last step
        self.may_be_gone: set[int] = set()
        self.possible: list[dict[str, int]] = [{}]  # the last answered limits, and attempts since
        self.damages = 0
        self._older = b""  # what the second copy has held
        self._is_harmed = False  # a copy was damaged and nobody has looked
        self._may_be_settled = False  # somebody has tried to, since the start
        self.driver = Driver(self.disk, now=BEGIN).start()
        self.client = self.driver.client()
        self.client.api(f"STREAM.CREATE.{STREAM}", self._config({}))
        self.moves: list[tuple[int, Callable[[], None]]] = [
            (30, self._publish),
            (6, self._update),
            (4, self._pass_time),
            (2, self._fail_operation),
            (3, self._restart),
            (2, self._look),
        ]

    def _config(self, limits: dict[str, int]) -> dict[str, Any]:
        # Descriptions of any length: an update changes one sector or several.
        text = "x" * self.random.choice((0, 300, 3000))
        return {"name": STREAM, "subjects": ["s.>"], "description": text, **limits}

    def run(self, steps: int) -> "ConfigurationSimulation":
        """Let `steps` things happen. Raises `ViolationError`."""
        weights = [weight for weight, _ in self.moves]
        moves = [move for _, move in self.moves]
        try:
            for _ in range(steps):
                (move,) = self.random.choices(moves, weights)
                move()
                self._check()
        except ViolationError as error:
            story = "\n    ".join(self.history[-HISTORY_SHOWN:])
            raise ViolationError(f"{error}\n  seed {self.seed}, after:\n    {story}") from error
        return self

    def _publish(self) -> None:
        subject = self.random.choice(SUBJECTS)
        answer = self.client.store(subject)
        # One that the disk has refused counts until the server ends.
        seq = self.driver.js.streams[STREAM].log.last_seq
        self.history.append(f"{seq} on {subject}: {'error' not in answer}")
        if seq not in self.held:
            self.subjects[seq] = subject
            self.held.add(seq)
        self._let_go()
        if "error" not in answer:
            self.acknowledged.add(answer["seq"])

    def _let_go(self) -> None:
        """What any of the possible configurations removes may be gone."""
        live = sorted(self.held)
        for limits in self.possible:
            if limits.get("max_msgs"):
                self.may_be_gone.update(live[: -limits["max_msgs"]])
            most = limits.get("max_msgs_per_subject", 0)
            for subject in SUBJECTS if most else ():
                of_subject = [seq for seq in live if self.subjects[seq] == subject]
                self.may_be_gone.update(of_subject[:-most])

    def _update(self) -> None:
        limits = self.random.choice(LIMITS)
        self.possible.append(limits)
        self._let_go()
        answer = self.client.api(f"STREAM.UPDATE.{STREAM}", self._config(limits))
        self.history.append(f"update to {limits}: {'error' not in answer}")
        self._may_be_settled = True  # also by an update that failed: it may be durable all the same
        if "error" not in answer:
            self.possible = [limits]
            self._is_harmed = False

    def _look(self) -> None:
        """Somebody sees what is reported, and says what the configuration is."""
        if self._is_harmed:
            self._update()

    def _pass_time(self) -> None:
        self.driver.advance(self.random.choice((SECOND // 20, SECOND // 4, 20 * SECOND)))

    def _fail_operation(self) -> None:
        """Something fails before long: most of all what an update does."""
        operation = self.random.choice(("open", "append", "sync", "sync_dir", "rename"))
        self.history.append(f"{operation} will fail")
        self.disk.fail(operation, self.random.randint(1, 3))
        self._update()

    def _restart(self) -> None:
        if self.random.random() < 0.5:
            self.disk.heal()
            self.driver.stop()
            self.history.append("stop")
        else:
            self.disk.crash()
            self.history.append("crash")
        state = self.driver.engine.state
        may_be_mended = state is None or not state.log.is_applied()  # the commit log has the newest
        self.disk.heal()
        harmed = self._harm() if self.random.random() < 0.4 else ""
        self.driver = Driver(self.disk, now=self.driver.clock.now + SECOND).start()
        self.client = self.driver.client()
        if STREAM not in self.driver.js.streams:
            raise ViolationError(f"configuration: the stream is gone, {self.driver.js.problems}")
        reported = [p for p in self.driver.js.problems if "copy" in p]
        must_say_so = harmed or (self._is_harmed and not self._may_be_settled)
        if must_say_so and not reported and not may_be_mended:
            raise ViolationError("report: a copy was damaged, and nobody says so")
        if reported and not (harmed or self._is_harmed):
            raise ViolationError(f"report: a crash was taken for damage, {reported}")
        self._is_harmed = self.driver.js.doubts.of(STREAM) != ""
        self._may_be_settled = False
        # A start applies limits to what it finds, which is without what was on its way.
        self.held = self._there() | (self.acknowledged - self.may_be_gone)
        self._let_go()
        if harmed and not self._is_harmed:
            self.driver.advance(3 * SECOND)  # the damaged copy is written anew

    def _harm(self) -> str:
        """Damage one of two copies; nothing if there is only one, or a crash has emptied one."""
        copies = [path for path in self.disk.files() if f"/{STREAM}/meta." in path]
        copies = [path for path in copies if not path.endswith(".new") and self.disk.read(path)]
        if self._is_harmed or len(copies) < 2:
            return ""
        path = self.random.choice(copies)
        self.history.append(f"damage to {path}")
        self.damages += 1
        self.disk.flip(path, self.random.randrange(len(self.disk.read(path)) * 8))
        if path == copies[0] and self.random.random() < 0.5:
            self._go_back(copies[1])
        return path

    def _go_back(self, path: str) -> None:
        """A file has the content of an earlier time: the disk has lost what was written since."""
        older, self._older = self._older, self.disk.read(path)
        if older:
            self.history.append(f"an older content in {path}")
            self.disk.lose(path)
            file = self.disk.open(path)
            file.append(older)
            file.sync()
            self.disk.sync_dir(path.rpartition("/")[0])

    def _check(self) -> None:
        """Nothing is missing that no configuration has removed."""
        self.held = self._there()
        for seq in sorted(self.acknowledged - self.may_be_gone - self.held):
            raise ViolationError(f"limits: {seq} is gone, and no configuration says so")

    def _there(self) -> set[int]:
        log = self.driver.js.streams[STREAM].log
        return {seq for seq in self.subjects if log.holds(seq)}
