"""Who we say we are: the fields of CONNECT that prove it (spec auth-accounts.md section 1)."""

import base64

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
        jwt = options.user_jwt() if callable(options.user_jwt) else options.user_jwt
        fields = {"jwt": jwt, "nkey": options.nkey}
        fields["sig"] = _encode(options.sign(_nonce(info)))
        return {name: value for name, value in fields.items() if value}
    if options.token:
        return {"auth_token": options.token() if callable(options.token) else options.token}
    if options.user:
        return {"user": options.user, "pass": options.password}
    if server.token:
        return {"auth_token": server.token}
    if server.user:
        return {"user": server.user, "pass": server.password}
    return {}


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
