"""A second stream in a simulated life: what is published to it in the turn of another publish
shares an entry of the commit log with that."""

from dataclasses import dataclass, field
from random import Random

from slipstream.testing.driver import Message, encode
from slipstream.testing.ledger import ViolationError

NEIGHBOUR = "T"
SUBJECT = "t.x"


@dataclass
class Neighbour:
    """What was published to the stream, and what must be there. Bodies are never the same twice."""

    random: Random
    count: int = 0
    waiting: dict[str, bytes] = field(default_factory=dict)  # bodies by inbox
    deleting: dict[str, int] = field(default_factory=dict)  # sequences by inbox
    sent: set[bytes] = field(default_factory=set)
    stored: dict[int, bytes] = field(default_factory=dict)  # what was acknowledged
    gone: set[int] = field(default_factory=set)  # what may have been removed
    erased: set[int] = field(default_factory=set)  # what was, as was answered

    def frame(self) -> bytes:
        """A publish, or now and then a deletion of the last message but one."""
        self.count += 1
        inbox = f"_INBOX.t.n{self.count}"
        live = sorted(set(self.stored) - self.gone)
        if live and self.random.random() < 0.15:
            seq = self.random.choice(live[-3:])
            self.gone.add(seq)
            self.deleting[inbox] = seq
            return encode(f"$JS.API.STREAM.MSG.DELETE.{NEIGHBOUR}", b'{"seq":%d}' % seq, inbox)
        body = b"%d:" % self.count + bytes(self.random.choice((0, 40, 700)))
        self.waiting[inbox] = body
        self.sent.add(body)
        return encode(SUBJECT, body, inbox)

    def take(self, message: Message) -> bool:
        """Whether a message is an answer to something of these."""
        seq = self.deleting.pop(message.subject, 0)
        if seq:
            if "error" not in message.json():
                self.erased.add(seq)
            return True
        body = self.waiting.pop(message.subject, None)
        if body is None:
            return False
        answer = message.json() if message.body else {}
        if "seq" in answer and "error" not in answer:
            seq = answer["seq"]
            if seq in self.stored:
                raise ViolationError(f"durable: {seq} of the neighbour was given out twice")
            self.stored[seq] = body
        return True

    def check(self, found: dict[int, bytes]) -> None:
        """What was acknowledged is there, and nothing that nobody published."""
        for seq, body in self.stored.items():
            if seq in self.gone:
                continue
            if found.get(seq) != body:
                raise ViolationError(f"durable: {seq} of the neighbour is {found.get(seq)!r:.9}")
        for seq, body in found.items():
            if body not in self.sent:
                raise ViolationError(f"stored: {seq} of the neighbour was never published")
            if seq in self.erased:
                raise ViolationError(f"confirmed: {seq} of the neighbour was deleted")

    def restarted(self, found: dict[int, bytes]) -> None:
        """The server has started again: what was on its way is there, or is lost."""
        self.waiting.clear()
        self.deleting.clear()
        self.check(found)
        self.stored = dict(found)
        self.gone -= set(found)
