"""Reads the frames that a server sends; no I/O (docs/protocol/client.md#frames).

Subscription ids are numbers here: this package's client never uses anything else. Lines are split
at runs of blanks, because a server may write two of them around a reply that is empty.
"""

from slipstream.wire.frames import MORE, Frames

MSG = 1  # also HMSG: then `body_start` lies behind `header_start`
PING = 2
PONG = 3
OK = 4
ERR = 5
INFO = 6
MALFORMED = -1  # whatever it is, it is not a NATS server's frame

# Far above what servers send (the INFO of a large cluster); a bound on what one may make us keep.
LINE_MAX_BYTES = 1024 * 1024

__all__ = ["ERR", "INFO", "LINE_MAX_BYTES", "MALFORMED", "MORE", "MSG", "OK", "PING", "PONG"]
__all__ += ["ServerFrames"]


class ServerFrames(Frames):
    """Frames as a client receives them; after `MSG`, `sid` says whose message it is.

    After INFO and -ERR, `argument()` is the JSON or the quoted text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sid = 0

    def next(self) -> int:
        """The next operation, `MORE`, or `MALFORMED`."""
        i = self._at
        n = len(self.data)
        if i >= n:
            self.data = b""
            self._at = 0
            return 0
        view = self.data
        c = view[i] | 32  # as a lower-case letter
        if c == 109:  # m
            return self._message(b"msg", 3)
        if c == 104:  # h
            return self._message(b"hmsg", 4)
        if c == 112:  # p
            if i + 1 < n and view[i + 1] | 32 == 105:
                return self._line(b"ping", 2)
            return self._line(b"pong", 3)
        if c == 43:  # +
            return self._line(b"+ok", 4)
        if c == 45:  # -
            return self._line(b"-err", 5)
        if c == 105:  # i
            return self._line(b"info", 6)
        return -1

    def _message(self, name: bytes, needed: int) -> int:
        """MSG and HMSG: the line, then the payload if it is all there."""
        op = self._spells(self._at, name)
        if op != 1:
            return self._unnamed() if op == 0 else -1
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished()

        # The words are: subject sid [reply] [header size, with HMSG] total size.
        if words < needed or words > needed + 1 or self._starts[0] == self._at + len(name):
            return -1
        total = self._number(words - 1, 9)
        header = self._number(words - 2, 9) if needed == 4 else 0
        sid = self._number(1, 18)
        if total < 0 or header < 0 or header > total or sid < 0:
            return -1
        op = self._payload(header, total)
        if op == 1:
            self.sid = sid
            self.reply = self._word(2) if words > needed else b""
        return op

    def _line(self, name: bytes, op: int) -> int:
        """An operation that is one line: its arguments are everything up to the line's end."""
        found = self._spells(self._at, name)
        if found != 1:
            return self._unnamed() if found == 0 else -1
        if self._split(self._at + len(name)) < 0:
            return self._unfinished()
        self._at = self._line_end
        return op

    def _unnamed(self) -> int:
        """Not even the operation's name is there: the next byte may show that it is none."""
        return self._wait(len(self.data) - self._at + 1)

    def _unfinished(self) -> int:
        """The line has no end yet: wait for it, unless it is too long already."""
        size = len(self.data) - self._at
        return self._wait_for_line(LINE_MAX_BYTES) if size <= LINE_MAX_BYTES else -1
