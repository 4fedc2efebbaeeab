"""A client for setting the scene: thousands of API requests or publishes over one connection.

What it does is never timed by the clock; the curves count the processor time of the server.
"""

import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.servers import Running

WINDOW = 64  # requests on their way
CHUNK = 1 << 18
TIMEOUT = 120.0  # seconds


class Driver:
    """One connection; a context manager."""

    def __init__(self, server: Running) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()
        self.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
        self.inbox = f"_INBOX.{id(self)}"
        self.send(f"SUB {self.inbox}.* 1\r\n".encode())

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def publish(self, subjects: Iterable[bytes], body: bytes) -> int:
        """`body` to each subject, without acknowledgements; how many. Returns when all is read."""
        out = bytearray()
        n = 0
        end = b" %d\r\n%b\r\n" % (len(body), body)
        for subject in subjects:
            out += b"PUB " + subject + end
            n += 1
            if len(out) > CHUNK:
                self.send(bytes(out))
                out.clear()
        self.send(bytes(out) + b"PING\r\n")
        while b"PONG\r\n" not in self._data:
            self._read()
        self._data.clear()
        return n

    def request_all(self, requests: Iterable[tuple[str, Any]], window: int = WINDOW) -> list[bytes]:
        """The answers to API requests, as they come; `window` are on their way at a time."""
        answers: list[bytes] = []
        sent = 0
        for subject, body in requests:
            payload = b"" if body is None else json.dumps(body).encode()
            head = f"PUB {subject} {self.inbox}.{sent} {len(payload)}\r\n".encode()
            self.send(head + payload + b"\r\n")
            sent += 1
            while sent - len(answers) >= window:
                answers.extend(self._messages())
        while len(answers) < sent:
            answers.extend(self._messages())
        return answers

    def ask(self, subject: str, body: Any = None) -> dict[str, Any]:
        """One API request. Raises RuntimeError if the answer is an error."""
        answer: dict[str, Any] = json.loads(self.request_all([(subject, body)])[0])
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")
        return answer

    def _messages(self) -> Iterator[bytes]:
        """The bodies of the messages that are here; waits for one."""
        found: list[bytes] = []
        while not found:
            self._read()
            while (body := self._take()) is not None:
                found.append(body)
        yield from found

    def _take(self) -> bytes | None:
        """The next message's body, if it is here whole."""
        while (end := self._data.find(b"\r\n")) >= 0:
            words = bytes(self._data[:end]).split()
            if words[0] not in (b"MSG", b"HMSG"):
                if words[0] == b"PING":
                    self.send(b"PONG\r\n")
                if words[0] == b"-ERR":
                    raise RuntimeError(bytes(self._data[:end]).decode())
                del self._data[: end + 2]
                continue
            size = int(words[-1])
            if len(self._data) < end + 4 + size:
                return None
            head = int(words[-2]) if words[0] == b"HMSG" else 0
            body = bytes(self._data[end + 2 + head : end + 2 + size])
            del self._data[: end + 4 + size]
            return body
        return None

    def _read(self) -> None:
        chunk = self._socket.recv(CHUNK)
        if not chunk:
            raise RuntimeError("the server closed the connection")
        self._data += chunk


class ProcessorTime:
    """Processor time of a server from here on, all its threads, kernel included."""

    def __init__(self, server: Running) -> None:
        assert server.process is not None
        self._tasks = Path(f"/proc/{server.process.pid}/task")
        self._begin = self._sum()

    def us_each(self, n: int) -> float:
        """Microseconds since the beginning, for each of `n`."""
        return (self._sum() - self._begin) / 1000 / n

    def _sum(self) -> int:
        """Nanoseconds so far; threads that have ended meanwhile are not in it."""
        total = 0
        for task in self._tasks.iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue
        return total
