"""What a message log promises and how it finds messages, whatever stores them.

A log keeps messages by sequence. It knows subjects, sizes and times, and nothing about consumers,
accounts or who may publish. `FileLog` keeps them in segment files, `MemoryLog` in memory.

Messages lie in blocks of consecutive sequences. A block remembers the subject id of each sequence
in a column (`GONE` where nothing lives), so finding the next message of a filter scans numbers,
block by block, and looks at no message that does not match.

Appending never touches the disk: it puts the record into a buffer. Making it durable takes three
steps, so that the owner of the event loop decides where the blocking one runs:

1. ``batch = log.prepare_sync()``  on the loop: hands the buffer to the operating system (`write`),
2. ``batch.run()``                 on the loop or on any thread: the fdatasync,
3. ``log.finish_sync(batch)``      on the loop: `durable_seq` moves, or the log has failed for good.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.columns import GONE, Column
from slipstream.log.counts import Counts
from slipstream.log.durability import Job, Lost, SyncBatch
from slipstream.log.record import Portion, Record
from slipstream.log.subject_index import SubjectFilter, SubjectIndex
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.subjects import has_wildcard

if TYPE_CHECKING:
    from slipstream.log.segment_bytes import EntryCopies

_int = int  # the name `int` in a compiled module's annotations is a C type


class Block:
    """Consecutive sequences from `base` on; `ids` is None while they are not in memory."""

    def __init__(self, base: _int) -> None:
        self.base = base
        self.ids: Column | None = Column()
        self.live = 0
        self.bytes = 0  # of the live messages, as clients count them
        self.first_ts = 0
        self.last_ts = 0
        self.has_headers = False  # whether a message in it has had a header block


class Log:
    """Messages by sequence; see the module's text. Sequences start at 1 (or at `first_seq`)."""

    def __init__(self, first_seq: _int = 1) -> None:
        self.first_seq = first_seq  # lowest live sequence; last_seq + 1 when the log is empty
        self.last_seq = first_seq - 1  # highest sequence ever given out; never goes down
        self._first_ts = 0  # when a message was stored that was the first live one ...
        self._first_ts_seq = 0  # ... its sequence
        self.last_ts = 0  # of the last sequence given out; 0 when never written
        self.messages = 0
        self.bytes = 0  # as clients expect it: the `size_of` of each live message, summed
        self.durable_seq = self.last_seq  # everything up to here survives a crash
        # What it holds as far as that survives a crash; None where nothing does.
        self.durable_counts: Counts | None = None
        self.subjects = SubjectIndex()
        self.blocks: list[Any] = []
        self.packs = False  # whether bodies are made smaller on disk, from now on
        self.end_moved = False  # what is kept elsewhere of where it ends is old: see `save_end`
        # A read has removed a message that was gone, or a batch had no space to tell of removals.
        self.untold = False
        self.appended_size = 0  # the `size_of` the message that was appended last
        self._found: Block | None = None
        self._scratch = Record()

    # -- what a kind of log provides -----------------------------------------------------------

    def size_of(self, subject_size: _int, header_size: _int, body_size: _int) -> _int:
        """What a message of these sizes adds to `bytes`
        (docs/protocol/streams.md#info-and-state)."""
        raise NotImplementedError

    def record_size(self, record: Record) -> _int:
        """What the message in `record` adds to `bytes`."""
        return self.size_of(
            len(record.subject),
            record.body_start - record.header_start,
            record.end - record.body_start,
        )

    def append(
        self, subject: bytes, data: bytes, header_start: _int, body_start: _int, end: _int, ts: _int
    ) -> _int:
        """Store a message and return its sequence.

        Raises `DiskFullError` (nothing stored, no sequence used) or `StorageError` once failed.
        """
        raise NotImplementedError

    def begin_group(self, messages: _int, stored: _int, size: _int) -> None:
        """The next `messages` sequences are a group, of which `stored` (2 or more) are appended:
        after a crash all of these are there, or none. Nothing else may come between them.

        `size` is how many bytes their subjects, header blocks and bodies have. Raises
        `DiskFullError` (nothing has happened) or `StorageError` once failed; appending them does
        neither then. A caller that cannot append all of them calls `break_group`.
        """

    def break_group(self) -> None:
        """The group that was begun will not be completed. If some of its messages were appended,
        the log has failed: they cannot be taken back, and nothing may be taken for the rest."""

    def skip(self, ts: _int) -> _int:
        """Use up a sequence without storing anything (interest retention, nobody interested)."""
        raise NotImplementedError

    def advance(self, last_seq: _int) -> None:
        """Jump so that the next message gets ``last_seq + 1`` (a purge beyond the end)."""
        raise NotImplementedError

    def unwritten(self) -> _int:
        """Bytes that the next batch will write."""
        return 0

    def ask_for_room_again(self) -> None:
        """The disk may have less space than was counted on: the next message asks for its own."""

    def prepare_sync(self, instead_of: SyncBatch | None = None) -> SyncBatch | None:
        """Hand what is buffered to the operating system; None if there is nothing to sync.

        Batches run and are finished in the order in which they were prepared. `instead_of` is one
        that has not run and is not to: the new one covers it (or is it).
        """
        raise NotImplementedError

    def carry(self, _copies: "EntryCopies") -> bool:
        """Have the next entry of the commit log have a copy of what the next batch would have
        appended, if that is a few bytes and all that the batch would do; False, and nothing has
        happened, if not. `finish_carried` follows."""
        return False

    def finish_carried(self, error: Exception | None) -> None:
        """Take note that the entry is durable, or why not; raises `StorageError` then, which is
        final."""
        raise NotImplementedError

    def finish_sync(self, batch: SyncBatch) -> None:
        """Take note that `batch` has run; raises `StorageError` if it failed, which is final."""
        raise NotImplementedError

    def owes_removals(self) -> bool:
        """Whether removals are not in a batch yet: after `prepare_sync`, for want of space."""
        return False

    def save_end(self) -> None:
        """Have a job keep elsewhere where the log ends, which a damaged log does not show."""

    def has_jobs(self) -> bool:
        """Whether background work has come up."""
        return False

    def take_jobs(self) -> list[Job]:
        """Background work that has come up since the last call."""
        return []

    def do_jobs(self) -> None:
        """Do the background work here, also what comes of it. Blocks; raises OSError,
        `StorageError`."""
        while jobs := self.take_jobs():
            for job in jobs:
                job.run()
                job.finish()

    def close(self) -> None:
        """Make everything durable and release the files. Blocks."""
        raise NotImplementedError

    def delete(self) -> None:
        """Release the files, which are about to be removed; nothing is in the log any more."""
        raise NotImplementedError

    @property
    def lost(self) -> Lost:
        """What damage has taken; empty for a healthy log."""
        return Lost()

    def _ids(self, block: Block) -> Column:
        """The block's column of subject ids, brought into memory if need be."""
        assert block.ids is not None
        return block.ids

    def _fill(self, block: Any, i: _int, record: Record) -> None:
        """Fill `record` with the message at place `i` of `block`."""
        raise NotImplementedError

    def _find(self, block: Any, i: _int, record: Record) -> bool:
        """Fill `record` with the message at place `i`; False if there is none."""
        ids = self._ids(block)
        if i >= ids.size or ids.get(i) == GONE:
            return False
        self._fill(block, i, record)
        return True

    def _forgotten(self, block: Any, i: _int, erase: bool) -> None:
        """The message at place `i` was just removed from the index: remember that on disk too."""

    def _forgotten_run(self, block: Block, i: _int, count: _int, is_front: bool) -> None:
        """The same for the messages from place `i` on, none of whose bytes are to be destroyed;
        `is_front` says that they are the log's first ones."""

    def _dropped(self, block: Any) -> None:
        """Nothing lives in `block` any more, and it was taken out of `blocks`."""

    # -- reading -------------------------------------------------------------------------------

    def read(self, seq: _int, record: Record) -> bool:
        """Fill `record` with message `seq`; False if there is none (any more)."""
        block = self._block_of(seq) if self.first_seq <= seq <= self.last_seq else None
        if block is None or block.live == 0:
            return False
        try:
            return self._find(block, seq - block.base, record)
        except CorruptionError:
            self._lose(seq)
            return False

    def read_near(self, seq: _int, record: Record) -> bool:
        """As `read`, but raises `ColdError` if that has to wait for the disk."""
        return self.read(seq, record)

    def next_near(self, seq: _int, matching: SubjectFilter | None, record: Record) -> bool:
        """As `next`, but raises `ColdError` if that has to wait for the disk."""
        return self.next(seq, matching, record)

    def copy_near(
        self, _seq: _int, _matching: SubjectFilter | None, _portion: Portion, _out: OutBuffer
    ) -> _int:
        """Append the messages at or after a sequence that match to a buffer, in the form of
        `record.copy_run`, as far as they are at hand; how many. 0 says nothing of whether there
        are any: `next_near` does."""
        return 0

    def holds(self, seq: _int) -> bool:
        """Whether message `seq` is there; does not look at its bytes."""
        block = self._block_of(seq) if self.first_seq <= seq <= self.last_seq else None
        if block is None or block.live == 0:
            return False
        ids = self._ids(block)
        return seq - block.base < ids.size and ids.get(seq - block.base) != GONE

    def subject_of(self, seq: _int) -> bytes:
        """The subject of message `seq`, b"" if it is not there; does not look at its bytes."""
        block = self._block_of(seq) if self.holds(seq) else None
        return self.subjects.subject(self._ids(block).get(seq - block.base)) if block else b""

    def next(self, seq: _int, matching: SubjectFilter | None, record: Record) -> bool:
        """Fill `record` with the first live message at or after `seq` that `matching` accepts."""
        if seq < self.first_seq:
            seq = self.first_seq
        if seq > self.last_seq or self.messages == 0:
            return False
        # The index knows where a subject's messages begin and end. With wildcards it is asked only
        # when a block had none, and once, as it may have to look at many.
        may_skip = matching is not None and not matching.literal
        if matching is not None and matching.literal:
            found = matching.at_or_after(seq)
            if found < 0:
                return False
            seq = found
        at = max(self._index_of(seq), 0)
        while at < len(self.blocks):
            block = self.blocks[at]
            at += 1
            if block.live == 0:
                continue
            ids = self._ids(block)
            i = seq - block.base if seq > block.base else 0
            i = ids.next_used(i) if matching is None else ids.next_of(i, matching)
            if i >= 0:
                try:
                    self._fill(block, i, record)
                except CorruptionError:
                    seq = block.base + i
                    self._lose(seq)
                    at = max(self._index_of(seq), 0)
                    continue
                return True
            if matching is not None and may_skip and at < len(self.blocks):
                may_skip = False
                found = matching.at_or_after(self.blocks[at].base)
                if found < 0:
                    return False
                seq = found
                at = max(self._index_of(seq), at)
        return False

    def filter(self, patterns: tuple[bytes, ...]) -> SubjectFilter | None:
        """A filter for `next`; None (everything) for no patterns, or one that all match."""
        return SubjectFilter(self.subjects, patterns) if patterns and b">" not in patterns else None

    def count(self, patterns: tuple[bytes, ...], first_seq: _int) -> _int:
        """How many live messages at or after `first_seq` match `patterns` (all when empty).

        Exact. From the front it costs O(matching subjects); from the middle also a scan of the ids
        of the blocks on the shorter side.
        """
        matching = self.filter(patterns)
        total = self.messages if matching is None else matching.total()
        if first_seq <= self.first_seq or total == 0:
            return total
        if first_seq > self.last_seq:
            return 0
        at = max(self._index_of(first_seq), 0)
        if at < len(self.blocks) - 1 - at:
            return total - self.count_between(matching, 0, first_seq - 1)
        return self.count_between(matching, first_seq, self.last_seq)

    def count_between(self, matching: SubjectFilter | None, low: _int, high: _int) -> _int:
        """How many live messages between `low` and `high`, inclusive, match."""
        found = 0
        for at in range(max(self._index_of(low), 0), len(self.blocks)):
            block = self.blocks[at]
            if block.base > high:
                break
            if block.live == 0:
                continue
            is_last = at + 1 == len(self.blocks)
            above = self.last_seq + 1 if is_last else self.blocks[at + 1].base
            if matching is None and low <= block.base and above <= high + 1:
                found += block.live
                continue
            ids = self._ids(block)
            start = max(low - block.base, 0)
            stop = min(high - block.base + 1, ids.size)
            if matching is None and block.live == ids.size:
                found += max(stop - start, 0)  # nothing is gone
            elif matching is None:
                found += ids.count_used(start, stop)
            else:
                found += ids.count_of(start, stop, matching)
        return found

    def first_of(self, subject: bytes) -> _int:
        """The lowest live sequence on the literal `subject`; 0 if it has none. O(1) amortised."""
        id = self.subjects.find(subject)
        if id < 0 or self.subjects.count(id) == 0:
            return 0
        seq = self.subjects.first(id)
        if seq == 0:
            seq = self._seek_first(id, self.first_seq)
            self.subjects.set_first(id, seq)
        return seq

    def last_on(self, subject: bytes) -> _int:
        """The highest live sequence on one subject, which is no pattern; 0 if none."""
        id = self.subjects.find(subject)
        if id < 0 or self.subjects.count(id) == 0:
            return 0
        return self._last_of_id(id)

    def _last_of_id(self, id: _int) -> _int:
        seq = self.subjects.last(id)
        if seq == 0:
            seq = self._seek_last(id, self.last_seq)
            self.subjects.set_last(id, seq)
        return seq

    def last_of(self, pattern: bytes, up_to: _int = 0) -> _int:
        """The highest live sequence that matches `pattern` (up to `up_to` unless 0); 0 if none."""
        if not up_to and not has_wildcard(pattern):
            return self.last_on(pattern)
        found = self.last_per_subject((pattern,), up_to)
        return found[-1] if found else 0

    def last_per_subject(self, patterns: tuple[bytes, ...], up_to: _int = 0) -> list[_int]:
        """The last sequence of each matching subject, ascending."""
        matching = SubjectFilter(self.subjects, patterns or (b">",))
        found = []
        for id in matching.ids():
            seq = self._last_of_id(id)
            if up_to and seq > up_to:
                seq = self._seek_last(id, up_to)
            if seq:
                found.append(seq)
        found.sort()
        return found

    def subject_counts(self, pattern: bytes) -> dict[str, _int]:
        """Matching subjects and how many messages each has, sorted by subject."""
        ids = SubjectFilter(self.subjects, (pattern,)).ids()
        pairs = sorted((self.subjects.subject(id), self.subjects.count(id)) for id in ids)
        return {subject.decode("utf-8", "replace"): count for subject, count in pairs}

    def seq_at(self, ts: _int) -> _int:
        """The first live sequence stored at or after `ts` (ns); ``last_seq + 1`` if none is."""
        found = 0
        while not found:  # no call within a call: there may be a hundred thousand damaged messages
            found = self._seq_at(ts)
        return found

    def _seq_at(self, ts: _int) -> _int:
        """The same; 0 if a message that was looked at is damaged, and gone now."""
        for block in self.blocks:
            if block.live == 0 or block.last_ts < ts:
                continue
            ids = self._ids(block)
            low, high = 0, ids.size
            while low < high:
                middle = (low + high) // 2
                used = ids.next_used(middle)
                if used < 0 or used >= high:
                    high = middle
                    continue
                messages = self.messages
                if not self.read(block.base + used, self._scratch):
                    if self.messages != messages:
                        return 0
                    low = used + 1  # it is not to be had, and has not gone: look behind it
                    continue
                if self._scratch.ts >= ts:
                    high = middle
                else:
                    low = used + 1
            used = ids.next_used(low)
            if used >= 0:
                return int(block.base + used)
        return self.last_seq + 1

    def deleted(self) -> Iterator[_int]:
        """The sequences between first and last that hold no message, ascending."""
        if self.messages == 0:
            return
        expected = self.first_seq
        for block in self.blocks:
            if block.live == 0:
                continue
            ids = self._ids(block)
            i = ids.next_used(0)
            while i >= 0:
                yield from range(expected, block.base + i)
                expected = max(expected, block.base + i + 1)
                i = ids.next_used(i + 1)
        yield from range(expected, self.last_seq + 1)

    def stored_after(self, seq: _int) -> Iterator[_int]:
        """The sequences of the messages behind `seq`, ascending."""
        for block in self.blocks[max(self._index_of(seq + 1), 0) :]:
            ids = self._ids(block)
            i = ids.next_used(max(seq + 1 - block.base, 0))
            while i >= 0:
                yield block.base + i
                i = ids.next_used(i + 1)

    def counts(self) -> Counts:
        """What it holds now."""
        counts = Counts()
        self.count_into(counts)
        return counts

    def count_into(self, counts: Counts) -> None:
        """Have `counts` say what it holds now."""
        counts.messages = self.messages
        counts.bytes = self.bytes
        counts.first_seq = self.first_seq
        counts.last_seq = self.last_seq
        counts.last_ts = self.last_ts
        counts.subjects = self.subjects.live

    # -- removing ------------------------------------------------------------------------------

    def remove(self, seq: _int, erase: bool) -> bool:
        """Remove one message; `erase` also destroys its bytes on disk. False if it is not there."""
        if not self._take_out(seq, erase):
            return False
        if seq == self.first_seq:
            self.move_first(seq + 1)
        return True

    def _take_out(self, seq: _int, erase: bool) -> bool:
        """Remove one message, and leave `first_seq` where it is."""
        if not self.read(seq, self._scratch):
            return False
        block = self._block_of(seq)
        assert block is not None
        size = self.record_size(self._scratch)
        if size > block.bytes:  # that of a damaged message was a guess
            size = block.bytes
        ids = self._ids(block)
        i = seq - block.base
        id = ids.get(i)
        self._forgotten(block, i, erase)
        ids.set(i, GONE)
        self.subjects.removed(id, seq)
        block.live -= 1
        block.bytes -= size
        self.messages -= 1
        self.bytes -= size
        if block.live == 0:
            self._drop_if_done(block)
        return True

    def remove_run(self, first: _int, count: _int, size: _int) -> bool:
        """Remove `count` messages that follow each other from `first` on, and add `size` to `bytes`
        together, without looking at them. False, and nothing removed, unless all of them are there,
        in one block."""
        block = self._block_of(first) if self.first_seq <= first <= self.last_seq else None
        if block is None or block.live < count:
            return False
        ids = self._ids(block)
        i = first - block.base
        if size > block.bytes or ids.count_used(i, i + count) != count:
            return False
        is_front = first == self.first_seq
        self._forgotten_run(block, i, count, is_front)
        for k in range(i, i + count):
            self.subjects.removed(ids.get(k), block.base + k)
            ids.set(k, GONE)
        block.live -= count
        block.bytes -= size
        self.messages -= count
        self.bytes -= size
        if block.live == 0:
            self._drop_if_done(block)
        if is_front:
            self.move_first(first + count)
        return True

    def _drop_if_done(self, block: Block) -> None:
        """Let go of an emptied block, unless it is the one that is written to."""
        if block is not self.blocks[-1]:
            self.blocks.remove(block)
            if self._found is block:
                self._found = None
            self._dropped(block)

    def drop_below(self, seq: _int) -> _int:
        """Remove every message below `seq`; the number removed.

        Cost: O(removed), with a look at each message where a block keeps others. To remove all
        messages costs a look at the ids of the last block, and at each subject.
        """
        before = self.messages
        if seq > self.last_seq:
            if before:
                self._drop_all()
            return before
        while self.messages and self.first_seq < seq:
            block = self._block_of(self.first_seq)
            assert block is not None
            ids = self._ids(block)
            if block.base + ids.size <= seq and block is not self.blocks[-1]:
                self._drop_whole(block, ids)
            else:
                self._drop_front(block, ids, seq)
        return before - self.messages

    def _drop_front(self, block: Block, ids: Column, seq: _int) -> None:
        """Remove what `block`, which holds the first message, has below `seq`."""
        i = self.first_seq - block.base
        while i >= 0 and block.base + i < seq:
            self.first_seq = block.base + i  # the moved front says that it is gone
            self._take_out(self.first_seq, False)
            i = ids.next_used(i + 1)
        if self.first_seq < seq:
            self.move_first(seq)

    def _drop_all(self) -> None:
        """Remove every message. Of blocks that go as a whole not even the ids are looked at."""
        last = self.blocks[-1]
        emptied = self.blocks[:-1]
        self.blocks = [last]
        self._found = None
        ids = self._ids(last)
        i = ids.next_used(0)
        while i >= 0:
            self.first_seq = last.base + i  # the moved front says that it is gone
            self._forgotten(last, i, False)
            ids.set(i, GONE)
            i = ids.next_used(i + 1)
        for block in [*emptied, last]:
            block.live = 0
            block.bytes = 0
        for block in emptied:
            self._dropped(block)
        self.subjects.clear()
        self.messages = 0
        self.bytes = 0
        self.first_seq = self.last_seq + 1

    def _drop_whole(self, block: Block, ids: Column) -> None:
        i = ids.next_used(0)
        while i >= 0:
            self.subjects.removed(ids.get(i), block.base + i)
            ids.set(i, GONE)
            i = ids.next_used(i + 1)
        self.messages -= block.live
        self.bytes -= block.bytes
        block.live = 0
        block.bytes = 0
        after = block.base + ids.size
        self._drop_if_done(block)
        self.move_first(after)

    def purge(self, patterns: tuple[bytes, ...], below: _int, keep: _int) -> _int:
        """Remove messages that match `patterns` (all when empty), below `below` (0: no bound), all
        but the newest `keep`; the number removed."""
        limit = min(below, self.last_seq + 1) if below else self.last_seq + 1
        if not patterns and not keep:
            return self.drop_below(limit)
        matching = self.filter(patterns)
        found: list[int] = []
        seq = self.first_seq
        record = Record()
        while self.next(seq, matching, record) and record.seq < limit:
            found.append(record.seq)
            seq = record.seq + 1
        removed = found[: max(len(found) - keep, 0)] if keep else found
        for seq in removed:
            self.remove(seq, False)
        return len(removed)

    # -- finding blocks ------------------------------------------------------------------------

    def _index_of(self, seq: _int) -> _int:
        """The index of the last block that begins at or before `seq`; -1 if there is none."""
        lo = 0
        hi = len(self.blocks)
        if hi:
            candidate = self.blocks[hi - 1]
            if candidate.base <= seq:
                return hi - 1
        while lo < hi:
            middle = (lo + hi) // 2
            candidate = self.blocks[middle]
            if candidate.base <= seq:
                lo = middle + 1
            else:
                hi = middle
        return lo - 1

    def _block_of(self, seq: _int) -> Block | None:
        """The block where `seq` would be; None if it lies before the first."""
        block: Block | None = self._found
        if block is not None and block.base <= seq and block.ids is not None:
            if seq - block.base < block.ids.size:
                return block
        at = self._index_of(seq)
        if at < 0:
            return None
        block = self.blocks[at]
        self._found = block
        return block

    def move_first(self, start: _int) -> None:
        """`first_seq` becomes the first live sequence from `start` on."""
        at = max(self._index_of(start), 0)
        while self.messages and at < len(self.blocks):
            block = self.blocks[at]
            at += 1
            if block.live == 0:
                continue
            i = self._ids(block).next_used(start - block.base if start > block.base else 0)
            if i >= 0:
                self.first_seq = block.base + i
                return
        self.first_seq = self.last_seq + 1

    @property
    def first_ts(self) -> _int:
        """When the first live message was stored, in nanoseconds since the epoch; 0 if there is
        none or it cannot be read. It is read when somebody asks: the front of a queue moves with
        each message."""
        if self.messages and self._first_ts_seq != self.first_seq:
            block = self._block_of(self.first_seq)
            assert block is not None
            ts = self._ts_at(block, self.first_seq - block.base)
            if not ts:
                return 0  # it may be readable another time
            self.note_first_ts(ts)
        return self._first_ts if self.messages else 0

    def note_first_ts(self, ts: _int) -> None:
        """The first live message was stored then."""
        self._first_ts = ts
        self._first_ts_seq = self.first_seq

    def _ts_at(self, block: Block, i: _int) -> _int:
        """When the message at place `i` was stored; 0 if that cannot be read."""
        try:
            return self._scratch.ts if self._find(block, i, self._scratch) else 0
        except (StorageError, OSError):
            return 0

    def _lose(self, seq: _int) -> None:
        """Message `seq` cannot be read: count it as lost, and go on without it."""
        raise NotImplementedError

    def _seek_first(self, id: _int, start: _int) -> _int:
        """The first live sequence of a subject from `start` on; 0 if there is none."""
        at = max(self._index_of(start), 0)
        matching = SubjectFilter(self.subjects, (self.subjects.subject(id),))
        while at < len(self.blocks):
            block = self.blocks[at]
            at += 1
            if block.live:
                i = self._ids(block).next_of(
                    start - block.base if start > block.base else 0, matching
                )
                if i >= 0:
                    return int(block.base + i)
        return 0

    def _seek_last(self, id: _int, start: _int) -> _int:
        """The last live sequence of a subject up to `start`; 0 if there is none."""
        at = self._index_of(start)
        while at >= 0:
            block = self.blocks[at]
            at -= 1
            if block.live:
                i = self._ids(block).last_of(start - block.base, id)
                if i >= 0:
                    return int(block.base + i)
        return 0
