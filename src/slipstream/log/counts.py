"""What a log holds, in numbers."""

_int = int  # the name `int` in a compiled module's annotations is a C type


class Counts:
    """As of some moment: of messages that are there, and of sequences."""

    __slots__ = ("bytes", "first_seq", "last_seq", "last_ts", "messages", "subjects")

    def __init__(self) -> None:
        self.messages: _int = 0
        self.bytes: _int = 0  # of them, as clients expect it
        self.first_seq: _int = 0
        self.last_seq: _int = 0
        self.last_ts: _int = 0  # ns since the epoch
        self.subjects: _int = 0  # with messages

    @property
    def deleted(self) -> _int:
        """How many sequences between first and last hold no message."""
        return self.last_seq - self.first_seq + 1 - self.messages if self.messages else 0
