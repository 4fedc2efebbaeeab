"""An operator in a file: its JWT and private key, and those of its accounts and their users.

The file is the one that `nats auth operator backup` of nats 0.5.1 writes and reads.
"""

import msgspec

from slipstream.cli.auth.claims import (
    AccountClaims,
    OperatorClaims,
    UserClaims,
    read_claims,
)
from slipstream.cli.auth.entities import Account, Operator, Store, User, checked_name
from slipstream.cli.auth.keys import KeyStore
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair


class Key(msgspec.Struct):
    """A seed; "" if it was not in the key store."""

    key: str = ""


class SavedUser(msgspec.Struct, kw_only=True):
    """A user."""

    name: str
    key: Key | None = None
    token: str


class SavedAccount(msgspec.Struct, kw_only=True, rename={"signing_keys": "signingKeys"}):
    """An account, and its users."""

    name: str
    key: Key | None = None
    token: str
    signing_keys: list[Key] | None = None
    users: list[SavedUser] | None = None


class SavedOperator(msgspec.Struct, kw_only=True, rename={"signing_keys": "signingKeys"}):
    """An operator, and its accounts."""

    name: str
    key: Key | None = None
    token: str
    signing_keys: list[Key] | None = None
    accounts: list[SavedAccount] | None = None


def of_operator(operator: Operator) -> SavedOperator:
    """Everything that the store has of an operator."""
    accounts = [operator.account(name) for name in operator.accounts()]
    return SavedOperator(
        name=operator.name,
        key=_key(operator.keys, operator.public),
        token=operator.token,
        signing_keys=_present(operator.keys, operator.claims.nats.signing_keys),
        accounts=[_of_account(account) for account in accounts],
    )


def _of_account(account: Account) -> SavedAccount:
    users = [account.user(name) for name in account.users()]
    return SavedAccount(
        name=account.name,
        key=_key(account.keys, account.public),
        token=account.token,
        signing_keys=_present(account.keys, list(account.claims.nats.scopes())),
        users=[
            SavedUser(name=user.name, key=_key(user.keys, user.public), token=user.token)
            for user in users
        ],
    )


def _key(keys: KeyStore, public: str) -> Key:
    found = keys.get(public)
    return Key(found.seed if found is not None else "")


def _present(keys: KeyStore, public: list[str]) -> list[Key]:
    return [key for key in (_key(keys, one) for one in public) if key.key]


def restored(store: Store, name: str, text: bytes, where: str) -> Operator:
    """The operator of a backup, in the store again. All of it is checked before anything is kept.

    Raises `ConfigError` if it is damaged, is that of another, or the operator is there.
    """
    try:
        saved = msgspec.json.decode(text, type=SavedOperator)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(
            f"{where} cannot be read: {error}. It is JSON that `auth operator backup` writes; "
            "one that was encrypted needs --key with the same key"
        ) from error
    if saved.name != name:
        raise ConfigError(f"{where} is that of operator {saved.name}, not of {name}")
    if (store.stores / checked_name(name, "an operator")).exists():
        raise ConfigError(
            f"there is an operator {name} already; `slipstream auth operator rm {name}` removes it"
        )
    _check(saved, where)
    seeds: list[Key | None] = [saved.key, *(saved.signing_keys or [])]
    for account in saved.accounts or []:
        seeds += [account.key, *(account.signing_keys or [])]
        seeds += [user.key for user in account.users or []]
    found = [one.key for one in seeds if one is not None and one.key]
    pairs = [KeyPair(seed) for seed in found]
    claims = read_claims(saved.token, OperatorClaims, where)
    operator = Operator(store, name, claims)
    operator.keep(saved.token, pairs)
    for account in saved.accounts or []:
        _restore_account(operator, account, where)
    return operator


def _check(saved: SavedOperator, where: str) -> None:
    read_claims(saved.token, OperatorClaims, f"the JWT of operator {saved.name} in {where}")
    for account in saved.accounts or []:
        checked_name(account.name, "an account")
        read_claims(account.token, AccountClaims, f"the JWT of account {account.name} in {where}")
        for user in account.users or []:
            checked_name(user.name, "a user")
            read_claims(user.token, UserClaims, f"the JWT of user {user.name} in {where}")


def _restore_account(operator: Operator, saved: SavedAccount, where: str) -> None:
    claims = read_claims(saved.token, AccountClaims, where)
    account = Account(operator, saved.name, claims)
    account.keep(saved.token)
    for one in saved.users or []:
        user = User(account, one.name, read_claims(one.token, UserClaims, where))
        user.keep(one.token)
        user.keep_credentials()
