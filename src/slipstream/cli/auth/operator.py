"""`slipstream auth operator`: who signs accounts, and what a server has to be told about it."""

import base64
from pathlib import Path
from typing import Annotated

import msgspec
import typer

import slipstream.cli.auth.backup as backups
from slipstream.cli.auth.choose import (
    OperatorName,
    choose_operator,
    selected,
)
from slipstream.cli.auth.choose import select as select_operator
from slipstream.cli.auth.claims import OperatorClaims, read_claims, token_in
from slipstream.cli.auth.entities import Operator, Store
from slipstream.cli.auth.options import NoTags, Tags, changed_tags
from slipstream.cli.auth.private_files import read, write_asked
from slipstream.cli.auth.sealed import from_base64, seal, unseal
from slipstream.cli.auth.server_config import full_resolver, memory_resolver
from slipstream.cli.auth.show import show_operator
from slipstream.cli.config_options import words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, say, table
from slipstream.cli.prompts import Force, confirm, require
from slipstream.cli.session import new_app, wants_json
from slipstream.cli.values import one_of
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import read_seed

app = new_app("Operators, who sign accounts.")

SYSTEM_ACCOUNT = "SYSTEM"  # as the `nats` tool calls it
SERVICE_SCHEMES = ("nats", "tls", "ws", "wss")

Services = Annotated[
    list[str],
    typer.Option(
        "--service", metavar="URL", help="Where servers are: nats://HOST:PORT; repeatable"
    ),
]
AccountServer = Annotated[
    str | None,
    typer.Option("--account-server", metavar="URL", help="Where account JWTs are looked up"),
]
EncryptionKey = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Encrypt with this key: `auth nkey gen curve`"),
]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new operator")] = "",
    service: Services = [],  # noqa: B006
    account_server: AccountServer = None,
    signing_key: Annotated[
        bool,
        typer.Option("--signing-key/--no-signing-key", help="Make a key that signs accounts, too"),
    ] = True,
    tags: Tags = [],  # noqa: B006
) -> None:
    """Make an operator, with a system account."""
    operator = Store().add_operator(require("Operator Name", name, "NAME"))
    _set(operator, service, account_server, tags, [])
    nats = operator.claims.nats
    if signing_key:
        nats.signing_keys = [operator.new_key("O")]
    system = operator.add_account(SYSTEM_ACCOUNT)
    nats.system_account = system.public
    operator.save()
    system.save()
    _show(operator)


def _set(
    operator: Operator,
    service: list[str],
    account_server: str | None,
    tags: list[str],
    no_tags: list[str],
) -> None:
    nats = operator.claims.nats
    if service:
        nats.operator_service_urls = [_checked_url(url) for url in words_of(service)]
    if account_server is not None:
        if account_server and "://" not in account_server:
            raise UsageError(
                f'--account-server: "{account_server}" is no URL; write it like '
                "https://host/jwt/v1 or nats://host:4222"
            )
        nats.account_server_url = account_server
    nats.tags = changed_tags(nats.tags, tags, no_tags)


def _checked_url(url: str) -> str:
    scheme, found, rest = url.partition("://")
    if not found or scheme.lower() not in SERVICE_SCHEMES or not rest or set(rest) & set("/@ "):
        raise UsageError(
            f'--service: "{url}" is no URL of a server; write it like nats://host:4222, '
            f"with one of {', '.join(SERVICE_SCHEMES)}, without a user or a path"
        )
    return url


def _show(operator: Operator) -> None:
    if wants_json():
        print_json(operator.claims)
        return
    system = operator.system_account()
    more = [("Accounts", ", ".join(operator.accounts()))]
    if system is not None:
        more.append(("System Account Name", system.name))
    show_operator(operator.claims, more)


@app.command("ls")
def ls(
    names: Annotated[bool, typer.Option("--names", help="Only their names")] = False,
) -> None:
    """List the operators."""
    store = Store()
    found = store.operators()
    if names:
        if wants_json():
            print_json(found)
        elif found:
            say("\n".join(found))
        return
    operators = [store.operator(name) for name in found]
    if wants_json():
        print_json([operator.claims for operator in operators])
    elif not found:
        say("No Operators found; `slipstream auth operator add` makes one")
    else:
        chosen = selected()
        rows = [
            (
                one.name + ("*" if one.name == chosen else ""),
                one.public,
                str(len(one.accounts())),
                one.claims.nats.account_server_url,
                str(len(one.claims.nats.signing_keys)),
            )
            for one in operators
        ]
        table("Operators", ("Name", "Public Key", "Accounts", "Account Server", "Keys"), rows)


@app.command("info")
def info(name: OperatorName = "") -> None:
    """Show an operator."""
    _show(choose_operator(name))


