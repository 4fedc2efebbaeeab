"""The engine of a simulated server that leads its group, on the group's disk.

It is what a `GroupServer` has while it leads: an engine whose store lies on a `GroupDisk`, and
which answers while `may_answer`. What a server does on its loop and on its disk's threads happens
on lanes, so code that waits for a majority is run as it is. A lead that is left is forgotten.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from slipstream.engine.protocol.options import EngineOptions
from slipstream.log.disk import Disk
from slipstream.log.durability import Job
from slipstream.server.replica.group_disk import GroupDisk
from slipstream.testing.driver import Client, Driver, HandRunner, Message
from slipstream.testing.lanes import Lane, LaneCondition

SEGMENT_BYTES = 4_000  # of a stream's log: small, so that there are several
LOG_BYTES = 50_000  # of each file of the commit log

Later = Callable[[Callable[[], None]], None]


class LaneRunner(HandRunner):
    """The commit's runner: batches, other jobs and reads each have a lane of their own."""

    def __init__(
        self, later: Later, finish: Callable[[Job], None], is_lost: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._is_lost = is_lost
        self.lanes = [Lane(later) for _ in range(3)]
        self._finish = finish  # has a job's end happen in a turn of the engine

    def start(self, job: Job) -> None:
        """Run a job after those before it."""
        self._start(self.lanes[0], job)

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Run a job that batches do not wait for."""
        self._start(self.lanes[1], job)

    def start_read(self, job: Job) -> None:
        """Run a job that only reads."""
        self._start(self.lanes[2], job)

    def _start(self, lane: Lane, job: Job) -> None:
        def run() -> None:
            try:
                self.blocking(job)
            except Exception:
                if not self._is_lost():  # else nobody needs the job any more
                    raise
                return
            self._finish(job)

        lane.post(run)


class LeadDriver(Driver):
    """An engine that finishes its turns only while it may answer, as `Runtime` has it."""

    def __init__(self, may_answer: Callable[[], bool], disk: Disk, root: str, now: int,
                 runner: HandRunner, seed: int) -> None:  # fmt: skip
        super().__init__(
            disk,
            EngineOptions(server_name="here", jetstream=True),
            now=now,
            runner=runner,
            seed=seed,
            segment_bytes=SEGMENT_BYTES,
            log_bytes=LOG_BYTES,
            root=root,
        )
        self.is_waiting = False  # for its lease
        self._may_answer = may_answer
        self.engine.output.may_answer = may_answer

    def finish(self) -> None:
        """End the turn, unless what leaves may be out of date."""
        self.is_waiting = not self._may_answer()
        if not self.is_waiting:
            super().finish()


class Connection:
    """A client's connection with a lead."""

    def __init__(self, take: Callable[[list[Message]], None]) -> None:
        self.take = take  # what the engine says
        self.client: Client | None = None  # once the engine has it


class Lead:
    """See the module's text. `submit` has an entry appended in `epoch`; `now` is the time of day.
    `on_open` is called once clients are taken, `on_failure` if the store cannot be opened.
    `is_full`: whether the log of the group has no space."""

    def __init__(
        self,
        epoch: int,
        files: Disk,
        root: str,
        submit: Callable[[bytes], "Future[None]"],
        may_answer: Callable[["Lead"], bool],
        now: Callable[[], int],
        later: Later,
        seed: int,
        on_open: Callable[[], None],
        on_failure: Callable[[Exception], None],
        is_full: Callable[[], bool],
    ) -> None:
        self.epoch = epoch
        self.is_open = False
        self.is_stopping = False
        self.disk = disk = GroupDisk(files, root, submit, is_full=is_full)
        disk._changed = LaneCondition(disk._lock)  # lanes wait for it
        self.loop = Lane(later)
        self.runner = LaneRunner(later, self._finish_job, lambda: disk.is_lost)
        self.connections: list[Connection] = []
        self._root = root
        self._may_answer = may_answer
        self._now = now
        self._seed = seed
        self._on_open = on_open
        self._on_failure = on_failure
        self._driver: LeadDriver | None = None
        self.loop.post(self._open)

    def may_answer(self) -> bool:
        """Whether all that is committed anywhere is committed here."""
        return not self.disk.is_lost and self._may_answer(self)

    @property
    def shows_memory(self) -> bool:
        """Whether answers may show what a disk that was full has had no space for, such as a
        removal that a crash brings back (docs/storage.md)."""
        if self._driver is None:
            return False
        js = self._driver.js
        owes = any(stream.log.owes_removals() for stream in js.streams.values())
        return owes or js.state.is_refused or js.state.is_stuck

    # -- on the loop's lane ----------------------------------------------------------------------

    def _open(self) -> None:
        try:
            driver = LeadDriver(
                self.may_answer, self.disk, self._root, self._now(), self.runner, self._seed
            )
            driver.start()
            self._driver = driver
        except Exception as error:
            self._on_failure(error)
            return
        self.is_open = True
        self._on_open()

    def _turn(self, action: Callable[[LeadDriver], None]) -> None:
        """Have something happen in the engine, and send what it has to say."""
        driver = self._driver
        if driver is None:
            return
        driver.clock.now = max(driver.clock.now, self._now())
        try:
            action(driver)
            driver.finish()
        except Exception:
            if not self.disk.is_lost:
                raise
        for connection in self.connections:
            if connection.client is not None:
                messages = connection.client.take()
                if messages:
                    connection.take(messages)

    # -- what comes to it ------------------------------------------------------------------------

    def _finish_job(self, job: Job) -> None:
        self.loop.post(partial(self._turn, lambda driver: self.runner.finished(job)))

    def connect(self, connection: Connection) -> None:
        """A client has come."""

        def accept(driver: LeadDriver) -> None:
            connection.client = driver.client()
            self.connections.append(connection)

        self.loop.post(partial(self._turn, accept))

    def receive(self, connection: Connection, data: bytes) -> None:
        """Bytes of a client have come, after its connection."""

        def send(driver: LeadDriver) -> None:
            if connection.client is not None:
                connection.client.send(data)

        self.loop.post(partial(self._turn, send))

    def disconnect(self, connection: Connection) -> None:
        """A client is gone."""

        def close(driver: LeadDriver) -> None:
            if connection in self.connections and connection.client is not None:
                self.connections.remove(connection)
                connection.client.session.gone("Client Closed")

        self.loop.post(partial(self._turn, close))

    def tick(self) -> None:
        """Time has gone by."""
        driver = self._driver
        if driver is None or not self.loop.is_idle or self.is_stopping:
            return
        due = driver.engine.timers.next_at()
        if driver.is_waiting:
            self.loop.post(partial(self._turn, lambda driver: driver.engine.rounds.go_on()))
        if due and due <= self._now():
            self.loop.post(partial(self._turn, lambda driver: driver.engine.tick()))

    # -- the end ---------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return all(lane.is_idle for lane in (self.loop, *self.runner.lanes))

    def close(self, then: Callable[[], None]) -> None:
        """Close the store in good order, once nothing is under way; what follows that."""
        assert self._driver is not None
        driver = self._driver

        def close() -> None:
            try:
                driver.engine.close()
            except Exception:
                if not self.disk.is_lost:
                    raise
            then()

        self.loop.post(close)

    def leave(self) -> None:
        """Another server leads, or this one opens the store anew: nothing more leaves."""
        self.disk.leave()
        self.is_open = False
        self.connections = []
        self._driver = None

    def end(self) -> None:
        """The server has crashed: what is under way does not go on."""
        self.leave()
        for lane in (self.loop, *self.runner.lanes):
            lane.end()
