"""What the servers of a group say to each other, each message typed once, and the log's entries.

    candidate                member                      about
    AskSeal            ->    WouldSeal                   would you let yourself be sealed now?
    Prepare, Accept    ->    Promise, Accepted, Outbid   the register (`members_register`)
    Seal               ->    Sealed                      refuse all leaders of earlier epochs
    Fetch              ->    Fetched                     entries, to complete or repair a log
    AskSeal, Fetch     ->    Trimmed                     you lack what is gone here, so do not lead

    leader                   follower
    Append             ->    Appended, Missing           entries; answered once they are synced
    Heartbeat          ->    Heard                       the lease, and how far is committed
    Release            ->                                I lead no more: forget what you promised me
    Behind             ->    Missing                     my log begins behind what you need
                       <-    About                       what this server says of itself, for others

    source                   server that is behind       about
    CheckpointBegin    <->   AskCheckpoint               what the entries have come to, in pieces
    CheckpointPiece    <->   PieceStored                 ... of which a few are on their way
    CheckpointEnd      <->   CheckpointOver              all was sent; nothing more is, or is wanted

Who is sealed at a later epoch answers any of `Seal`, `Append` and `Heartbeat` with `Refused`. A
message may be lost, late, doubled or overtaken; no answer to one is taken for an answer to another.
"""

import struct

import msgspec

from slipstream.group.membership import Membership
from slipstream.wire.checksum import crc32

_PLACE = struct.Struct("<IQI")


class Mark(msgspec.Struct, array_like=True, frozen=True, order=True):
    """Which entry it is. Of two ends of logs, the higher one has all that is committed."""

    epoch: int
    index: int
    chain: int


BEGINNING = Mark(0, 0, 0)  # before the first entry


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """One entry of the log. It keeps its epoch for ever, whichever leaders send it on."""

    epoch: int  # of the leader that made it
    index: int  # from 1 on, no gaps
    previous: int  # the chain of the entry before
    chain: int  # checksum of all the rest
    body: bytes  # empty in the first entry of each epoch, which says nothing else

    @property
    def mark(self) -> Mark:
        """Which entry it is."""
        return Mark(self.epoch, self.index, self.chain)

    @property
    def is_whole(self) -> bool:
        """Whether it is what was written."""
        return self.chain == _checksum(self.epoch, self.index, self.previous, self.body)


def _checksum(epoch: int, index: int, previous: int, body: bytes) -> int:
    return crc32(body, crc32(_PLACE.pack(epoch, index, previous)))


def make_entry(epoch: int, after: Mark, body: bytes) -> Entry:
    """The entry that follows `after`."""
    index = after.index + 1
    return Entry(epoch, index, after.chain, _checksum(epoch, index, after.chain, body), body)


def is_chain(after: Mark, entries: tuple[Entry, ...]) -> bool:
    """Whether the entries are whole, and follow `after` one by one."""
    for entry in entries:
        if entry.index != after.index + 1 or entry.previous != after.chain or not entry.is_whole:
            return False
        after = entry.mark
    return True


class Ballot(msgspec.Struct, array_like=True, frozen=True, order=True):
    """The number of an attempt to change the register; no two attempts have the same one."""

    round: int
    member: str


NO_BALLOT = Ballot(0, "")


class RegisterValue(msgspec.Struct, array_like=True, frozen=True):
    """What the register holds: who leads which epoch, and who is in the group."""

    epoch: int
    leader: str  # "" before the first epoch
    members: tuple[str, ...]
    previous: tuple[str, ...] = ()  # see `Membership`
    step: int = 0
    away: tuple[str, ...] = ()

    @property
    def membership(self) -> Membership:
        """Who is in the group."""
        return Membership(self.members, self.previous, self.step, self.away)

    def with_membership(self, membership: Membership) -> "RegisterValue":
        """The same leader and epoch with other members."""
        return RegisterValue(self.epoch, self.leader, *msgspec.structs.astuple(membership))

    def set_over(self, current: "RegisterValue") -> "RegisterValue | None":
        """What the register holds if it holds `current`, and this is to take its place: the next
        epoch, with the members that there are, or with its leader alone; or the next step of the
        members, in the same epoch. None if it is none of these."""
        if self.epoch == current.epoch + 1:
            there = current.membership
            if there.is_in_all_quorums(self.leader) and self.membership == there.alone(self.leader):
                return self
            return self.with_membership(there)
        is_same_lead = (self.epoch, self.leader) == (current.epoch, current.leader)
        return self if is_same_lead and self.step == current.step + 1 else None


