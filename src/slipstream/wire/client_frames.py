"""Reads the frames that a client sends; no I/O (docs/protocol/client.md#frames).

`next` returns what was found: one of the operations below, `MORE`, or one of the errors. After an
error the connection is beyond repair: the reader's answers mean nothing any more.

Three kinds of errors have different consequences: an unknown operation and a crossed limit are told
to the client before the connection is closed; malformed arguments close it without a word.
"""

from slipstream.wire.frames import MORE, Frames

PUB = 1  # also HPUB: then `has_header` is set
SUB = 2
UNSUB = 3
CONNECT = 4
PING = 5
PONG = 6
INFO = 7
OK = 8
ERR = 9

UNKNOWN_OPERATION = -1  # -ERR 'Unknown Protocol Operation', then close
BAD_ARGUMENTS = -2  # close without a word
LINE_TOO_LONG = -3  # -ERR 'maximum control line exceeded', then close
PAYLOAD_TOO_LARGE = -4  # -ERR 'Maximum Payload Violation', then close

ERROR_TEXTS = {
    UNKNOWN_OPERATION: b"Unknown Protocol Operation",
    BAD_ARGUMENTS: b"",
    LINE_TOO_LONG: b"maximum control line exceeded",
    PAYLOAD_TOO_LARGE: b"Maximum Payload Violation",
}

__all__ = [
    "BAD_ARGUMENTS",
    "CONNECT",
    "ERR",
    "ERROR_TEXTS",
    "INFO",
    "LINE_TOO_LONG",
    "MORE",
    "OK",
    "PAYLOAD_TOO_LARGE",
    "PING",
    "PONG",
    "PUB",
    "SUB",
    "UNKNOWN_OPERATION",
    "UNSUB",
    "ClientFrames",
]


class ClientFrames(Frames):
    """Frames as a server receives them.

    `max_control_line` bounds the arguments of a line, `max_payload` the headers and body of a
    message (-1: no bound); both in bytes and checked before the bytes have arrived.
    """

    def __init__(self, max_control_line: int = 4096, max_payload: int = 1024 * 1024) -> None:
        super().__init__()
        self.max_control_line = max_control_line
        self.max_payload = max_payload
        self.has_header = False

    def next(self) -> int:
        """The next operation, `MORE`, or an error (below zero)."""
        i = self._at
        n = len(self.data)
        if i >= n:
            self.data = b""
            self._at = 0
            return 0
        view = self.data
        c = view[i] | 32  # as a lower-case letter
        second = view[i + 1] | 32 if i + 1 < n else 0
        if c == 112 and second == 117:  # pu
            return self._publish(b"pub")
        if c == 104:  # h
            return self._publish(b"hpub")
        if c == 112 and second == 105:  # pi
            return self._word_only(b"ping", 5)
        if c == 112 and second == 111:  # po
            return self._word_only(b"pong", 6)
        if c == 115:  # s
            return self._line(b"sub", 2, True)
        if c == 117:  # u
            return self._line(b"unsub", 3, True)
        if c == 99:  # c
            return self._line(b"connect", 4, False)
        if c == 105:  # i
            return self._line(b"info", 7, False)
        if c == 43:  # +
            return self._word_only(b"+ok", 8)
        if c == 45:  # -
            return self._line(b"-err", 9, True)
        return self._wait(2) if c == 112 and i + 1 == n else -1

    def _operation(self, name: bytes, needs_blank: bool) -> int:
        """1 if the frame begins with the operation `name`; 0 if it may yet, -1 if not."""
        view = self.data
        i = self._at + len(name)
        spelled = self._spells(self._at, name)
        if spelled == 0 or (spelled == 1 and needs_blank and i == len(self.data)):
            return self._wait(len(self.data) - self._at + 1)
        if spelled == 1 and needs_blank and view[i] != 32 and view[i] != 9:
            return -1
        return spelled

    def _publish(self, name: bytes) -> int:
        """PUB and HPUB: the line, then the payload if it is all there."""
        op = self._operation(name, True)
        if op != 1:
            return op
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return -3

        # The words are: subject [reply] [header size, with HPUB] total size.
        self.has_header = len(name) == 4
        needed = 3 if self.has_header else 2
        if words < needed or words > needed + 1:
            return -2
        total = self._number(words - 1, 9)
        header = self._number(words - 2, 9) if self.has_header else 0
        if total < 0 or header < 0 or header > total:
            return -2
        if self.max_payload >= 0 and total > self.max_payload:
            return -4
        op = self._payload(header, total)
        if op == 1:
            self.reply = self._word(1) if words > needed else b""
        return op

    def _line(self, name: bytes, op: int, needs_blank: bool) -> int:
        """An operation with arguments: everything up to the line's end."""
        found = self._operation(name, needs_blank)
        if found != 1:
            return found
        if self._split(self._at + len(name)) < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return -3
        self._at = self._line_end
        return op

    def _word_only(self, name: bytes, op: int) -> int:
        """An operation without arguments; what else is on its line has no meaning and no limit."""
        found = self._operation(name, False)
        if found != 1:
            return found
        at = self._at
        end = self.data.find(b"\n", at)
        if end < 0:
            return self._wait_with(self.data[at : at + len(name)], len(name) + 1)
        self._at = end + 1
        return op

    def _unfinished(self, name: bytes) -> int:
        """The line has no end yet: wait for it, unless it is too long already."""
        view = self.data
        n = len(self.data)
        size = n - self.args_start
        if size == 0:
            # Blanks before the arguments have no limit, so they are not kept.
            return self._wait_with(name + b" ", len(name) + 2)
        if view[n - 1] == 13:
            size -= 1
        if size > self.max_control_line:
            return -3
        return self._wait_for_line(self.args_start - self._at + self.max_control_line)
