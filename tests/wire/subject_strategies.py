"""Subjects and patterns over few tokens, so that they meet often; and the rules told naively."""

from hypothesis import strategies as st

TOKENS = st.sampled_from([b"a", b"b", b"cc", b"*b", b">>"])


def naive_match(pattern: bytes, subject: bytes) -> bool:
    """Whether the literal `subject` matches, by the letter of the protocol."""
    ours, theirs = pattern.split(b"."), subject.split(b".")
    if b"" in theirs:
        return False
    if ours[-1] == b">":
        ours = ours[:-1]
        if len(theirs) <= len(ours):
            return False
        theirs = theirs[: len(ours)]
    return len(ours) == len(theirs) and all(
        p in (b"*", s) for p, s in zip(ours, theirs, strict=True)
    )


@st.composite
def literals(draw: st.DrawFn, tokens: st.SearchStrategy[bytes] = TOKENS) -> bytes:
    """A subject to publish to; now and then an acknowledgement."""
    if draw(st.integers(0, 4)) == 0:
        rest = draw(st.lists(st.sampled_from([b"S", b"C", b"1"]), max_size=11))
        return b".".join([b"$JS.ACK", *rest])
    return b".".join(draw(st.lists(tokens, min_size=1, max_size=5)))


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    """A subject to subscribe to."""
    tokens = draw(literals()).split(b".")
    for i in range(len(tokens)):
        if draw(st.integers(0, 3)) == 0:
            tokens[i] = b"*"
    if draw(st.integers(0, 3)) == 0:
        tokens = [*tokens[: draw(st.integers(0, len(tokens)))], b">"]
    return b".".join(tokens)


def with_empty_tokens() -> st.SearchStrategy[bytes]:
    """A subject as a careless client may publish it."""
    return literals(st.one_of(TOKENS, st.just(b"")))
