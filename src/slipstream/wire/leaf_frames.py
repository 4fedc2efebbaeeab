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

from slipstream.wire.client_frames import ClientFrames

LINE_MAX_BYTES = 64 * 1024  # of a line's arguments: many groups, or a CONNECT with a JWT
_SIZE_DIGITS_MAX = 9


class LeafFrames(ClientFrames):
    """Frames as both ends of a leaf node connection receive them, as operations of `client_frames`.

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
            return 0
        view = self.data
        c = view[i] | 32  # as a lower-case letter
        if c == 104:  # h
            return self._message(b"hmsg")
        if c == 108:  # l
            if i + 2 >= n:
                return self._wait(3)
            if view[i + 2] == 43:  # LS+
                return self._line(b"ls+", 2, True)
            if view[i + 2] == 45:  # LS-
                return self._line(b"ls-", 3, True)
            return self._message(b"lmsg")
        if c == 115 or c == 117:  # s, u: SUB and UNSUB are a client's
            return -1
        if c == 112 and i + 1 < n and view[i + 1] | 32 == 117:  # PUB is, too
            return -1
        return ClientFrames.next(self)

    def _message(self, name: bytes) -> int:
        """LMSG and HMSG: the line, then the payload if it is all there."""
        op = self._operation(name, True)
        if op != 1:
            return op
        words = self._split(self._at + len(name))
        if words < 0:
            return self._unfinished(name)
        if self.args_end - self.args_start > self.max_control_line:
            return -3
        self.has_header = name[0] == 104
        needed = 3 if self.has_header else 2
        if words < needed:
            return -2
        self.queues = None
        if words > needed + 1:
            return self._chosen(needed)
        total = self._number(words - 1, 9)
        header = self._number(words - 2, 9) if self.has_header else 0
        op = self._body(header, total)
        if op == 1:
            self.reply = self._word(1) if words > needed else b""
        return op

    def _chosen(self, needed: int) -> int:
        """A message for queue groups; it has any number of words."""
        words = self.args()
        sizes = needed - 1
        first = 3 if words[1] == b"+" else 2
        if words[1] not in (b"+", b"|") or len(words) < first + sizes:
            return -2
        for word in words[-sizes:]:
            if not word.isdigit() or len(word) > _SIZE_DIGITS_MAX:
                return -2
        op = self._body(int(words[-2]) if self.has_header else 0, int(words[-1]))
        if op == 1:
            self.reply = words[2] if first == 3 else b""
            self.queues = words[first:-sizes]
        return op

    def _body(self, header: int, total: int) -> int:
        """The payload, if its sizes can be."""
        if total < 0 or header < 0 or header > total:
            return -2
        if self.max_payload >= 0 and total > self.max_payload:
            return -4
        return self._payload(header, total)
