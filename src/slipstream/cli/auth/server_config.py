"""What the configuration file of a nats-server says so that it trusts an operator."""

import json

from slipstream.cli.auth.entities import Account, Operator

# How often the servers of a cluster compare their accounts, and how many they keep.
_INTERVAL, _LIMIT = "2m", 1000


def _head(operator: Operator) -> list[str]:
    lines = [f"# Operator {json.dumps(operator.name)}", f"operator: {operator.token}", ""]
    system = operator.claims.nats.system_account
    if system:
        lines += [f"system_account: {system}", ""]
    return lines


def _preload(accounts: list[Account]) -> list[str]:
    lines = ["resolver_preload: {"]
    for account in sorted(accounts, key=lambda one: one.public):
        lines += [
            f"  # Account {json.dumps(account.name)}",
            f"  {account.public}: {account.token}",
        ]
    return [*lines, "}", ""]


def memory_resolver(operator: Operator) -> str:
    """With all accounts in the file: a server knows a change when it reads its file again."""
    accounts = [operator.account(name) for name in operator.accounts()]
    return "\n".join([*_head(operator), "resolver: MEMORY", "", *_preload(accounts)])


def full_resolver(operator: Operator, directory: str, allow_delete: bool) -> str:
    """With the system account alone: the others come by `account push`, and stay in `directory`."""
    system = operator.system_account()
    resolver = [
        "resolver: {",
        "  type: full",
        f"  dir: {json.dumps(directory)}",
        f"  allow_delete: {'true' if allow_delete else 'false'}",
        f'  interval: "{_INTERVAL}"',
        f"  limit: {_LIMIT}",
        "}",
        "",
    ]
    preload = _preload([system]) if system is not None else []
    return "\n".join([*_head(operator), *resolver, *preload])
