"""The duplicate window: message ids seen lately (docs/protocol/streams.md#duplicates)."""

from collections import deque

from slipstream.log.base import Log
from slipstream.log.record import Record
from slipstream.model.header_fields import NATS_MSG_ID
from slipstream.wire.headers import find as find_header

EXPIRE_AT_ONCE_MAX = 50_000  # ids that one turn lets go


class DuplicateWindow:
    """Ids and their sequences for `window` ns from when they came; 0 remembers nothing."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._seqs: dict[bytes, int] = {}
        self._order: deque[bytes] = deque()  # the ids as they came; one that came again is in twice
        # [time, how many ids came then, the last one's sequence]: ids of one turn share an entry
        self._arrivals: deque[list[int]] = deque()
        # The same of those that came last, which is not in `_arrivals` yet.
        self._last_at = 0
        self._last_count = 0
        self._last_seq = 0

    def __len__(self) -> int:
        return len(self._seqs)

    def find(self, message_id: bytes) -> int:
        """The sequence stored under `message_id`; 0 if it was not seen."""
        return self._seqs.get(message_id, 0)

    def add(self, message_id: bytes, seq: int, now: int) -> None:
        """Remember an id; if it is there, as in a log that was harmed, it counts from now on."""
        if not self.window:
            return
        self._seqs[message_id] = seq
        self._order.append(message_id)
        if self._last_at != now:
            self._end_arrival()
            self._last_at = now
        self._last_count += 1
        self._last_seq = seq

    def _end_arrival(self) -> None:
        """The next id comes at another time."""
        if self._last_count:
            self._arrivals.append([self._last_at, self._last_count, self._last_seq])
            self._last_count = 0

    def recall(self, log: Log, now: int) -> bytes:
        """Remember the ids of what is stored; the last message's id, b"" if it has none.

        Blocks without headers are passed over; in the others every message of the window is looked
        at, which may be millions: hence compiled.
        """
        record = Record()
        message_id: bytes | None = None
        blocks = list(log.blocks)  # one goes if all that is left in it turns out to be damaged
        if not [block for block in blocks if block.has_headers]:
            return b""  # without a look for where the window begins
        first = log.seq_at(now - self.window)
        for at, block in enumerate(blocks):
            after = blocks[at + 1].base if at + 1 < len(blocks) else log.last_seq + 1
            if not block.has_headers or after <= first:
                message_id = None
                continue
            seq = max(block.base, first)
            while seq < after and log.next(seq, None, record) and record.seq < after:
                seq = record.seq + 1
                message_id = None
                if record.body_start > record.header_start:
                    message_id = find_header(
                        record.data, record.header_start, record.body_start, NATS_MSG_ID
                    )
                    if message_id:
                        self.add(message_id, record.seq, record.ts)
        return message_id or b""

    def expire(self, now: int) -> int:
        """Forget what is older than the window, a bounded number; when to look again (ns), 0 if
        nothing is left."""
        self._end_arrival()
        left = EXPIRE_AT_ONCE_MAX
        while left > 0 and self._arrivals and self._arrivals[0][0] + self.window <= now:
            arrival = self._arrivals[0]
            count = min(arrival[1], left)
            for _ in range(count):
                message_id = self._order.popleft()
                if self._seqs.get(message_id, 0) <= arrival[2]:  # else it came again
                    self._seqs.pop(message_id, None)
            left -= count
            arrival[1] -= count
            if arrival[1] == 0:
                self._arrivals.popleft()
        return self._arrivals[0][0] + self.window if self._arrivals else 0
