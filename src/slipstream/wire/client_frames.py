"""Reads the frames that a client sends; no I/O (docs/protocol/client.md#frames).

`next` returns what was found: one of the operations below, `MORE`, or one of the errors. After an
error the connection is beyond repair: the reader's answers mean nothing any more.

Three kinds of errors have different consequences: an unknown operation and a crossed limit are told
to the client before the connection is closed; malformed arguments close it without a word.
"""

import slipstream.wire.ascii as char
import slipstream.wire.operations as operations
from slipstream.wire.frames import Frames


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
            return operations.MORE
        view = self.data
        c = view[i] | char.LOWER_CASE
        second = view[i + 1] | char.LOWER_CASE if i + 1 < n else 0
        if c == ord("p") and second == ord("u"):
            return self._publish(b"pub")
        if c == ord("h"):
            return self._publish(b"hpub")
        if c == ord("p") and second == ord("i"):
            return self._word_only(b"ping", operations.PING)
        if c == ord("p") and second == ord("o"):
            return self._word_only(b"pong", operations.PONG)
        if c == ord("s"):
            return self._line(b"sub", operations.SUB, True)
        if c == ord("u"):
            return self._line(b"unsub", operations.UNSUB, True)
        if c == ord("c"):
            return self._line(b"connect", operations.CONNECT, False)
        if c == ord("i"):
            return self._line(b"info", operations.INFO, False)
        if c == ord("+"):
            return self._word_only(b"+ok", operations.OK)
        if c == ord("-"):
            return self._line(b"-err", operations.ERR, True)
        return self._wait(2) if c == ord("p") and i + 1 == n else operations.UNKNOWN_OPERATION

    def _operation(self, name: bytes, needs_blank: bool) -> int:
        """`WHOLE` if the frame begins with the operation `name`, `MORE` if it still may, else
        `UNKNOWN_OPERATION`."""
        view = self.data
        i = self._at + len(name)
        spelled = self._spells(self._at, name)
        if spelled < 0:
            return operations.UNKNOWN_OPERATION
        if spelled == operations.MORE or (needs_blank and i == len(self.data)):
            return self._wait(len(self.data) - self._at + 1)
        if needs_blank and view[i] != char.SPACE and view[i] != char.TAB:
            return operations.UNKNOWN_OPERATION
        return operations.WHOLE

    def _publish(self, name: bytes) -> int:
        """PUB and HPUB: the line, then the payload if it is all there."""
        found = self._operation(name, True)
        if found != operations.WHOLE:
            return found
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return operations.LINE_TOO_LONG

        # The words are: subject [reply] [header size, with HPUB] total size.
        self.has_header = len(name) == 4
        needed = 3 if self.has_header else 2
        if words < needed or words > needed + 1:
            return operations.BAD_ARGUMENTS
        return self._sized(words, words > needed)

    def _sized(self, words: int, has_reply: bool) -> int:
        """A message whose line ends with its sizes, after a reply subject if it has one."""
        total = self._number(words - 1, operations.SIZE_DIGITS_MAX)
        header = self._number(words - 2, operations.SIZE_DIGITS_MAX) if self.has_header else 0
        found = self._body(header, total)
        if found == operations.PUB:
            self.reply = self._word(1) if has_reply else b""
        return found

    def _body(self, header: int, total: int) -> int:
        """The payload of a message, if its sizes can be: `PUB`, `MORE` or an error."""
        if total < 0 or header < 0 or header > total:
            return operations.BAD_ARGUMENTS
        if self.max_payload >= 0 and total > self.max_payload:
            return operations.PAYLOAD_TOO_LARGE
        found = self._payload(header, total)
        if found == operations.WHOLE:
            return operations.PUB
        return operations.MORE if found == operations.MORE else operations.UNKNOWN_OPERATION

    def _line(self, name: bytes, op: int, needs_blank: bool) -> int:
        """An operation with arguments: everything up to the line's end."""
        found = self._operation(name, needs_blank)
        if found != operations.WHOLE:
            return found
        if self._split(self._at + len(name)) < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return operations.LINE_TOO_LONG
        self._at = self._line_end
        return op

    def _word_only(self, name: bytes, op: int) -> int:
        """An operation without arguments; what else is on its line has no meaning and no limit."""
        found = self._operation(name, False)
        if found != operations.WHOLE:
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
        if view[n - 1] == char.CR:
            size -= 1
        if size > self.max_control_line:
            return operations.LINE_TOO_LONG
        return self._wait_for_line(self.args_start - self._at + self.max_control_line)
