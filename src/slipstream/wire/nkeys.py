"""NKeys and credentials files: Ed25519 keys as NATS spells them
(docs/protocol/accounts.md#who-a-client-is).

A part of the package that has errors of its own derives its kind of `KeyPair`.

The package nkeys signs through PyNaCl, which adds 4.2 MB beside cryptography (the server's TLS
needs that), and calls every wrong seed "invalid seed": here the error names what is wrong with it.
"""

import base64
import binascii
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from slipstream.errors import ConfigError

_SEED = 18 << 3  # the letter S
# Operators, accounts, users, servers (nodes), clusters, and keys that encrypt (X25519).
_KINDS = {14 << 3: "O", 0: "A", 20 << 3: "U", 13 << 3: "N", 2 << 3: "C", 23 << 3: "X"}
_PREFIXES = {letter: prefix for prefix, letter in _KINDS.items()}
_CURVE = _PREFIXES["X"]
_SEED_SIZE = 32
_JWT = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s*([\w.=-]+)\s*-{3,}END NATS USER JWT-{3,}", re.S)
_SEED_BLOCK = re.compile(
    r"-{3,}BEGIN USER NKEY SEED-{3,}\s*(S\w+)\s*-{3,}END USER NKEY SEED-{3,}", re.S
)


def _checksum(raw: bytes) -> bytes:
    """What guards the spelling of keys."""
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")


def _spell(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw)).rstrip(b"=").decode()


def _read(text: str, what: str, failure: type[ConfigError]) -> bytes:
    """The bytes that a key spells, without its checksum."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise failure(f"{what} is not base32; copy it whole") from error
    if len(raw) < 4 or _checksum(raw[:-2]) != raw[-2:]:
        raise failure(f"{what} has a wrong checksum: a character is wrong or missing")
    return raw[:-2]


class KeyPair:
    """A private key and its public one, from a seed like ``SU...``; raises `failure`."""

    failure: ClassVar[type[ConfigError]] = ConfigError

    def __init__(self, seed: str) -> None:
        raw = _read(seed.strip(), "the NKey seed", self.failure)
        if raw[0] & 0xF8 != _SEED or len(raw) != _SEED_SIZE + 2:
            raise self.failure("an NKey seed begins with S and has 58 characters")
        self._kind = (raw[0] & 7) << 5 | (raw[1] & 0xF8) >> 3
        if self._kind not in _KINDS:
            raise self.failure("the NKey seed is of no known kind; users' begin with SU")
        self._raw = raw
        # Loading the package takes 15 ms, and most programs have no key.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:])

    @property
    def kind(self) -> str:
        """Whose key it is: O, A, U, N, C or X, the letter that its public key begins with."""
        return _KINDS[self._kind]

    @property
    def seed(self) -> str:
        """The private key, like ``SU...``."""
        return _spell(self._raw)

    @property
    def public(self) -> str:
        """The public key, like ``U...``."""
        if self._kind == _CURVE:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

            public = X25519PrivateKey.from_private_bytes(self._raw[2:]).public_key()
            return _spell(bytes([self._kind]) + public.public_bytes_raw())
        return _spell(bytes([self._kind]) + self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature, 64 bytes."""
        if self._kind == _CURVE:
            raise self.failure("a key whose seed begins with SX encrypts, and cannot sign")
        return self._key.sign(data)

    def shared(self, public: str) -> bytes:
        """The 32 bytes that only this key and the owner of `public` know; both of kind X."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import (
            X25519PrivateKey,
            X25519PublicKey,
        )

        kind, raw = read_public(public, self.failure)
        if self._kind != _CURVE or kind != "X":
            raise self.failure("only keys that begin with X encrypt, whose seeds begin with SX")
        try:
            peer = X25519PublicKey.from_public_bytes(raw)
            return X25519PrivateKey.from_private_bytes(self._raw[2:]).exchange(peer)
        except ValueError as error:
            raise self.failure(f"{public} is no key that can be shared with: {error}") from error

    def signature_text(self, nonce: str) -> str:
        """The signature of a server's nonce, as CONNECT has it."""
        return base64.urlsafe_b64encode(self.sign(nonce.encode())).rstrip(b"=").decode()


def new_seed(kind: str, raw: bytes = b"") -> str:
    """A fresh seed of a `kind`: O, A, U, N, C or X; of the 32 bytes of `raw`, if they are given."""
    prefix = _PREFIXES[kind]
    head = bytes([_SEED | prefix >> 5, (prefix & 31) << 3])
    return _spell(head + (raw or secrets.token_bytes(_SEED_SIZE)))


def read_public(text: str, failure: type[ConfigError] = ConfigError) -> tuple[str, bytes]:
    """The kind of a public key (O, A, U, N, C or X) and its 32 bytes; raises `failure`."""
    raw = _read(text, "the NKey", failure)
    if raw[0] not in _KINDS or len(raw) != _SEED_SIZE + 1:
        raise failure("a public NKey begins with O, A, U, N, C or X and has 56 characters")
    return _KINDS[raw[0]], raw[1:]


def verify(public: str, signature: bytes, data: bytes) -> bool:
    """Whether the owner of a public key has signed `data`. Raises `ConfigError` for no such key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    kind, raw = read_public(public)
    if kind == "X":
        raise ConfigError("a key that begins with X encrypts, and signs nothing")
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a .creds file holds."""

    jwt: str
    key: KeyPair


def read_credentials(source: str | Path, kind: type[KeyPair] = KeyPair) -> Credentials:
    """Read a .creds file, or the text of one; raises the error of that `kind` of key."""
    is_text = isinstance(source, str) and "-----BEGIN" in source
    text = str(source) if is_text else _read_file(source, kind)
    path = "the text given as credentials" if is_text else source
    jwt, seed = _JWT.search(text), _SEED_BLOCK.search(text)
    if jwt is None or seed is None:
        missing = "user JWT" if jwt is None else "user NKey seed"
        raise kind.failure(f"{path} has no {missing}; make it with `nsc generate creds`")
    return Credentials(jwt.group(1), kind(seed.group(1)))


def read_seed(source: str | Path, kind: type[KeyPair] = KeyPair) -> KeyPair:
    """A key pair from a seed, or from a file that has one in it."""
    if isinstance(source, str) and re.fullmatch(r"S[A-Z2-7]{57}", source.strip()):
        return kind(source)
    text = _read_file(source, kind)
    found = re.search(r"\bS[A-Z2-7]{57}\b", text)
    if found is None:
        raise kind.failure(f"{source} has no NKey seed (58 characters that begin with S)")
    return kind(found.group())


def _read_file(path: str | Path, kind: type[KeyPair]) -> str:
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise kind.failure(f"cannot read the credentials in {path}: {error}") from error
