"""`slipstream auth account`: accounts in the store, and on servers with a full resolver."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from slipstream.cli.auth.choose import (
    AccountName,
    OperatorName,
    OperatorOption,
    choose_account,
    choose_operator,
)
from slipstream.cli.auth.claims import AccountClaims, read_claims
from slipstream.cli.auth.entities import Account
from slipstream.cli.auth.options import (
    ACCOUNT_OPTIONS,
    NO_TAGS,
    Defaults,
    Given,
    expiry,
    set_account,
)
from slipstream.cli.auth.private_files import write_asked
from slipstream.cli.auth.show import show_account
from slipstream.cli.config_options import with_config_options
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, say, table
from slipstream.cli.prompts import Force, ask, confirm, require
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import read_public

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

app = new_app("Accounts: add and change them, and send them to servers.")

STALL_SECONDS = 0.5  # after so long a silence every server has answered
_WHO_MAY = "only a user of the system account may: --creds, or --context"

Key = Annotated[
    str, typer.Option("--key", metavar="KEY", help="The operator's key that signs; public")
]


def _show(account: Account) -> None:
    if wants_json():
        print_json(account.claims)
        return
    more = [("Operator", account.operator.name), ("Users", ", ".join(account.users()) or "none")]
    if account.is_system:
        more.append(("System Account", "true"))
    show_account(account.claims, more)


@command(app, "add")
@with_config_options(ACCOUNT_OPTIONS)
async def add(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new account")] = "",
    operator: OperatorOption = "",
    key: Key = "",
    defaults: Defaults = False,
    given: Given,
) -> None:
    """Make an account."""
    owner = choose_operator(operator)
    name = require("Account Name", name, "NAME")
    if not defaults:
        given = _asked(given)
    owner.signing_key(key)  # before anything is kept
    account = owner.add_account(name)
    set_account(account.claims.nats, {"bearer": False, **given}, asking=not defaults)
    account.claims.exp = expiry(given.get("expiry", 0))
    account.save(key)
    _show(account)


def _asked(given: Given) -> Given:
    found = dict(given)
    for field, label in (("conn", "Maximum Connections"), ("subs", "Maximum Subscriptions")):
        if field not in found:
            said = ask(label, "-1")
            try:
                found[field] = int(said)
            except ValueError:
                raise UsageError(f'{label}: "{said}" is no number; -1 is no bound') from None
    return found


@command(app, "ls")
async def ls(
    operator: OperatorName = "",
    names: Annotated[bool, typer.Option("--names", help="Only their names")] = False,
) -> None:
    """List the accounts of an operator."""
    owner = choose_operator(operator)
    found = owner.accounts()
    if names:
        if wants_json():
            print_json(found)
        elif found:
            say("\n".join(found))
        return
    accounts = [owner.account(name) for name in found]
    if wants_json():
        print_json([account.claims for account in accounts])
        return
    if not found:
        say("No Accounts found; `slipstream auth account add` makes one")
        return
    rows = [
        (
            one.name,
            one.public,
            str(len(one.users())),
            "yes" if one.claims.nats.limits.has_jetstream else "",
            "yes" if one.is_system else "",
        )
        for one in accounts
    ]
    table(f"Accounts of {owner.name}", ("Name", "Public Key", "Users", "JetStream", "System"), rows)


@command(app, "info")
async def info(name: AccountName = "", operator: OperatorOption = "") -> None:
    """Show an account."""
    _show(choose_account(operator, name))


@command(app, "edit")
@with_config_options((*ACCOUNT_OPTIONS, NO_TAGS))
async def edit(
    *, name: AccountName = "", operator: OperatorOption = "", key: Key = "", given: Given
) -> None:
    """Change an account; servers know it after `push`, or with a new configuration."""
    if not given and not key:
        raise UsageError("account edit: say what to change (`--help` has the options)")
    account = choose_account(operator, name)
    set_account(account.claims.nats, given)
    if "expiry" in given:
        account.claims.exp = expiry(given["expiry"])
    account.save(key)
    _show(account)


@command(app, "rm")
async def rm(name: AccountName = "", operator: OperatorOption = "", force: Force = False) -> None:
    """Remove an account with its users and all their private keys from the store."""
    account = choose_account(operator, name)
    if account.is_system:
        raise ConfigError(
            f"account rm: {account.name} is the system account of operator "
            f"{account.operator.name}, whose servers need it"
        )
    confirm(
        f"Really remove account {account.name}, its {len(account.users())} users and all private "
        "keys?",
        force,
    )
    account.remove()
    done(f"Removed account {account.name}; servers that have it keep it", success=True)


@command(app, "push")
async def push(
    name: AccountName = "",
    operator: OperatorOption = "",
    show: Annotated[bool, typer.Option("--show", help="Show the JWT, too")] = False,
) -> None:
    """Send an account to servers with a full resolver (system account)."""
    account = choose_account(operator, name)
    token = account.token
    if show and not wants_json():
        say(f"{token}\n")
    async with connection() as nc:
        count = await _count_servers(nc)
        answers = await _push(nc, account.public, token)
    if wants_json():
        print_json([one.raw for one in answers])
    else:
        for one in answers:
            say(f"{'✓' if one.is_done else '✗'} {one.server}: {one.says}")
    failed = [one.server for one in answers if not one.is_done]
    if failed:
        raise ConfigError(
            f"account push: account {account.name} is not on {', '.join(failed)}; a server has to "
            f"trust operator {account.operator.name} and to have a full resolver: "
            "`slipstream auth operator generate --resolver full`"
        )
    if len(answers) < count:
        raise ConfigError(
            f"account push: {len(answers)} of {count} servers have answered; the others get "
            f"account {account.name} when they are back, if they have a full resolver"
        )
    if not wants_json():
        say(f"Account {account.name} is on {len(answers)} server{'s' * (len(answers) > 1)}")


class _Answer:
    """What a server says to a push."""

    def __init__(self, body: bytes) -> None:
        try:
            found = msgspec.json.decode(body, type=dict[str, object])
        except msgspec.MsgspecError:
            found = {"error": {"description": f"an answer that is no JSON object: {body[:80]!r}"}}
        self.raw = found
        server, data, error = (found.get(name) for name in ("server", "data", "error"))
        self.server = str(server.get("name", "?")) if isinstance(server, dict) else "?"
        if isinstance(error, dict):
            self.says, self.is_done = str(error.get("description", error)), False
        else:
            self.says = str(data.get("message", "")) if isinstance(data, dict) else ""
            self.is_done = "skipped" not in self.says  # of an account that a memory resolver lacks


async def _count_servers(nc: "Connection") -> int:
    """How many servers there are, as far as those that answer know."""
    from slipstream.cli.server.system import ask_servers

    found = await ask_servers(nc, "$SYS.REQ.SERVER.PING")
    known = [int(answer.get("statsz", {}).get("active_servers", 0)) for answer in found]
    return max([len(found), *known])


async def _push(nc: "Connection", public: str, token: str) -> list[_Answer]:
    from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError

    subject = f"$SYS.REQ.ACCOUNT.{public}.CLAIMS.UPDATE"
    try:
        found = [
            _Answer(message.data)
            async for message in nc.request_many(subject, token.encode(), stall=STALL_SECONDS)
        ]
    except (NoRespondersError, PermissionsError, TimeoutError):
        found = []
    if not found:
        raise ConfigError(f"account push: no server has answered; {_WHO_MAY}")
    return sorted(found, key=lambda one: one.server)


@app.command("pull", hidden=True)
@command(app, "query")
async def query(
    name: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account, or its public key")],
    output: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where to write its JWT")
    ] = None,
    operator: OperatorOption = "",
    force: Force = False,
) -> None:
    """Show an account as servers have it (system account)."""
    from slipstream.client.errors import NoRespondersError, PermissionsError

    public = name if _is_account(name) else choose_account(operator, name).public
    subject = f"$SYS.REQ.ACCOUNT.{public}.CLAIMS.LOOKUP"
    async with connection() as nc:
        try:
            token = (await nc.request(subject)).data.decode(errors="replace").strip()
        except (NoRespondersError, PermissionsError) as error:
            raise ConfigError(f"account query: no server has answered; {_WHO_MAY}") from error
    if not token:
        raise ConfigError(
            f"account query: the servers do not have account {name}; "
            f"`slipstream auth account push {name}` sends it"
        )
    claims = read_claims(token, AccountClaims, "the server's JWT of the account")
    if output is not None:
        write_asked(output, token, force)
    if wants_json():
        print_json(claims)
    else:
        show_account(claims)


def _is_account(name: str) -> bool:
    try:
        return read_public(name)[0] == "A"
    except ValueError:
        return False
