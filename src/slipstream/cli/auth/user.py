"""`slipstream auth user`: users of an account, and the files with which they connect."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.auth.account_keys import chosen_key
from slipstream.cli.auth.choose import (
    AccountName,
    OperatorOption,
    UserName,
    choose_account,
    choose_user,
)
from slipstream.cli.auth.claims import User as UserClaim
from slipstream.cli.auth.entities import Account, User
from slipstream.cli.auth.options import (
    LIMIT_OPTIONS,
    NO_TAGS,
    TAGS,
    Defaults,
    Given,
    changed_tags,
    expiry,
    set_limits,
)
from slipstream.cli.auth.private_files import write_asked
from slipstream.cli.auth.show import limit, show_user
from slipstream.cli.config_options import with_config_options
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, say, table
from slipstream.cli.prompts import Force, confirm, require
from slipstream.cli.session import command, new_app, wants_json
from slipstream.cli.values import duration
from slipstream.errors import ConfigError

app = new_app("Users, and the credentials files with which they connect.")

CredentialFile = Annotated[
    Path | None, typer.Option("--credential", metavar="FILE", help="Write a credentials file, too")
]
Key = Annotated[
    str,
    typer.Option("--key", metavar="KEY", help="The account's signing key: a role or a public key"),
]


def _show(user: User) -> None:
    if wants_json():
        print_json(user.claims)
        return
    scope = user.scope
    more = [("Account Name", user.account.name)]
    if scope is not None:
        more.append(("Role", scope.role))
    elif not user.is_valid:
        more.append(
            ("Cannot Connect", "the key that has signed it is none of the account any more")
        )
    show_user(user.claims, scope.template if scope is not None else None, more)


def _set(user: User, given: Given) -> None:
    nats = user.claims.nats
    limits = {name: value for name, value in given.items() if name not in ("tags", "no_tags")}
    if limits and user.scope is not None:
        raise ConfigError(
            f"user {user.name} was signed for a role, which says what its users may; "
            f"`slipstream auth account keys info {user.account.name} {user.scope.role}` shows it"
        )
    set_limits(nats, limits)
    if nats.bearer_token and user.account.claims.nats.limits.disallow_bearer:
        raise ConfigError(
            f"account {user.account.name} allows no bearer tokens; "
            f"`slipstream auth account edit {user.account.name} --bearer` does"
        )
    nats.tags = changed_tags(nats.tags, given.get("tags", []), given.get("no_tags", []))


@command(app, "add")
@with_config_options((*LIMIT_OPTIONS, TAGS))
async def add(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new user")] = "",
    account: AccountName = "",
    operator: OperatorOption = "",
    key: Key = "",
    credential: CredentialFile = None,
    defaults: Defaults = False,
    force: Force = False,
    given: Given,
) -> None:
    """Make a user, who may everything that is not said otherwise."""
    name = require("User Name", name, "NAME")
    owner = choose_account(operator, account)
    public = _issuer(owner, key)
    owner.signing_key(public)  # before anything is kept
    user = owner.add_user(name)
    user.claims.iss = public
    if user.scope is not None:  # the server takes the limits from the scope, and none from here
        user.claims.nats = UserClaim()
    _set(user, given)
    user.save()
    if credential is not None:
        write_asked(credential, user.credentials(), force)
    _show(user)


def _issuer(account: Account, key: str) -> str:
    if key:
        return chosen_key(account, key)
    if account.operator.claims.nats.strict_signing_key_usage:
        plain = [one for one, scope in account.claims.nats.scopes().items() if scope is None]
        if plain:
            return plain[0]
    return account.public


@command(app, "ls")
async def ls(
    account: AccountName = "",
    operator: OperatorOption = "",
    names: Annotated[bool, typer.Option("--names", help="Only their names")] = False,
) -> None:
    """List the users of an account."""
    owner = choose_account(operator, account)
    found = owner.users()
    if names:
        if wants_json():
            print_json(found)
        elif found:
            say("\n".join(found))
        return
    users = [owner.user(name) for name in found]
    if wants_json():
        print_json([user.claims for user in users])
    elif not found:
        say(f"No Users found; `slipstream auth user add NAME {owner.name}` makes one")
    else:
        columns = ("Name", "Public Key", "Role", "Pub Perms", "Sub Perms", "Subscriptions")
        table(f"Users of {owner.name}", columns, [_row(user) for user in users])


def _row(user: User) -> tuple[str, ...]:
    scope = user.scope
    limits = scope.template if scope is not None else user.claims.nats
    role = scope.role if scope is not None else "" if user.is_valid else "(key removed)"
    counts = (str(len(one.allow) + len(one.deny)) for one in (limits.pub, limits.sub))
    return (user.name, user.public, role, *counts, limit(limits.subs or -1))


@command(app, "info")
async def info(
    name: UserName = "", account: AccountName = "", operator: OperatorOption = ""
) -> None:
    """Show a user."""
    _show(choose_user(operator, account, name))


@command(app, "edit")
@with_config_options((*LIMIT_OPTIONS, TAGS, NO_TAGS))
async def edit(
    *,
    name: UserName = "",
    account: AccountName = "",
    operator: OperatorOption = "",
    credential: CredentialFile = None,
    force: Force = False,
    given: Given,
) -> None:
    """Change a user, whose credentials have to be written again."""
    if not given and credential is None:
        raise UsageError("user edit: say what to change (`--help` has the options)")
    user = choose_user(operator, account, name)
    _set(user, given)
    user.save()
    if credential is not None:
        write_asked(credential, user.credentials(), force)
    _show(user)
    if credential is None:
        note(f"`slipstream auth user credential FILE {user.name}` writes the new credentials")


@command(app, "rm")
async def rm(
    name: UserName = "",
    account: AccountName = "",
    operator: OperatorOption = "",
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Have servers refuse the credentials that exist, too")
    ] = False,
    force: Force = False,
) -> None:
    """Remove a user and its private key from the store."""
    user = choose_user(operator, account, name)
    owner = user.account
    confirm(f"Really remove user {user.name} of account {owner.name}?", force)
    if revoke:
        until = max(int(time.time()), owner.claims.nats.revocations.get(user.public, 0))
        owner.claims.nats.revocations = owner.claims.nats.revocations | {user.public: until}
        owner.save()
    user.remove()
    done(f"Removed user {user.name} of account {owner.name}", success=True, revoked=revoke)
    if revoke:
        note(f"Servers refuse {user.name} after `slipstream auth account push {owner.name}`")
    else:
        note("Whoever has its credentials can still connect; --revoke would have ended that")


@app.command("creds", hidden=True)
@app.command("cred", hidden=True)
@command(app, "credential")
async def credential(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The credentials file to write")],
    name: UserName = "",
    account: AccountName = "",
    operator: OperatorOption = "",
    expire: Annotated[
        Any,
        typer.Option("--expire", metavar="TIME", parser=duration, help="How long it holds: 30d"),
    ] = 0.0,
    force: Force = False,
) -> None:
    """Write the file with which a user connects."""
    user = choose_user(operator, account, name)
    if not user.is_valid:
        raise ConfigError(
            f"user credential: the key that has signed user {user.name} is none of account "
            f"{user.account.name} any more, and servers refuse it; remove it, and add it again"
        )
    write_asked(file, user.credentials(expiry(expire)), force)
    done(f"Wrote the credentials of user {user.name} to {file}", file=str(file))
