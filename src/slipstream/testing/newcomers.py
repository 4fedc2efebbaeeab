"""Streams that come and go in a simulated life: each is created and deleted again and again, with
messages that are published in the turn of its creation or later."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slipstream.testing.driver import Message, encode
from slipstream.testing.ledger import ViolationError

NAMES = ("N0", "N1")


@dataclass
class Life:
    """One stream from a creation on, as its request asked for it."""

    number: int  # of the request, which is the stream's description
    sent: set[bytes] = field(default_factory=set)
    stored: dict[int, bytes] = field(default_factory=dict)  # what was acknowledged


@dataclass
class Newcomers:
    """What was asked of them, and what may or must be there."""

    random: Random
    count: int = 0
    # What may be there, with the number of the request that makes it so: from the last answer on.
    possible: dict[str, list[tuple[int, Life | None]]] = field(
        default_factory=lambda: {name: [(0, None)] for name in NAMES}
    )
    changing: dict[str, tuple[str, int]] = field(default_factory=dict)  # name, number; by inbox
    publishing: dict[str, tuple[Life, bytes]] = field(default_factory=dict)  # by inbox

    def frames(self) -> tuple[bytes, bytes]:
        """Requests or a publish, and what is published in the turn of a creation among them."""
        name = self.random.choice(NAMES)
        life = self.possible[name][-1][1]
        if life is None:
            frame = self._create(name)
            return frame, self._publish(name) if self.random.random() < 0.5 else b""
        if self.random.random() < 0.3:
            frame = self._change(f"STREAM.DELETE.{name}", b"", name, None)
            return frame + self._create(name) if self.random.random() < 0.5 else frame, b""
        return self._publish(name), b""

    def _create(self, name: str) -> bytes:
        life = Life(self.count + 1)
        config = {"name": name, "subjects": [f"{name}.>"], "description": str(life.number)}
        return self._change(f"STREAM.CREATE.{name}", json.dumps(config).encode(), name, life)

    def _change(self, operation: str, body: bytes, name: str, life: Life | None) -> bytes:
        self.count += 1
        inbox = f"_INBOX.t.s{self.count}"
        self.changing[inbox] = (name, self.count)
        self.possible[name].append((self.count, life))
        return encode(f"$JS.API.{operation}", body, inbox)

    def _publish(self, name: str) -> bytes:
        life = self.possible[name][-1][1]
        assert life is not None, "there is no stream to publish to"
        self.count += 1
        body = b"%d:" % self.count + bytes(self.random.choice((0, 40, 700)))
        inbox = f"_INBOX.t.m{self.count}"
        self.publishing[inbox] = (life, body)
        for _, one in self.possible[name]:  # an earlier one, if it could not be deleted
            if one is not None:
                one.sent.add(body)
        return encode(f"{name}.x", body, inbox)

    def take(self, message: Message) -> bool:
        """Whether a message is an answer to something of these."""
        if message.subject in self.publishing:
            life, body = self.publishing.pop(message.subject)
            answer = message.json() if message.body else {}
            if "seq" in answer and "error" not in answer and self._is_there(life):
                life.stored[answer["seq"]] = body
            return True
        name, number = self.changing.pop(message.subject, ("", 0))
        if not name:
            return False
        if "error" not in message.json():
            states = self.possible[name]
            if number in (asked for asked, _ in states):  # else a later one was answered before
                self.possible[name] = [state for state in states if state[0] >= number]
        return True

    def _is_there(self, life: Life) -> bool:
        """A message was acknowledged: the stream has come, whether that was answered or not; False
        if another one of its name may have taken the message, because it could not be deleted."""
        for name, states in self.possible.items():
            at = next((n for n, (_, one) in enumerate(states) if one is life), -1)
            if at >= 0 and not any(one for _, one in states[:at]):
                self.possible[name] = states[at:]
                return True
        return False

    def restarted(
        self, api: Callable[[str, Any], Any], messages: Callable[[str], dict[int, bytes]]
    ) -> None:
        """The server has started again: what it has must be what was answered, or asked since."""
        self.changing.clear()
        self.publishing.clear()
        for name in NAMES:
            answer = api(f"STREAM.INFO.{name}", b"")
            found = None if "error" in answer else int(answer["config"]["description"])
            lives = [life for _, life in self.possible[name]]
            if found is None and None in lives:
                self.possible[name] = [(0, None)]
                continue
            life = next((one for one in lives if one is not None and one.number == found), None)
            if life is None:
                raise ViolationError(
                    f"streams: {name} is {found}, and may be {self.possible[name]}"
                )
            self._check(name, life, messages(name))
            self.possible[name] = [(0, life)]

    def _check(self, name: str, life: Life, found: dict[int, bytes]) -> None:
        """What was acknowledged is there, and nothing that nobody published."""
        for seq, body in life.stored.items():
            if found.get(seq) != body:
                raise ViolationError(f"durable: {seq} of {name} is {found.get(seq)!r:.9}")
        if not set(found.values()) <= life.sent:
            raise ViolationError(f"stored: {name} has what was published to another one")
        life.stored = dict(found)
