"""What both directions of the protocol share: gathering bytes until a whole frame is there.

A reader is fed whatever the socket brought and asked for one frame after another. Frames are not
copied out: a reader tells where in `data` the parts of the current frame lie, and these offsets are
valid until the next `feed`. A frame that is spread over many reads is gathered in a list and joined
once, so that a large payload costs one copy and not one for each read.
"""

MORE = 0  # `next()`: nothing whole is left, feed more


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

    def feed(self, data: bytes) -> int:
        """Add bytes as they were read. Call `next` until it returns `MORE` before feeding again."""
        if not self._chunks:
            self.data = data
            self._at = 0
            return 0
        self._chunks.append(data)
        self._have += len(data)
        if self._have >= self._need:
            self.data = b"".join(self._chunks)
            self._at = 0
            self._chunks = []
            self._have = 0
        return 0

    def args(self) -> list[bytes]:
        """The current frame's arguments, split at blanks."""
        return self.data[self.args_start : self.args_end].split()

    def argument(self) -> bytes:
        """The current frame's arguments as one piece, without blanks around it."""
        return self.data[self.args_start : self.args_end].strip()

    def _wait(self, need: int) -> int:
        """Keep the incomplete frame until at least `need` bytes of it are there."""
        rest = self.data[self._at :]
        self._chunks = [rest]
        self._have = len(rest)
        self._need = need
        self.data = b""
        self._at = 0
        return MORE

    def _take_subject(self, start: int, end: int) -> int:
        """Set `subject`; the same object as before when the bytes are the same.

        A flood on one subject makes no objects, and whoever remembers something for a subject can
        recognise it by identity.
        """
        size = end - start
        previous = self.subject
        if size == len(previous):
            known = previous
            view = self.data
            i = 0
            while i < size and known[i] == view[start + i]:
                i += 1
            if i == size:
                return 0
        self.subject = self.data[start:end]
        return 0
