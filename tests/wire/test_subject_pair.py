"""Subjects that have another name in another account."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.subject_pair import SubjectPair
from slipstream.wire.subjects import is_subset, matches
from slipstream.wire.transforms import TransformError

tokens = st.sampled_from([b"a", b"b", b"c"])
subjects = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
patterns = st.lists(st.sampled_from([b"a", b"b", b"*", b">"]), min_size=1, max_size=4).map(
    lambda parts: b".".join(
        p if p != b">" or i + 1 == len(parts) else b"*" for i, p in enumerate(parts)
    )
)
PAIRS = [
    ("a.>", "a.>"),
    ("a.>", "pre.a.>"),
    ("a.*", "b.*"),
    ("a.*.*", "b.$2.$1"),
    ("a.*.*", "b.{{wildcard(2)}}.c.{{wildcard(1)}}"),
    ("*.a.*.>", "c.$2.$1.>"),
    ("a", "b.c"),
    (">", "c.>"),
    ("*", "*.a"),
]


@pytest.mark.parametrize(
    ("theirs", "ours", "there", "here"),
    [
        ("a.>", "pre.a.>", b"a.x.y", b"pre.a.x.y"),
        ("$JS.API.>", "other.>", b"$JS.API.INFO", b"other.INFO"),
        ("a.*.*", "b.$2.$1", b"a.x.y", b"b.y.x"),
        ("*.a.*.>", "c.$2.$1.>", b"x.a.y.z.z", b"c.y.x.z.z"),
        ("a", "b.c", b"a", b"b.c"),
        ("*", "*.a", b"x", b"x.a"),
    ],
)
def test_each_side_finds_the_name_of_the_other(
    theirs: str, ours: str, there: bytes, here: bytes
) -> None:
    pair = SubjectPair(theirs, ours)
    assert pair.to_ours(there) == here
    assert pair.to_theirs(here) == there


@pytest.mark.parametrize("names", PAIRS)
@given(subject=subjects)
def test_a_name_comes_back_from_the_other_side(names: tuple[str, str], subject: bytes) -> None:
    pair = SubjectPair(*names)
    if matches(pair.theirs, subject):
        here = pair.to_ours(subject)
        assert matches(pair.ours, here)
        assert pair.to_theirs(here) == subject


@pytest.mark.parametrize("names", PAIRS)
@given(subject=subjects, pattern=patterns)
def test_interest_is_in_all_that_has_a_wanted_name_and_in_nothing_else(
    names: tuple[str, str], subject: bytes, pattern: bytes
) -> None:
    pair = SubjectPair(*names)
    interest = pair.interest(pattern)
    if interest:
        assert is_subset(interest, pair.theirs)
    if matches(pair.theirs, subject):
        wanted = matches(pattern, pair.to_ours(subject))
        assert wanted == (bool(interest) and matches(interest, subject))


@pytest.mark.parametrize(
    ("theirs", "ours", "text"),
    [
        ("a.*", "b", "not using all of the token wildcard"),
        ("a.*.*", "b.$1", "not using all of the token wildcard"),
        ("a.*", "b.$2", "wildcard index out of range"),
        ("a.*", "b.*.*", "wildcard index out of range"),
        ("a.>", "b", "invalid subject"),
        ("a.>", "b.*", "invalid subject"),
        ("a.*", "b.{{partition(3,1)}}", "the only mapping function allowed"),
        ("a..b", "c", "not a valid subject"),
        ("a", "c d", "not a valid subject"),
    ],
)
def test_names_that_cannot_be_found_from_each_other_are_refused(
    theirs: str, ours: str, text: str
) -> None:
    with pytest.raises(TransformError, match=text):
        SubjectPair(theirs, ours)
