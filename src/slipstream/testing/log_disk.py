"""The disk under a group's log, simulated: a list of entries that tears as files would."""

from collections import deque
from random import Random

from slipstream.group import DiskJob, Entry, Mark, State
from slipstream.group.messages import BEGINNING


class LogDisk:
    """The disk of one server: its entries and its state. What was not synced may go in a crash."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []  # behind the base
        self.base = BEGINNING
        self.state: State | None = State()
        self.jobs: deque[DiskJob] = deque()  # to be done

    def open(self) -> tuple[State | None, list[Entry | None]]:
        """What a server that starts finds."""
        return self.state, list(self.entries)

    def finish(self) -> DiskJob:
        """Do the oldest job, and sync it."""
        job = self.jobs.popleft()
        self._set_state(job)
        for write in job.writes:
            self._write(write.first, write.entries, write.is_end)
        self._drop(job.state.base)
        return job

    def _set_state(self, job: DiskJob) -> None:
        self.state = job.state
        if job.is_reset:
            self.entries, self.base = [], job.state.base

    def _write(self, first: int, entries: list[Entry], is_end: bool) -> None:
        start = first - self.base.index - 1
        self.entries[start : None if is_end else start + len(entries)] = entries

    def _drop(self, base: Mark) -> None:
        del self.entries[: base.index - self.base.index]
        self.base = base

    def crash(self, random: Random) -> None:
        """The power fails: the job that was under way is there in part, or whole, or not."""
        job = self.jobs[0] if self.jobs else None
        self.jobs.clear()
        if job is None:
            return
        has_state = random.random() < 0.5
        is_state_first = job.is_state_first or job.state.base != self.base
        if has_state:
            self._set_state(job)
        if has_state or not is_state_first:
            self._write_in_part(job, random)
        if has_state:
            self._drop(job.state.base)

    def _write_in_part(self, job: DiskJob, random: Random) -> None:
        for write in job.writes:
            kept = random.randint(0, len(write.entries))
            self._write(write.first, write.entries[:kept], write.is_end and random.random() < 0.7)
            if kept > 1 and random.random() < 0.2:  # a hole
                self.entries[write.first - self.base.index - 1 + random.randrange(kept)] = None
            if kept < len(write.entries):
                return

    def damage(self, random: Random) -> None:
        """Turn over a bit of an entry that was synced a while ago, or of several in a row."""
        synced = self.state.synced if self.state else 0
        first = random.randint(max(1, synced - 5), synced) if synced else 0
        for index in range(first, min(first + random.choice((1, 1, 2, 4)), synced + 1)):
            place = index - self.base.index - 1
            entry = self.entries[place] if 0 <= place < len(self.entries) else None
            if entry is not None and entry.is_whole:
                changed = Entry(entry.epoch, index, entry.previous, entry.chain ^ 1, entry.body)
                self.entries[place] = changed
