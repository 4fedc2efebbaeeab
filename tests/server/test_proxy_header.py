"""Headers of the PROXY protocol: what proxies write, what is malformed, and what is hostile."""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.errors import ProtocolError
from slipstream.server.proxy_header import (
    HEADER_BYTES_MAX,
    SIGNATURE,
    Address,
    extension_of,
    make_header,
    may_begin,
    read_header,
)
from slipstream.server.relay_proof import (
    NONCE_SIZE,
    announce,
    is_announced,
    is_ours,
    is_proved,
    prove,
    relay_key,
)

CLIENT = Address("192.0.2.7", 50312)
SERVER = Address("198.51.100.1", 4222)
KEY = relay_key(b"secret", "token")
NONCE = bytes(range(NONCE_SIZE))
IPV4 = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + struct.pack(">HH", 50312, 4222)
IPV6 = bytes(15) + b"\1" + bytes(15) + b"\2" + struct.pack(">HH", 5, 6)


def binary(kind: int, family: int, body: bytes, size: int | None = None) -> bytes:
    length = struct.pack(">H", len(body) if size is None else size)
    return SIGNATURE + bytes([kind, family]) + length + body


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (binary(0x21, 0x11, IPV4), CLIENT),
        (binary(0x21, 0x11, IPV4 + b"\4\0\1x"), CLIENT),
        (binary(0x21, 0x21, IPV6), Address("::1", 5)),
        (binary(0x20, 0x11, IPV4), None),
        (binary(0x20, 0x00, b""), None),
        (binary(0x21, 0x00, b"whatever"), None),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 50312 4222\r\n", CLIENT),
        (b"PROXY TCP6 2001:DB8::1 ::2 1 2\r\n", Address("2001:db8::1", 1)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    ],
)
def test_a_header_says_for_whom_a_connection_was_made(header: bytes, client: Address) -> None:
    found = read_header(header + b"CONNECT {}\r\n")
    assert found is not None
    assert (found.client, found.size) == (client, len(header))
    for end in range(1, len(header)):
        assert may_begin(header[:end], lines=True)
        assert read_header(header[:end]) is None


@pytest.mark.parametrize(
    "header",
    [
        binary(0x31, 0x11, IPV4),
        binary(0x22, 0x11, IPV4),
        binary(0x21, 0x12, IPV4),
        binary(0x21, 0x31, bytes(216)),
        binary(0x21, 0x11, IPV4[:-1]),
        binary(0x21, 0x21, IPV4),
        binary(0x21, 0x11, b"", HEADER_BYTES_MAX),
        b"PROXY TCP4 ::1 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
        b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.\xff7 198.51.100.1 1 2\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXYTCP4 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY " + b"x" * 107,
    ],
)
def test_a_malformed_header_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_header(header)


@given(
    st.binary(max_size=64)
    | st.binary(max_size=64).map(lambda rest: SIGNATURE + rest)
    | st.binary(max_size=64).map(lambda rest: b"PROXY " + rest)
    | st.tuples(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=300)).map(
        lambda parts: binary(*parts)
    )
)
def test_no_bytes_are_read_past_their_end_or_raise_anything_else(data: bytes) -> None:
    try:
        found = read_header(data)
    except ProtocolError:
        return
    if found is not None:
        assert found.size <= len(data)
        for kind in range(256):
            assert extension_of(found, kind) in found.extensions


@given(st.ip_addresses(), st.integers(0, 65535), st.binary(max_size=200), st.binary())
@example(IPv6Address("::ffff:0:0"), 1, b"", b"")
def test_what_is_written_is_read(
    host: IPv4Address | IPv6Address, port: int, value: bytes, rest: bytes
) -> None:
    # As the system spells it: with dots where the address is one of IPv4 within IPv6.
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    client = Address(socket.inet_ntop(family, host.packed), port)
    header = make_header(client, client, {0xE7: value})
    found = read_header(header + rest)
    assert found is not None
    assert (found.client, found.size) == (client, len(header))
    assert extension_of(found, 0xE7) == value
    assert extension_of(found, 0xE8) == b""


def test_addresses_of_two_families_name_nobody_and_a_zone_is_left_out() -> None:
    found = read_header(make_header(CLIENT, Address("::1", 1), {}))
    assert found is not None
    assert found.client is None
    found = read_header(make_header(Address("fe80::1%eth0", 1), Address("::1", 2), {}))
    assert found is not None
    assert found.client == Address("fe80::1", 1)


def test_a_header_of_the_group_has_the_proof_of_its_key_and_of_each_byte() -> None:
    header = announce(KEY, CLIENT, SERVER, "n2")
    found = read_header(header)
    assert found is not None
    assert found.client == CLIENT
    assert is_ours(found)
    assert is_announced(KEY, header)
    assert not is_announced(relay_key(b"secret", "another token"), header)
    assert not is_announced(relay_key(b"another secret", "token"), header)
    for at in range(len(header)):
        changed = header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]
        assert not is_announced(KEY, changed)


def test_an_answer_is_good_for_one_nonce_and_one_header() -> None:
    header = announce(KEY, CLIENT, SERVER, "n2")
    other = announce(KEY, SERVER, CLIENT, "n2")
    proof = prove(KEY, NONCE, header)
    assert is_proved(KEY, NONCE, header, proof)
    assert not is_proved(KEY, NONCE[::-1], header, proof)
    assert not is_proved(KEY, NONCE, other, proof)
    assert not is_proved(KEY, NONCE, header, header[-len(proof) :])


def test_extensions_of_others_are_not_those_of_the_group() -> None:
    for value in (b"", b"0123456789", b"slipstream", b"slipstream" + bytes(31), bytes(42)):
        found = read_header(make_header(CLIENT, SERVER, {0xE5: value}))
        assert found is not None
        assert not is_ours(found)


def test_without_a_token_there_is_no_key_and_without_a_secret_the_token_makes_it() -> None:
    """Where servers show certificates, the token goes over TLS alone."""
    assert relay_key(b"secret", "") == b""
    assert relay_key(b"", "token") not in (b"", relay_key(b"", "another"))
