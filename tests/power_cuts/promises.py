"""What clients had been answered before a cut, and whether a server that starts after it holds it.

A workload notes here what it asks and when, and when the answer came (ns of the monotonic clock
that the trace uses, too). `broken` compares that with what clients find afterwards: what was
answered before the cut must be there, what was asked may be, and nothing else.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic_ns

_LOSS = re.compile(r"has lost \d+ message")


@dataclass(slots=True, eq=False)
class Asked:
    """A request: when it was sent, and when its success was known (0: never)."""

    sent: int = field(default_factory=monotonic_ns)
    answered: int = 0

    def succeeded(self) -> None:
        """The answer is here."""
        self.answered = monotonic_ns()

    def may_count(self, cut: int) -> bool:
        """Whether it may have had an effect before the cut."""
        return self.sent < cut

    def counts(self, cut: int) -> bool:
        """Whether it was answered before the cut."""
        return 0 < self.answered < cut


@dataclass(slots=True, eq=False)
class Published(Asked):
    """A message; its body is unlike any other's."""

    stream: str = ""
    subject: str = ""
    body: bytes = b""
    sequence: int = 0  # 0 until it is known
    read_at: int = 0  # when a client was first given it; 0: never
    unit: int = 0  # of those with the same number there are all or none; 0: it stands alone

    def was_read(self) -> None:
        """A client has been given it."""
        self.read_at = self.read_at or monotonic_ns()

    def is_promised(self, cut: int) -> bool:
        """Whether somebody knew before the cut that it is stored."""
        return self.counts(cut) or 0 < self.read_at < cut


@dataclass(slots=True, eq=False)
class Removal(Asked):
    """Of one message, if `sequence` is given, or of those below it, on a subject, or all."""

    sequence: int = 0
    below: int = 0
    subject: str = ""

    def concerns(self, message: Published) -> bool:
        """Whether it is about a message."""
        if self.sequence:
            return message.sequence == self.sequence
        if self.below:
            return not message.sequence or message.sequence < self.below
        return self.subject in ("", message.subject)

    def may_remove(self, message: Published, cut: int) -> bool:
        """Whether it may be why the message is not there."""
        was_late = 0 < self.answered < message.sent
        return self.may_count(cut) and not was_late and self.concerns(message)

    def has_removed(self, message: Published, cut: int) -> bool:
        """Whether the message must not be there any more."""
        was_there = 0 < message.answered < self.sent
        return self.counts(cut) and was_there and self.concerns(message)


@dataclass(slots=True, eq=False)
class State(Asked):
    """Something has become `value`; None: it is gone."""

    value: str | None = None


@dataclass
class FoundStream:
    """A stream as a client sees it after the cut."""

    description: str
    last_sequence: int
    messages: dict[bytes, tuple[int, str]] = field(default_factory=dict)  # body: sequence, subject


@dataclass
class FoundConsumer:
    """A consumer, and what it has delivered until it had nothing more."""

    description: str
    bodies: set[bytes] = field(default_factory=set)


@dataclass
class Found:
    """All that clients found."""

    health: list[str] = field(default_factory=list)  # what the server says is wrong
    streams: dict[str, FoundStream] = field(default_factory=dict)
    consumers: dict[tuple[str, str], FoundConsumer] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


