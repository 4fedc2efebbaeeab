"""Who the client says it is: NKeys, credentials files and the fields of CONNECT that prove it.

Specification: auth-accounts.md section 1.
"""

import base64
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from slipstream.client.errors import CredentialsError
from slipstream.client.servers import ServerAddress, ServerInfo

if TYPE_CHECKING:
    from slipstream.client.options import ConnectOptions


class Identity(msgspec.Struct, kw_only=True):
    """What proves who we are: user and password, a token, or a key with or without a JWT.

    A key signs the server's nonce: give its `seed`, or the `signature` (64 bytes) with the public
    key as `nkey` or in the `jwt`.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    nkey: str = ""
    seed: str = ""
    signature: bytes = b""


_SEED = 18 << 3  # the letter S
_KINDS = {14 << 3: "O", 0: "A", 20 << 3: "U", 13 << 3: "N", 2 << 3: "C"}
_SEED_SIZE = 32
_JWT = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s*([\w.=-]+)\s*-{3,}END NATS USER JWT-{3,}", re.S)
_SEED_BLOCK = re.compile(
    r"-{3,}BEGIN USER NKEY SEED-{3,}\s*(S\w+)\s*-{3,}END USER NKEY SEED-{3,}", re.S
)


def crc16(data: bytes) -> int:
    """CRC-16 (XMODEM polynomial), which guards the spelling of keys."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc


def _spell(raw: bytes) -> str:
    return base64.b32encode(raw + crc16(raw).to_bytes(2, "little")).rstrip(b"=").decode()


def _read(text: str, what: str) -> bytes:
    """The bytes that a key spells, without its checksum."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise CredentialsError(f"{what} is not base32; copy it whole") from error
    if len(raw) < 4 or crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
        raise CredentialsError(f"{what} has a wrong checksum: a character is wrong or missing")
    return raw[:-2]


class KeyPair:
    """A private key and its public one, from a seed like ``SU...``; raises `CredentialsError`."""

    def __init__(self, seed: str) -> None:
        raw = _read(seed.strip(), "the NKey seed")
        if raw[0] & 0xF8 != _SEED or len(raw) != _SEED_SIZE + 2:
            raise CredentialsError("an NKey seed begins with S and has 58 characters")
        self._kind = (raw[0] & 7) << 5 | (raw[1] & 0xF8) >> 3
        if self._kind not in _KINDS:
            raise CredentialsError("the NKey seed is of no known kind; users' begin with SU")
        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:])

    @property
    def public(self) -> str:
        """The public key, like ``U...``."""
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return _spell(bytes([self._kind]) + public)

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature, 64 bytes."""
        return self._key.sign(data)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a .creds file holds."""

    jwt: str
    key: KeyPair


def read_credentials(source: str | Path) -> Credentials:
    """Read a .creds file, or the text of one; raises `CredentialsError`."""
    is_text = isinstance(source, str) and "-----BEGIN" in source
    text = str(source) if is_text else _read_file(source)
    path = "the text given as credentials" if is_text else source
    jwt, seed = _JWT.search(text), _SEED_BLOCK.search(text)
    if jwt is None or seed is None:
        missing = "user JWT" if jwt is None else "user NKey seed"
        raise CredentialsError(f"{path} has no {missing}; make it with `nsc generate creds`")
    return Credentials(jwt.group(1), KeyPair(seed.group(1)))


def read_seed(source: str | Path) -> KeyPair:
    """A key pair from a seed, or from a file that has one in it."""
    if isinstance(source, str) and re.fullmatch(r"S[A-Z2-7]{57}", source.strip()):
        return KeyPair(source)
    text = _read_file(source)
    found = re.search(r"\bS[A-Z2-7]{57}\b", text)
    if found is None:
        raise CredentialsError(f"{source} has no NKey seed (58 characters that begin with S)")
    return KeyPair(found.group())


def _read_file(path: str | Path) -> str:
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"cannot read the credentials in {path}: {error}") from error


def auth_fields(
    options: "ConnectOptions", server: ServerAddress, info: ServerInfo
) -> dict[str, str]:
    """The fields for this server; what its URL says counts if the options say nothing.

    Files are read each time, so that a key may be changed while the program runs.
    Raises `CredentialsError`.
    """
    if options.credentials:
        credentials = read_credentials(options.credentials)
        return {"jwt": credentials.jwt, **_signature(credentials.key, info)}
    if options.nkey_seed:
        key = read_seed(options.nkey_seed)
        return {"nkey": key.public, **_signature(key, info)}
    if options.sign is not None:
        fields = {"jwt": _text(options.user_jwt, "user_jwt"), "nkey": options.nkey}
        fields["sig"] = _encode(_signed(options.sign, _nonce(info)))
        return {name: value for name, value in fields.items() if value}
    if options.token:
        return {"auth_token": _text(options.token, "token")}
    if options.user:
        return {"user": options.user, "pass": options.password}
    if server.token:
        return {"auth_token": server.token}
    if server.user:
        return {"user": server.user, "pass": server.password}
    return {}


async def ask_identity(options: "ConnectOptions", info: ServerInfo) -> dict[str, str] | None:
    """The fields that the function of the options gives; None if there is no such function.

    Raises `CredentialsError`.
    """
    if options.authenticate is None:
        return None
    try:
        found = options.authenticate(info.nonce.encode())
        identity = await found if inspect.isawaitable(found) else found
    except Exception as error:
        raise CredentialsError(
            f"connect: the function given as authenticate raised: {error!r}"
        ) from error
    fields = {
        "user": identity.user,
        "pass": identity.password,
        "auth_token": identity.token,
        "jwt": identity.jwt,
        "nkey": identity.nkey,
        "sig": _encode(identity.signature),
    }
    if identity.seed:
        key = KeyPair(identity.seed)
        fields["nkey"] = "" if identity.jwt else key.public
        fields["sig"] = _encode(key.sign(_nonce(info)))
    return {name: value for name, value in fields.items() if value}


def _text(option: str | Callable[[], str], name: str) -> str:
    """An option that may be a function."""
    try:
        return option() if callable(option) else option
    except Exception as error:
        raise CredentialsError(f"connect: the function given as {name} raised: {error}") from error


def _signed(sign: Callable[[bytes], bytes], nonce: bytes) -> bytes:
    try:
        return sign(nonce)
    except Exception as error:
        raise CredentialsError(f"connect: the function given as sign raised: {error}") from error


def _signature(key: KeyPair, info: ServerInfo) -> dict[str, str]:
    return {"sig": _encode(key.sign(_nonce(info)))} if info.nonce else {}


def _nonce(info: ServerInfo) -> bytes:
    if not info.nonce:
        raise CredentialsError(
            f"server {info.server_name!r} sent no nonce to sign: it knows no NKey users"
        )
    return info.nonce.encode()


def _encode(signature: bytes) -> str:
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
