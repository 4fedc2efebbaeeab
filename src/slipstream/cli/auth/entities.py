"""Operators, accounts and users as they are in the store that nsc and the `nats` tool share.

``$XDG_DATA_HOME/nats/nsc/stores/<operator>`` has the operator's JWT and a file ``.nsc`` that names
it, ``accounts/<account>`` in it the JWT of an account, and ``users`` there those of its users. The
private keys are beside ``stores``, in ``keys``. This is the layout of nsc 2.15.0 and of nats 0.5.1
(jwt-auth-builder.go 0.0.10).
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Generic

import msgspec

from slipstream.cli.auth.claims import (
    AccountClaims,
    Kind,
    OperatorClaims,
    UserClaims,
    UserScope,
    limits_of_account,
    read_claims,
    signed,
    unlimited_user,
)
from slipstream.cli.auth.keys import KeyStore
from slipstream.cli.auth.private_files import locked, make_directory, read, write
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair, new_seed

STORE_VERSION = "1"
_CREDENTIALS = """\
-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

Whoever has the seed below is this user. Keep it where nobody else can read it.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


def data_home() -> Path:
    """Where nsc and the `nats` tool keep stores and keys."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local/share")
    return Path(base) / "nats" / "nsc"


def checked_name(name: str, what: str) -> str:
    """A name that can be a directory's. Raises `ConfigError` for one that cannot."""
    if not name.strip() or name.startswith(".") or not name.isprintable() or set(name) & set("/\\"):
        raise ConfigError(
            f'"{name}" cannot name {what}: it is a directory of the store; '
            'use a name without "/" and "\\" that does not begin with "."'
        )
    return name.strip()


class _Entity(Generic[Kind]):
    """What has a name, a JWT in a file, and a private key."""

    def __init__(
        self, name: str, path: Path, keys: KeyStore, kind: type[Kind], claims: Kind | None
    ) -> None:
        self.name = name
        self.path = path
        self.keys = keys
        self._former = ""  # the JWT in the file, as far as this command knows
        if claims is None:
            self._former = self.token
            claims = read_claims(self._former, kind, f"the JWT in {path}")
        self.claims: Kind = claims
        self._made: list[KeyPair] = []

    def new_key(self, kind: str) -> str:
        """A new key of this kind; it is stored when the claims are. The public key."""
        self._made.append(KeyPair(new_seed(kind)))
        return self._made[-1].public

    @property
    def public(self) -> str:
        """Its public key."""
        return self.claims.sub

    @property
    def token(self) -> str:
        """Its JWT as it is stored."""
        return read(self.path, "the JWT").strip()

    def signed_by(self, key: KeyPair) -> None:
        """Sign its claims and store them."""
        self.keep(signed(self.claims, key), self._made)
        self._made = []

    def keep(self, token: str, keys: Sequence[KeyPair] = ()) -> None:
        """Store its JWT, and private keys before it.

        Raises `ConfigError` if another command has stored one since this one has read it, or found
        that there is none.
        """
        make_directory(self.path.parent)
        with locked(self.path.parent):
            if (self.token if self.path.exists() else "") != self._former:
                raise ConfigError(
                    f"another command has changed {self.path} meanwhile, and this one has not: "
                    "run it again"
                )
            for key in keys:
                self.keys.add(key.seed)
            write(self.path, token)
            self._former = token.strip()


class User(_Entity[UserClaims]):
    """A user of an account."""

    def __init__(self, account: "Account", name: str, claims: UserClaims | None = None) -> None:
        path = account.path.parent / "users" / f"{name}.jwt"
        super().__init__(name, path, account.keys, UserClaims, claims)
        self.account = account

    @property
    def scope(self) -> UserScope | None:
        """The scope of the key that has signed it, which says what it may; None without one."""
        return self.account.claims.nats.scopes().get(self.claims.iss)

    @property
    def is_valid(self) -> bool:
        """Whether the key that has signed it is still one of the account."""
        issuer = self.claims.iss
        return issuer == self.account.public or issuer in self.account.claims.nats.scopes()

    def save(self, issuer: str = "") -> None:
        """Sign it with the key `issuer` of the account, or the one that did before; store it."""
        account = self.account
        key = account.signing_key(issuer or self.claims.iss or account.public)
        self.claims.nats.issuer_account = "" if key.public == account.public else account.public
        self.signed_by(key)
        self.keep_credentials()

    def keep_credentials(self) -> None:
        """Store its credentials where nsc looks for them, if its private key is there."""
        own = self.keys.get(self.public)
        if own is not None:
            account = self.account
            text = _CREDENTIALS.format(jwt=self.token, seed=own.seed)
            self.keys.write_credentials(account.operator.name, account.name, self.name, text)

    def credentials(self, expires: int = 0) -> str:
        """What a credentials file says; its JWT expires at a Unix time, if one is given."""
        own = self.keys.get(self.public)
        if own is None:
            raise ConfigError(
                f"the private key of user {self.name} ({self.public}) is not in the key store: "
                "who made the user has it"
            )
        token = self.token
        if expires:
            claims = self.claims.replace(exp=expires)
            token = signed(claims, self.account.signing_key(claims.iss))
        return _CREDENTIALS.format(jwt=token, seed=own.seed)

    def remove(self) -> None:
        """Forget it, its private key and its credentials."""
        self.path.unlink()
        self.keys.remove(self.public)
        self.keys.remove_credentials(self.account.operator.name, self.account.name, self.name)