class Promises:
    """What was asked and answered, by all clients of one workload."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Published]] = defaultdict(list)  # by stream
        self.removals: dict[str, list[Removal]] = defaultdict(list)  # of many, by stream
        self.deletions: dict[str, dict[int, Removal]] = defaultdict(dict)  # by stream, sequence
        # One client changes each of these, one step after the other.
        self.streams: dict[str, list[State]] = defaultdict(list)
        self.consumers: dict[tuple[str, str], list[State]] = defaultdict(list)
        self.keys: dict[str, list[State]] = defaultdict(list)
        # Acknowledgements of messages, by stream and consumer, by body.
        self.acks: dict[tuple[str, str], dict[bytes, Asked]] = defaultdict(dict)
        self.work_queues: set[str] = set()  # streams whose messages go when they are acknowledged
        self.failures: list[str] = []  # answers that were no success

    @property
    def answers(self) -> int:
        """How many successes were known."""
        asked: list[Asked] = []
        for some in (self.messages, self.removals, self.streams, self.keys):
            asked += [one for several in some.values() for one in several]
        for states in self.consumers.values():
            asked += states
        for deletions in self.deletions.values():
            asked += deletions.values()
        for acks in self.acks.values():
            asked += acks.values()
        return sum(one.answered > 0 for one in asked)

    def false_alarms(self, found: Found) -> list[str]:
        """Reports of lost messages. A torn last batch, which nobody was answered for, is reported
        like damage (docs/storage.md); what was promised `broken` looks for by itself."""
        return sorted({text for text in found.health if _LOSS.search(text)})

    def broken(self, found: Found, cut: int) -> list[str]:
        """The promises that were broken, each in words."""
        return [
            *(f"the server is not well: {text}" for text in found.health if not _LOSS.search(text)),
            *self._broken_states(found, cut),
            *(text for name in self.messages for text in self._broken_messages(name, found, cut)),
            *self._broken_positions(found, cut),
        ]

    # -- configurations, keys ----------------------------------------------------------------------

    def _broken_states(self, found: Found, cut: int) -> Iterator[str]:
        for name, states in self.streams.items():
            there = found.streams.get(name)
            yield from _unlike(f"stream {name}", states, there.description if there else None, cut)
        for consumer, states in self.consumers.items():
            one = found.consumers.get(consumer)
            yield from _unlike(
                f"consumer {consumer}", states, one.description if one else None, cut
            )
        for key, states in self.keys.items():
            yield from _unlike(f"key {key}", states, found.keys.get(key), cut)

    # -- messages ----------------------------------------------------------------------------------

    def _broken_messages(self, stream: str, found: Found, cut: int) -> Iterator[str]:
        there = found.streams.get(stream, FoundStream("", 0))
        known = {message.body: message for message in self.messages[stream]}
        for body, (sequence, subject) in there.messages.items():
            message = known.get(body)
            what = f"{stream}: message {sequence} ({body[:24]!r})"
            if message is None or not message.may_count(cut):
                yield f"{what} was never published"
            elif subject != message.subject or message.sequence not in (0, sequence):
                yield f"{what} was published on {message.subject} as {message.sequence}"
        highest = 0
        units: dict[int, set[bool]] = defaultdict(set)
        for message in known.values():
            is_there = message.body in there.messages
            what = f"{stream}: message {message.sequence} ({message.body[:24]!r})"
            if message.unit and message.may_count(cut):
                units[message.unit].add(is_there)
            if message.is_promised(cut):
                highest = max(highest, message.sequence)
                if not is_there and not self._may_be_gone(message, cut):
                    was = "was acknowledged" if message.counts(cut) else "had been read"
                    yield f"{what} {was}, and is gone"
            if is_there and self._is_gone(message, cut):
                yield f"{what} was removed, and is back"
        is_first = len([state for state in self.streams[stream] if state.value is None]) == 0
        if stream in found.streams and is_first and there.last_sequence < highest:
            yield f"{stream}: last sequence {there.last_sequence}, but {highest} was known"
        for unit, some in units.items():
            if len(some) > 1:
                yield f"{stream}: a part of the atomic batch {unit} is there"

    def _may_be_gone(self, message: Published, cut: int) -> bool:
        one = self.deletions[message.stream].get(message.sequence)
        if one is not None and one.may_remove(message, cut):
            return True
        if message.stream in self.work_queues:
            taken = [acks for (name, _), acks in self.acks.items() if name == message.stream]
            acks = [acks[message.body] for acks in taken if message.body in acks]
            if any(ack.may_count(cut) for ack in acks):
                return True
        return any(one.may_remove(message, cut) for one in self.removals[message.stream])

    def _is_gone(self, message: Published, cut: int) -> bool:
        one = self.deletions[message.stream].get(message.sequence)
        if one is not None and one.has_removed(message, cut):
            return True
        if message.stream in self.work_queues:
            taken = [acks for (name, _), acks in self.acks.items() if name == message.stream]
            if any(acks[message.body].counts(cut) for acks in taken if message.body in acks):
                return True
        return any(one.has_removed(message, cut) for one in self.removals[message.stream])

    # -- positions ---------------------------------------------------------------------------------

    def _broken_positions(self, found: Found, cut: int) -> Iterator[str]:
        for (stream, name), there in found.consumers.items():
            acks = self.acks.get((stream, name))
            if acks is None or stream not in found.streams:
                continue
            for body in there.bodies:
                if body in acks and acks[body].counts(cut):
                    yield f"consumer {name} of {stream} delivers {body[:24]!r} after its double ack"
            for body in found.streams[stream].messages.keys() - there.bodies:
                if body not in acks or not acks[body].may_count(cut):
                    yield f"consumer {name} of {stream} passes over {body[:24]!r}"


def _unlike(what: str, states: list[State], there: str | None, cut: int) -> Iterator[str]:
    """Whether something is neither as was answered last nor as what was asked after that."""
    allowed: list[str | None] = [None]
    for state in states:
        if state.counts(cut):
            allowed = [state.value]
        elif state.may_count(cut):
            allowed.append(state.value)
    if there not in allowed:
        yield f"{what} is {there!r}, and was {' or '.join(map(repr, allowed))}"
