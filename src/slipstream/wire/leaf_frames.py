"""Reads the frames that servers send each other over a leaf node connection; no I/O.

Most are a client's frames under other names: `LS+` and `LS-` stand in the place of SUB and UNSUB,
`LMSG` and `HMSG` in that of PUB and HPUB, and INFO, CONNECT, PING, PONG and -ERR are the same. A
message may name the queue groups of which the receiving server has to choose a member each:

    LMSG subject size                      nobody but those who are in no group
    LMSG subject reply size                likewise
    LMSG subject + reply group... size     these groups as well
    LMSG subject | group... size           likewise, without a reply subject

With headers it is `HMSG`, and their size stands before that of the whole.
"""

import slipstream.wire.ascii as char
import slipstream.wire.operations as operations
from slipstream.wire.client_frames import ClientFrames

LINE_MAX_BYTES = 64 * 1024  # of a line's arguments: many groups, or a CONNECT with a JWT


class LeafFrames(ClientFrames):
    """Frames as both ends of a leaf node connection receive them, as a client's operations.

    After `PUB`, `queues` are the groups that a message is for; None if it names none.
    """

    def __init__(self, max_payload: int) -> None:
        super().__init__(LINE_MAX_BYTES, max_payload)
        self.queues: list[bytes] | None = None

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
        if c == ord("h"):
            return self._message(b"hmsg")
        if c == ord("l"):
            if i + 2 >= n:
                return self._wait(3)
            if view[i + 2] == char.PLUS:
                return self._line(b"ls+", operations.SUB, True)
            if view[i + 2] == char.MINUS:
                return self._line(b"ls-", operations.UNSUB, True)
            return self._message(b"lmsg")
        # SUB, UNSUB and PUB are a client's.
        if c == ord("s") or c == ord("u"):
            return operations.UNKNOWN_OPERATION
        if c == ord("p") and i + 1 < n and view[i + 1] | char.LOWER_CASE == ord("u"):
            return operations.UNKNOWN_OPERATION
        return ClientFrames.next(self)

    def _message(self, name: bytes) -> int:
        """LMSG and HMSG: the line, then the payload if it is all there."""
        found = self._operation(name, True)
        if found != operations.WHOLE:
            return found
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return operations.LINE_TOO_LONG
        self.has_header = name == b"hmsg"
        needed = 3 if self.has_header else 2
        if words < needed:
            return operations.BAD_ARGUMENTS
        self.queues = None
        if words > needed + 1:
            return self._chosen(needed)
        return self._sized(words, words > needed)

    def _chosen(self, needed: int) -> int:
        """A message for queue groups; it has any number of words."""
        words = self.args()
        sizes = needed - 1
        first = 3 if words[1] == b"+" else 2
        if words[1] not in (b"+", b"|") or len(words) < first + sizes:
            return operations.BAD_ARGUMENTS
        for word in words[-sizes:]:
            if not word.isdigit() or len(word) > operations.SIZE_DIGITS_MAX:
                return operations.BAD_ARGUMENTS
        found = self._body(int(words[-2]) if self.has_header else 0, int(words[-1]))
        if found == operations.PUB:
            self.reply = words[2] if first == 3 else b""
            self.queues = words[first:-sizes]
        return found
