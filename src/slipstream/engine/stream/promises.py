"""Acknowledgements that a stream has promised, and that wait until what they are about is durable.

The compiled build replaces this module by `promises.pyx`, which keeps them as numbers and pointers:
a stream among a thousand has one promise in each batch, for which a tuple and its numbers would be
made. This is its plain twin.
"""

from collections import deque


class Promises:
    """In the order in which they were given, which is that in which they may be kept."""

    __slots__ = ("_waiting", "end", "reply", "seq")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, bytes, bytes]] = deque()
        # Of what was taken last: the message's sequence, where the answer goes, and how it ends.
        self.seq = 0
        self.reply = b""
        self.end = b""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, cover: int, seq: int, reply: bytes, end: bytes) -> None:
        """One more, which may be kept once the sequence `cover` is durable."""
        self._waiting.append((cover, seq, reply, end))

    def take(self, durable: int) -> bool:
        """Take the first one, if all up to the sequence `durable` is; False if it has to wait, or
        there is none."""
        waiting = self._waiting
        if not waiting or waiting[0][0] > durable:
            return False
        _, self.seq, self.reply, self.end = waiting.popleft()
        return True
