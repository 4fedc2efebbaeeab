"""Which operator, account or user is meant, where the line does not say: a terminal is asked.

The operator that `auth operator select` has chosen is kept in the file of the `nats` tool.
"""

from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.auth.entities import Account, Operator, Store, User
from slipstream.cli.auth.private_files import make_directory, read, write
from slipstream.cli.context.files import config_home
from slipstream.cli.global_options import UsageError
from slipstream.cli.prompts import may_ask, pick
from slipstream.errors import ConfigError

_SELECTED = "select_operator"

OperatorOption = Annotated[
    str, typer.Option("--operator", metavar="OPERATOR", help="The operator; else the selected one")
]
OperatorName = Annotated[
    str, typer.Argument(metavar="OPERATOR", help="The operator; else the selected one")
]
AccountName = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account")]
UserName = Annotated[str, typer.Argument(metavar="USER", help="The user")]


def _settings() -> dict[str, Any]:
    path = config_home() / "cli" / "config.json"
    if not path.exists():
        return {}
    try:
        found = msgspec.json.decode(read(path, "the selected operator"))
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path}, which names the selected operator, is damaged: {error}"
        ) from error
    return found if isinstance(found, dict) else {}


def selected() -> str:
    """The operator that was selected; "" for none."""
    return str(_settings().get(_SELECTED) or "")


def select(name: str) -> None:
    """Mean this operator from now on, where the line names none; "" for none."""
    path = config_home() / "cli" / "config.json"
    make_directory(path.parent)
    write(path, msgspec.json.encode(_settings() | {_SELECTED: name}).decode())


def choose_operator(name: str, use_selected: bool = True) -> Operator:
    """The operator `name`, the selected one, the only one, or the one that is picked."""
    store = Store()
    names = store.operators()
    chosen = selected() if use_selected and not name else ""
    name = name or (chosen if chosen in names else "")
    if name:
        return store.operator(name)
    if not names:
        raise ConfigError("there are no operators; `slipstream auth operator add` makes one")
    if len(names) == 1:
        return store.operator(names[0])
    if not may_ask():
        raise UsageError(
            f"OPERATOR is missing, and there are {', '.join(names)}: "
            "name one, or `slipstream auth operator select` one"
        )
    return store.operator(pick("Select an Operator", names))


def choose_account(operator: str, name: str) -> Account:
    """The account `name` of an operator, its only one, or the one that is picked."""
    found = choose_operator(operator)
    if name:
        return found.account(name)
    names = found.accounts()
    if not names:
        raise ConfigError(
            f"operator {found.name} has no accounts; `slipstream auth account add` makes one"
        )
    if len(names) == 1:
        return found.account(names[0])
    if not may_ask():
        raise UsageError(f"ACCOUNT is missing: operator {found.name} has {', '.join(names)}")
    return found.account(pick("Select an Account", names))


def choose_user(operator: str, account: str, name: str) -> User:
    """The user `name` of an account, or the one that is picked.

    Where the line names no account, the one that has a user of this name is meant.
    """
    if name and not account:
        found = choose_operator(operator)
        owners = [owner for owner in map(found.account, found.accounts()) if name in owner.users()]
        if len(owners) == 1:
            return owners[0].user(name)
        if len(owners) > 1 and not may_ask():
            raise UsageError(
                f"ACCOUNT is missing: there is a user {name} in "
                f"{', '.join(owner.name for owner in owners)}"
            )
        if not owners:
            raise ConfigError(
                f"no account of operator {found.name} has a user {name}; "
                "`slipstream auth user ls ACCOUNT` lists them"
            )
    owner = choose_account(operator, account)
    if name:
        return owner.user(name)
    names = owner.users()
    if not names:
        raise ConfigError(
            f"account {owner.name} has no users; `slipstream auth user add NAME {owner.name}` "
            "makes one"
        )
    if not may_ask():
        raise UsageError(f"USER is missing: account {owner.name} has {', '.join(names)}")
    return owner.user(pick(f"Select a User of {owner.name}", names))
