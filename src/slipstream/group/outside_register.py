"""The register outside of the group: one small object in a store that can put on a condition.

The store may be an object store or a bucket of a NATS cluster: all that it has to do is to replace
the object only if its version is the one that is named. This side is a state machine without I/O:
a driver takes one request at a time (`take_request`), carries it out, and brings the answer, late
or never (`answered`).

    Get                     Found       what the store has, or had a while ago
    Put, if at a version    Stored      it was at that version, and holds this now
                            Changed     it was at another one: read again
                            Failed      of either: it may have happened, or may happen yet

**What is believed.** A read may be stale, so nothing follows from one but what to put at which
version; the store refuses a put on a stale version. A read that shows less than what is known is
read again. A put whose answer was lost, or was refused, may have taken effect: each compare-and-set
has a mark of its own, a random word of the process and a count, so a later read says whose value it
is. Contents never come back, so versions that are checksums of contents do not, either.

**What it cannot do without.** The store must not forget. Where the object is gone, and servers know
of epochs that somebody has led, nothing is put in its place.
"""

import msgspec

from slipstream.group.lease import Settings
from slipstream.group.messages import Message, RegisterValue
from slipstream.group.register import Outcome

REQUEST_MAX_FACTOR = 20  # of `Settings.retry`: after so long an answer is not waited for
STALE_MAX_FACTOR = 20  # ... and after so long reads are not stale by chance any more


class Get(msgspec.Struct, frozen=True):
    """Say what the store has."""

    number: int  # of the request; the answer has it, too


class Put(msgspec.Struct, frozen=True):
    """Replace what the store has if it is at `version`; "" is where there is nothing."""

    number: int
    data: bytes
    version: str


class Found(msgspec.Struct, frozen=True):
    """The store has this, at that version; no bytes where there is nothing."""

    data: bytes
    version: str


class Stored(msgspec.Struct, frozen=True):
    """The put has taken effect."""


class Changed(msgspec.Struct, frozen=True):
    """Another version was there when the put came."""


class Failed(msgspec.Struct, frozen=True):
    """No answer has come, so nobody knows."""

    why: str


Request = Get | Put
Answer = Found | Stored | Changed | Failed


class Record(msgspec.Struct, frozen=True):
    """What the object holds, as JSON that people can read."""

    epoch: int
    leader: str
    members: tuple[str, ...]
    previous: tuple[str, ...]
    step: int
    away: tuple[str, ...]
    mark: str  # of the compare-and-set that has put it

    @property
    def value(self) -> RegisterValue:
        """What it says."""
        return RegisterValue(
            self.epoch, self.leader, self.members, self.previous, self.step, self.away
        )


