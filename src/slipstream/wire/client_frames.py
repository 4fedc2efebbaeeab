"""Reads the frames that a client sends; no I/O (spec protocol.md sections 1 and 2).

`next` returns what was found: one of the operations below, `MORE`, or one of the errors. After an
error the connection is beyond repair: the reader's answers mean nothing any more.
"""

from slipstream.wire.frames import MORE, Frames

_int = int  # the name `int` in a compiled module's annotations is a C type

PUB: _int = 1  # also HPUB: then `has_header` is set
SUB: _int = 2
UNSUB: _int = 3
CONNECT: _int = 4
PING: _int = 5
PONG: _int = 6
INFO: _int = 7
OK: _int = 8
ERR: _int = 9

UNKNOWN_OPERATION: _int = -1  # -ERR 'Unknown Protocol Operation', then close
BAD_ARGUMENTS: _int = -2  # close without a word
LINE_TOO_LONG: _int = -3  # -ERR 'maximum control line exceeded', then close
PAYLOAD_TOO_LARGE: _int = -4  # -ERR 'Maximum Payload Violation', then close

ERROR_TEXTS = {
    UNKNOWN_OPERATION: b"Unknown Protocol Operation",
    BAD_ARGUMENTS: b"",
    LINE_TOO_LONG: b"maximum control line exceeded",
    PAYLOAD_TOO_LARGE: b"Maximum Payload Violation",
}

