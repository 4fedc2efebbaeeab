"""Runs of messages that are copied at once: the same as those that are read one by one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.log import columns as here_columns
from slipstream.log import record as here
from slipstream.log import subject_index as here_index
from slipstream.log.columns import GONE
from slipstream.log.file_log import FileLog
from slipstream.log.record import Portion, Record
from slipstream.log.subject_index import SubjectFilter
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.wire.buffer import OutBuffer
from tests.log.storing import commit, opened, put
from tests.log.twins import load_twins
from tests.packed_rows import Row, rows_in

BUILDS = ((here_index, here_columns, here), load_twins())
SALT = 99
BASE = 50
EVERYTHING = 1 << 40


def unbounded() -> Portion:
    """A portion that takes what there is."""
    portion = Portion()
    portion.messages = portion.bytes = portion.size_max = portion.large = EVERYTHING
    portion.end_seq = EVERYTHING
    return portion


places = st.lists(
    st.tuples(
        st.sampled_from([b"a.1", b"a.2", b"b.1"]),
        st.sampled_from([b"", b"NATS/1.0\r\nX: 1\r\n\r\n"]),
        st.binary(max_size=40),
        st.sampled_from(["there"] * 8 + ["gone", "damaged", "deflated", "another", "tombstone"]),
    ),
    max_size=12,
)


@given(
    places,
    st.sampled_from([(), (b"a.*",), (b"b.1",), (b"a.1", b"b.*"), (b"c",)]),
    st.integers(0, 12),
    st.sampled_from([0] * 4 + [1, 40]),
    st.data(),
)
def test_both_builds_copy_what_is_wanted_up_to_what_is_not_a_message_as_it_is(
    made: list[tuple[bytes, bytes, bytes, str]],
    patterns: tuple[bytes, ...],
    first: int,
    start: int,
    data: st.DataObject,
) -> None:
    limits = {
        "messages": data.draw(st.integers(0, 12)),
        "bytes": data.draw(st.sampled_from([0, 1, 60, EVERYTHING])),
        "size_max": data.draw(st.sampled_from([0, 1, 90, EVERYTHING])),
        "large": data.draw(st.sampled_from([0, 20, EVERYTHING])),
        "end_seq": BASE + data.draw(st.integers(-1, 12)),
    }
    found = []
    for index, columns, module in BUILDS:
        subjects, ids, offsets = index.SubjectIndex(), columns.Column(), columns.Column()
        whole = OutBuffer()
        for place, (subject, header, body, what) in enumerate(made):
            at = whole.size
            kind = here.TOMBSTONE if what == "tombstone" else here.MESSAGE
            kind |= here.PACKED if what == "deflated" else 0
            number = place + 1 if what == "another" else place
            text = header + body
            module.encode(
                whole, kind, SALT ^ (what == "damaged"), number, place * 7, subject, text,
                0, len(header), len(text),
            )  # fmt: skip
            id = subjects.intern(subject)
            subjects.added(id, BASE + place)
            ids.append(GONE if what == "gone" else id)
            offsets.append(at)
        matching = index.SubjectFilter(subjects, patterns) if patterns else None
        portion = module.Portion()
        for name, value in limits.items():
            setattr(portion, name, value)
        out = OutBuffer()
        count = module.copy_run(
            whole.take()[start:], start, SALT, BASE, ids, offsets, first, matching, portion, out
        )
        left = (portion.messages, portion.bytes, portion.last_seq)
        found.append((count, out.take(), left))
    assert found[0] == found[1]
    expected = [
        (BASE + place, place * 7, subject, header, body)
        for place, (subject, header, body, what) in enumerate(made)
        if place >= first and what != "gone" and accepted(subject, patterns)
    ]
    count, copied, _ = found[0]
    assert rows_in(copied) == expected[:count]
    for seq, *_ in expected[:count]:
        assert made[seq - BASE][3] == "there"


def accepted(subject: bytes, patterns: tuple[bytes, ...]) -> bool:
    """Whether a filter of the test takes a subject."""
    return not patterns or any(
        subject == pattern or (pattern.endswith(b"*") and subject.startswith(pattern[:-1]))
        for pattern in patterns
    )


def one_by_one(log: FileLog, seq: int, matching: SubjectFilter | None) -> list[Row]:
    """What a reader of single messages gets."""
    rows: list[Row] = []
    record = Record()
    while log.next_near(seq, matching, record):
        rows.append((record.seq, record.ts, record.subject, record.header(), record.body()))
        seq = record.seq + 1
    return rows


def in_runs(log: FileLog, seq: int, matching: SubjectFilter | None) -> tuple[list[Row], int]:
    """What a reader of runs gets, and how many came in runs: single messages are read where there
    is none at hand."""
    rows: list[Row] = []
    copied = 0
    while True:
        out = OutBuffer()
        if count := log.copy_near(seq, matching, unbounded(), out):
            copied += count
            rows += rows_in(out.take())
        else:
            record = Record()
            if not log.next_near(seq, matching, record):
                return rows, copied
            rows.append((record.seq, record.ts, record.subject, record.header(), record.body()))
        seq = rows[-1][0] + 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("patterns", [(), (b"s.1",), (b"s.*",), (b"s.1", b"t.>")])
def test_runs_and_single_messages_are_the_same_whatever_was_removed(
    seed: int, patterns: tuple[bytes, ...]
) -> None:
    random = Random(seed)
    log = opened(SimulatedDisk(random), segment_bytes=3_000)
    log.packs = seed % 2 == 1
    for _ in range(200):
        subject = random.choice([b"s.1", b"s.2", b"t.1", b"u"])
        put(log, subject, random.randbytes(random.choice([0, 10, 80, 900])))
        if random.random() < 0.3:
            commit(log)
        if random.random() < 0.2:
            log.remove(random.randrange(1, log.last_seq + 1), erase=random.random() < 0.5)
        if random.random() < 0.02:
            log.drop_below(random.randrange(1, log.last_seq + 1))
    commit(log)
    matching = log.filter(patterns)
    for start in (1, 77, 200):
        single = one_by_one(log, start, matching)
        rows, copied = in_runs(log, start, matching)
        assert rows == single
        assert copied or len(single) < 3 or log.packs
    log.close()


def test_a_damaged_message_ends_a_run_and_is_told_by_who_reads_it() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, segment_bytes=100_000)
    for n in range(30):
        put(log, b"s", b"%d" % n)
    commit(log)
    log.close()
    (path,) = [path for path in disk.files() if path.endswith(".seg")]
    disk.overwrite(path, disk.read(path).index(b"s14"), b"s41")
    log = opened(disk, segment_bytes=100_000)
    rows, copied = in_runs(log, 1, None)
    assert [row[4] for row in rows] == [b"%d" % n for n in range(30) if n != 14]
    assert copied > 20
    log.close()
