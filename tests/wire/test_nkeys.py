"""NKeys of every kind, beside the package `nkeys` and PyNaCl."""

import nacl.public
import nkeys as other
import pytest

from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair, new_seed, read_public, verify


@pytest.mark.parametrize("kind", "OAUNC")
def test_keys_that_sign_are_those_of_the_nkeys_package(kind: str) -> None:
    key = KeyPair(new_seed(kind))
    theirs = other.from_seed(key.seed.encode())
    assert key.kind == kind
    assert key.seed.startswith(f"S{kind}")
    assert key.public == theirs.public_key.decode()
    signature = theirs.sign(b"data")
    assert key.sign(b"data") == signature
    assert verify(key.public, signature, b"data")
    assert not verify(key.public, signature, b"date")
    assert not verify(KeyPair(new_seed(kind)).public, signature, b"data")


def test_a_key_that_encrypts_is_one_of_x25519_and_signs_nothing() -> None:
    raw = bytes(range(32))
    key = KeyPair(new_seed("X", raw))
    kind, public = read_public(key.public)
    assert kind == "X"
    assert public == bytes(nacl.public.PrivateKey(raw).public_key)
    with pytest.raises(ConfigError, match="cannot sign"):
        key.sign(b"data")
    with pytest.raises(ConfigError, match="signs nothing"):
        verify(key.public, b"", b"data")


def test_every_seed_is_another() -> None:
    assert len({new_seed("U") for _ in range(100)}) == 100


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t[:9] + "1" + t[10:], lambda t: ""])
def test_a_public_key_that_was_copied_wrongly_is_refused(change: object) -> None:
    assert callable(change)
    with pytest.raises(ConfigError, match="the NKey"):
        read_public(change(KeyPair(new_seed("A")).public))


def test_a_seed_is_no_public_key() -> None:
    with pytest.raises(ConfigError, match="56 characters"):
        read_public(new_seed("A"))
