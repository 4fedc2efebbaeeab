"""Reads the frames that a server sends; no I/O (spec protocol.md section 2).

Subscription ids are numbers here: this package's client never uses anything else.
"""

from slipstream.wire.frames import MORE, Frames

_int = int  # the name `int` in a compiled module's annotations is a C type

MSG: _int = 1  # also HMSG: then `body_start` lies behind `header_start`
PING: _int = 2
PONG: _int = 3
OK: _int = 4
ERR: _int = 5
INFO: _int = 6
MALFORMED: _int = -1  # whatever it is, it is not a NATS server's frame

__all__ = ["ERR", "INFO", "MALFORMED", "MORE", "MSG", "OK", "PING", "PONG", "ServerFrames"]


class ServerFrames(Frames):
    """Frames as a client receives them; after `MSG`, `sid` says whose message it is."""

    def __init__(self) -> None:
        super().__init__()
        self.sid = 0

    def next(self) -> _int:
        """The next operation, `MORE`, or `MALFORMED`."""
        i = self._at
        n = len(self.data)
        if i >= n:
            return 0
        view = self.data
        c = view[i]
        op = -1
        if c == 77:  # M
            op = _spells(view, i, n, b"MSG ")
            if op == 1:
                return self._message(i + 4, False)
        elif c == 72:  # H
            op = _spells(view, i, n, b"HMSG ")
            if op == 1:
                return self._message(i + 5, True)
        elif c == 80:  # P
            op = _spells(view, i, n, b"PING")
            if op == 1:
                return self._line(2, i + 4)
            if op == -1:
                op = _spells(view, i, n, b"PONG")
                if op == 1:
                    return self._line(3, i + 4)
        elif c == 43:  # +
            op = _spells(view, i, n, b"+OK")
            if op == 1:
                return self._line(4, i + 3)
        elif c == 45:  # -
            op = _spells(view, i, n, b"-ERR")
            if op == 1:
                return self._line(5, i + 4)
        elif c == 73:  # I
            op = _spells(view, i, n, b"INFO ")
            if op == 1:
                return self._line(6, i + 5)
        return self._wait(n - i + 1) if op == 0 else -1

    def _message(self, start: _int, with_header: bool) -> _int:
        """MSG and HMSG: one pass over the line, then the payload if it is all there."""
        view = self.data
        n = len(self.data)
        i = start
        tokens = 0
        s0 = e0 = s1 = e1 = s2 = e2 = s3 = e3 = s4 = e4 = 0
        while i < n:
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
                elif tokens == 4:
                    s4 = word
                    e4 = i
                tokens += 1
            if view[i] == 10:
                break
            i += 1
        if i >= n:
            return self._wait(n - self._at + 1)

        # The words are: subject sid [reply] [header size, with HMSG] total size.
        wanted = 4 if with_header else 3
        header = 0
        self.reply = b""
        if tokens == wanted + 1:
            self.reply = self.data[s2:e2]
            s2 = s3
            e2 = e3
            s3 = s4
            e3 = e4
        elif tokens != wanted:
            return -1
        if with_header:
            header = _number(view, s2, e2)
            total = _number(view, s3, e3)
        else:
            total = _number(view, s2, e2)
        self.sid = _number(view, s1, e1)
        if total < 0 or header < 0 or header > total or self.sid < 0:
            return -1
        i += 1
        if n - i < total + 2:
            return self._wait(i - self._at + total + 2)
        if view[i + total] != 13 or view[i + total + 1] != 10:
            return -1
        self._take_subject(s0, e0)
        self.header_start = i
        self.body_start = i + header
        self.end = i + total
        self._at = i + total + 2
        return 1

    def _line(self, op: _int, start: _int) -> _int:
        """An operation that is one line: its arguments are everything up to the line's end."""
        view = self.data
        n = len(self.data)
        i = start
        while i < n and view[i] != 10:
            i += 1
        if i >= n:
            return self._wait(n - self._at + 1)
        self.args_start = start
        self.args_end = i - 1 if i > start and view[i - 1] == 13 else i
        self._at = i + 1
        return op


def _spells(view: bytes, i: _int, n: _int, name: bytes) -> _int:
    """1 if the bytes at `i` spell `name`, 0 if they may yet, -1 if not."""
    name_view = name
    k = 0
    while k < len(name):
        if i + k >= n:
            return 0
        if view[i + k] != name_view[k]:
            return -1
        k += 1
    return 1


def _number(view: bytes, start: _int, end: _int) -> _int:
    """A decimal number of 1 to 18 digits; -1 for anything else."""
    if end - start > 18 or end == start:
        return -1
    value = 0
    i = start
    while i < end:
        if view[i] < 48 or view[i] > 57:
            return -1
        value = value * 10 + (view[i] - 48)
        i += 1
    return value
