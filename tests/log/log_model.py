"""A log as simple as can be, and random operations that a real one has to agree with it on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from slipstream.log.base import Log
from slipstream.log.record import Record
from slipstream.wire.subjects import matches

SUBJECTS = [b"a.%d" % i for i in range(6)] + [b"b.%d.c" % i for i in range(3)]
FILTERS: tuple[tuple[bytes, ...], ...] = (
    (),
    (b"a.1",),
    (b"b.*.c",),
    (b"a.1", b"b.>"),
    (b">",),
    (b"a.1", b">"),
)
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


@dataclass
class Entry:
    """A message of the model."""

    subject: bytes
    ts: int
    header: bytes
    body: bytes


@dataclass
class LogModel:
    """What the log has to say; `size_of` is the log's own."""

    size_of: Callable[[int, int, int], int]
    live: dict[int, Entry] = field(default_factory=dict)
    last_seq: int = 0

    def matching(self, patterns: tuple[bytes, ...], seq: int) -> list[int]:
        """Live sequences from `seq` on that match, ascending."""
        return [
            s
            for s in sorted(self.live)
            if s >= seq
            and (not patterns or any(matches(p, self.live[s].subject) for p in patterns))
        ]

    def drop(self, sequences: list[int]) -> int:
        """Remove these."""
        for seq in sequences:
            del self.live[seq]
        return len(sequences)

    @property
    def bytes(self) -> int:
        """What the log has to count."""
        return sum(
            self.size_of(len(e.subject), len(e.header), len(e.body)) for e in self.live.values()
        )


def operate(log: Log, model: LogModel, random: Random, now: int) -> None:
    """One random operation on both."""
    kind = random.random()
    if kind < 0.66:
        append(log, model, random, now)
    elif kind < 0.88:
        if model.live:
            seq = random.choice(sorted(model.live))
            assert log.remove(seq, random.random() < 0.5)
            assert not log.remove(seq, False)
            del model.live[seq]
    elif kind < 0.91:
        model.last_seq = log.skip(now)
    elif kind < 0.94:
        bound = random.randrange(model.last_seq + 2)
        assert log.drop_below(bound) == model.drop([s for s in model.live if s < bound])
    elif kind < 0.955:
        remove_run(log, model, random)
    elif kind < 0.97:
        found = model.matching((b"a.*",), 0)
        assert log.purge((b"a.*",), 0, 2) == model.drop(found[:-2])
    elif kind < 0.98:
        model.last_seq += random.randrange(1, 50)
        log.advance(model.last_seq)
    else:
        assert log.purge((), 0, 0) == model.drop(list(model.live))


def remove_run(log: Log, model: LogModel, random: Random) -> None:
    """Remove some messages that follow each other, if all of them are there, or none."""
    first = random.randrange(1, model.last_seq + 2)
    run = range(first, first + random.randrange(1, 8))
    there = [seq for seq in run if seq in model.live]
    entries = [model.live[seq] for seq in there]
    size = sum(model.size_of(len(e.subject), len(e.header), len(e.body)) for e in entries)
    assert [log.subject_of(seq) for seq in there] == [entry.subject for entry in entries]
    if log.remove_run(first, len(run), size):  # False where a block ends between them, too
        assert len(there) == len(run)
        model.drop(there)


def append(log: Log, model: LogModel, random: Random, now: int) -> None:
    """Store a random message in both."""
    header = HEADER if random.random() < 0.3 else b""
    body = b"%d" % now * random.randrange(1, 60)
    entry = Entry(random.choice(SUBJECTS), now, header, body)
    data = b"before" + header + body + b"behind"
    start = len(b"before")
    end = start + len(header) + len(body)
    model.last_seq += 1
    seq = log.append(entry.subject, data, start, start + len(header), end, now)
    assert seq == model.last_seq
    model.live[seq] = entry


def compare(log: Log, model: LogModel, random: Random) -> None:
    """Everything that the log says about itself is what the model says."""
    live = sorted(model.live)
    assert (log.last_seq, log.messages) == (model.last_seq, len(live))
    assert log.first_seq == (live[0] if live else model.last_seq + 1)
    assert log.first_ts == (model.live[live[0]].ts if live else 0)
    assert log.bytes == model.bytes
    record = Record()
    seq = random.randrange(model.last_seq + 2)
    for patterns in FILTERS:
        found = model.matching(patterns, seq)
        assert log.count(patterns, seq) == len(found), patterns
        assert log.next(seq, log.filter(patterns), record) == bool(found)
        if found:
            expect(record, found[0], model.live[found[0]])
    assert log.read(seq, record) == (seq in model.live)
    for subject in (b"a.1", b"a.3"):
        mine = [s for s in live if model.live[s].subject == subject]
        assert log.first_of(subject) == (mine[0] if mine else 0)
        assert log.last_of(subject) == (mine[-1] if mine else 0)
        below = [s for s in mine if s <= seq]
        if seq:
            assert log.last_of(subject, seq) == (below[-1] if below else 0)
    missing = sorted(set(range(live[0], model.last_seq + 1)) - set(live)) if live else []
    assert list(log.deleted()) == missing
    assert log.counts().deleted == len(missing)
    ts = random.randrange(1, 400)
    later = [s for s in live if model.live[s].ts >= ts]
    assert log.seq_at(ts) == (later[0] if later else model.last_seq + 1)
    counts = {s.decode(): len(model.matching((s,), 0)) for s in SUBJECTS if model.matching((s,), 0)}
    assert log.subject_counts(b">") == counts


def expect(record: Record, seq: int, entry: Entry) -> None:
    """The record is this message."""
    assert record.seq == seq
    assert Entry(record.subject, record.ts, record.header(), record.body()) == entry