def encode_record(value: RegisterValue, mark: str) -> bytes:
    """The object's content."""
    record = Record(
        value.epoch, value.leader, value.members, value.previous, value.step, value.away, mark
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


class OutsideRegister:
    """A server's end of it; a `Register`. `process` is a word that no other process ever has."""

    def __init__(self, name: str, process: str, settings: Settings | None = None) -> None:
        self.is_outside = True
        self.outcome: Outcome | None = None
        self.fault = ""  # why it cannot be read or changed, as the last answer said
        self._name = name
        self._process = process
        self._settings = settings or Settings()
        self._count = 0  # of compare-and-sets
        self._wanted: RegisterValue | None = None  # while a compare-and-set is under way
        self._number = 0  # of the last request
        self._request: Request | None = None  # that waits for the driver
        self._awaited: Request | None = None  # whose answer is awaited
        self._again_at = 0  # when it reads again, or waits for the answer no more
        self._latest = (0, 0)  # epoch and step of the members that the store has had
        self._stale_since: int | None = None  # it has shown nothing but earlier ones

    # -- Register --------------------------------------------------------------------------------

    def compare_and_set(self, now: int, value: RegisterValue) -> None:
        """See `Register`. An earlier put that is on its way may take effect."""
        self.outcome = self._stale_since = None
        self._count += 1
        self._wanted = value
        self._get(now)

    def give_up(self) -> None:
        """See `Register`: what has not left yet will not."""
        self._wanted = self._request = self._awaited = None

    def receive(self, sender: str, message: Message) -> None:
        """See `Register`. The servers say nothing about this one."""

    def tick(self, now: int) -> None:
        """See `Register`."""
        if self._wanted is None or now < self._again_at:
            return
        if self._awaited is not None:
            self.fault = "it has not answered in time"
        self._get(now)

    # -- driver ----------------------------------------------------------------------------------

    def take_request(self) -> Request | None:
        """What to ask the store, if there is something; one takes the place of another."""
        request, self._request = self._request, None
        return request

    def answered(self, now: int, number: int, answer: Answer) -> None:
        """The answer to request `number`. One that comes after a newer request says nothing."""
        asked, wanted = self._awaited, self._wanted
        if asked is None or wanted is None or number != asked.number:
            return
        self._awaited = None
        self.fault = answer.why if isinstance(answer, Failed) else ""
        match answer:
            case Found(data, version):
                self._found(now, wanted, data, version)
            case Stored() if isinstance(asked, Put):
                self._finish(True, msgspec.json.decode(asked.data, type=Record).value)
            case Changed():
                self._get(now)
            case _:
                self._read_later(now)

    # -- one compare-and-set ---------------------------------------------------------------------

    @property
    def _mark(self) -> str:
        return f"{self._process}.{self._count}"

    def _ask(self, now: int, request: Request) -> None:
        self._request = self._awaited = request
        self._again_at = now + REQUEST_MAX_FACTOR * self._settings.retry

    def _get(self, now: int) -> None:
        self._number += 1
        self._ask(now, Get(self._number))

    def _read_later(self, now: int) -> None:
        self._request = None
        self._again_at = now + self._settings.retry

    def _finish(self, is_set: bool, value: RegisterValue) -> None:
        self._latest = max(self._latest, (value.epoch, value.step))
        self._wanted = None
        self.outcome = Outcome(is_set, value)

    def _found(self, now: int, wanted: RegisterValue, data: bytes, version: str) -> None:
        if not data:
            self._found_nothing(now, wanted, version)
            return
        try:
            record = msgspec.json.decode(data, type=Record)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.fault = f"it holds something else than a register: {error}"
            self._read_later(now)
            return
        current = record.value
        is_stale = record.mark != self._mark and self._is_stale(wanted, current)
        self._note_stale(now, wanted, current, is_stale)
        if record.mark == self._mark:  # an earlier put of this one, whose answer was lost
            self._finish(True, current)
        elif is_stale:
            self._read_later(now)
        else:
            self._latest = max(self._latest, (current.epoch, current.step))
            self._put(now, wanted, current, version)

    def _found_nothing(self, now: int, wanted: RegisterValue, version: str) -> None:
        """Nothing was ever put, or this is stale; or else the store has forgotten."""
        if wanted.epoch > 1 or self._latest > (0, 0):
            self.fault = (
                "the object is gone, and without it nobody can say who may lead: bring it back"
            )
            self._read_later(now)
            return
        founded = RegisterValue(0, "", ()).with_membership(wanted.membership)
        self._put(now, wanted, founded, version)

    def _is_stale(self, wanted: RegisterValue, current: RegisterValue) -> bool:
        """Whether the store has had more: what is wanted follows an epoch that was there."""
        return current.epoch < wanted.epoch - 1 or (current.epoch, current.step) < self._latest

    def _note_stale(
        self, now: int, wanted: RegisterValue, current: RegisterValue, is_stale: bool
    ) -> None:
        """Replicas may be behind for a moment; a store that stays so has lost what it had."""
        if not is_stale:
            self._stale_since = None
            return
        if self._stale_since is None:
            self._stale_since = now
        if now >= self._stale_since + STALE_MAX_FACTOR * self._settings.retry:
            known = max(self._latest, (wanted.epoch - 1, 0))
            self.fault = (
                f"it shows epoch {current.epoch} and step {current.step} of the members, and has "
                f"had epoch {known[0]} and step {known[1]}: an older content was brought back, "
                "and nobody can say who may lead until the latest one is there"
            )

    def _put(self, now: int, wanted: RegisterValue, current: RegisterValue, version: str) -> None:
        new = wanted.set_over(current)
        if new is None or self._name not in new.members:  # or it was put out of the group
            self._finish(False, current)
            return
        self._number += 1
        self._ask(now, Put(self._number, encode_record(new, self._mark), version))
