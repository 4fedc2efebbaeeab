"""What was promised to clients, kept apart from the engine, and whether it was kept.

The ledger sees only what clients see: acknowledgements, deliveries, confirmations. It knows what
retention allows to be gone. Whatever else is missing, changed, doubled or held back is a
`ViolationError`, whose text begins with the promise that was broken.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from slipstream.wire.subjects import matches


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Published:
    """A message that somebody tried to publish."""

    subject: str
    body: bytes
    message_id: str
    at: int  # ns, when it was last sent
    order: int  # of the attempts
    rollup: str = ""  # "all" or "sub": it takes the place of those before it
    seq: int = 0  # as acknowledged; 0 while it is not
    ttl: int = 0  # ns that it lives; 0 is for ever
    sent_again_at: int = 0  # ns, if it may be a later attempt that was stored
    has_copies: bool = False  # whether its body has records of the stream's own files


@dataclass
class Reader:
    """What a consumer's client knows."""

    name: str
    filter: str  # "" for everything
    room_max: int
    out: set[int] = field(default_factory=set)  # delivered and not settled
    seen: set[int] = field(default_factory=set)  # ever delivered
    settled: set[int] = field(default_factory=set)  # acknowledged or terminated by the client
    confirmed: set[int] = field(default_factory=set)  # ... and confirmed by the server
    acked: set[int] = field(default_factory=set)  # acknowledged at some time, and not terminated
    dead: set[int] = field(default_factory=set)  # seen as dead letters
    certain: bool = True  # whether `out` is what the server has to think

    def wants(self, subject: str) -> bool:
        """Whether the consumer is to get messages on `subject`."""
        return not self.filter or matches(self.filter.encode(), subject.encode())


