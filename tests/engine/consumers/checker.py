"""What a consumer owes its clients, worked out from what they see on the wire alone.

`ConsumerModel` knows the messages that were acknowledged to publishers, what arrived at which
request, what was acknowledged and how, and the time. From that follows what must have been
delivered by now; the engine's own books are not asked.
"""

from dataclasses import dataclass, field
from typing import Any

from slipstream.testing.driver import Client, Message
from slipstream.wire.subjects import matches

MS = 1_000_000


@dataclass
class Request:
    """A pull request, or the subscription of a push consumer (`left` without bound)."""

    client: Client
    sid: str
    left: int
    expires_at: int = 0
    listening: bool = True
    ended: bool = False

    def waits(self, now: int) -> bool:
        """Whether it must be served if there is something for it."""
        if self.ended or not self.listening or self.left <= 0 or self.client.transport.backlog:
            return False
        return not self.expires_at or now < self.expires_at


@dataclass
class Out:
    """A message that was delivered and not settled."""

    count: int
    deadline: int  # 0: due at once


@dataclass
class ConsumerModel:
    """One consumer, as its clients know it; times in ns."""

    name: str
    config: dict[str, Any]
    start: int  # the first sequence that it may deliver
    requests: dict[str, Request] = field(default_factory=dict)
    out: dict[int, Out] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)  # did not match once: perhaps passed over
    position: int = 0  # the highest sequence delivered
    paused_until: int = 0

    def matches(self, subject: str) -> bool:
        """Whether a message on `subject` is for this consumer."""
        filters = self.config.get("filter_subjects") or [self.config.get("filter_subject", ">")]
        return any(matches(one.encode(), subject.encode()) for one in filters)

    @property
    def acks(self) -> bool:
        return bool(self.config["ack_policy"] != "none")

    @property
    def most(self) -> int:
        """How often a message may be delivered."""
        found: int = self.config.get("max_deliver", -1)
        return found if found > 0 else 1 << 30

    # -- what happened -------------------------------------------------------------------------

    def delivered(self, message: Message, live: dict[int, str], now: int) -> None:
        """A message arrived: it must be one that was owed."""
        count, seq = (int(message.reply.split(".")[i]) for i in (4, 5))
        subject = message.subject
        assert self.matches(subject) or seq in self.out, (self.name, subject, "does not match")
        assert now >= self.paused_until, (self.name, seq, "delivered while paused")
        assert seq not in self.settled, (self.name, seq, "delivered though it was settled")
        assert count == self.counts.get(seq, 0) + 1, (self.name, seq, count, "wrong count")
        assert count <= self.most, (self.name, seq, count, "delivered too often")
        if count == 1:
            assert seq > self.position, (self.name, seq, "went back")
            skipped = [owed for owed in self.undelivered(live) if owed < seq]
            assert not skipped, (self.name, seq, skipped, "left out")
            skipped = [owed for owed in self.undelivered(live) if owed < seq]
            assert not skipped, (self.name, seq, skipped, "left out")
            self.position = seq
        self.counts[seq] = count
        if self.acks:
            self.out[seq] = Out(count, now + self.wait(count))

    def wait(self, count: int) -> int:
        """How long a client has after the delivery number `count`."""
        backoff = self.config.get("backoff")
        if backoff:
            return int(backoff[min(count, len(backoff)) - 1])
        return int(self.config.get("ack_wait", 0))

    def acknowledged(self, seq: int, body: bytes, now: int) -> None:
        """A client acknowledged `seq` in one of the ways."""
        if body in (b"", b"+ACK", b"+TERM") and self.config["ack_policy"] == "all":
            self._settle([s for s in self.out if s <= seq])
        found = self.out.get(seq)
        if found is None:
            return
        if body in (b"", b"+ACK", b"+TERM"):
            self._settle([seq])
        elif body == b"-NAK":
            found.deadline = 0
        elif body.startswith(b"-NAK"):
            found.deadline = now + int(body.split()[1].removesuffix(b"ms")) * MS
        elif body == b"+WPI" and found.deadline:
            found.deadline = now + self.wait(found.count)

    def _settle(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.out[seq]
        self.settled.update(seqs)

    def give_up(self, live: dict[int, str], now: int, syncing: bool) -> None:
        """Forget what was delivered as often as it may be, and what has gone from the stream (of
        which consumers may hear no sooner than the disk is done)."""
        for seq, found in list(self.out.items()):
            if (seq not in live and not syncing) or (
                found.count >= self.most and 0 < found.deadline <= now
            ):
                del self.out[seq]
                self.settled.add(seq)

    def refiltered(self, config: dict[str, Any], live: dict[int, str]) -> None:
        """The configuration was changed: what an old filter passed over stays behind."""
        self.passed |= {seq for seq, subject in live.items() if not self.matches(subject)}
        self.config = config

    # -- what is owed --------------------------------------------------------------------------

    def undelivered(self, live: dict[int, str]) -> list[int]:
        """Live messages that match and come after what was delivered."""
        after = max(self.position + 1, self.start)
        return sorted(
            seq
            for seq, subject in live.items()
            if seq >= after and seq not in self.passed and self.matches(subject)
        )

    def unsure(self, live: dict[int, str]) -> list[int]:
        """Live messages that match and are to come, unless an old filter passed over them."""
        return [s for s in self.passed & live.keys() if s > self.position and self.matches(live[s])]

    def due(self, live: dict[int, str], now: int) -> list[int]:
        """Messages to be delivered again."""
        overdue = [s for s, o in self.out.items() if o.deadline <= now and o.count < self.most]
        return [seq for seq in overdue if seq in live]

    def exhausted(self, now: int) -> list[int]:
        """Messages that will be given up once somebody asks."""
        return [s for s, o in self.out.items() if o.deadline <= now and o.count >= self.most]

    def has_room(self, now: int) -> bool:
        """Whether a new message may go out."""
        most = self.config.get("max_ack_pending", 0) if self.acks else 0
        return most <= 0 or len(self.out) - len(self.exhausted(now)) < most

    def stalls(self, live: dict[int, str], now: int) -> str:
        """Why the consumer should have delivered something but has not; "" if all is well."""
        if now < self.paused_until or not any(r.waits(now) for r in self.requests.values()):
            return ""
        due = self.due(live, now)
        if due:
            return f"{self.name} does not deliver {due} again, though somebody waits"
        if self.has_room(now) and self.undelivered(live):
            return f"{self.name} does not deliver {self.undelivered(live)}, though somebody waits"
        return ""