class Account(_Entity[AccountClaims]):
    """An account of an operator."""

    def __init__(
        self, operator: "Operator", name: str, claims: AccountClaims | None = None
    ) -> None:
        path = operator.path.parent / "accounts" / name / f"{name}.jwt"
        super().__init__(name, path, operator.keys, AccountClaims, claims)
        self.operator = operator

    @property
    def is_system(self) -> bool:
        """Whether it is the operator's system account."""
        return self.operator.claims.nats.system_account == self.public

    def users(self) -> list[str]:
        """The names of its users, sorted."""
        return sorted(path.stem for path in (self.path.parent / "users").glob("*.jwt"))

    def user(self, name: str) -> User:
        """The user of that name, or public key. Raises `ConfigError` without one."""
        names = self.users()
        if name in names:
            return User(self, name)
        for one in names:
            user = User(self, one)
            if user.public == name:
                return user
        raise ConfigError(
            f"account {self.name} has no user {name}; "
            f"`slipstream auth user ls {self.name}` lists them"
        )

    def add_user(self, name: str) -> User:
        """A new user who may everything, with a key; not signed yet."""
        if checked_name(name, "a user") in self.users():
            raise ConfigError(
                f"account {self.name} has a user {name} already; "
                "`slipstream auth user edit` changes one"
            )
        user = User(self, name.strip(), UserClaims(name=name.strip(), nats=unlimited_user()))
        user.claims.sub = user.new_key("U")
        return user

    def signing_key(self, public: str) -> KeyPair:
        """The key pair of the account, or of one of its signing keys, that signs users.

        Raises `ConfigError` if it is no key of the account, or its private key is not there.
        """
        if public != self.public and public not in self.claims.nats.scopes():
            raise ConfigError(
                f"{public} is no key of account {self.name}; "
                f"`slipstream auth account keys ls {self.name}` lists its signing keys"
            )
        if public == self.public and self.operator.claims.nats.strict_signing_key_usage:
            raise ConfigError(
                f"operator {self.operator.name} has users signed with signing keys only: "
                "give --key, with a role or a key of `slipstream auth account keys ls`"
            )
        return _private(self.keys, public, f"account {self.name}")

    def save(self, issuer: str = "") -> None:
        """Sign it with the key `issuer` of the operator, or the one that did before; store it."""
        self.signed_by(self.operator.signing_key(issuer, self.claims.iss))

    def remove(self) -> None:
        """Forget it and its users, with all their private keys and credentials."""
        public = [self.public, *self.claims.nats.scopes()]
        public += [self.user(name).public for name in self.users()]
        shutil.rmtree(self.path.parent)
        for key in public:
            self.keys.remove(key)
        self.keys.remove_credentials(self.operator.name, self.name)


