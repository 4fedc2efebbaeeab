"""`slipstream auth account mappings`: subjects of an account that become others."""

from collections.abc import Sequence
from typing import Annotated

import typer

from slipstream.cli.auth.choose import AccountName, OperatorOption, choose_account
from slipstream.cli.auth.claims import WeightedMapping
from slipstream.cli.auth.entities import Account
from slipstream.cli.auth.options import check_subject
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, say, table
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError

app = new_app("Subjects that become others, in whole or in part.")

WHOLE = 100  # per cent

NamedAccount = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The subject that is published")]


@app.command("add")
def add(
    account: NamedAccount,
    source: Source,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="What it becomes; {{wildcard(1)}} is the first *"),
    ],
    weight: Annotated[
        int, typer.Argument(metavar="WEIGHT", min=1, max=WHOLE, help="Of the messages, in per cent")
    ] = WHOLE,
    cluster: Annotated[
        str, typer.Argument(metavar="CLUSTER", help="Only on servers of this cluster")
    ] = "",
    operator: OperatorOption = "",
) -> None:
    """Have messages of a subject, or a part of them, be of another."""
    owner = choose_account(operator, account)
    for subject in (source, target):
        check_subject(subject, "SOURCE" if subject is source else "TARGET")
    mappings = owner.claims.nats.mappings
    there = mappings.get(source, [])
    if any((one.subject, one.cluster) == (target, cluster) for one in there):
        raise ConfigError(
            f"account {owner.name} maps {source} to {target} already; "
            f"`slipstream auth account mappings rm {owner.name} '{source}'` removes that"
        )
    made = WeightedMapping(subject=target, weight=weight, cluster=cluster)
    total = sum(_weight(one) for one in [*there, made] if one.cluster == cluster)
    if total > WHOLE:
        raise UsageError(
            f"mappings add: of {source} {total} per cent would be mapped; "
            f"{WHOLE - total + weight} are left"
        )
    owner.claims.nats.mappings = mappings | {source: [*there, made]}
    owner.save()
    _show(owner, [source])


def _weight(mapping: WeightedMapping) -> int:
    return mapping.weight or WHOLE


def _show(account: Account, sources: Sequence[str]) -> None:
    mappings = account.claims.nats.mappings
    if wants_json():
        print_json({source: mappings[source] for source in sources})
        return
    rows = [
        (source, one.subject, str(_weight(one)), one.cluster)
        for source in sources
        for one in mappings[source]
    ]
    table(f"Mappings of {account.name}", ("Source", "Target", "Weight", "Cluster"), rows)


def _found(account: Account, source: str) -> str:
    if source not in account.claims.nats.mappings:
        raise ConfigError(
            f"account {account.name} does not map {source}; "
            f"`slipstream auth account mappings ls {account.name}` lists what it does"
        )
    return source


@app.command("ls")
def ls(account: AccountName = "", operator: OperatorOption = "") -> None:
    """List the mappings of an account."""
    owner = choose_account(operator, account)
    found = sorted(owner.claims.nats.mappings)
    if found or wants_json():
        _show(owner, found)
    else:
        say("No Mappings found; `slipstream auth account mappings add` makes one")


@app.command("info")
def info(account: NamedAccount, source: Source, operator: OperatorOption = "") -> None:
    """Show what a subject becomes."""
    owner = choose_account(operator, account)
    _show(owner, [_found(owner, source)])


@app.command("rm")
def rm(
    account: NamedAccount, source: Source, operator: OperatorOption = "", force: Force = False
) -> None:
    """Leave a subject as it is."""
    owner = choose_account(operator, account)
    confirm(f"Really remove the mappings of {_found(owner, source)} in {owner.name}?", force)
    mappings = owner.claims.nats.mappings
    owner.claims.nats.mappings = {name: to for name, to in mappings.items() if name != source}
    owner.save()
    done(f"Account {owner.name} does not map {source} any more", success=True)
