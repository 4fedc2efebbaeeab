"""A server on a disk that does what a test says, and what tests ask of its streams."""

import base64
from random import Random
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver
from slipstream.testing.simulated_disk import SimulatedDisk

SEGMENT_BYTES = 4096


class World:
    """One server with a client; it can be stopped and started, in order or by a power failure."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.driver = Driver(self.disk, segment_bytes=SEGMENT_BYTES).start()
        self.client = self.driver.client()
        self.problems: list[str] = []

    def create(self, name: str, **config: Any) -> Any:
        """Create a stream."""
        return self.client.api(f"STREAM.CREATE.{name}", {"name": name, **config})

    def update(self, name: str, **config: Any) -> Any:
        """Update a stream."""
        return self.client.api(f"STREAM.UPDATE.{name}", {"name": name, **config})

    def info(self, name: str) -> Any:
        """StreamInfo."""
        return self.client.api(f"STREAM.INFO.{name}")

    def publish(self, subject: str, first: int, last: int) -> None:
        """Store messages whose bodies are the numbers from `first` to `last`."""
        for n in range(first, last + 1):
            assert "seq" in self.client.store(subject, b"%d" % n)

    def settle(self, seconds: float = 5) -> None:
        """Let time pass: what was asked for happens, heartbeats go out."""
        self.driver.advance(int(seconds * SECOND))

    def restart(self) -> None:
        """Stop the server in order, and start it again."""
        self.driver.stop()
        self._start()

    def crash(self) -> None:
        """The power fails; a server starts on what is left."""
        self.disk.crash()
        self._start()

    def _start(self) -> None:
        now = self.driver.clock.now + SECOND
        self.driver = Driver(self.disk, now=now, segment_bytes=SEGMENT_BYTES).start()
        self.driver.engine.on_problem = self.problems.append
        self.client = self.driver.client()

    def get(self, name: str, seq: int, is_next: bool = False) -> Any:
        """A stored message with its body and headers, or the next one behind; None if there is
        none."""
        asked = {"seq": seq, **({"next_by_subj": ">"} if is_next else {})}
        message = self.client.api(f"STREAM.MSG.GET.{name}", asked).get("message")
        if message is None:
            return None
        message["body"] = base64.b64decode(message.get("data", ""))
        block = base64.b64decode(message.get("hdrs", "")).decode()
        lines = (line.split(": ", 1) for line in block.split("\r\n")[1:] if line)
        message["headers"] = {line[0]: line[1] for line in lines}
        return message

    def contents(self, name: str) -> list[tuple[int, str, bytes, str]]:
        """Sequence, subject, body and time of each message."""
        found = []
        message = self.get(name, 1, is_next=True)
        while message is not None:
            found.append((message["seq"], message["subject"], message["body"], message["time"]))
            message = self.get(name, message["seq"] + 1, is_next=True)
        return found

    def bodies(self, name: str) -> list[bytes]:
        """The bodies of the messages of a stream."""
        return [body for _, _, body, _ in self.contents(name)]


@pytest.fixture
def world() -> World:
    """A server with nothing on it."""
    return World()
