"""`slipstream auth account imports`: what an account has of other accounts."""

from typing import Annotated

import typer

from slipstream.cli.auth.choose import AccountName, OperatorOption, choose_account
from slipstream.cli.auth.claims import Import
from slipstream.cli.auth.entities import Account
from slipstream.cli.auth.exports import check_room
from slipstream.cli.auth.options import check_subject
from slipstream.cli.auth.show import some, yes
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note, print_json, properties, say, table
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import read_public
from slipstream.wire.subjects import is_subset, overlaps

app = new_app("What an account has of other accounts.")

Local = Annotated[
    str | None,
    typer.Option(
        "--local", metavar="SUBJECT", help="What it is called here; $1 stands for the first *"
    ),
]
Share = Annotated[bool | None, typer.Option("--share/--no-share", help="Tell a service who asks")]
Traceable = Annotated[
    bool | None,
    typer.Option("--traceable/--no-traceable", help="Let traces go on into a stream's account"),
]
LocalSubject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The subject as it is called here")
]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject that is exported")],
    account: AccountName = "",
    source: Annotated[
        str,
        typer.Option("--source", metavar="ACCOUNT", help="Who exports it: a name or a public key"),
    ] = "",
    service: Annotated[
        bool, typer.Option("--service", help="Send requests, instead of getting messages")
    ] = False,
    local: Local = None,
    share: Share = None,
    traceable: Traceable = None,
    operator: OperatorOption = "",
) -> None:
    """Have a subject of another account."""
    owner = choose_account(operator, account)
    check_subject(subject, "SUBJECT")
    if not source:
        raise UsageError("imports add: --source is missing: which account exports it")
    exporter = None if _is_elsewhere(owner, source) else owner.operator.account(source)
    public = exporter.public if exporter is not None else source
    if public == owner.public:
        raise ConfigError(f"imports add: account {owner.name} cannot import of itself")
    kind = "service" if service else "stream"
    made = Import(name=name, subject=subject, account=public, type=kind, local_subject=subject)
    _set(made, local, share, traceable)
    _check_free(owner, made)
    owner.claims.nats.imports = [*owner.claims.nats.imports, made]
    check_room(len(owner.claims.nats.imports), owner.claims.nats.limits.imports, owner, "imports")
    owner.save()
    _show(made)
    if exporter is not None and not _exports(exporter, made):
        note(
            f"Account {exporter.name} does not export {subject} as a {kind}: "
            f"`slipstream auth account exports ls {exporter.name}` lists what it does"
        )


def _is_elsewhere(account: Account, source: str) -> bool:
    """Whether `source` is the public key of an account which the store does not have."""
    owner = account.operator
    if source in owner.accounts():
        return False
    try:
        kind, _ = read_public(source)
    except ValueError:
        return False
    return kind == "A" and all(owner.account(one).public != source for one in owner.accounts())


def _exports(account: Account, wanted: Import) -> bool:
    return any(
        one.type == wanted.type and is_subset(wanted.subject.encode(), one.subject.encode())
        for one in account.claims.nats.exports
    )


def _set(made: Import, local: str | None, share: bool | None, traceable: bool | None) -> None:
    if local is not None:
        _check_local(made.subject, local)
        made.local_subject, made.to = local, ""
    if share is not None:
        if share and made.type != "service":
            raise UsageError("--share is for services: a stream asks nobody")
        made.share = share
    if traceable is not None:
        if traceable and made.type != "stream":
            raise UsageError("--traceable is for streams; a service's exporter decides that")
        made.allow_trace = traceable


def _check_local(subject: str, local: str) -> None:
    check_subject(local, "--local")
    words = local.split(".")
    numbers = [int(word[1:]) for word in words if word[:1] == "$" and word[1:].isdigit()]
    wildcards = subject.split(".").count("*")
    if (words[-1] == ">") != (subject.split(".")[-1] == ">"):
        raise UsageError(f"--local: {local} ends with > only if {subject} does")
    if len(numbers) + words.count("*") != wildcards or any(n > wildcards for n in numbers):
        raise UsageError(
            f"--local: {local} has to have each * of {subject}, as * or by its number: $1, $2 ..."
        )


def _pattern(local: str) -> bytes:
    words = ["*" if one[:1] == "$" and one[1:].isdigit() else one for one in local.split(".")]
    return ".".join(words).encode()


def _check_free(account: Account, made: Import) -> None:
    for other in account.claims.nats.imports:
        if other is made or other.type != made.type:
            continue
        same = other.account == made.account and other.subject == made.subject
        if made.type == "service":
            same = overlaps(_pattern(other.local), _pattern(made.local))
        if same:
            raise ConfigError(
                f"account {account.name} imports {other.local} ({other.type}) already, "
                f"which has subjects of {made.local} in it; --local gives another name"
            )


def _found(account: Account, subject: str) -> Import:
    for one in account.claims.nats.imports:
        if one.local == subject:
            return one
    raise ConfigError(
        f"account {account.name} imports nothing as {subject}; "
        f"`slipstream auth account imports ls {account.name}` lists what it does"
    )


def _source(account: Account, public: str) -> str:
    owner = account.operator
    names = (name for name in owner.accounts() if owner.account(name).public == public)
    return next(names, public)


def _show(made: Import) -> None:
    if wants_json():
        print_json(made)
        return
    pairs = some(
        [
            ("Name", made.name),
            ("Local Subject", made.local),
            ("Subject", made.subject),
            ("Account", made.account),
            ("Kind", made.type),
            ("Tells Who Asks", yes(made.share) if made.type == "service" else ""),
            ("Traceable", yes(made.allow_trace) if made.type == "stream" else ""),
            ("Activation", "given" if made.token else ""),
        ]
    )
    properties(f"Import {made.name}", [("", pairs)])


@app.command("ls")
def ls(account: AccountName = "", operator: OperatorOption = "") -> None:
    """List what an account imports."""
    owner = choose_account(operator, account)
    found = sorted(owner.claims.nats.imports, key=lambda one: one.local)
    if wants_json():
        print_json(found)
    elif not found:
        say("No Imports found; `slipstream auth account imports add` makes one")
    else:
        rows = [
            (one.name, one.type, _source(owner, one.account), one.local, one.subject)
            for one in found
        ]
        columns = ("Name", "Kind", "Source", "Local Subject", "Subject")
        table(f"Imports of {owner.name}", columns, rows)


@app.command("info")
def info(subject: LocalSubject, account: AccountName = "", operator: OperatorOption = "") -> None:
    """Show an import."""
    _show(_found(choose_account(operator, account), subject))


@app.command("edit")
def edit(
    subject: LocalSubject,
    account: AccountName = "",
    local: Local = None,
    share: Share = None,
    traceable: Traceable = None,
    operator: OperatorOption = "",
) -> None:
    """Change an import."""
    if local is None and share is None and traceable is None:
        raise UsageError("imports edit: say what to change: --local, --share or --traceable")
    owner = choose_account(operator, account)
    found = _found(owner, subject)
    _set(found, local, share, traceable)
    _check_free(owner, found)
    owner.save()
    _show(found)


@app.command("rm")
def rm(
    subject: LocalSubject,
    account: AccountName = "",
    operator: OperatorOption = "",
    force: Force = False,
) -> None:
    """Do without an import."""
    owner = choose_account(operator, account)
    found = _found(owner, subject)
    confirm(f"Really remove the import {subject} from account {owner.name}?", force)
    owner.claims.nats.imports = [one for one in owner.claims.nats.imports if one is not found]
    owner.save()
    done(f"Account {owner.name} does not import {subject} any more", success=True)
