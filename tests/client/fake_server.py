"""A server that says exactly what a test wants, right or wrong."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.client.listener import Listener

Greeting = Callable[["FakeServer"], bytes]


def info(**fields: Any) -> bytes:
    """An INFO frame; `fields` over what every server says."""
    said = {"server_id": "N", "version": "2.15.1", "proto": 1, "headers": True}
    return b"INFO " + json.dumps({"max_payload": 1048576, **said, **fields}).encode() + b" \r\n"


class FakeServer(Listener):
    """Greets with `greeting`, answers each PING with `answer`, and remembers what it was sent."""

    def __init__(self, greeting: bytes, answer: bytes = b"PONG\r\n") -> None:
        super().__init__()
        self.greeting = greeting
        self.answer = answer
        self.received = b""
        self.accepted = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def say(self, data: bytes) -> None:
        """Send to every client."""
        for writer in self._writers:
            writer.write(data)

    def connect_fields(self) -> dict[str, Any]:
        """The JSON of the last CONNECT."""
        line = self.received.rsplit(b"CONNECT ", 1)[1].split(b"\r\n", 1)[0]
        fields: dict[str, Any] = json.loads(line)
        return fields

    def close_clients(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet, and answer each PING."""
        self.accepted += 1
        self._writers.add(writer)
        try:
            writer.write(self.greeting)
            while line := await reader.readline():
                self.received += line
                if line == b"PING\r\n":
                    writer.write(self.answer)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def hang_up(self) -> None:
        """The end has come."""
        self.close_clients()
