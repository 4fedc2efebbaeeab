"""Who the client says it is: NKeys, credentials files and the fields of CONNECT that prove it.

docs/protocol/accounts.md#who-a-client-is.
"""

import base64
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.errors import CredentialsError
from slipstream.client.servers import ServerAddress, ServerInfo
from slipstream.wire import nkeys

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


class KeyPair(nkeys.KeyPair):
    """A private key and its public one, from a seed like ``SU...``; raises `CredentialsError`."""

    failure = CredentialsError


def read_credentials(source: str | Path) -> nkeys.Credentials:
    """Read a .creds file, or the text of one; raises `CredentialsError`."""
    return nkeys.read_credentials(source, KeyPair)


def read_seed(source: str | Path) -> nkeys.KeyPair:
    """A key pair from a seed, or from a file that has one in it; raises `CredentialsError`."""
    return nkeys.read_seed(source, KeyPair)


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


def _signature(key: nkeys.KeyPair, info: ServerInfo) -> dict[str, str]:
    return {"sig": _encode(key.sign(_nonce(info)))} if info.nonce else {}


def _nonce(info: ServerInfo) -> bytes:
    if not info.nonce:
        raise CredentialsError(
            f"server {info.server_name!r} sent no nonce to sign: it knows no NKey users"
        )
    return info.nonce.encode()


def _encode(signature: bytes) -> str:
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
