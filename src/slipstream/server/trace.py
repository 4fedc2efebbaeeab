"""Shows every frame of a client in the log, for who debugs a client or a server (`-V`).

    127.0.0.1:38844 - cid:6 - <<- [PUB a 2]
    127.0.0.1:38844 - cid:6 - <<- MSG_PAYLOAD: ["hi"]
    127.0.0.1:38844 - cid:6 - ->> [MSG a 1 2]

``<<-`` came from the client, ``->>`` went to it, ``<->`` is what the server did. Secrets in CONNECT
are not shown. The tracer reads the bytes by itself, beside the session, so that a server that is
not asked to trace does nothing for it.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from slipstream.wire.client_frames import ClientFrames
from slipstream.wire.operations import CONNECT, ERR, INFO, OK, PING, PONG, PUB, SUB, UNSUB

if TYPE_CHECKING:
    from slipstream.server.logger import Logger

EXCERPT_SIZE_MAX = 64  # characters
EXCERPT_BYTES_MAX = 1024  # of what was sent, from which an excerpt is made

_NAMES = {
    CONNECT: "CONNECT",
    ERR: "-ERR",
    INFO: "INFO",
    OK: "+OK",
    PING: "PING",
    PONG: "PONG",
    SUB: "SUB",
    UNSUB: "UNSUB",
}
_LINE_BYTES_MAX = 1 << 30  # the session judges lengths, not the tracer
_SECRET = re.compile(r'("(?:pass|auth_token|sig|nkey)"\s*:\s*")(?:[^"\\]|\\.)*(")')
_ESCAPES = {"\r": "\\r", "\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class FrameTracer:
    """The frames of one connection. `label` says whose they are: with True by the name that CONNECT
    gave, with False as the server called the client before."""

    def __init__(self, log: "Logger", label: Callable[[bool], str]) -> None:
        self._log = log
        self._label = label
        self._frames = ClientFrames(_LINE_BYTES_MAX, -1)
        self._waiting: list[bytes] = []  # received, not shown yet
        self._connected = False
        self._broken = False
        self._sids: set[str] = set()

    def received(self, data: bytes) -> None:
        """Bytes from the client. They are shown once it is known what they made of the client, but
        before anything that is sent because of them."""
        self._waiting.append(data)

    def show_received(self) -> None:
        """Show what waits."""
        waiting = self._waiting
        self._waiting = []
        for data in waiting:
            self._frames.feed(data)
            while not self._broken and (op := self._frames.next()) != 0:
                if op < 0:
                    self._broken = True  # the session says so, and ends
                else:
                    self._show(op)

    def _show(self, op: int) -> None:
        frames = self._frames
        arguments = _text(frames.data[frames.args_start : frames.args_end]).strip(" \r")
        if op == PUB:
            name = "HPUB" if frames.has_header else "PUB"
            self._line("<<-", f"{name} {arguments}")
            self._payload("<<-", frames.data, frames.header_start, frames.body_start, frames.end)
        elif op in (PING, PONG, OK):
            self._line("<<-", _NAMES[op])
        else:
            if op == CONNECT:
                arguments = without_secrets(arguments)
            self._line("<<-", f"{_NAMES[op]} {arguments}")
        if op == CONNECT:
            self._connected = True
        elif op in (SUB, UNSUB):
            self._follow_subscription(op, arguments.split())

    def _follow_subscription(self, op: int, words: list[str]) -> None:
        if op == SUB and len(words) > 1:
            self._sids.add(words[-1])
        elif op == UNSUB and words[1:] in ([], ["0"]) and words and words[0] in self._sids:
            self._sids.discard(words[0])
            self._line("<->", f"DELSUB {words[0]}")

    def sent(self, data: bytes) -> None:
        """Whole frames for the client."""
        self.show_received()
        at = 0
        while at < len(data):
            line_end = data.find(b"\r\n", at)
            if line_end <= at:
                break  # not whole frames: nothing that a tracer may fail at
            line = _text(data[at:line_end])
            at = line_end + 2
            words = line.split()
            if words[0] in ("MSG", "HMSG"):
                self._line("->>", " ".join(words))
                size = int(words[-1])
                body = at + (int(words[-2]) if words[0] == "HMSG" else 0)
                self._payload("->>", data, at, body, at + size)
                at += size + 2
            elif words[0] == "+OK":
                self._line("->>", "OK")
            elif words[0] == "-ERR":
                self._line("->>", line.replace("'", ""))
            elif words[0] in ("PING", "PONG"):
                self._line("->>", words[0])

    def _payload(self, arrow: str, data: bytes, header: int, body: int, end: int) -> None:
        options = self._log.options
        if options.trace_headers and not (options.trace or options.trace_verbose):
            if header == body:
                return
            end = body
        if header == end:
            return
        longest = options.max_traced_msg_len
        shown = data[header:end]
        if 0 < longest < len(shown):
            shown = shown[:longest] + b"..."
        self._put(f'{arrow} MSG_PAYLOAD: ["{_quoted(shown)}"]')

    def _line(self, arrow: str, text: str) -> None:
        self._put(f"{arrow} [{text}]")

    def _put(self, text: str) -> None:
        self._log.trace(f"{self._label(self._connected)} - {text}")


def excerpt(data: bytes) -> str:
    """The beginning of what a client sent, as one printable line and without secrets."""
    text = without_secrets(_quoted(data[:EXCERPT_BYTES_MAX]).replace('\\"', '"'))
    return text if len(text) <= EXCERPT_SIZE_MAX else text[:EXCERPT_SIZE_MAX] + "..."


def without_secrets(text: str) -> str:
    """A CONNECT as the log may show it."""
    return _SECRET.sub(r"\1[REDACTED]\2", text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _quoted(data: bytes) -> str:
    """As one printable line."""
    return "".join(
        _ESCAPES.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}") for c in _text(data)
    )
