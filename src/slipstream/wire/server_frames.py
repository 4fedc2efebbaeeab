"""Reads the frames that a server sends; no I/O (docs/protocol/client.md#frames).

Subscription ids are numbers here: this package's client never uses anything else. Lines are split
at runs of blanks, because a server may write two of them around a reply that is empty.
"""

import slipstream.wire.ascii as char
import slipstream.wire.operations as operations
from slipstream.wire.frames import Frames

# Far above what servers send (the INFO of a large cluster); a bound on what one may make us keep.
LINE_MAX_BYTES = 1024 * 1024


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
            return operations.MORE
        view = self.data
        c = view[i] | char.LOWER_CASE
        if c == ord("m"):
            return self._message(b"msg", 3)
        if c == ord("h"):
            return self._message(b"hmsg", 4)
        if c == ord("p"):
            if i + 1 < n and view[i + 1] | char.LOWER_CASE == ord("i"):
                return self._line(b"ping", operations.PING)
            return self._line(b"pong", operations.PONG)
        if c == ord("+"):
            return self._line(b"+ok", operations.OK)
        if c == ord("-"):
            return self._line(b"-err", operations.ERR)
        if c == ord("i"):
            return self._line(b"info", operations.INFO)
        return operations.MALFORMED

    def _message(self, name: bytes, needed: int) -> int:
        """MSG and HMSG: the line, then the payload if it is all there."""
        found = self._spells(self._at, name)
        if found != operations.WHOLE:
            return self._unnamed() if found == operations.MORE else operations.MALFORMED
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished()

        # The words are: subject sid [reply] [header size, with HMSG] total size.
        if words < needed or words > needed + 1 or self._starts[0] == self._at + len(name):
            return operations.MALFORMED
        total = self._number(words - 1, operations.SIZE_DIGITS_MAX)
        header = self._number(words - 2, operations.SIZE_DIGITS_MAX) if needed == 4 else 0
        sid = self._number(1, operations.SID_DIGITS_MAX)
        if total < 0 or header < 0 or header > total or sid < 0:
            return operations.MALFORMED
        found = self._payload(header, total)
        if found != operations.WHOLE:
            return operations.MORE if found == operations.MORE else operations.MALFORMED
        self.sid = sid
        self.reply = self._word(2) if words > needed else b""
        return operations.MSG

    def _line(self, name: bytes, op: int) -> int:
        """An operation that is one line: its arguments are everything up to the line's end."""
        found = self._spells(self._at, name)
        if found != operations.WHOLE:
            return self._unnamed() if found == operations.MORE else operations.MALFORMED
        if self._split(self._at + len(name)) < 0:
            return self._unfinished()
        self._at = self._line_end
        return op

    def _unnamed(self) -> int:
        """Not even the operation's name is whole: the next byte may show that it is unknown."""
        return self._wait(len(self.data) - self._at + 1)

    def _unfinished(self) -> int:
        """The line has no end yet: wait for it, unless it is too long already."""
        size = len(self.data) - self._at
        if size > LINE_MAX_BYTES:
            return operations.MALFORMED
        return self._wait_for_line(LINE_MAX_BYTES)
