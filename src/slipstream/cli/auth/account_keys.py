"""`slipstream auth account keys`: the keys with which an account signs users, and their scopes."""

from typing import Annotated

import typer

from slipstream.cli.auth.choose import AccountName, OperatorOption, choose_account
from slipstream.cli.auth.claims import UserScope, unlimited_template
from slipstream.cli.auth.entities import Account
from slipstream.cli.auth.options import DESCRIPTION, LIMIT_OPTIONS, Given, set_limits
from slipstream.cli.auth.show import limits_sections, some
from slipstream.cli.config_options import with_config_options
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, properties, say, table
from slipstream.cli.prompts import Force, confirm, may_ask, pick, require
from slipstream.cli.session import command, new_app, wants_json
from slipstream.errors import ConfigError

app = new_app("The keys with which an account signs users.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The role, or the public key")]


@command(app, "add")
@with_config_options((*LIMIT_OPTIONS, DESCRIPTION))
async def add(
    *,
    name: AccountName = "",
    role: Annotated[str, typer.Argument(metavar="ROLE", help="What its users are for")] = "",
    operator: OperatorOption = "",
    unscoped: Annotated[
        bool, typer.Option("--unscoped", help="Its users have limits of their own")
    ] = False,
    given: Given,
) -> None:
    """Make a signing key, whose users may what is said here."""
    account = choose_account(operator, name)
    if unscoped and (role or given):
        raise UsageError("account keys add: --unscoped is for a key without a ROLE and limits")
    role = "" if unscoped else require("Role Name", role, "ROLE")
    scopes = account.claims.nats.scopes()
    if role and any(one is not None and one.role == role for one in scopes.values()):
        raise ConfigError(
            f"account keys add: account {account.name} has a role {role} already; "
            f"`slipstream auth account keys rm {account.name} --key {role}` removes it"
        )
    scope = None
    if role:
        scope = UserScope(role=role, template=unlimited_template())
        scope.description = given.get("description", "")
        set_limits(scope.template, given)
    key = account.new_key("A")
    if scope is not None:
        scope.key = key
    account.claims.nats.put_scopes(scopes | {key: scope})
    account.save()
    _show(key, scope)


def _show(key: str, scope: UserScope | None) -> None:
    if wants_json():
        print_json(scope if scope is not None else {"key": key})
        return
    about = [("Key", key)]
    if scope is None:
        properties("Signing Key", [("", about)])
        return
    about += some([("Role", scope.role), ("Description", scope.description)])
    properties("Scoped Signing Key", [("", about), *limits_sections(scope.template)])


@command(app, "ls")
async def ls(name: AccountName = "", operator: OperatorOption = "") -> None:
    """List the signing keys of an account."""
    account = choose_account(operator, name)
    scopes = account.claims.nats.scopes()
    if wants_json():
        print_json([scope if scope is not None else {"key": key} for key, scope in scopes.items()])
        return
    if not scopes:
        say("No Signing Keys found; `slipstream auth account keys add` makes one")
        return
    rows: list[tuple[str, ...]] = []
    for key, scope in scopes.items():
        if scope is None:
            rows.append(("", key, "", "", ""))
            continue
        pub, sub = scope.template.pub, scope.template.sub
        counts = [len(one.allow) + len(one.deny) for one in (pub, sub)]
        rows.append((scope.role, key, scope.description, *(str(count) for count in counts)))
    columns = ("Role", "Key", "Description", "Pub Perms", "Sub Perms")
    table(f"Signing Keys of {account.name}", columns, rows)


def chosen_key(account: Account, key: str) -> str:
    """The public key of a role of an account, or of one of its signing keys."""
    scopes = account.claims.nats.scopes()
    if key in scopes or key == account.public:
        return key
    found = [one for one, scope in scopes.items() if scope is not None and scope.role == key]
    if len(found) == 1:
        return found[0]
    if not key and may_ask() and scopes:
        return pick("Select a Signing Key", sorted(scopes))
    if not key:
        raise UsageError(
            f"KEY is missing: `slipstream auth account keys ls {account.name}` lists them"
        )
    raise ConfigError(
        f"account {account.name} has {'several keys' if found else 'no key'} for {key}; "
        f"`slipstream auth account keys ls {account.name}` lists them"
    )


@command(app, "info")
async def info(name: AccountName = "", key: Key = "", operator: OperatorOption = "") -> None:
    """Show a signing key and what its users may."""
    account = choose_account(operator, name)
    public = chosen_key(account, key)
    _show(public, account.claims.nats.scopes().get(public))


@command(app, "rm")
async def rm(
    name: AccountName = "",
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="The role, or the public key")
    ] = "",
    operator: OperatorOption = "",
    force: Force = False,
) -> None:
    """Remove a signing key; users whom it has signed cannot connect any more."""
    account = choose_account(operator, name)
    public = chosen_key(account, key)
    scopes = account.claims.nats.scopes()
    if public not in scopes:
        raise ConfigError(f"account keys rm: {public} is the account's own key, which stays")
    users = [one for one in map(account.user, account.users()) if one.claims.iss == public]
    cost = f" It has signed {', '.join(one.name for one in users)}." if users else ""
    confirm(f"Really remove signing key {public} of account {account.name}?{cost}", force)
    del scopes[public]
    account.claims.nats.put_scopes(scopes)
    account.save()
    account.keys.remove(public)
    done(f"Removed signing key {public}", success=True, users=[one.name for one in users])
    if users:
        note(f"To be removed or signed with another key: {', '.join(one.name for one in users)}")
