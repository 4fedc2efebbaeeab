"""A server that understands what clients ask, and answers with exactly the bytes of a test."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.client.fake_server import FakeServer, info


@dataclass(frozen=True, slots=True)
class Asked:
    """A publish with a reply subject, and the subscription id that hears its answer."""

    subject: str
    reply: str
    data: bytes
    sid: int

    def answer(self, data: bytes, block: bytes = b"") -> bytes:
        """The frame of an answer on the reply subject; `block` is a header block."""
        return frame(self.reply, self.sid, data, block=block)


Script = Callable[[Asked], bytes | None]


def frame(subject: str, sid: int, data: bytes, *, reply: str = "", block: bytes = b"") -> bytes:
    """A MSG, or an HMSG if there is a header block."""
    back = f" {reply}" if reply else ""
    name, sizes = "MSG", f"{len(data)}"
    if block:
        name, sizes = "HMSG", f"{len(block)} {len(block) + len(data)}"
    return f"{name} {subject} {sid}{back} {sizes}\r\n".encode() + block + data + b"\r\n"


class ScriptedServer(FakeServer):
    """Takes every client; `script` says what a request is answered with, None for nothing."""

    def __init__(self, script: Script) -> None:
        super().__init__(info())
        self.script = script
        self.asked: list[Asked] = []
        self.lines: list[str] = []  # all that came, without bodies
        self.subscriptions: dict[int, str] = {}

    def sid(self, subject: str) -> int:
        """The subscription that hears `subject`."""
        for sid, pattern in self.subscriptions.items():
            if pattern == subject or (pattern[-1] in "*>" and subject.startswith(pattern[:-1])):
                return sid
        return 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet, and act on each line."""
        self.accepted += 1
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            writer.write(self.greeting)
            while line := await reader.readline():
                self.lines.append(line.decode().rstrip())
                await self._act(line.decode().split(), reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _act(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match words:
            case ["PING"]:
                writer.write(self.answer)
            case ["SUB", subject, *_, sid]:
                self.subscriptions[int(sid)] = subject
            case ["UNSUB", sid]:
                self.subscriptions.pop(int(sid), None)
            case ["PUB" | "HPUB" as name, subject, *rest, size]:
                data = (await reader.readexactly(int(size) + 2))[:-2]
                if name == "HPUB":
                    data = data[int(rest.pop()) :]
                if not rest:
                    return
                asked = Asked(subject, rest[0], data, self.sid(rest[0]))
                self.asked.append(asked)
                answer = self.script(asked)
                if answer is not None:
                    writer.write(answer)
