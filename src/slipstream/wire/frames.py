"""What both directions of the protocol share: gathering bytes until a whole frame is there.

A reader is fed whatever the socket brought and asked for one frame after another. Frames are not
copied out: a reader tells where in `data` the parts of the current frame lie, and these offsets are
valid until the next call of `next` or `feed`. A frame that is spread over many reads is gathered in
a list and joined once, so that a large payload costs one copy and not one for each read. When
everything is read, the reader lets go of the bytes: an idle connection holds none.

What a reader finds does not depend on how the bytes were cut into reads.
"""

import slipstream.wire.ascii as char
import slipstream.wire.operations as operations


class Frames:
    """The bytes between the socket and the frames; see `ClientFrames` and `ServerFrames`."""

    def __init__(self) -> None:
        self.data = b""  # the bytes that all offsets below index
        self.subject = b""
        self.reply = b""  # b"" when the frame has none
        self.header_start = 0  # data[header_start:body_start] is the header block, often empty
        self.body_start = 0  # data[body_start:end] is the body
        self.end = 0
        self.args_start = 0  # data[args_start:args_end] is what follows the operation's name
        self.args_end = 0
        self._at = 0  # where the next frame starts
        self._chunks: list[bytes] = []  # a frame's beginning, while more of it is awaited
        self._have = 0  # bytes in _chunks
        self._need = 0  # bytes in _chunks before it is worth looking again
        self._line_max = 0  # ... with fewer than these only if a line ends in what was fed
        self._starts = [0, 0, 0, 0, 0]  # of the words that `_split` found, `WORDS_MAX` of them
        self._ends = [0, 0, 0, 0, 0]
        self._line_end = 0  # after the LF of the line that `_split` read

    def feed(self, data: bytes) -> None:
        """Add bytes as they were read. What `next` has not returned yet stays in line."""
        if not self._chunks:
            if self._at >= len(self.data):
                self.data = data
                self._at = 0
                return
            self._wait(1)
        self._chunks.append(data)
        self._have += len(data)
        if self._have >= self._need and (self._have > self._line_max or b"\n" in data):
            self.data = b"".join(self._chunks)
            self._at = 0
            self._chunks = []
            self._have = 0
        elif self._have >= self._need:
            self._need = self._have + 1

    def missing(self) -> int:
        """Bytes that have to be fed at the least before a frame is whole; 0 if none has begun."""
        return self._need - self._have if self._chunks else 0

    def give_up(self) -> bytes:
        """The beginning of the frame that is not whole yet; it has to be fed again."""
        start = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        self._have = 0
        return start

    def rest(self) -> bytes:
        """What was fed and comes after the current frame, which is the last one: the other side
        goes on in another way."""
        rest = self.data[self._at :]
        self.data = b""
        self._at = 0
        return rest

    def args(self) -> list[bytes]:
        """The current frame's arguments, split at blanks."""
        line = self.data[self.args_start : self.args_end]
        # A bare split() would also split at other control characters, which subjects may contain.
        words = line.replace(b"\t", b" ").replace(b"\r", b" ").split(b" ")
        return [word for word in words if word]

    def argument(self) -> bytes:
        """The current frame's arguments as one piece, without blanks around it."""
        return self.data[self.args_start : self.args_end].strip(b" \t\r")

    def _wait(self, need: int) -> int:
        """Keep the incomplete frame until at least `need` bytes of it are there."""
        return self._wait_with(self.data[self._at :], need)

    def _wait_with(self, rest: bytes, need: int) -> int:
        """Keep `rest` in the incomplete frame's place, until there are `need` bytes."""
        self._chunks = [rest]
        self._have = len(rest)
        self._need = need
        self._line_max = 0
        self.data = b""
        self._at = 0
        return operations.MORE

    def _wait_for_line(self, most: int) -> int:
        """Keep the incomplete frame until its line ends, or until there are more than `most` bytes:
        what a slow sender sends byte by byte is not looked at from its beginning each time."""
        self._wait(len(self.data) - self._at + 1)
        self._line_max = most
        return operations.MORE

    def _spells(self, i: int, name: bytes) -> int:
        """`WHOLE` if `name` (lower case) stands at `i` in any case, `MORE` if it still may, else
        `WRONG`."""
        view = self.data
        n = len(self.data)
        letters = name
        for k in range(len(name)):
            if i + k >= n:
                return operations.MORE
            c = view[i + k]
            if c != letters[k] and (
                c | char.LOWER_CASE != letters[k] or c < ord("A") or c > ord("Z")
            ):
                return operations.WRONG
        return operations.WHOLE

    def _split(self, start: int) -> int:
        """Split the line from `start` at blanks: the number of words, -1 if it has no end yet.

        The words' places are in `_starts` and `_ends`, as many as fit. The line's end is LF and may
        have one CR before it; any other control character is part of a word.
        """
        view = self.data
        n = len(self.data)
        i = start
        words = 0
        self.args_start = n
        while True:
            while i < n and (view[i] == char.SPACE or view[i] == char.TAB):
                i += 1
            word = i
            while i < n and view[i] > char.SPACE:
                i += 1
            while i < n and view[i] != char.SPACE and view[i] != char.TAB and view[i] != char.LF:
                i += 1
            if words == 0:
                self.args_start = word
            if i >= n:
                return -1
            end = i
            if view[i] == char.LF and i > word and view[i - 1] == char.CR:
                end -= 1
            if end > word:
                if words < operations.WORDS_MAX:
                    self._starts[words] = word
                    self._ends[words] = end
                words += 1
            if view[i] == char.LF:
                self.args_end = end
                self._line_end = i + 1
                return words

    def _number(self, word: int, digits_max: int) -> int:
        """The decimal number that a word spells; -1 for anything else and for too many digits."""
        view = self.data
        i = self._starts[word]
        end = self._ends[word]
        if end - i > digits_max:
            return -1
        value = 0
        while i < end:
            if view[i] < char.ZERO or view[i] > char.NINE:
                return -1
            value = value * 10 + (view[i] - char.ZERO)
            i += 1
        return value

    def _word(self, word: int) -> bytes:
        """One of the words that `_split` found."""
        view = self.data
        return view[self._starts[word] : self._ends[word]]

    def _payload(self, header: int, total: int) -> int:
        """What follows a message's line: `WHOLE`, `MORE` or `WRONG`."""
        view = self.data
        i = self._line_end
        there = len(self.data) - i
        if there > total and view[i + total] != char.CR:
            return operations.WRONG
        if there < total + 2:
            return self._wait(i - self._at + total + 2)
        if view[i + total + 1] != char.LF:
            return operations.WRONG
        self._take_subject(self._starts[0], self._ends[0])
        self.header_start = i
        self.body_start = i + header
        self.end = i + total
        self._at = i + total + 2
        return operations.WHOLE

    def _take_subject(self, start: int, end: int) -> None:
        """Set `subject`; the same object as before when the bytes are the same.

        A flood on one subject makes no objects, and a caller that remembers something for a
        subject can recognise it by identity.
        """
        view = self.data
        size = end - start
        if size == len(self.subject):
            known = self.subject
            i = 0
            while i < size and known[i] == view[start + i]:
                i += 1
            if i == size:
                return
        self.subject = view[start:end]
