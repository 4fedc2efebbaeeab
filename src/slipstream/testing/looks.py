"""What clients are shown of a stream, its consumers and their positions, and whether a crash has
taken it back.

Now and then a client of the simulation asks for information. What the answers say is written down:
up to which sequence there are messages, which have gone, and up to where consumers have settled
theirs. After each crash the stream has to go at least as far, and to have none of these.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from slipstream.testing.driver import Message, encode
from slipstream.testing.ledger import ViolationError


@dataclass
class Trust:
    """What of an answer the disk's trouble leaves to be relied on (docs/storage.md)."""

    ends: bool = True  # where the stream begins and ends
    removals: bool = True  # what has gone between
    kept: bool = True  # configurations, and where consumers are


class Looks:
    """See the module's text."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._count = 0
        self._asked: dict[str, str] = {}  # subjects, by inbox
        self._late: set[str] = set()  # inboxes of these that were asked while the disk was full
        self.last_seq = 0  # the highest that was shown
        self.gone: set[int] = set()
        self._floors: dict[str, int] = {}  # of consumers, as shown ...
        self._fresh: dict[str, int] = {}  # ... with what else has arrived just now

    def frame(self, stream: str, consumers: list[str]) -> bytes:
        """A request."""
        self._count += 1
        inbox = f"_INBOX.t.l{self._count}"
        name = self.random.choice(consumers)
        subject = self.random.choice(
            (f"STREAM.INFO.{stream}", f"CONSUMER.INFO.{stream}.{name}", "STREAM.LIST")
        )
        self._asked[inbox] = subject
        body = b'{"deleted_details":true}' if subject.startswith("STREAM.INFO") else b""
        return encode(f"$JS.API.{subject}", body, inbox)

    def has_space_again(self) -> None:
        """The disk is full no more; what was asked before may be answered as of then."""
        self._late.update(self._asked)

    def is_late(self, message: Message) -> bool:
        """Whether a message may answer what was asked while the disk was full."""
        return message.subject in self._late

    def take(self, message: Message, stream: str, trust: Trust) -> dict[str, Any] | None:
        """The information about `stream` in an answer, {} in one about something else; None if it
        is no answer to a request from here."""
        subject = self._asked.pop(message.subject, "")
        self._late.discard(message.subject)
        if not subject:
            return None
        answer = message.json()
        if "error" in answer:
            raise ViolationError(f"info: {subject} is refused: {answer['error']}")
        if subject.startswith("CONSUMER"):
            if trust.kept:
                floor = answer["ack_floor"]["stream_seq"]
                self._fresh[answer["name"]] = max(self._fresh.get(answer["name"], 0), floor)
            return {}
        (info,) = [
            one for one in answer.get("streams", [answer]) if one["config"]["name"] == stream
        ]
        self._note(info["state"], trust)
        found: dict[str, Any] = info
        return found

    def _note(self, state: dict[str, Any], trust: Trust) -> None:
        lost = state.get("lost", {}).get("msgs", [])  # of these a start knows when it reads them
        if trust.ends:
            self.last_seq = max(self.last_seq, state["last_seq"])
            self.gone.update(set(range(1, state["first_seq"])).difference(lost))
        if trust.removals:
            self.gone.update(set(state.get("deleted", ())).difference(lost))

    def arrived(self) -> None:
        """All that was sent before what was shown has been seen."""
        for name, floor in self._fresh.items():
            self._floors[name] = max(self._floors.get(name, 0), floor)
        self._fresh.clear()

    def delivered(self, name: str, seq: int) -> None:
        """A consumer has delivered a message."""
        if seq <= self._floors.get(name, 0):
            raise ViolationError(f"info: {name} delivers {seq}, and was said to be done with it")

    def restarted(self, state: dict[str, Any], floors: dict[str, int]) -> None:
        """What a server shows that has just started."""
        self._asked.clear()
        self._late.clear()
        self._fresh.clear()
        if state["last_seq"] < self.last_seq:
            raise ViolationError(
                f"info: the stream ends at {state['last_seq']}, and was shown up to {self.last_seq}"
            )
        there = set(range(state["first_seq"], state["last_seq"] + 1)) - set(
            state.get("deleted", ())
        )
        if there & self.gone:
            raise ViolationError(f"info: {sorted(there & self.gone)} are back, shown to be gone")
        for name, floor in floors.items():
            if floor < self._floors.get(name, 0):
                raise ViolationError(
                    f"info: {name} is at {floor}, and was shown at {self._floors[name]}"
                )
