"""Operations as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import CorruptionError
from slipstream.server.replica.operations import (
    Kind,
    Operation,
    decode_operations,
    encode_operations,
)

NAMES = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name != "..")
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
OPERATIONS = st.builds(
    Operation,
    st.sampled_from(Kind),
    PATHS,
    st.binary(max_size=50),
    st.integers(0, 2**64 - 1),
    st.one_of(st.just(""), PATHS),
)


@given(st.lists(OPERATIONS, max_size=20))
def test_operations_come_back(operations: list[Operation]) -> None:
    assert decode_operations(encode_operations(operations)) == operations


@given(st.lists(OPERATIONS, min_size=1, max_size=5), st.data())
def test_what_is_cut_or_foreign_is_refused(
    operations: list[Operation], data: st.DataObject
) -> None:
    body = encode_operations(operations)
    starts = {len(encode_operations(operations[:n])) for n in range(len(operations) + 1)}
    cut = data.draw(st.integers(0, len(body) - 1).filter(lambda n: n not in starts))
    with pytest.raises(CorruptionError):
        decode_operations(body[:cut])
    with pytest.raises(CorruptionError):
        decode_operations(b"X" + body)


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", "a\0b"])
def test_no_operation_leaves_the_store(path: str) -> None:
    for operation in (Operation(Kind.WRITE, path), Operation(Kind.RENAME, "a", other=path)):
        with pytest.raises(CorruptionError, match="names the path"):
            decode_operations(encode_operations([operation]))
