"""Reading requests: what Go's JSON takes and what it does not
(docs/protocol/api.md#request-bodies)."""

from typing import Any

import msgspec
import pytest

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import convert, decode


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """Something inside."""

    dest: str = ""


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """A request."""

    seq: int = 0
    max_msgs: int = 0
    max_msg_size: int = 0
    name: str = ""
    discard: str = "old"
    inner: Inner | None = None
    many: list[int] = []


ENUMS: dict[str, tuple[str, ...]] = {"discard": ("old", "new")}


def read(body: bytes, strict: bool = True) -> Outer:
    """The request in `body`."""
    found: Outer = convert(decode(body), Outer, ENUMS, strict)
    return found


def test_names_have_no_case_at_any_depth() -> None:
    assert read(b'{"NAME":"a","Inner":{"DEST":"b"}}') == Outer(name="a", inner=Inner("b"))


def test_null_means_that_a_field_is_absent_and_that_an_item_is_zero() -> None:
    assert read(b'{"name":null,"inner":null}') == Outer()
    assert read(b'{"many":[1,null]}') == Outer(many=[1, 0])
    assert read(b"null") == Outer()
    assert read(b"") == Outer()


def test_objects_one_after_the_other_are_read_into_the_same_request() -> None:
    assert read(b'{"name":"a}","seq":1} {"seq":2}') == Outer(name="a}", seq=2)


def test_what_is_not_utf8_becomes_the_replacement_character() -> None:
    assert read(b'{"name":"a\xff"}').name == "a\ufffd"


def test_an_enums_value_is_checked_under_a_name_in_any_case() -> None:
    with pytest.raises(ApiError, match="can not unmarshal"):
        read(b'{"DISCARD":"nonsense"}')


def test_an_enums_value_is_exact_but_for_discard() -> None:
    assert read(b'{"discard":"NEW"}').discard == "new"
    with pytest.raises(ApiError, match='can not unmarshal "null"'):
        read(b'{"discard":null}')


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"1", b'{"seq":-1}', b'{"seq":9223372036854775808}',
        b'{"max_msgs":-9223372036854775809}', b'{"max_msg_size":2147483648}',
        b'{"max_msgs":1.5}', b'{"max_msgs":1.0}', b'{"max_msgs":"1"}', b'{"max_msgs":true}',
        b'{"many":[9223372036854775808]}', b'{"name":1}', b'{"bogus":1}',
        b'{"inner":{"bogus":1}}', b'{"name":"a"} x', b'{"name":"a",}',
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_an_error_and_never_more(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read(body)
    assert (caught.value.code, caught.value.err_code) == (400, 10025)
    assert str(caught.value).startswith("invalid JSON: ")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"bogus":1,"name":"a"}', Outer(name="a")),
        (b'{"inner":{"bogus":1,"dest":"b"}}', Outer(inner=Inner("b"))),
    ],
)
def test_a_server_that_is_not_strict_passes_over_what_it_does_not_know(
    body: bytes, expected: Any
) -> None:
    assert read(body, strict=False) == expected