class _Message(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """A message; its name goes with it."""


class AskSeal(_Message, frozen=True):
    """Would you let yourself be sealed at any later epoch now?"""

    attempt: int  # of the candidate; the answer has it, too
    end: int = 0  # index of the candidate's last entry
    takes_damaged: bool = False  # also if your log is damaged, or short


class WouldSeal(_Message, frozen=True):
    """I would. Who would not is silent."""

    attempt: int
    is_whole: bool = True  # whether my log is


class Prepare(_Message, frozen=True):
    """Promise to accept nothing of an earlier ballot, and say what you have accepted."""

    ballot: Ballot


class Promise(_Message, frozen=True):
    """Promised, and synced."""

    ballot: Ballot
    accepted: Ballot
    value: RegisterValue | None


class Accept(_Message, frozen=True):
    """Have the register hold this."""

    ballot: Ballot
    value: RegisterValue


class Accepted(_Message, frozen=True):
    """Accepted, and synced."""

    ballot: Ballot


class Outbid(_Message, frozen=True):
    """I have promised a later ballot."""

    ballot: Ballot  # that is refused
    promised: Ballot


class Seal(_Message, frozen=True):
    """I lead this epoch, says the register: refuse the leaders of earlier ones."""

    epoch: int
    takes_damaged: bool = False  # also if your log is damaged, or short


class Sealed(_Message, frozen=True):
    """Sealed, and synced, with the log up to its end."""

    epoch: int
    end: Mark
    is_whole: bool = True  # else the end says nothing


class Refused(_Message, frozen=True):
    """I am sealed at a later epoch than yours."""

    epoch: int  # that is refused
    sealed: int


class Append(_Message, frozen=True):
    """Have these entries after that one, in place of whatever follows it."""

    epoch: int  # of the leader, not of the entries
    after: Mark
    entries: tuple[Entry, ...]


class Appended(_Message, frozen=True):
    """My log is the leader's up to this index, and synced."""

    epoch: int
    index: int


class Missing(_Message, frozen=True):
    """I do not have the entry that yours were to follow."""

    epoch: int
    index: int  # try again after this one


class Heartbeat(_Message, frozen=True):
    """I lead: do not let yourself be sealed for a while."""

    epoch: int
    sent_at: int  # ns, by the leader's clock; the answer has it, too
    committed: Mark  # the last entry that is
    end: int  # index of the last entry
    answers: int  # the last `Heard.asks`
    membership: Membership | None = None  # as the register has it


class DiskHealth(msgspec.Struct, array_like=True, frozen=True):
    """How the disk of a server is."""

    is_full: bool = False  # there is no space, or little that is left for removals
    sync_ns: int = 0  # what a write to its log and a sync take now; 0 if it has done none lately


class Heard(_Message, frozen=True):
    """I will not."""

    epoch: int
    sent_at: int
    asks: int  # not 0: how far does your log go, after you have heard this?
    disk: DiskHealth = DiskHealth()
    needs: int = 0  # index of a checkpoint that comes here: what follows it is needed then


class Release(_Message, frozen=True):
    """I lead no more, and hold no promise to it."""

    epoch: int
    successor: str  # "" if it is for timers to say who leads next
    slow: tuple[str, ...] = ()  # who has handed over because of a slow disk, of late
    taken: RegisterValue | None = None  # the register, which has the successor's epoch already


class Behind(_Message, frozen=True):
    """I have not got the entries any more that you would need to have my log."""

    epoch: int
    base: Mark  # the last one that is gone
    source: str = ""  # who had better send a checkpoint than I; "" for nobody


class Fetch(_Message, frozen=True):
    """Say which entries you have from this index on."""

    epoch: int  # of the candidate; 0 for a repair
    first: int  # index
    count: int


class Fetched(_Message, frozen=True):
    """Here they are, as many as fit."""

    epoch: int
    after: Mark  # the entry before
    entries: tuple[Entry, ...]


class Trimmed(_Message, frozen=True):
    """My log begins behind what you lack, and what is gone was committed: let others lead."""

    base: int  # index of the last entry that is gone


class AskCheckpoint(_Message, frozen=True):
    """Send me what the entries have come to."""

    transfer: int  # a random number, which is in all that is said about it
    held: bytes = b""  # what need not be sent, as the drivers understand it
    after: int = 0  # how many others were just installed, so that this one had better be quicker


class CheckpointBegin(_Message, frozen=True):
    """Here it comes."""

    transfer: int
    mark: Mark  # of the last entry that is in it


class CheckpointPiece(_Message, frozen=True):
    """A piece of it."""

    transfer: int
    number: int  # from 1 on
    data: bytes


class PieceStored(_Message, frozen=True):
    """I have taken the pieces up to this one."""

    transfer: int
    number: int


class CheckpointEnd(_Message, frozen=True):
    """That was all."""

    transfer: int
    count: int  # of pieces


class CheckpointOver(_Message, frozen=True):
    """I send nothing more of it, or want nothing more: it is taken, or has failed."""

    transfer: int


class About(_Message, frozen=True):
    """What a follower says of itself, for those who ask the leader about it. The group itself does
    not read it."""

    body: bytes


CheckpointMessage = (
    AskCheckpoint | CheckpointBegin | CheckpointPiece | PieceStored | CheckpointEnd | CheckpointOver
)
Message = (
    AskSeal | WouldSeal | Prepare | Promise | Accept | Accepted | Outbid | Seal | Sealed | Refused
    | Append | Appended | Missing | Heartbeat | Heard | Release | Behind | Fetch | Fetched
    | Trimmed | About | CheckpointMessage
)  # fmt: skip

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """As bytes."""
    return _ENCODER.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """From bytes. Raises `msgspec.DecodeError`."""
    try:
        return _DECODER.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