@app.command("edit")
def edit(
    name: OperatorName = "",
    service: Services = [],  # noqa: B006
    account_server: AccountServer = None,
    tags: Tags = [],  # noqa: B006
    no_tags: NoTags = [],  # noqa: B006
) -> None:
    """Change an operator."""
    if not service and account_server is None and not tags and not no_tags:
        raise UsageError(
            "operator edit: say what to change: --service, --account-server, --tags or --no-tags"
        )
    operator = choose_operator(name)
    _set(operator, service, account_server, tags, no_tags)
    operator.save()
    _show(operator)


@app.command("rm")
def rm(name: OperatorName = "", force: Force = False) -> None:
    """Remove an operator with its accounts, users and all their private keys."""
    operator = choose_operator(name)
    confirm(
        f"Really remove operator {operator.name}, its {len(operator.accounts())} accounts and "
        "all private keys?",
        force,
    )
    operator.remove()
    if selected() == operator.name:
        select_operator("")
    done(f"Removed operator {operator.name}", success=True)


@app.command("import")
def import_(
    token: Annotated[Path, typer.Argument(metavar="JWT", help="The file with its JWT")],
    keys: Annotated[
        list[Path], typer.Argument(metavar="[KEY]...", help="Files with its private keys")
    ] = [],  # noqa: B006
) -> None:
    """Take over an operator without its accounts."""
    where = f"the JWT in {token}"
    claims = read_claims(token_in(read(token, "a JWT")), OperatorClaims, where)
    store = Store()
    operator = store.import_operator(claims)
    pairs = [read_seed(path) for path in keys]
    known = {operator.public, *claims.nats.signing_keys}
    for pair, path in zip(pairs, keys, strict=True):
        if pair.public not in known:
            raise ConfigError(
                f"operator import: {path} has the key of {pair.public}, which is none of "
                f"operator {operator.name}"
            )
    operator.keep(token_in(read(token, "a JWT")), pairs)
    if operator.public not in {pair.public for pair in pairs}:
        note("Without the operator's own private key it cannot be changed here")
    _show(operator)


@app.command("select")
def select(name: OperatorName = "") -> None:
    """Mean this operator from now on where the line names none."""
    operator = choose_operator(name, use_selected=False)
    select_operator(operator.name)
    done(f"Selected operator {operator.name}", name=operator.name)


@app.command("generate")
@app.command("gen", hidden=True)
def generate(
    name: OperatorName = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file")
    ] = None,
    resolver: Annotated[
        str,
        typer.Option(
            "--resolver",
            parser=one_of("memory", "full"),
            metavar="KIND",
            help="memory has all accounts in the file, full takes what `account push` sends",
        ),
    ] = "memory",
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="Where a full resolver keeps accounts")
    ] = "./jwt",
    allow_delete: Annotated[
        bool, typer.Option("--allow-delete", help="A full resolver may be told to forget some")
    ] = False,
    force: Force = False,
) -> None:
    """Write what the configuration file of a nats-server says to trust this operator."""
    operator = choose_operator(name)
    if resolver == "full":
        text = full_resolver(operator, directory, allow_delete)
        if operator.system_account() is None:
            note(f"Nobody can push accounts: operator {operator.name} has no system account here")
    else:
        text = memory_resolver(operator)
    if output is None:
        say(text.rstrip("\n"))
        return
    write_asked(output, text, force)
    done(f"Wrote the configuration of operator {operator.name} to {output}", file=str(output))


@app.command("backup")
def backup(
    name: Annotated[str, typer.Argument(metavar="OPERATOR", help="The operator")],
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write")],
    key: EncryptionKey = None,
    force: Force = False,
) -> None:
    """Write an operator with its accounts, users and all their private keys to a file."""
    operator = choose_operator(name)
    text = msgspec.json.format(msgspec.json.encode(backups.of_operator(operator)), indent=2)
    if key is not None:
        pair = read_seed(key)
        text = base64.b64encode(seal(text, pair, pair.public))
    write_asked(output, text + b"\n", force)
    done(f"Wrote a backup of operator {operator.name} to {output}", file=str(output))
    if key is None:
        note(f"{output} has every private key, and is not encrypted: keep it as you keep those")


@app.command("restore")
def restore(
    name: Annotated[str, typer.Argument(metavar="OPERATOR", help="The operator")],
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` has written")],
    key: EncryptionKey = None,
) -> None:
    """Bring an operator back from a backup, also from one of the nats tool."""
    where = f"the backup {source}"
    text = read(source, "a backup").encode()
    if key is not None:
        pair = read_seed(key)
        text = unseal(from_base64(text, where), pair, pair.public, where)
    _show(backups.restored(Store(), name, text, where))
