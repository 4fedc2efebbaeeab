"""Whether two streams would take the same message is found without asking each of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.stream import subject_claims
from slipstream.engine.stream.subject_claims import SubjectClaims
from slipstream.testing.driver import Client
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
    claims.remove(f"S{gone}", claimed[gone : gone + 1])
    left = [(f"S{i}", subject) for i, subject in enumerate(claimed) if i != gone]
    for owner in ("new", "S0"):
        expected = any(
            name != owner and overlaps(subject.encode(), asked.encode()) for name, subject in left
        )
        assert claims.is_taken(asked, owner) is expected


def test_what_is_removed_leaves_nothing_behind() -> None:
    claims = SubjectClaims()
    claims.add("S", ["a.b.c", "a.b.>", "a.*"])
    claims.remove("S", ["a.b.c", "a.b.>", "a.*"])
    assert len(claims) == 0


LITERAL_FIRST = [f"s.{i}.x" for i in range(200)]
WILD_FIRST = [f"s.*.y{i}" for i in range(200)]  # each has to be compared with all of those above
TOO_WILD = "subjects have too many wildcards to be compared in time"


@pytest.fixture
def few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_claims, "COMPARED_MAX", 20_000)


def refusal(client: Client, call: str, body: dict[str, object]) -> str:
    error = client.api(call, body)["error"]
    assert error["err_code"] in (10012, 10052), error
    return str(error["description"])


@pytest.mark.usefixtures("few_comparisons")
def test_a_stream_whose_subjects_take_too_long_to_compare_is_refused(client: Client) -> None:
    both = {"name": "S", "subjects": LITERAL_FIRST + WILD_FIRST, "storage": "memory"}
    assert TOO_WILD in refusal(client, "STREAM.CREATE.S", both)
    first = {"name": "S", "subjects": LITERAL_FIRST, "storage": "memory"}
    assert "error" not in client.api("STREAM.CREATE.S", first)
    second = {"name": "T", "subjects": WILD_FIRST, "storage": "memory"}
    assert TOO_WILD in refusal(client, "STREAM.CREATE.T", second)


@pytest.mark.usefixtures("few_comparisons")
def test_a_consumer_whose_filters_take_too_long_to_compare_is_refused(client: Client) -> None:
    stream = {"name": "S", "subjects": ["s.>"], "storage": "memory", "retention": "workqueue"}
    client.api("STREAM.CREATE.S", stream)

    def config(name: str, filters: list[str]) -> dict[str, object]:
        named = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters}
        return {"stream_name": "S", "config": named}

    assert "error" not in client.api("CONSUMER.CREATE.S.A", config("A", LITERAL_FIRST))
    found = refusal(client, "CONSUMER.CREATE.S.B", config("B", WILD_FIRST))
    assert TOO_WILD in found
    nested = [".".join("*" if i >> bit & 1 else "a" for bit in range(8)) for i in range(256)]
    covered = [f"a.a.a.a.a.a.a.a.z{i}" for i in range(256)]
    wild = [f"{one}.y{i}" for i, one in enumerate(nested)]
    assert TOO_WILD in refusal(client, "CONSUMER.CREATE.S.C", config("C", covered + wild))
