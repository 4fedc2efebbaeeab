"""`slipstream jwt decode`: what a JWT or a credentials file says."""

import time
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.auth.claims import (
    BY_NAME,
    AccountClaims,
    OperatorClaims,
    Token,
    UserClaims,
    claims_of,
    read_token,
    token_in,
)
from slipstream.cli.auth.private_files import read
from slipstream.cli.auth.show import show_account, show_operator, show_user, when
from slipstream.cli.output import print_json, properties
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError

app = new_app("What a JWT says.")

_TIMES = {"exp", "iat", "nbf"}


@app.command("decode")
def decode(
    jwt: Annotated[
        str, typer.Argument(metavar="JWT", help="A file with a JWT or credentials, or a JWT")
    ],
) -> None:
    """Say what a JWT says, and whether it holds; what is secret in the file is not shown."""
    token, where = _token(jwt.strip())
    if wants_json():
        print_json(token.claims)
    else:
        _show(token, where)
    now = time.time()
    until, since = (token.claims.get(name) for name in ("exp", "nbf"))
    if isinstance(until, int) and 0 < until < now:
        raise ConfigError(f"{where} has expired, {when(until)}")
    if isinstance(since, int) and since > now:
        raise ConfigError(f"{where} does not hold before {when(since)}")


def _token(said: str) -> tuple[Token, str]:
    path = Path(said).expanduser()
    try:
        is_file = path.exists()
    except OSError:  # too long for a name: the JWT itself
        is_file = False
    if is_file:
        where = f"the JWT in {said}"
        return read_token(token_in(read(path, "a JWT")), where), where
    if said.count(".") == 2:
        return read_token(said, "the JWT"), "the JWT"
    raise ConfigError(f'jwt decode: "{said}" is neither a file that is there nor a JWT')


def _show(token: Token, where: str) -> None:
    kind = BY_NAME.get(token.kind)
    nats = token.claims.get("nats")
    version = nats.get("version") if isinstance(nats, dict) else None
    if kind is None or version != 2:
        properties(f"JWT ({token.kind})", [("", _flat(token.claims))])
    elif kind is OperatorClaims:
        show_operator(claims_of(token, OperatorClaims, where))
    elif kind is AccountClaims:
        show_account(claims_of(token, AccountClaims, where))
    else:
        show_user(claims_of(token, UserClaims, where))


def _flat(value: dict[str, object], path: str = "") -> list[tuple[str, str]]:
    """Every field of a JWT whose kind has no words here, with its path."""
    found: list[tuple[str, str]] = []
    for name, one in value.items():
        if isinstance(one, dict):
            found += _flat(one, f"{path}{name}.")
        elif name in _TIMES and not path and isinstance(one, int):
            found.append((name, when(one)))
        else:
            found.append((path + name, str(one)))
    return found
