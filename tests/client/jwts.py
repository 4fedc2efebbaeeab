"""Operators, accounts and users whose JWTs a nats-server in operator mode believes."""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from slipstream.client.auth import KeyPair

PREFIXES = {"O": 14 << 3, "A": 0, "U": 20 << 3}


def new_seed(kind: str) -> str:
    """A fresh seed of an operator (O), account (A) or user (U)."""
    key = Ed25519PrivateKey.generate()
    raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    prefix = PREFIXES[kind]
    head = bytes([(18 << 3) | (prefix >> 5), (prefix & 31) << 3])
    body = head + raw
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_jwt(issuer: KeyPair, subject: str, name: str, nats: dict[str, Any]) -> str:
    """A JWT of `subject`, signed by `issuer`."""
    claims = {"iat": 1_700_000_000, "iss": issuer.public, "name": name, "sub": subject}
    claims["nats"] = {"version": 2, **nats}
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode()
    head = _text(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    body = f"{head}.{_text(json.dumps(claims).encode())}"
    return f"{body}.{_text(issuer.sign(body.encode()))}"


@dataclass(slots=True)
class OperatorMode:
    """A server's configuration and the credentials file of a user in it."""

    config: str
    credentials: Path
    user_seed: str
    user_jwt: str


def make_operator_mode(directory: Path) -> OperatorMode:
    """An operator with one account that has one user."""
    operator, account = KeyPair(new_seed("O")), KeyPair(new_seed("A"))
    seed = new_seed("U")
    user = KeyPair(seed)
    names = ("subs", "data", "payload", "conn", "leaf", "imports", "exports")
    limits = {**dict.fromkeys(names, -1), "wildcards": True}
    account_claims = {"type": "account", "limits": limits}
    system = KeyPair(new_seed("A"))
    system_jwt = make_jwt(operator, system.public, "SYS", account_claims)
    account_jwt = make_jwt(operator, account.public, "ACC", account_claims)
    user_claims = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    user_jwt = make_jwt(account, user.public, "alice", user_claims)
    path = directory / "alice.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    config = f"""
        trusted_keys: {operator.public}
        resolver: MEMORY
        system_account: {system.public}
        resolver_preload {{
            {account.public}: "{account_jwt}"
            {system.public}: "{system_jwt}"
        }}
    """
    return OperatorMode(config, path, seed, user_jwt)
