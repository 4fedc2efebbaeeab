"""What leaves a member: messages, and jobs for the disk; which message waits for which job.

What a turn changes that has to be durable gathers into one job. Jobs are numbered, written and
synced in their order, at most two at a time; what changes meanwhile gathers for the next one. A
message that says "synced" leaves once all that was changed before it is.
"""

from collections import deque

import msgspec

from slipstream.group.membership import Membership
from slipstream.group.messages import (
    BEGINNING,
    NO_BALLOT,
    Ballot,
    Entry,
    Mark,
    Message,
    RegisterValue,
)

JOBS_MAX = 2  # on their way to the disk


class State(msgspec.Struct, array_like=True, frozen=True):
    """What a member keeps besides its log: small, written twice, so that it is there after any one
    fault. None is kept for a server that was never in a group, or whose disk is empty."""

    sealed: int = 0  # the epoch of the latest leader that it may follow
    promised: Ballot = NO_BALLOT  # of the register
    accepted: Ballot = NO_BALLOT
    value: RegisterValue | None = None
    synced: int = 0  # the log has been synced up to this index, or further
    committed: int = 0  # ... and was committed up to this one
    base: Mark = BEGINNING  # the last entry that is gone from the log, which begins behind it
    is_installing: bool = False  # what it has applied may be half of a checkpoint
    membership: Membership | None = None  # as leaders have told it; None: as it was founded


class Write(msgspec.Struct, frozen=True):
    """Entries for the log, from index `first` on."""

    first: int
    entries: list[Entry]
    is_end: bool = True  # whether what the log has behind them goes


class DiskJob(msgspec.Struct, frozen=True):
    """To be written, then synced by one sync."""

    number: int
    writes: list[Write]  # in this order
    state: State
    is_state_first: bool  # ... which is to be synced before the log is written to
    is_reset: bool = False  # whether all that the log had before goes: `state.base` is its end


class Outbox:
    """See the module's text."""

    def __init__(self, state: State) -> None:
        self.state = state  # as it will be once all jobs are done
        self._synced = state.synced  # as the last job says
        self._is_changed = False
        self._is_reset = False
        self._writes: list[Write] = []
        self._number = 0  # of the job that was taken last
        self._done = 0  # ... that was synced last
        self._messages: list[tuple[str, Message]] = []
        self._waiting: deque[tuple[int, str, Message]] = deque()

    # -- what is to be durable -------------------------------------------------------------------

    def keep(self, state: State) -> None:
        """Have this state be durable."""
        if state != self.state:
            self.state = state
            self._is_changed = True

    def write(self, write: Write) -> None:
        """Have these entries be in the log."""
        self._writes.append(write)
        self._is_changed = True

    def reset(self, state: State) -> None:
        """Have the log be empty behind `state.base`."""
        self._writes = []
        self._is_reset = True
        self.keep(state)

    @property
    def has_job(self) -> bool:
        """Whether there is a job for the disk, and it may begin."""
        return self._is_changed and self._number - self._done < JOBS_MAX

    def take_job(self, synced: int, committed: int) -> DiskJob:
        """The next job, which also says how far the log has come."""
        was_synced = self._synced
        self._synced = synced
        self.state = msgspec.structs.replace(self.state, synced=synced, committed=committed)
        self._number += 1
        goes = any(write.is_end and write.first <= was_synced for write in self._writes)
        job = DiskJob(self._number, self._writes, self.state, goes, self._is_reset)
        self._is_changed, self._is_reset, self._writes = False, False, []
        return job

    @property
    def job_of_changes(self) -> int:
        """The number of the job after which all that was changed up to now is durable."""
        return self._number + self._is_changed

    def is_done(self, job: int) -> bool:
        """Whether a job is durable."""
        return job <= self._done

    def synced(self, number: int) -> None:
        """A job is durable, and so are those before it."""
        self._done = number
        while self._waiting and self._waiting[0][0] <= number:
            _, receiver, message = self._waiting.popleft()
            self._messages.append((receiver, message))

    # -- messages --------------------------------------------------------------------------------

    def send(self, receiver: str, message: Message) -> None:
        """It leaves now."""
        self._messages.append((receiver, message))

    def send_synced(self, receiver: str, message: Message) -> None:
        """It leaves once all changes up to now are durable."""
        job = self.job_of_changes
        if self.is_done(job):
            self._messages.append((receiver, message))
        else:
            self._waiting.append((job, receiver, message))

    def take_messages(self) -> list[tuple[str, Message]]:
        """What leaves, each with its receiver."""
        messages, self._messages = self._messages, []
        return messages
