"""Subjects find the values of exactly the patterns they match, in a trie and in a cache."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from slipstream.wire.patterns import PatternTrie
from slipstream.wire.prefix_cache import PrefixCache
from slipstream.wire.subjects import is_subset, overlaps
from tests.wire.subject_strategies import literals, naive_match, patterns, with_empty_tokens


def trie_of(*kept: bytes) -> PatternTrie:
    trie = PatternTrie()
    for pattern in kept:
        trie.insert(pattern, pattern)
    return trie


@given(st.lists(patterns(), max_size=12), st.lists(with_empty_tokens(), min_size=1, max_size=6))
def test_a_subject_finds_what_it_matches(kept: list[bytes], subjects: list[bytes]) -> None:
    trie = trie_of(*kept)
    assert len(trie) == len(kept)
    for subject in subjects:
        expected = [pattern for pattern in kept if naive_match(pattern, subject)]
        assert Counter(trie.match(subject)) == Counter(expected)


@given(st.lists(patterns(), max_size=12), patterns())
def test_a_pattern_finds_what_it_overlaps(kept: list[bytes], pattern: bytes) -> None:
    expected = [other for other in kept if overlaps(other, pattern)]
    assert Counter(trie_of(*kept).overlapping(pattern)) == Counter(expected)
    assert Counter(trie_of(*kept).values()) == Counter(kept)


@given(st.lists(patterns(), max_size=12), patterns(), st.integers(0, 12))
def test_one_overlap_and_one_cover_are_found_if_there_are_any(
    kept: list[bytes], pattern: bytes, own: int
) -> None:
    values = [(i, one) for i, one in enumerate(kept)]
    trie = PatternTrie()
    for value in values:
        trie.insert(value[1], value)
    but = values[own] if own < len(values) else None
    others = [value for value in values if value is not but]
    overlapping = [value for value in others if overlaps(value[1], pattern)]
    found = trie.find_overlap(pattern, but)
    assert found in overlapping if overlapping else found is None
    covering = [value for value in others if is_subset(pattern, value[1])]
    found = trie.find_cover(pattern, but)
    assert found in covering if covering else found is None
    assert trie.visited > 0


@given(st.lists(st.integers(0, 99), min_size=1), st.sampled_from([b"a.b", b"a.>"]))
def test_one_of_many_values_under_one_pattern_is_removed_by_identity(
    order: list[int], pattern: bytes
) -> None:
    values = [[i] for i in range(100)]
    trie = PatternTrie()
    for value in [*values, *values]:
        trie.insert(pattern, value)
    left = Counter(dict.fromkeys(range(100), 2))
    for i in order:
        assert trie.remove(pattern, values[i]) is (left[i] > 0)
        left[i] = max(left[i] - 1, 0)
        assert not trie.remove(pattern, [i])  # an equal one that is another
    assert Counter(value[0] for value in trie.match(b"a.b")) == +left
    assert len(trie) == left.total()


@given(st.lists(patterns(), max_size=8), literals(), literals())
def test_what_decided_a_match_decides_every_subject_alike(
    kept: list[bytes], subject: bytes, other: bytes
) -> None:
    trie = trie_of(*kept)
    found = Counter(trie.match(subject))
    any_last, fixed = trie.any_last_token, trie.fixed_tokens
    tokens, others = subject.split(b"."), other.split(b".")
    if any_last:
        assert Counter(trie.match(b".".join([*tokens[:-1], others[0]]))) == found
    if fixed:
        assert fixed < len(tokens)
        assert Counter(trie.match(b".".join([*tokens[:fixed], *others]))) == found


@given(st.lists(patterns(), max_size=10), st.lists(st.integers(0, 9), max_size=10))
def test_what_was_removed_is_found_no_more(kept: list[bytes], order: list[int]) -> None:
    values = [(i, pattern) for i, pattern in enumerate(kept)]
    trie = PatternTrie()
    for value in values:
        trie.insert(value[1], value)
    for i in order:
        gone = [value for value in values if value[0] == i]
        for value in gone:
            assert trie.remove(value[1], value)
            assert not trie.remove(value[1], value)
            values.remove(value)
        assert len(trie) == len(values)
        assert Counter(trie.values()) == Counter(values)
    for value in values:
        assert value in trie.match(value[1])
        trie.remove(value[1], value)
    trie.match(b"a.b.cc")
    assert trie.fixed_tokens == 1  # no node is left that could tell tokens apart


def test_removing_what_was_never_there_changes_nothing() -> None:
    trie = trie_of(b"a.b", b"a.*", b"a.>")
    for pattern in (b"a", b"a.b.c", b"b", b"*", b">", b"a.c", b"a.b.>"):
        assert not trie.remove(pattern, pattern)
    assert Counter(trie.match(b"a.b")) == Counter([b"a.b", b"a.*", b"a.>"])


def test_a_pattern_as_deep_as_a_control_line_allows_is_no_danger() -> None:
    deep = b".".join([b"a"] * 2048)
    trie = trie_of(deep)
    assert trie.match(deep) == [deep]
    assert trie.overlapping(b">") == [deep]
    assert trie.overlapping(b".".join([b"*"] * 2048)) == [deep]
    assert trie.remove(deep, deep)


@pytest.mark.parametrize("token", [b"a", b"*"])
def test_a_pattern_as_deep_as_a_request_allows_is_no_danger(token: bytes) -> None:
    deep = b".".join([token] * 400_000)
    trie = trie_of(deep)
    assert trie.find_overlap(deep) == trie.find_cover(deep) == deep
    del trie
    trie = trie_of(deep)
    assert trie.remove(deep, deep)


ACK_PATTERNS = [b"$JS.ACK.S.C.>", b"$JS.ACK.S.D.>", b"$JS.ACK.S.C.1.>", b"$JS.ACK.*.C.>", b"$JS.>"]
ACKS = [
    b"$JS.ACK.S.%b.%b" % (consumer, rest)
    for consumer in (b"C", b"D")
    for rest in (b"1.7.7.9.0", b"2.7.7.9.0", b"1.7.7.9.0.x.y", b"1..7.9.0", b"1", b"")
]


class CachedMatches(RuleBasedStateMachine):
    """A cache before a trie answers as the naive matcher does, whatever comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = PatternTrie()
        self.kept: list[bytes] = []
        self.cache = PrefixCache(capacity=8)

    @rule(pattern=patterns())
    def subscribe(self, pattern: bytes) -> None:
        self.kept.append(pattern)
        self.trie.insert(pattern, pattern)
        self.cache.forget(pattern)

    @rule(pattern=st.sampled_from(ACK_PATTERNS))
    def subscribe_to_acknowledgements(self, pattern: bytes) -> None:
        self.subscribe(pattern)

    @rule(subjects=st.lists(st.sampled_from(ACKS), min_size=1, max_size=6))
    def acknowledge(self, subjects: list[bytes]) -> None:
        self.publish(subjects)

    @precondition(lambda self: self.kept)
    @rule(at=st.integers(0, 100))
    def unsubscribe(self, at: int) -> None:
        pattern = self.kept.pop(at % len(self.kept))
        assert self.trie.remove(pattern, pattern)
        self.cache.forget(pattern)

    @rule(subjects=st.lists(with_empty_tokens(), min_size=1, max_size=6))
    def publish(self, subjects: list[bytes]) -> None:
        for subject in subjects:
            found = self.cache.get(subject)
            if found is None:
                found = Counter(self.trie.match(subject))
                self.cache.put(subject, found, self.trie)
                assert self.cache.get(subject) is found
            assert found == Counter(p for p in self.kept if naive_match(p, subject))
        assert len(self.cache) <= 3 * 8


