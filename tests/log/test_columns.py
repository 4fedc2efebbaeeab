"""Columns and the subject index: both builds do the same with the same calls."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.log.columns import GONE, Column
from slipstream.log.subject_index import SubjectFilter, SubjectIndex
from slipstream.wire.subjects import matches
from tests.log.twins import load_twins

twin_index, twin_columns, _ = load_twins()

values = st.lists(st.one_of(st.just(GONE), st.integers(0, 40)), max_size=60)
TOKENS = (b"a", b"b", b"long-token")
PATTERNS = ((b"a.>",), (b"*.b",), (b"a.b",), (b"a.b", b"b.a"), (b">",), (b"a.*.b", b"b"))


def column(kind: Any, content: list[int]) -> Any:
    made = kind()
    for value in content:
        made.append(value)
    return made


def content(made: Any) -> list[int]:
    return [made.get(i) for i in range(made.size)]


@given(values, st.integers(-2, 70), st.integers(-2, 70))
def test_twin_columns_find_and_count_the_same(numbers: list[int], low: int, high: int) -> None:
    here, there = column(Column, numbers), column(twin_columns.Column, numbers)
    assert here.size == there.size == len(numbers)
    assert here.next_used(low) == there.next_used(low)
    assert here.count_used(low, high) == there.count_used(low, high)
    for value in (0, 7, 40):
        assert here.last_of(low, value) == there.last_of(low, value)


@given(values, st.sampled_from((1, 2, 4)))
def test_a_packed_column_comes_back(numbers: list[int], width: int) -> None:
    here, there = column(Column, numbers), column(twin_columns.Column, numbers)
    packed = here.pack(width)
    assert packed == there.pack(width)
    assert content(Column.unpack(packed, width)) == numbers
    names = [value * 3 for value in range(41)]
    renamed = [GONE if value == GONE else value * 3 for value in numbers]
    assert content(Column.unpack(packed, width, names)) == renamed
    assert content(twin_columns.Column.unpack(packed, width, names)) == renamed


def test_a_packed_column_that_names_nothing_is_refused() -> None:
    for kind in (Column, twin_columns.Column):
        with pytest.raises(ValueError, match="names an entry"):
            kind.unpack(column(Column, [5]).pack(1), 1, [0, 1])


@given(values)
def test_dense_names_and_statistics_agree(numbers: list[int]) -> None:
    here, found = column(Column, numbers).translate()
    there, expected = column(twin_columns.Column, numbers).translate()
    assert (content(here), found) == (content(there), expected)
    assert here.stats(len(found)) == there.stats(len(found))


@given(st.lists(st.integers(0, 1000), max_size=40))
def test_steps_come_back(steps: list[int]) -> None:
    offsets = [32 + sum(steps[: n + 1]) for n in range(len(steps))]
    here, there = column(Column, offsets), column(twin_columns.Column, offsets)
    packed = here.pack_steps(32)
    assert packed == there.pack_steps(32)
    assert content(Column.unpack_steps(packed, 32)) == offsets
    assert content(twin_columns.Column.unpack_steps(packed, 32)) == offsets


@given(values, st.binary(max_size=10), st.integers(0, 70))
def test_burying_and_cutting_agree(numbers: list[int], dead: bytes, size: int) -> None:
    here, there = column(Column, numbers), column(twin_columns.Column, numbers)
    for made in (here, there):
        made.bury(bytearray(dead))
        made.truncate(size)
    assert content(here) == content(there)


def test_places_outside_are_refused() -> None:
    for kind in (Column, twin_columns.Column):
        made = column(kind, [1, 2])
        for i in (-1, 2):
            with pytest.raises(IndexError):
                made.get(i)
            with pytest.raises(IndexError):
                made.set(i, 0)


@pytest.mark.parametrize("seed", range(10))
def test_twin_indexes_agree_under_random_use(seed: int) -> None:
    random = Random(seed)
    here, there = SubjectIndex(), twin_index.SubjectIndex()
    filters = [(SubjectFilter(here, p), twin_index.SubjectFilter(there, p)) for p in PATTERNS]
    live: dict[bytes, list[int]] = {}
    for seq in range(1, 400):
        if random.random() < 0.6 or not live:
            subject = b".".join(random.choices(TOKENS, k=random.randint(1, 3)))
            for index in (here, there):
                index.added(index.intern(subject), seq)
            live.setdefault(subject, []).append(seq)
        else:
            subject = random.choice(sorted(live))
            gone = random.choice(live[subject])
            for index in (here, there):
                index.removed(index.find(subject), gone)
            live[subject].remove(gone)
            if not live[subject]:
                del live[subject]
        assert here.live == there.live == len(live)
        for subject, sequences in live.items():
            for index in (here, there):
                id = index.find(subject)
                assert index.subject(id) == subject
                assert index.count(id) == len(sequences)
                assert index.first(id) in (0, sequences[0])
                assert index.last(id) in (0, sequences[-1])
        for ours, theirs in filters:
            wanted = {s for s in live if any(matches(p, s) for p in ours.patterns)}
            assert {here.subject(i) for i in ours.ids()} == wanted
            assert {there.subject(i) for i in theirs.ids()} == wanted
            assert ours.total() == theirs.total() == sum(len(live[s]) for s in wanted)
            asked = random.randint(1, seq + 1)
            found = ours.at_or_after(asked)
            assert found == theirs.at_or_after(asked)
            matching = [n for s in wanted for n in live[s] if n >= asked]
            assert asked <= found <= min(matching) if matching else found in (-1, asked)
    assert here.find(b"never.seen") == there.find(b"never.seen") == -1


WIDE_PATTERNS = (
    (b"*.*.x.>",),
    (b"a.*.7",),
    (b"a.>",),
    (b"*.3",),
    (b"*.*.3", b"a.*.3", b"b.4.5"),
    (b">",),
    (b"*.*.*",),
    (b"none.*.x",),
    (b"*.9.*.2",),
    (b"b.5.>",),
)


@pytest.mark.parametrize("seed", range(4))
def test_wildcards_find_their_subjects_among_many_that_come_and_go(seed: int) -> None:
    """With more shapes than are kept, and more subjects than are looked at one by one."""
    random = Random(seed)
    here, there = SubjectIndex(), twin_index.SubjectIndex()
    tokens = [b"a", b"b", b"x", *(b"%d" % i for i in range(10))]
    live: set[bytes] = set()
    most = 0
    for seq in range(1, 4001):
        subject = b".".join(random.choices(tokens, k=random.choice((1, 2, 3, 3, 4, 4))))
        if subject in live or (live and random.random() < seq / 7000):
            subject = subject if subject in live else random.choice(sorted(live))
            live.remove(subject)
            for index in (here, there):
                index.removed(index.find(subject), index.last(index.find(subject)))
        else:
            live.add(subject)
            for index in (here, there):
                index.added(index.intern(subject), seq)
        if seq % 50 == 0:
            patterns = random.choice(WIDE_PATTERNS)
            wanted = sorted(s for s in live if any(matches(p, s) for p in patterns))
            for index, kind in ((here, SubjectFilter), (there, twin_index.SubjectFilter)):
                found = kind(index, patterns)
                assert sorted(index.subject(id) for id in found.ids()) == wanted
                assert found.total() == len(wanted)
            most = max(most, len(live))
    assert most > 512


def test_nothing_is_left_of_an_index_that_was_cleared() -> None:
    for index, kind in (
        (SubjectIndex(), SubjectFilter),
        (twin_index.SubjectIndex(), twin_index.SubjectFilter),
    ):
        for round in range(3):
            for i in range(600):
                for seq in (2 * i + 1, 2 * i + 2):
                    index.added(index.intern(b"a.%d.%d" % (round, i)), seq)
            assert kind(index, (b"a.%d.*" % round,)).total() == 1200
            index.clear()
            assert index.live == 0
            assert index.ids() == index.matching(b"a.*.7") == []
            assert index.find(b"a.%d.7" % round) == -1


def colliding_subjects(count: int) -> list[bytes]:
    """Subjects of two words that a common hash without a key takes for the same: the second word
    undoes what the first one did."""
    made = []
    for first in range(count):
        h = (0x9E3779B97F4A7C15 ^ 16 ^ first) * 0xD6E8FEB86659FD93 % 2**64
        second = 0x1234567812345678 ^ h ^ h >> 32
        made.append(first.to_bytes(8, "little") + second.to_bytes(8, "little"))
    return made


def test_subjects_that_collide_without_a_key_are_found_at_once() -> None:
    subjects = colliding_subjects(20_000)
    index = SubjectIndex()
    for seq, subject in enumerate(subjects):
        index.added(index.intern(subject), seq + 1)
    probes = [index.probes(subject) for subject in subjects]
    assert sum(probes) < 3 * len(subjects)  # at most half full, by chance: 1.5 slots on average
    assert max(probes) < 200


def test_subjects_that_differ_by_a_byte_or_by_zeros_at_the_end_have_slots_of_their_own() -> None:
    index = SubjectIndex()
    subjects = {bytes([byte]) * size for byte in (0, 1, 97) for size in range(2000)}
    subjects |= {b"a" * at + b"b" + b"a" * (40 - at) for at in range(41)}
    for seq, subject in enumerate(sorted(subjects)):
        index.added(index.intern(subject), seq + 1)
    assert sum(index.probes(subject) for subject in subjects) < 3 * len(subjects)


def test_a_pattern_longer_than_any_shape_finds_its_subjects() -> None:
    long = b".".join(b"%d" % i for i in range(40))
    for index, kind in (
        (SubjectIndex(), SubjectFilter),
        (twin_index.SubjectIndex(), twin_index.SubjectFilter),
    ):
        for seq, subject in enumerate([long, *(b"%s.%d" % (long, i) for i in range(300))]):
            index.added(index.intern(subject), seq + 1)
        assert kind(index, (long + b".*",)).total() == 300
        assert kind(index, (b"0.*.2.>",)).total() == 301
        assert kind(index, (b"*.1." + long[4:],)).total() == 1


def test_a_filter_does_not_take_a_new_subject_for_the_old_one_that_had_its_id() -> None:
    for kind, filter_kind in (
        (SubjectIndex, SubjectFilter),
        (twin_index.SubjectIndex, twin_index.SubjectFilter),
    ):
        index = kind()
        matching = filter_kind(index, (b"a.*",))
        id = index.intern(b"a.x")
        index.added(id, 1)
        assert matching.accepts(id)
        index.removed(id, 1)
        other = index.intern(b"b.x")
        index.added(other, 2)
        assert other == id
        assert not matching.accepts(other)


def test_a_column_is_not_cut_below_nothing() -> None:
    for kind in (Column, twin_columns.Column):
        made = column(kind, [1, 2])
        with pytest.raises(IndexError):
            made.truncate(-1)
        made.append(3)
        assert content(made) == [1, 2, 3]


@pytest.mark.parametrize(
    ("names", "stats"),
    [
        (b"a", bytes(11)),
        (b"a", bytes(13)),
        (b"a\nb", bytes(12)),
        (b"a", bytes(24)),
        (b"a", b""),
    ],
)
def test_a_block_whose_subjects_and_numbers_do_not_go_together_is_refused(
    names: bytes, stats: bytes
) -> None:
    for kind in (SubjectIndex, twin_index.SubjectIndex):
        with pytest.raises(ValueError, match=r"number|argument"):
            kind().load_block(names, stats, 1)
