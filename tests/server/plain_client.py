"""A socket that speaks lines: what tests need to look at a server byte by byte."""

import contextlib
import json
import select
import socket
import ssl
from collections.abc import Iterator
from typing import Any

TIMEOUT_SECONDS = 30.0  # for what never comes, and for sending many megabytes to a busy server


class PlainClient:
    """One connection. `inbox` holds what was read and not looked at yet.

    It answers PINGs by itself and does not show them, or shows them and does not answer: a server
    sends its first one after two seconds, which on a busy machine is in the middle of any test.
    """

    def __init__(self, port: int, *, answers_pings: bool = True) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.inbox = b""
        self._answers_pings = answers_pings

    def send(self, data: bytes | str) -> None:
        """Send, all of it."""
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def secure(self, context: ssl.SSLContext) -> None:
        """Go on in TLS."""
        assert not self.inbox
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def line(self) -> str:
        """The next line; "" once the server has closed the connection."""
        line = self._any_line()
        while line == "PING" and self._answers_pings:
            with contextlib.suppress(
                OSError
            ):  # it may have closed meanwhile; the next line says so
                self.send("PONG\r\n")
            line = self._any_line()
        return line

    def _any_line(self) -> str:
        while b"\r\n" not in self.inbox:
            chunk = self._read()
            if not chunk:
                return ""
            self.inbox += chunk
        line, _, self.inbox = self.inbox.partition(b"\r\n")
        return line.decode()

    def info(self) -> dict[str, Any]:
        """The next line, which has to be INFO."""
        name, _, text = self.line().partition(" ")
        assert name == "INFO"
        found: dict[str, Any] = json.loads(text)
        return found

    def lines_until(self, last: str) -> list[str]:
        """Lines up to (not including) `last`, or up to the end."""
        found = []
        while (line := self.line()) not in (last, ""):
            found.append(line)
        return found

    def ping(self) -> list[str]:
        """What the server says before it answers a PING; INFO aside."""
        self.send("PING\r\n")
        return [line for line in self.lines_until("PONG") if not line.startswith("INFO")]

    def is_silent(self, seconds: float) -> bool:
        """Whether the server says nothing for so long."""
        return not self.inbox and not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """Whether the server closes the connection, after whatever it has to say."""
        while chunk := self._read():
            self.inbox += chunk
        return True

    def _read(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except (ConnectionError, ssl.SSLError):
            return b""

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


@contextlib.contextmanager
def plain_client(port: int, *, answers_pings: bool = True) -> Iterator[PlainClient]:
    """A connection for the time of a `with` block."""
    client = PlainClient(port, answers_pings=answers_pings)
    try:
        yield client
    finally:
        client.close()
