"""Whether two streams would take the same message is found without asking each of them."""

from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.subject_claims import SubjectClaims
from slipstream.wire.subjects import overlaps

TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, *([">"] if rest else [])]) or "a",
    st.lists(TOKENS, max_size=3),
    st.booleans(),
)


@given(st.lists(PATTERNS, unique=True, max_size=6), PATTERNS, st.integers(0, 5))
def test_a_subject_is_taken_if_it_overlaps_with_one_of_another_stream(
    claimed: list[str], asked: str, gone: int
) -> None:
    claims = SubjectClaims()
    for i, subject in enumerate(claimed):
        claims.add(f"S{i}", [subject])
    claims.remove(claimed[gone : gone + 1])
    left = [(f"S{i}", subject) for i, subject in enumerate(claimed) if i != gone]
    for owner in ("new", "S0"):
        expected = any(
            name != owner and overlaps(subject.encode(), asked.encode()) for name, subject in left
        )
        assert claims.is_taken(asked, owner) is expected


def test_what_is_removed_leaves_nothing_behind() -> None:
    claims = SubjectClaims()
    claims.add("S", ["a.b.c", "a.b.>", "a.*"])
    claims.remove(["a.b.c", "a.b.>", "a.*"])
    assert claims._root.children == {}