CachedMatches.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestCachedMatches = CachedMatches.TestCase


def found_after_one_match(pattern: bytes, first: bytes, *others: bytes) -> list[bool]:
    """Whether the one result that was kept for `first` also serves the others."""
    trie, cache = trie_of(pattern), PrefixCache()
    cache.put(first, trie.match(first), trie)
    return [cache.get(other) is not None for other in others]


def test_one_entry_serves_an_inbox_whatever_the_last_token() -> None:
    assert found_after_one_match(
        b"_INBOX.abc.*", b"_INBOX.abc.1", b"_INBOX.abc.2", b"_INBOX.abc.", b"_INBOX.abd.2"
    ) == [True, False, False]


def test_one_entry_serves_all_acknowledgements_of_a_consumer() -> None:
    short, long = b"$JS.ACK.S.C.%d.7.7.123.0", b"$JS.ACK._.hash.S.C.%d.7.7.123.0.x"
    assert found_after_one_match(b"$JS.ACK.S.C.>", short % 1, short % 2) == [True]
    assert found_after_one_match(b"$JS.ACK._.hash.S.C.>", long % 1, long % 2) == [True]
    assert found_after_one_match(b"$JS.ACK.S.C.>", short % 1, b"$JS.ACK.S.D.1.7.7.123.0") == [False]


def test_the_consumer_that_was_acknowledged_last_is_forgotten_with_its_interest() -> None:
    trie, cache = trie_of(b"$JS.ACK.S.C.>"), PrefixCache()
    ack = b"$JS.ACK.S.C.%d.7.7.123.0"
    cache.put(ack % 1, trie.match(ack % 1), trie)
    assert cache.get(ack % 2) == cache.get(ack % 3) == [b"$JS.ACK.S.C.>"]
    cache.forget(b"$JS.ACK.S.C.>")
    assert cache.get(ack % 4) is None


def test_one_entry_serves_a_stream_that_takes_everything_below_a_token() -> None:
    assert found_after_one_match(b"orders.>", b"orders.de.1.x", b"orders.fr.2.y.z") == [True]
    assert found_after_one_match(b"$KV.jobs.>", b"$KV.jobs.a.b", b"$KV.jobs.c.d.e") == [True]


def test_a_literal_beside_a_wildcard_keeps_its_own_result() -> None:
    trie, cache = trie_of(b"a.*"), PrefixCache()
    cache.put(b"a.x", "star", trie) if trie.match(b"a.x") else None
    trie.insert(b"a.y", b"a.y")
    cache.forget(b"a.y")
    assert cache.get(b"a.y") is None
    assert Counter(trie.match(b"a.y")) == Counter([b"a.*", b"a.y"])
