"""The messages of a consumer that are out for acknowledgement.

They go out in ascending order of their stream sequence, so they lie in one array of numbers, and a
sequence is found by looking where it would be if none were missing, then by halving. There is no
object for a message: a consumer may have a million out. What is settled leaves a gap, which goes
when everything before it has, or when the array is full.

A *place* is an index into the array; it holds until the next `add`. Four numbers stand there: the
stream sequence, the consumer sequence of the first delivery, the time of the last delivery, and the
deadline when the message is due again.
"""

from slipstream.engine.consumer.numbers import Numbers

_int = int  # the name `int` in a compiled module's annotations is a C type

DUE: _int = -1  # instead of a deadline: waits to be delivered again
_GONE = -2  # instead of a deadline: settled
ROWS_MIN = 16  # that there is room for at first
PENDING_SIZE = 32  # bytes of one message in what `PendingMessages.pack` gives


class PendingMessages:
    """What is out, when it was last delivered, when it is due again; times in ns."""

    def __init__(self) -> None:
        self.size = 0  # how many are out
        self.due = 0  # how many of them are `DUE`
        self._head = 0  # the place of the first; everything before is settled
        self._tail = 0  # after the last
        self._end = 0  # how far there is room
        self._rows = Numbers(0)

    def __len__(self) -> _int:
        return self.size

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and self.find(seq) >= 0

    @property
    def span(self) -> _int:
        """How many rows a look at all messages goes through, gaps included."""
        return (self._tail - self._head) // 4

    def _make_room(self) -> None:
        """Move to the front of a new array without gaps, with as much room again as that takes."""
        n = 4 * self.size
        fresh = Numbers(max(4 * ROWS_MIN, 2 * n))
        self._copy(fresh)
        self._rows = fresh
        self._end = fresh.size
        self._head = 0
        self._tail = n

    def add(self, seq: _int, consumer_seq: _int, ts: _int, deadline: _int) -> None:
        """`seq`, which is above all others, was delivered for the first time."""
        if self._tail == self._end:
            self._make_room()
        i = self._tail
        self._rows.data[i] = seq
        self._rows.data[i + 1] = consumer_seq
        self._rows.data[i + 2] = ts
        self._rows.data[i + 3] = deadline
        self._tail = i + 4
        self.size += 1
        self.due += deadline == -1

    def find(self, seq: _int) -> _int:
        """The place of `seq`; -1 if it is not out."""
        if self.size == 0:
            return -1
        low = self._head // 4
        guess = seq - self._rows.data[4 * low]
        if guess < 0:
            return -1
        high = self._tail // 4 - 1
        if guess < high - low:  # sequences rise by one at least
            high = low + guess
        if self._rows.data[4 * high] == seq:
            return 4 * high if self._rows.data[4 * high + 3] != _GONE else -1
        while low < high:
            middle = (low + high) // 2
            found = self._rows.data[4 * middle]
            if found == seq:
                return 4 * middle if self._rows.data[4 * middle + 3] != _GONE else -1
            if found < seq:
                low = middle + 1
            else:
                high = middle
        return -1

    def remove(self, place: _int) -> None:
        """What is at `place` is settled."""
        self.due -= self._rows.data[place + 3] == -1
        self._rows.data[place + 3] = _GONE
        self.size -= 1
        if self.size == 0:
            self._head = self._tail = 0
        elif place == self._head:
            self._head = self.following(place)
        else:  # lower sequences may follow, if a crash has taken back what was delivered
            while self._rows.data[self._tail - 1] == _GONE:
                self._tail -= 4

    def clear(self) -> None:
        """Nothing is out any more."""
        self.size = self.due = self._head = self._tail = 0

    def first(self) -> _int:
        """The place of the lowest sequence; -1 if nothing is out."""
        return self._head if self.size else -1

    def following(self, place: _int) -> _int:
        """The place of the next sequence; -1 if there is none."""
        i = place + 4
        while i < self._tail:
            if self._rows.data[i + 3] != _GONE:
                return i
            i += 4
        return -1

    def seq(self, place: _int) -> _int:
        """The stream sequence."""
        return self._rows.data[place]

    def consumer_seq(self, place: _int) -> _int:
        """The consumer sequence of its first delivery."""
        return self._rows.data[place + 1]

    def ts(self, place: _int) -> _int:
        """When it was last delivered."""
        return self._rows.data[place + 2]

    def deadline(self, place: _int) -> _int:
        """When it is due again; `DUE` if it waits for that already."""
        return self._rows.data[place + 3]

    def set_deadline(self, place: _int, deadline: _int) -> None:
        """Change when it is due again."""
        self.due += (deadline == -1) - (self._rows.data[place + 3] == -1)
        self._rows.data[place + 3] = deadline

    def delivered_again(self, place: _int, ts: _int, deadline: _int) -> None:
        """Note that the message at `place` was delivered once more."""
        self._rows.data[place + 2] = ts
        self.set_deadline(place, deadline)

    def overdue(self, now: _int) -> list[_int]:
        """The sequences whose deadline has passed, ascending."""
        found = []
        i = self._head
        while i < self._tail:
            deadline = self._rows.data[i + 3]
            if deadline >= 0 and deadline <= now:
                found.append(self._rows.data[i])
            i += 4
        return found

    def next_deadline(self) -> _int:
        """The earliest deadline; 0 if there is none."""
        earliest = 0
        i = self._head
        while i < self._tail:
            deadline = self._rows.data[i + 3]
            if deadline >= 0 and (earliest == 0 or deadline < earliest):
                earliest = deadline
            i += 4
        return earliest

    def last_deadline(self) -> _int:
        """The latest deadline; 0 if there is none."""
        latest = 0
        i = self._head
        while i < self._tail:
            if self._rows.data[i + 3] > latest:
                latest = self._rows.data[i + 3]
            i += 4
        return latest

    def sequences(self) -> list[_int]:
        """All that are out, ascending."""
        found = []
        i = self._head
        while i < self._tail:
            if self._rows.data[i + 3] != _GONE:
                found.append(self._rows.data[i])
            i += 4
        return found

    def pack(self) -> bytes:
        """All of it as bytes: four numbers of 64 bits for each message."""
        packed = Numbers(4 * self.size)
        self._copy(packed)
        return packed.pack()

    def _copy(self, rows: Numbers) -> _int:
        """Put all of it into `rows`, without gaps."""
        n = 0
        i = self._head
        while i < self._tail:
            if self._rows.data[i + 3] != _GONE:
                rows.data[n] = self._rows.data[i]
                rows.data[n + 1] = self._rows.data[i + 1]
                rows.data[n + 2] = self._rows.data[i + 2]
                rows.data[n + 3] = self._rows.data[i + 3]
                n += 4
            i += 4
        return n

    def unpack(self, data: bytes) -> None:
        """Add what `pack` gave. Raises ValueError if it is not whole."""
        if len(data) % PENDING_SIZE:
            raise ValueError("each message has four numbers of eight bytes")
        rows = Numbers(len(data) // 8)
        rows.take(data)
        i = 0
        while i < rows.size:
            self.add(rows.data[i], rows.data[i + 1], rows.data[i + 2], rows.data[i + 3])
            i += 4
