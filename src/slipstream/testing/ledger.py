"""What was promised to clients, kept apart from the engine, and whether it was kept.

The ledger sees only what clients see: acknowledgements, deliveries, confirmations. It knows what
retention allows to be gone. Whatever else is missing, changed, doubled or held back is a
`ViolationError`, whose text begins with the promise that was broken.
"""

from collections.abc import Iterable
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
    seq: int = 0  # as acknowledged; 0 while it is not


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
    certain: bool = True  # whether `out` is what the server has to think

    def wants(self, subject: str) -> bool:
        """Whether the consumer is to get messages on `subject`."""
        return not self.filter or matches(self.filter.encode(), subject.encode())


class Ledger:
    """The promises of one stream."""

    def __init__(self, retention: str, per_subject: int, window: int) -> None:
        self.retention = retention
        self.per_subject = per_subject  # max_msgs_per_subject; 0 is none
        self.window = window  # ns, of duplicates
        self.readers: dict[str, Reader] = {}
        self.attempts: list[Published] = []
        self.by_seq: dict[int, Published] = {}
        self.removed: set[int] = set()  # deleted or purged on request
        self.damaged: set[int] = set()  # harmed on disk by the test

    # -- publishing ------------------------------------------------------------------------------

    def attempt(self, subject: str, body: bytes, message_id: str, now: int) -> Published:
        """Somebody is about to publish."""
        message = Published(subject, body, message_id, now, len(self.attempts))
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

    # -- what may be gone ------------------------------------------------------------------------

    def may_be_gone(self, message: Published) -> bool:
        """Whether retention, limits or a request may have removed an acknowledged message."""
        if message.seq in self.removed:
            return True
        if self.per_subject:
            later = [a for a in self.attempts[message.order + 1 :] if a.subject == message.subject]
            if len(later) >= self.per_subject:
                return True
        readers = [r for r in self.readers.values() if r.wants(message.subject)]
        if self.retention == "workqueue":
            return any(message.seq in r.settled for r in readers)
        if self.retention == "interest":
            return all(message.seq in r.settled for r in readers)
        return False

    def check_stored(self, stored: dict[int, bytes], lost: Iterable[int]) -> None:
        """`stored` is all that the server has now; `lost` is what it says damage has taken."""
        missing = set(lost)
        for seq, message in sorted(self.by_seq.items()):
            if seq in stored:
                if stored[seq] != message.body:
                    raise ViolationError(f"checksum: {seq} is {stored[seq]!r}, it was {message}")
            elif seq in self.damaged:
                if seq not in missing and not self.may_be_gone(message):
                    raise ViolationError(f"lost: {seq} was damaged, and nobody says so")
            elif not self.may_be_gone(message):
                raise ViolationError(f"durable: {seq} was acknowledged and is gone, {message}")

    # -- consuming -------------------------------------------------------------------------------

    def delivered(self, reader: Reader, seq: int, subject: str, body: bytes) -> None:
        """A client was sent a message."""
        if not reader.wants(subject):
            raise ViolationError(f"filter: {reader.name} got {seq} on {subject}")
        known = self.by_seq.get(seq)
        if known is None:  # the acknowledgement may be on its way, or was lost in a crash
            known = self._adopt(seq, subject, body)
        if (known.subject, known.body) != (subject, body):
            raise ViolationError(f"checksum: {reader.name} got {seq} as {body!r}, it was {known}")
        if seq in reader.confirmed:
            raise ViolationError(f"position: {reader.name} got {seq} again, confirmed as settled")
        reader.seen.add(seq)
        reader.out.add(seq)
        reader.settled.discard(seq)

    def _adopt(self, seq: int, subject: str, body: bytes) -> Published:
        """What a consumer sees is durable: from now on it counts as acknowledged."""
        for message in self.attempts:
            if message.body == body and message.subject == subject and not message.seq:
                message.seq = seq
                self.by_seq[seq] = message
                return message
        raise ViolationError(f"durable: {seq} on {subject} was never published: {body!r}")

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
