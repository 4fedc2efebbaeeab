"""Key codecs work token by token, so that wildcards go on meaning what they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.client.kv.config import (
    Base64Keys,
    ChainedKeys,
    KeyCodec,
    PathKeys,
    PlainKeys,
)
from slipstream.client.kv.errors import InvalidKeyError

TOKENS = st.lists(st.text(st.characters(exclude_characters="./*>", codec="utf-8"), min_size=1))


def test_every_codec_keeps_the_protocol() -> None:
    for codec in (PlainKeys(), Base64Keys(), PathKeys(), ChainedKeys(PlainKeys())):
        assert isinstance(codec, KeyCodec)


@given(TOKENS.filter(bool))
def test_base64_takes_any_text_and_gives_it_back(tokens: list[str]) -> None:
    key = ".".join(tokens)
    stored = Base64Keys().encode(key)
    assert stored.count(".") == key.count(".")
    assert stored.isascii()
    assert Base64Keys().decode(stored) == key


def test_filters_keep_their_wildcards() -> None:
    assert Base64Keys().encode_filter("a.*.>") == "YQ.*.>"
    assert PathKeys().encode_filter("/etc/*/>") == "_root_.etc.*.>"


def test_a_key_of_another_codec_is_refused_by_name() -> None:
    with pytest.raises(InvalidKeyError, match="'not!base64' is not base64"):
        Base64Keys().decode("not!base64")


@pytest.mark.parametrize(
    ("path", "stored"),
    [("/etc/app/port", "_root_.etc.app.port"), ("a/b", "a.b"), ("/", "_root_"), ("a", "a")],
)
def test_paths_become_tokens(path: str, stored: str) -> None:
    assert PathKeys().encode(path) == stored
    assert PathKeys().decode(stored) == path


def test_a_trailing_slash_is_dropped() -> None:
    assert PathKeys().encode("/etc/app/") == "_root_.etc.app"


def test_a_chain_applies_its_first_codec_first() -> None:
    chain = ChainedKeys(PathKeys(), Base64Keys())
    assert chain.encode("/a b") == "X3Jvb3Rf.YSBi"
    assert chain.decode("X3Jvb3Rf.YSBi") == "/a b"
    assert chain.encode_filter("/a/*") == "X3Jvb3Rf.YQ.*"
    with pytest.raises(ValueError, match="at least one"):
        ChainedKeys()