class Operator(_Entity[OperatorClaims]):
    """An operator, who signs accounts."""

    def __init__(self, store: "Store", name: str, claims: OperatorClaims | None = None) -> None:
        path = store.stores / name / f"{name}.jwt"
        super().__init__(name, path, store.keys, OperatorClaims, claims)

    def accounts(self) -> list[str]:
        """The names of its accounts, sorted."""
        found = (self.path.parent / "accounts").glob("*/*.jwt")
        return sorted(path.stem for path in found if path.stem == path.parent.name)

    def account(self, name: str) -> Account:
        """The account of that name, or public key. Raises `ConfigError` without one."""
        names = self.accounts()
        if name in names:
            return Account(self, name)
        for one in names:
            account = Account(self, one)
            if account.public == name:
                return account
        raise ConfigError(
            f"operator {self.name} has no account {name}; `slipstream auth account ls` lists them"
        )

    def system_account(self) -> Account | None:
        """The account in which its servers speak; None without one in the store."""
        public = self.claims.nats.system_account
        found = (Account(self, name) for name in self.accounts()) if public else ()
        return next((account for account in found if account.public == public), None)

    def add_account(self, name: str) -> Account:
        """A new account without JetStream, with a key; not signed yet."""
        if checked_name(name, "an account") in self.accounts():
            raise ConfigError(
                f"operator {self.name} has an account {name} already; "
                "`slipstream auth account edit` changes one"
            )
        account = Account(self, name.strip(), AccountClaims(name=name.strip()))
        account.claims.nats.limits = limits_of_account()
        account.claims.sub = account.new_key("A")
        return account

    def signing_key(self, public: str = "", former: str = "") -> KeyPair:
        """The key pair that signs accounts: `public`; without it `former`, which did before, if it
        still may and is there, or else the first that may and is there.

        Raises `ConfigError` if `public` is no key that may, or none is there.
        """
        nats = self.claims.nats
        may = [*nats.signing_keys, *([] if nats.strict_signing_key_usage else [self.public])]
        if public:
            if public not in may:
                raise ConfigError(
                    f"{public} is no key with which operator {self.name} signs accounts; "
                    f"`slipstream auth operator keys ls {self.name}` lists these"
                )
            return _private(self.keys, public, f"operator {self.name}")
        for one in sorted(may, key=lambda one: one != former):
            key = self.keys.get(one)
            if key is not None:
                return key
        raise ConfigError(
            f"no private key of operator {self.name} that may sign accounts is in the key store; "
            f"`slipstream auth operator keys add {self.name}` makes one"
        )

    def save(self) -> None:
        """Sign it with its own key, and store it."""
        own = next((key for key in self._made if key.public == self.public), None)
        self.signed_by(own or _private(self.keys, self.public, f"operator {self.name}"))

    def keep(self, token: str, keys: Sequence[KeyPair] = ()) -> None:
        """Store its JWT, private keys before it, and what tells nsc that it is an operator."""
        super().keep(token, keys)
        marker = self.path.with_name(".nsc")
        if not marker.exists():
            said = {"managed": False, "name": self.name, "kind": "operator"}
            write(marker, msgspec.json.encode(said | {"version": STORE_VERSION}).decode())
            make_directory(self.path.with_name("accounts"))

    def remove(self) -> None:
        """Forget it, its accounts and their users, with all their private keys."""
        for name in self.accounts():
            self.account(name).remove()
        shutil.rmtree(self.path.parent)
        for key in (self.public, *self.claims.nats.signing_keys):
            self.keys.remove(key)
        self.keys.remove_credentials(self.name)


def _private(keys: KeyStore, public: str, whose: str) -> KeyPair:
    key = keys.get(public)
    if key is None:
        raise ConfigError(
            f"the private key {public} of {whose} is not in the key store, "
            "and nothing can be signed without it"
        )
    return key


class Store:
    """All operators."""

    def __init__(self) -> None:
        self.stores = data_home() / "stores"
        self.keys = KeyStore(data_home() / "keys")

    def operators(self) -> list[str]:
        """Their names, sorted."""
        found = self.stores.glob("*/*.jwt")
        return sorted(path.stem for path in found if path.stem == path.parent.name)

    def operator(self, name: str) -> Operator:
        """The operator of that name, or public key. Raises `ConfigError` without one."""
        names = self.operators()
        if name in names:
            return Operator(self, name)
        for one in names:
            operator = Operator(self, one)
            if operator.public == name:
                return operator
        raise ConfigError(f"there is no operator {name}; `slipstream auth operator ls` lists them")

    def add_operator(self, name: str) -> Operator:
        """A new operator, with a key; not signed yet."""
        operator = self.import_operator(OperatorClaims(name=name.strip()))
        operator.claims.sub = operator.new_key("O")
        return operator

    def import_operator(self, claims: OperatorClaims) -> Operator:
        """An operator that was made elsewhere; not stored yet."""
        name = checked_name(claims.name, "an operator")
        if (self.stores / name).exists():
            raise ConfigError(
                f"there is an operator {name} already; `slipstream auth operator edit` changes one"
            )
        return Operator(self, name, claims)
