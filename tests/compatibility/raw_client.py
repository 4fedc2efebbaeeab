"""A NATS client of a few lines, so that tests see the bytes and no client library's opinion."""

import json
import socket
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 10.0
INBOX = b"_INBOX.raw"


@dataclass(slots=True)
class Reply:
    """One message as it came."""

    subject: str
    reply: str
    header: bytes
    body: bytes

    @property
    def status(self) -> str:
        """Code and description of a status message; "" for others."""
        line = self.header.split(b"\r\n", 1)[0].decode()
        return line.removeprefix("NATS/1.0").strip()

    def json(self) -> Any:
        """The body as JSON; the status text where the server sent a status instead."""
        if not self.body:
            return {"status": self.status}
        return json.loads(self.body)


class RawClient:
    """One connection; a context manager."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.info = json.loads(self._line().split(b" ", 1)[1])
        self._next_inbox = 0
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nSUB _INBOX.raw.* 1\r\n")
        self.flush()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def flush(self) -> None:
        """Wait until the server has seen everything sent so far."""
        self.send(b"PING\r\n")
        while self._line() != b"PONG":
            pass

    def subscribe(self, subject: str, sid: int) -> None:
        """Subscribe and wait until the server knows."""
        self.send(f"SUB {subject} {sid}\r\n".encode())
        self.flush()

    def publish(
        self,
        subject: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        reply: bytes = b"",
    ) -> None:
        """Publish one message."""
        target = subject.encode() + (b" " + reply if reply else b"")
        if headers is None:
            self.send(b"PUB %s %d\r\n%s\r\n" % (target, len(body), body))
            return
        block = (
            b"NATS/1.0\r\n"
            + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items())
            + b"\r\n"
        )
        sizes = (target, len(block), len(block) + len(body), block, body)
        self.send(b"HPUB %s %d %d\r\n%s%s\r\n" % sizes)

    def request(
        self,
        subject: str,
        body: Any = b"",
        headers: dict[str, str] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Reply | None:
        """One request; None where nothing answers within `timeout` seconds."""
        self._next_inbox += 1
        inbox = INBOX + b".%d" % self._next_inbox
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(subject, payload, headers, inbox)
        return self.answer(timeout)

    def answer(self, timeout: float) -> Reply | None:
        """The answer to the last request; None if none comes within `timeout` seconds."""
        inbox = INBOX + b".%d" % self._next_inbox
        self._socket.settimeout(timeout)
        try:
            while True:
                reply = self.next_message()
                if reply.subject == inbox.decode():
                    return reply
        except TimeoutError:
            return None
        finally:
            self._socket.settimeout(TIMEOUT_S)

    def pull(self, subject: str, body: Any, wanted: int, timeout: float = 3) -> list[Reply]:
        """A pull request: the messages it brought, and the status that ended it if one came."""
        self._next_inbox += 1
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(subject, payload, reply=INBOX + b".%d" % self._next_inbox)
        found: list[Reply] = []
        self._socket.settimeout(timeout)
        try:
            while len(found) < wanted and not (found and found[-1].status):
                found.append(self.next_message())
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(TIMEOUT_S)
        return found

    def api(self, subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> Any:
        """A JetStream API request and its JSON."""
        reply = self.request("$JS.API." + subject, body, headers)
        assert reply is not None, f"no answer to {subject}"
        return reply.json()

    def next_message(self) -> Reply:
        """The next MSG or HMSG; raises TimeoutError when none comes."""
        while True:
            line = self._line()
            words = line.decode().split()
            if not words or words[0] not in {"MSG", "HMSG"}:
                if words and words[0] == "PING":
                    self.send(b"PONG\r\n")
                if words and words[0] == "-ERR":
                    raise AssertionError(line)
                continue
            header_size = int(words[-2]) if words[0] == "HMSG" else 0
            block = self._exactly(int(words[-1]) + 2)[:-2]
            fixed = 5 if words[0] == "HMSG" else 4
            reply = words[3] if len(words) > fixed else ""
            return Reply(words[1], reply, block[:header_size], block[header_size:])

    def _line(self) -> bytes:
        while b"\r\n" not in self._data:
            self._fill()
        line, self._data = self._data.split(b"\r\n", 1)
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            self._fill()
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def _fill(self) -> None:
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._data += chunk
