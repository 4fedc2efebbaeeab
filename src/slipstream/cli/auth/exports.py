"""`slipstream auth account exports`: subjects of an account that other accounts may import."""

from typing import Annotated

import typer

from slipstream.cli.auth.choose import AccountName, OperatorOption, choose_account
from slipstream.cli.auth.claims import Export
from slipstream.cli.auth.entities import Account
from slipstream.cli.auth.options import check_subject
from slipstream.cli.auth.show import revoked, some, yes
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, properties, say, table
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError
from slipstream.wire.subjects import is_subset

app = new_app("What an account lets other accounts import.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject that is exported")]
Description = Annotated[str | None, typer.Option("--description", help="What it is")]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Where more is said of it")]
Position = Annotated[
    int | None,
    typer.Option(
        "--token-position", min=0, help="Which word of SUBJECT, a *, is the importer's public key"
    ),
]
Advertise = Annotated[
    bool | None, typer.Option("--advertise/--no-advertise", help="Show it to everybody")
]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called")],
    subject: Subject,
    account: AccountName = "",
    service: Annotated[
        bool, typer.Option("--service", help="Others send requests, instead of getting messages")
    ] = False,
    description: Description = None,
    url: Url = None,
    token_position: Position = None,
    advertise: Advertise = None,
    operator: OperatorOption = "",
) -> None:
    """Let other accounts import a subject."""
    owner = choose_account(operator, account)
    check_subject(subject, "SUBJECT")
    made = Export(name=name, subject=subject, type="service" if service else "stream")
    for other in owner.claims.nats.exports:
        pair = (made.subject.encode(), other.subject.encode())
        if other.type == made.type and (is_subset(*pair) or is_subset(*reversed(pair))):
            raise ConfigError(
                f"exports add: account {owner.name} exports {other.subject} already, which "
                f"has subjects of {subject} in it, or the other way round"
            )
    _set(made, description, url, token_position, advertise)
    owner.claims.nats.exports = [*owner.claims.nats.exports, made]
    check_room(len(owner.claims.nats.exports), owner.claims.nats.limits.exports, owner, "exports")
    owner.save()
    _show(made)


def check_room(count: int, most: int, account: Account, what: str) -> None:
    """Raises `ConfigError` if an account may not have so many exports or imports."""
    if 0 <= most < count:
        raise ConfigError(
            f"account {account.name} may have {most} {what}; "
            f"`slipstream auth account edit {account.name} --{what} {count}` allows more"
        )


def _set(
    made: Export,
    description: str | None,
    url: str | None,
    position: int | None,
    advertise: bool | None,
) -> None:
    if description is not None:
        made.description = description
    if url is not None:
        if url and "://" not in url:
            raise UsageError(f'--url: "{url}" is no URL; write it like https://example.com/docs')
        made.info_url = url
    if position is not None:
        words = made.subject.split(".")
        if position and (position > len(words) or words[position - 1] != "*"):
            raise UsageError(
                f"--token-position: word {position} of {made.subject} is no *; "
                "the importer's public key stands for one"
            )
        made.account_token_position = position
    if advertise is not None:
        made.advertise = advertise


def _found(account: Account, subject: str) -> Export:
    for one in account.claims.nats.exports:
        if one.subject == subject:
            return one
    raise ConfigError(
        f"account {account.name} does not export {subject}; "
        f"`slipstream auth account exports ls {account.name}` lists what it does"
    )


def _show(export: Export) -> None:
    if wants_json():
        print_json(export)
        return
    pairs = some(
        [
            ("Name", export.name),
            ("Subject", export.subject),
            ("Kind", export.type),
            ("Description", export.description),
            ("More About It", export.info_url),
            ("Needs Activation", yes(export.token_req)),
            ("Account Token Position", str(export.account_token_position or "")),
            ("Advertised", yes(export.advertise)),
            ("Revoked", revoked(export.revocations)),
        ]
    )
    properties(f"Export {export.name}", [("", pairs)])


@app.command("ls")
def ls(account: AccountName = "", operator: OperatorOption = "") -> None:
    """List what an account exports."""
    owner = choose_account(operator, account)
    found = sorted(owner.claims.nats.exports, key=lambda one: one.subject)
    if wants_json():
        print_json(found)
    elif not found:
        say("No Exports found; `slipstream auth account exports add` makes one")
    else:
        rows = [
            (one.name, one.type, one.subject, yes(one.token_req), yes(one.advertise))
            for one in found
        ]
        columns = ("Name", "Kind", "Subject", "Needs Activation", "Advertised")
        table(f"Exports of {owner.name}", columns, rows)


@app.command("info")
def info(subject: Subject, account: AccountName = "", operator: OperatorOption = "") -> None:
    """Show an export."""
    _show(_found(choose_account(operator, account), subject))


@app.command("edit")
def edit(
    subject: Subject,
    account: AccountName = "",
    description: Description = None,
    url: Url = None,
    token_position: Position = None,
    advertise: Advertise = None,
    operator: OperatorOption = "",
) -> None:
    """Change an export."""
    if all(one is None for one in (description, url, token_position, advertise)):
        raise UsageError(
            "exports edit: say what to change: --description, --url, --token-position, --advertise"
        )
    owner = choose_account(operator, account)
    found = _found(owner, subject)
    _set(found, description, url, token_position, advertise)
    owner.save()
    _show(found)


@app.command("rm")
def rm(
    subject: Subject, account: AccountName = "", operator: OperatorOption = "", force: Force = False
) -> None:
    """Take an export back."""
    owner = choose_account(operator, account)
    found = _found(owner, subject)
    confirm(f"Really remove the export of {subject} from account {owner.name}?", force)
    owner.claims.nats.exports = [one for one in owner.claims.nats.exports if one is not found]
    owner.save()
    done(f"Account {owner.name} does not export {subject} any more", success=True)
