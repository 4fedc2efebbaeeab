"""A type says how its values become payloads, and payloads values."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from slipstream.client.codecs import Codec, CodecError, MsgpackCodec, codec_for, decode, encode


class Order(msgspec.Struct):
    sku: str
    quantity: int = 1


@dataclass
class Shipment:
    order: Order
    late: bool


class Customer(pydantic.BaseModel):
    name: str
    age: int


class Reversed:
    """A codec of a user's own."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


@pytest.mark.parametrize(
    ("value", "kind", "payload"),
    [
        (b"raw", bytes, b"raw"),
        ("text é", str, "text é".encode()),
        (Order("apple", 3), Order, b'{"sku":"apple","quantity":3}'),
        (Shipment(Order("x"), True), Shipment, b'{"order":{"sku":"x","quantity":1},"late":true}'),
        (Customer(name="Ada", age=36), Customer, b'{"name":"Ada","age":36}'),
        ({"a": [1, 2]}, dict[str, list[int]], b'{"a":[1,2]}'),
        (7, int, b"7"),
    ],
)
def test_a_value_comes_back_as_it_was(value: Any, kind: Any, payload: bytes) -> None:
    assert encode(value) == payload
    assert decode(payload, kind) == value


def test_views_of_bytes_are_payloads_and_none_is_an_empty_one() -> None:
    assert encode(memoryview(b"abc")[1:]) == b"bc"
    assert encode(bytearray(b"abc")) == b"abc"
    assert encode(None) == b""


def test_a_codec_of_ones_own_needs_two_methods() -> None:
    assert isinstance(Reversed(), Codec)
    assert encode("abc", Reversed()) == b"cba"
    assert decode(b"cba", Reversed()) == "abc"


def test_message_pack_is_there_for_programs() -> None:
    codec = MsgpackCodec[Order](Order)
    assert decode(encode(Order("a"), codec), codec) == Order("a")


@pytest.mark.parametrize(
    ("payload", "kind", "says"),
    [
        (b"{}", Order, "the payload \\(2 bytes\\) is not a Order: .*sku"),
        (b"{}", Customer, "is not a Customer"),
        (b"\xff", str, "is not a str"),
        (b"", Order, "is not a Order"),
    ],
)
def test_a_payload_of_another_kind_is_an_error_with_its_cause(
    payload: bytes, kind: Any, says: str
) -> None:
    with pytest.raises(CodecError, match=says) as caught:
        decode(payload, kind)
    assert caught.value.__cause__ is not None


def test_what_has_no_codec_is_refused_before_the_first_message() -> None:
    with pytest.raises(CodecError, match=r"no codec for .*Give bytes, str"):
        codec_for(dict[Order, Customer] | list[Any] | set[Any])
    with pytest.raises(CodecError, match="a object could not be encoded"):
        encode(object())


def test_a_codec_is_made_once_for_a_type() -> None:
    assert codec_for(Order) is codec_for(Order)
