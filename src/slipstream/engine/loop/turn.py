"""What one turn of the loop leaves to finish: sessions to flush, streams to commit, consumers to
pump.

A turn is everything that one read (or one timer, or one finished fdatasync) sets off. An object
that has something to finish adds itself once; `Rounds.finish_turn` works the lists off. So the
price of a system call is paid for a batch and not for a message.

A round is what happens between two looks at the sockets; `Rounds.go_on` begins one. Work is counted
in steps, each about as long as it takes to deliver a small message (100 ns). A session that has
used its quantum of steps is parked: it is not read from, and goes on in the next round, after the
others have had their turn. So no client can hold up another one for longer than about a round.
"""

from collections import deque
from typing import Any, Protocol

_int = int  # the name `int` in a compiled module's annotations is a C type

ROUND: _int = 200_000  # steps of a round, after which what can wait waits for the next one
QUANTUM: _int = 50_000  # steps of one read
QUANTUM_MIN: _int = 5_000  # ... of a read in a full round, and of a parked session in each round
# Bytes of large messages that one round gives to the system, which copies them, if it has room.
WRITE_SLICE: _int = 4 * 1024 * 1024
API_SLICE: _int = 100_000  # steps of a round that go to API requests

# What is not counted where it happens, in steps.
REQUEST: _int = 400  # an API request that only reads, beside what its answer costs
CHANGE: _int = 20_000  # an API request that changes something, most likely on the disk


class Pumped(Protocol):
    """What a turn goes on with: a consumer that may be able to deliver, a batch that is read."""

    def pump(self) -> Any:
        """Go on, a bounded amount."""

    def put_off(self, error: Exception) -> None:
        """The disk refused what was asked of it while `pump` ran."""


class Turn:
    """The lists of a turn. Members carry a flag of their own, so that adding is O(1)."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []  # ClientSession with output
        self.streams: list[Any] = []  # Committed with something to commit
        self.has_relaxed = False  # whether one of them acknowledges before it is synced
        self.ready: list[Pumped] = []
        self.parked: deque[Any] = deque()  # ClientSession with frames to act on in the next round
        self.laden: deque[Any] = deque()  # ClientSession with large messages, for the next rounds
        self.waiting: deque[Any] = deque()  # ClientSession that published what these are sent
        self.congested = False  # somebody who was just written to does not keep up
        self.shared = 0  # bytes of large messages that the session which acts now has delivered
        self.written = 0  # bytes of large messages that were given to the system in this round
        self.round = 1  # its number
        self.spent = 0  # steps since the round began
        self.api_spent = 0  # ... for API requests
        self.limit = 0  # of `spent`, where the session that acts now has to stop
        self._tail_data = b""
        self._tail_end = 0
        self._tails: dict[_int, bytes] = {}

    def tail(self, data: bytes, start: _int, end: _int) -> bytes:
        """``data[start:end]`` and a line end: one object for everybody who is sent this message.

        Those who take no headers have a `start` of their own.
        """
        if data is not self._tail_data or end != self._tail_end:
            self._tail_data = data
            self._tail_end = end
            self._tails = {}
        found = self._tails.get(start)
        if found is None:
            if data[end : end + 2] == b"\r\n":
                found = data[start : end + 2]
            else:
                found = data[start:end] + b"\r\n"
            self._tails[start] = found
        return found

    def forget_tails(self) -> None:
        """The message was delivered: keep nothing of it."""
        self._tail_data = b""
        self._tails = {}