class Ledger:
    """The promises of one stream."""

    def __init__(
        self, retention: str, per_subject: int, window: int, messages_max: int = 0
    ) -> None:
        self.retention = retention
        self.messages_max = messages_max  # max_msgs; 0 is none
        self.per_subject = per_subject  # max_msgs_per_subject; 0 is none
        self.window = window  # ns, of duplicates
        self.readers: dict[str, Reader] = {}
        self.attempts: list[Published] = []
        self.by_seq: dict[int, Published] = {}
        self.removed: set[int] = set()  # deleted or purged on request
        self.damaged: set[int] = set()  # harmed on disk by the test
        self.now = 0  # ns; what lives for a time of its own is judged by it
        self.gone: set[int] = set()  # deleted or purged, and the server said so
        self._purges: list[tuple[int, str]] = []  # attempts before which it was, and the subject
        self.watches_losses = False  # what is reported as lost has to be accounted for
        self._mistaken: set[int] = set()  # reported as lost, and nobody can do better
        self.was_full = False  # the disk, which may not have kept where the stream ends
        self.harmed_at_large = False  # files were harmed by the test: what is reported lost may be

    # -- publishing ------------------------------------------------------------------------------

    def attempt(
        self, subject: str, body: bytes, message_id: str, now: int, rollup: str = "", ttl: int = 0
    ) -> Published:
        """Somebody is about to publish."""
        self.now = now
        order = len(self.attempts)
        message = Published(subject, body, message_id, now, order, rollup, ttl=ttl)
        self.attempts.append(message)
        return message

    def acknowledged(self, message: Published, seq: int, duplicate: bool) -> None:
        """The server says that it has `message` as `seq`."""
        known = self.by_seq.get(seq)
        if duplicate:
            if known is not None and known.message_id != message.message_id:
                raise ViolationError(
                    f"dedupe: {message.message_id} is said to be {seq}, which is {known}"
                )
            return
        if known is not None and known.body != message.body:
            raise ViolationError(f"acknowledged: {seq} was given to {known} and to {message}")
        original = self._stored_under(message.message_id, message.at)
        if original is not None and original.seq != seq:
            raise ViolationError(
                f"dedupe: {message.message_id} was stored again as {seq}; it is {original.seq}"
            )
        message.seq = seq
        self.by_seq[seq] = message

    def _stored_under(self, message_id: str, now: int) -> Published | None:
        """The message that a new one with this id would be a duplicate of."""
        if not message_id:
            return None
        for message in self.by_seq.values():
            if message.message_id == message_id and now - message.at < self.window:
                if not self.may_be_gone(message) and message.seq not in self.damaged:
                    return message
        return None

    # -- removing --------------------------------------------------------------------------------

    def purge(self, pattern: str) -> set[int]:
        """Somebody is about to purge what matches `pattern`; the sequences that this concerns for
        certain. What was sent before and not acknowledged yet may go with it."""
        self._purges.append((len(self.attempts), pattern))
        raw = pattern.encode()
        return {seq for seq, m in self.by_seq.items() if matches(raw, m.subject.encode())}

    def _was_purged(self, message: Published) -> bool:
        return any(
            message.order < order and matches(pattern.encode(), message.subject.encode())
            for order, pattern in self._purges
        )

    @property
    def is_harmed(self) -> bool:
        """Whether the test has damaged files: what a damaged record removed comes back."""
        return self.harmed_at_large or bool(self.damaged)

    def removal_confirmed(self, sequences: set[int]) -> None:
        """The server says that these are gone."""
        self.gone |= sequences

    # -- what may be gone ------------------------------------------------------------------------

    def may_be_gone(self, message: Published) -> bool:
        """Whether retention, limits or a request may have removed an acknowledged message, if all
        that was tried has been stored for a while."""
        return self._may_be_gone(message, self.attempts[message.order + 1 :])

    def _may_be_gone(self, message: Published, later: list[Published]) -> bool:
        """Whether `message` may be gone if `later` were stored after it."""
        was_purged = self._was_purged(message)
        if message.seq in self.removed or was_purged or self.has_expired(message, 0):
            return True
        if 0 < self.messages_max <= len(later):
            return True
        alike = [a for a in later if a.subject == message.subject]
        if 0 < self.per_subject <= len(alike):
            return True
        if any(a.rollup == "all" for a in later) or any(a.rollup for a in alike):
            return True
        return self._is_done_with(message)

    def may_be_removed(self, message: Published) -> bool:
        """Whether it may be gone for another reason than that its consumers are done with it."""
        retention, self.retention = self.retention, "limits"
        try:
            return self.may_be_gone(message)
        finally:
            self.retention = retention

    def _is_done_with(self, message: Published) -> bool:
        readers = [r for r in self.readers.values() if r.wants(message.subject)]
        if self.retention == "workqueue":
            return any(message.seq in r.settled for r in readers)
        if self.retention == "interest":
            return all(message.seq in r.settled for r in readers)
        return False

    def has_expired(self, message: Published, late: int) -> bool:
        """Whether its time has been over for `late` ns, whichever attempt was stored if not 0."""
        since = max(message.at, message.sent_again_at) if late else message.at
        return 0 < message.ttl <= self.now - since - late

    def check_expired(self, stored: Iterable[int], late: int) -> None:
        """What `stored` still has may not have been over for `late` ns."""
        for seq in stored:
            message = self.by_seq.get(seq)
            if message is not None and self.has_expired(message, late):
                raise ViolationError(f"expiry: {seq} is still there, {message}")

    def check_stored(
        self,
        stored: dict[int, bytes],
        lost: Iterable[int],
        failed: bool = False,
        last_seq: int = 0,
        torn: Collection[int] = (),
    ) -> None:
        """`stored` is all that the server has now; `lost` is what it says damage has taken,
        `last_seq` which sequence it gave out last, `torn` what a crash took before it was durable.
        If its log has `failed`, what it says of itself is not what is on disk."""
        missing = set(lost)
        if not self.is_harmed:
            untold = missing - self.removed  # but what was being overwritten when the power failed
            if self.was_full or any(one.has_copies and not one.seq for one in self.attempts):
                self._mistaken |= untold  # copies that a torn one leaves pass for records
            untold -= self._mistaken
            if untold and self.watches_losses:
                raise ViolationError(f"lost: {sorted(untold)} are reported, and a crash took them")
            for seq in self.gone.intersection(stored):
                raise ViolationError(f"removed: {seq} is back, and was said to be gone")
        tried = {message.body: message for message in reversed(self.attempts)}
        known = {seq: tried[body] for seq, body in stored.items() if body in tried} | self.by_seq
        # Only what was acknowledged, or is there without that, may have removed others ...
        last = max([*known, last_seq + 1])
        accounted = sorted(seq for seq in missing.union(known, torn) if seq < last)
        mute = [a for a in self.attempts if not a.seq and a.body not in stored.values()]
        # ... or was removed itself. Who knows what a damaged message removed?
        unknown = failed or any(seq not in self.by_seq for seq in self.damaged)
        for seq, message in sorted(self.by_seq.items()):
            later = [other for at, other in known.items() if at > seq]
            # How many sequences after this one are removed: a fault may have skipped billions.
            between = last - 1 - seq - (len(accounted) - bisect_right(accounted, seq))
            if between > 0:
                later += [a for a in mute if a.order > message.order][: max(between, 20)]
            if seq in stored:
                if stored[seq] != message.body:
                    raise ViolationError(f"checksum: {seq} is {stored[seq]!r}, it was {message}")
            elif seq in self.damaged:
                if seq not in missing and not self.may_be_gone(message):
                    raise ViolationError(f"lost: {seq} was damaged, and nobody says so")
            elif self.harmed_at_large and seq in missing:
                self.damaged.add(seq)
            elif not self._may_be_gone(message, later) and not (
                unknown and self.may_be_gone(message)
            ):
                raise ViolationError(f"durable: {seq} was acknowledged and is gone, {message}")
        for seq, body in stored.items():
            if body not in tried:
                raise ViolationError(f"forged: {seq} was never published: {body[:60]!r}")

    def adopt_all(self, stored: dict[int, bytes]) -> None:
        """What a server has when it starts is durable: from now on it counts as acknowledged."""
        for seq, body in stored.items():
            if seq not in self.by_seq:
                self._adopt(seq, body)

    # -- consuming -------------------------------------------------------------------------------

    def delivered(self, reader: Reader, seq: int, subject: str, body: bytes) -> None:
        """A client was sent a message."""
        if not reader.wants(subject):
            raise ViolationError(f"filter: {reader.name} got {seq} on {subject}")
        known = self.by_seq.get(seq)
        if known is None:  # the acknowledgement may be on its way, or was lost in a crash
            known = self._adopt(seq, body)
            if known is None:
                raise ViolationError(f"durable: {seq} on {subject} was never published: {body!r}")
        if (known.subject, known.body) != (subject, body):
            raise ViolationError(f"checksum: {reader.name} got {seq} as {body!r}, it was {known}")
        if seq in self.gone and not self.is_harmed:
            raise ViolationError(f"removed: {reader.name} got {seq}, which was said to be gone")
        if seq in reader.confirmed:
            raise ViolationError(f"position: {reader.name} got {seq} again, confirmed as settled")
        if seq in reader.dead and not self.is_harmed:
            raise ViolationError(f"dead letter: {reader.name} got {seq}, which is one")
        reader.seen.add(seq)
        reader.out.add(seq)
        reader.settled.discard(seq)

    def _adopt(self, seq: int, body: bytes) -> Published | None:
        """What a consumer sees is durable: from now on it counts as acknowledged. None if nobody
        has tried to publish it, or all attempts have been acknowledged."""
        alike = [a for a in self.attempts if a.body == body and not a.seq]
        if not alike:
            return None
        message = alike[0]
        message.seq = seq
        message.sent_again_at = alike[-1].at
        self.by_seq[seq] = message
        return message

    def settled(self, reader: Reader, seq: int) -> None:
        """The client has acknowledged or terminated it."""
        reader.settled.add(seq)
        reader.out.discard(seq)

    def confirmed(self, reader: Reader, seq: int) -> None:
        """The server has confirmed that."""
        reader.confirmed.add(seq)

    def restarted(self) -> None:
        """The server forgets acknowledgements that it did not confirm."""
        for reader in self.readers.values():
            reader.certain = False

    def check_letters(
        self, reader: Reader, letters: list[int], unsettled: set[int], stored: Iterable[int]
    ) -> None:
        """`letters` are the sequences of the consumer's dead letters, `unsettled` what it has still
        to deliver or to be told of: a message that nobody acknowledged is one of both."""
        found = set(letters)
        if len(found) < len(letters):
            raise ViolationError(f"dead letter: {reader.name} has one twice: {sorted(letters)}")
        gone = reader.dead - found
        if gone:
            raise ViolationError(f"dead letter: those of {sorted(gone)} were there, and are not")
        reader.dead = found
        reader.settled |= found
        reader.out -= found
        there = set(stored)
        for seq in sorted(reader.seen - reader.acked):
            message = self.by_seq.get(seq)
            if message is None or self.may_be_removed(message) or seq in self.damaged:
                continue
            if (seq in found) == (seq in unsettled):
                kind = "both" if seq in found else "neither"
                raise ViolationError(f"dead letter: {seq} is {kind} one and to be delivered")
            if seq in unsettled and seq not in there:
                raise ViolationError(f"dead letter: {seq} is to be delivered, and is gone")

    def check_served(self, reader: Reader, requests: int, stored: Iterable[int]) -> None:
        """With `requests` waiting and the server at rest, nothing may be held back."""
        room = reader.room_max - len(reader.out) if reader.certain else 0
        if reader.room_max >= len(self.attempts) * 2:
            room = 1
        if requests <= 0 or room <= 0:
            return
        for seq in stored:
            message = self.by_seq.get(seq)
            if message is None or seq in reader.seen or not reader.wants(message.subject):
                continue
            if not self.may_be_gone(message) and seq not in self.damaged:
                raise ViolationError(
                    f"stall: {reader.name} has {requests} waiting requests and room, "
                    f"and is not sent {seq}"
                )