SIZE_DIGITS_MAX: _int = 9

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

    def __init__(self, max_control_line: _int = 4096, max_payload: _int = 1024 * 1024) -> None:
        super().__init__()
        self.max_control_line = max_control_line
        self.max_payload = max_payload
        self.has_header = False

    def next(self) -> _int:
        """The next operation, `MORE`, or an error (below zero)."""
        i = self._at
        n = len(self.data)
        if i >= n:
            return 0
        view = self.data
        c = view[i]
        if c == 80 or c == 112:  # P
            if n - i < 4 or view[i + 1] == 85 or view[i + 1] == 117:  # PU
                op = _spells(view, i, n, b"pub")
                if op == 1:
                    return self._publish(i + 3, False)
                if op == 0:
                    return self._wait(4)
            op = _spells(view, i, n, b"ping")
            if op == 1:
                return self._line(5, i + 4, False)
            if op == 0:
                return self._wait(4)
            op = _spells(view, i, n, b"pong")
            if op == 1:
                return self._line(6, i + 4, False)
        elif c == 72 or c == 104:  # H
            op = _spells(view, i, n, b"hpub")
            if op == 1:
                return self._publish(i + 4, True)
        elif c == 83 or c == 115:  # S
            op = _spells(view, i, n, b"sub")
            if op == 1:
                return self._line(2, i + 3, True)
        elif c == 85 or c == 117:  # U
            op = _spells(view, i, n, b"unsub")
            if op == 1:
                return self._line(3, i + 5, True)
        elif c == 67 or c == 99:  # C
            op = _spells(view, i, n, b"connect")
            if op == 1:
                return self._line(4, i + 7, True)
        elif c == 73 or c == 105:  # I
            op = _spells(view, i, n, b"info")
            if op == 1:
                return self._line(7, i + 4, True)
        elif c == 43:  # +
            op = _spells(view, i, n, b"+ok")
            if op == 1:
                return self._line(8, i + 3, False)
        elif c == 45:  # -
            op = _spells(view, i, n, b"-err")
            if op == 1:
                return self._line(9, i + 4, False)
        else:
            return -1
        return self._wait(n - i + 1) if op == 0 else -1

    def _publish(self, start: _int, with_header: bool) -> _int:
        """PUB and HPUB: one pass over the line, then the payload if it is all there."""
        view = self.data
        n = len(self.data)
        i = start
        if i < n and view[i] != 32 and view[i] != 9:
            return -1
        while i < n and (view[i] == 32 or view[i] == 9):
            i += 1
        start = i
        tokens = 0
        s0 = e0 = s1 = e1 = s2 = e2 = s3 = e3 = 0
        while i < n:
            # Here a word or the end of the line begins.
            word = i
            while i < n and view[i] != 32 and view[i] != 10 and view[i] != 9 and view[i] != 13:
                i += 1
            if i >= n:
                break
            if i > word:
                if tokens == 0:
                    s0 = word
                    e0 = i
                elif tokens == 1:
                    s1 = word
                    e1 = i
                elif tokens == 2:
                    s2 = word
                    e2 = i
                elif tokens == 3:
                    s3 = word
                    e3 = i
                tokens += 1
            c = view[i]
            if c == 10:
                break
            if c == 13 and i + 1 < n and view[i + 1] != 10:
                return -2
            i += 1
        if i >= n:
            if n - start > self.max_control_line + 1:
                return -3
            return self._wait(n - self._at + 1)
        if i - start - (1 if view[i - 1] == 13 else 0) > self.max_control_line:
            return -3

        # The words are: subject [reply] [header size, with HPUB] total size.
        self.reply = b""
        header = 0
        if with_header:
            if tokens == 3:
                header = _size(view, s1, e1)
                total = _size(view, s2, e2)
            elif tokens == 4:
                header = _size(view, s2, e2)
                total = _size(view, s3, e3)
                self.reply = self.data[s1:e1]
            else:
                return -2
            if header < 0 or header > total:
                return -2
        elif tokens == 2:
            total = _size(view, s1, e1)
        elif tokens == 3:
            total = _size(view, s2, e2)
            self.reply = self.data[s1:e1]
        else:
            return -2
        if total < 0:
            return -2
        if self.max_payload >= 0 and total > self.max_payload:
            return -4
        i += 1
        if n - i < total + 2:
            return self._wait(i - self._at + total + 2)
        if view[i + total] != 13 or view[i + total + 1] != 10:
            return -1
        self._take_subject(s0, e0)
        self.has_header = with_header
        self.header_start = i
        self.body_start = i + header
        self.end = i + total
        self._at = i + total + 2
        return 1

    def _line(self, op: _int, start: _int, needs_blank: bool) -> _int:
        """An operation that is one line: its arguments are everything up to the line's end."""
        view = self.data
        n = len(self.data)
        i = start
        if needs_blank and i < n and view[i] != 32 and view[i] != 9:
            # SUB and friends without arguments: nothing that could be a name of an operation
            return -2 if view[i] == 13 or view[i] == 10 else -1
        while i < n and (view[i] == 32 or view[i] == 9):
            i += 1
        start = i
        while i < n and view[i] != 10:
            i += 1
        if i >= n:
            if n - start > self.max_control_line + 1:
                return -3
            return self._wait(n - self._at + 1)
        self.args_start = start
        self.args_end = i - 1 if i > start and view[i - 1] == 13 else i
        if self.args_end - start > self.max_control_line:
            return -3
        self._at = i + 1
        return op


def _spells(view: bytes, i: _int, n: _int, name: bytes) -> _int:
    """1 if the bytes at `i` spell `name` in any case, 0 if they may yet, -1 if not."""
    name_view = name
    k = 0
    while k < len(name):
        if i + k >= n:
            return 0
        if view[i + k] != name_view[k] and (view[i + k] | 32) != name_view[k]:
            return -1
        if view[i + k] != name_view[k] and not 65 <= view[i + k] <= 90:
            return -1
        k += 1
    return 1


def _size(view: bytes, start: _int, end: _int) -> _int:
    """A decimal number of 1 to 9 digits; -1 for anything else."""
    if end - start > 9 or end == start:
        return -1
    value = 0
    i = start
    while i < end:
        if view[i] < 48 or view[i] > 57:
            return -1
        value = value * 10 + (view[i] - 48)
        i += 1
    return value
