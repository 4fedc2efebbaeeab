"""Entries are found again, however the archive is cut into pieces."""

import random
from types import ModuleType

import pytest

from slipstream.archive import entries
from slipstream.errors import CorruptionError
from slipstream.log.record import Record
from slipstream.wire.buffer import OutBuffer
from tests.plain_twin import plain_twin

BUILDS = [entries, plain_twin("slipstream.archive.entries")]
SIZES = (0, 1, 5, 100, 3000)
STEPS = (1, 7, 50, 500, 5000)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("seed", range(20))
def test_entries_are_found_in_pieces_of_any_size(build: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    out = OutBuffer()
    out.put(entries.MAGIC)
    written = []
    for seq in range(1, chance.randrange(2, 60)):
        body = chance.randbytes(chance.choice(SIZES))
        entries.put_entry(out, b"s.%d" % seq, 7, seq, body, 0, min(len(body), 3), len(body))
        written.append((b"s.%d" % seq, seq, body))
    entries.put_end(out)
    archive = out.take()
    reader, record = build.EntryReader(), Record()
    found = []
    at = 0
    while at < len(archive):
        for _ in range(chance.choice((1, 1, 3))):
            step = chance.choice(STEPS)
            reader.feed(archive[at : at + step])
            at += step
        while reader.next(record):
            found.append(
                (record.subject, record.seq, record.data[record.header_start : record.end])
            )
    assert found == written
    assert reader.ended
    reader.feed(b"more")
    with pytest.raises(CorruptionError, match="after its end"):
        reader.next(record)


@pytest.mark.parametrize("build", BUILDS)
def test_a_subject_has_no_blanks(build: ModuleType) -> None:
    for subject in (b"a", b"a.*.>", b"\x00\xff"):
        assert build.may_be_subject(subject)
    for subject in (b"", b" ", b"a b", b"a\t", b"\ra", b"a\n"):
        assert not build.may_be_subject(subject)
