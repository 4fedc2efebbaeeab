"""Who we say we are: the fields of CONNECT that prove it (spec auth-accounts.md section 1)."""

import base64
import inspect
from collections.abc import Callable

from slipstream.client.errors import CredentialsError
from slipstream.client.nkeys import KeyPair, read_credentials, read_seed
from slipstream.client.options import ConnectOptions
from slipstream.client.server_info import ServerInfo
from slipstream.client.servers import ServerAddress


def auth_fields(options: ConnectOptions, server: ServerAddress, info: ServerInfo) -> dict[str, str]:
    """The fields for this server; what its URL says counts if the options say nothing.

    Files are read anew each time, so that a key may be changed while the program runs.
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


async def ask_identity(options: ConnectOptions, info: ServerInfo) -> dict[str, str] | None:
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
