"""Who a client is: users and tokens from the configuration
(docs/protocol/accounts.md#who-a-client-is).

Nkeys, JWTs and the callout have their place beside `_Configured` once they come: each is another
`Authenticator`.
"""

from collections.abc import Callable

from slipstream.engine.engine import DEFAULT_ACCOUNT, Authenticator, Everyone, User
from slipstream.engine.session.permissions import Permissions, SubscribePattern
from slipstream.engine.session.session import ClientSession
from slipstream.server.engine_options import is_auth_required
from slipstream.server.options import (
    LeafUserOptions,
    PermissionOptions,
    ServerOptions,
    UserOptions,
)
from slipstream.server.passwords import Passwords, Turn

CONNECTION_TYPE = "STANDARD"


def make_authenticator(options: ServerOptions, turn: Turn) -> Authenticator:
    """The authenticator that the options ask for. What it finds out later, on another thread, it
    tells within a `turn`."""
    if not options.has_users:
        return Everyone()
    return _Configured(options, turn)


class _Configured:
    """Users, a single user, or a token."""

    def __init__(self, options: ServerOptions, turn: Turn, kind: str = CONNECTION_TYPE) -> None:
        self._kind = kind
        tls = options.tls if kind == CONNECTION_TYPE else options.leafnodes.tls
        self._maps_certificates = tls is not None and tls.verify_and_map
        self._users: dict[str, tuple[UserOptions, User]] = {}
        auth = options.authorization
        self._token = auth.token
        users = list(auth.users)
        if auth.user:
            users.append(UserOptions(user=auth.user, password=auth.password))
        for user in users:
            self._add(user, DEFAULT_ACCOUNT, auth.default_permissions)
        for name, account in options.accounts.items():
            for user in account.users:
                self._add(user, name, account.default_permissions)
        self._nobody = self._users[options.no_auth_user][1] if options.no_auth_user else None
        if self._nobody is None and not is_auth_required(options):
            self._nobody = User("")
        kept = [self._token, *(entry[0].password for entry in self._users.values())]
        self._passwords = Passwords(kept, turn)

    def _add(self, user: UserOptions, account: str, default: PermissionOptions | None) -> None:
        permissions = user.permissions or default
        known = User(user.user, account, _permissions(permissions) if permissions else None)
        self._users[user.user] = (user, known)

    def anonymous(self) -> User | None:
        """The configured user for clients without credentials."""
        return self._nobody

    def authenticate(self, session: ClientSession, done: Callable[[User | None], None]) -> None:
        """Look at name and password, or the token."""
        connect = session.connect
        if self._maps_certificates:
            done(self._named_by(session.facts.get("tls_names", [])))
        elif not connect.has_credentials and self._nobody is not None:
            done(self._nobody)
        elif self._token:
            self._check(session, self._token, connect.auth_token, User("token"), done)
        elif not connect.user:
            done(None)
        else:
            entry = self._users.get(connect.user)
            if entry is None or not self._is_allowed(entry[0]):
                self._passwords.refuse(session, connect.password, lambda _: done(None))
            else:
                self._check(session, entry[0].password, connect.password, entry[1], done)

    def _named_by(self, names: list[str]) -> User | None:
        """The user that a client's certificate names, by its best name that is one."""
        for name in names:
            entry = self._users.get(name)
            if entry is not None and self._is_allowed(entry[0]):
                return entry[1]
        return None

    def _is_allowed(self, user: UserOptions) -> bool:
        """Whether the user may come by this kind of connection."""
        types = [kind.upper() for kind in user.allowed_connection_types]
        return not types or self._kind in types

    def _check(
        self,
        session: ClientSession,
        kept: str,
        given: str,
        user: User,
        done: Callable[[User | None], None],
    ) -> None:
        self._passwords.check(session, kept, given, lambda same: done(user if same else None))


class _LeafUsers:
    """The users of the leaf node port alone."""

    def __init__(self, options: ServerOptions, turn: Turn) -> None:
        auth = options.leafnodes.authorization
        users = list(auth.users)
        if auth.user or auth.password:
            users.append(LeafUserOptions(user=auth.user, password=auth.password))
        self._users = {
            user.user: (user.password, User(user.user, user.account or auth.account, _rights(user)))
            for user in users
        }
        for _, known in self._users.values():
            known.account = known.account or DEFAULT_ACCOUNT
        self._passwords = Passwords([password for password, _ in self._users.values()], turn)

    def anonymous(self) -> User | None:
        """Nobody connects without credentials."""
        return None

    def authenticate(self, session: ClientSession, done: Callable[[User | None], None]) -> None:
        """Look at name and password."""
        connect = session.connect
        entry = self._users.get(connect.user)
        if entry is None:
            self._passwords.refuse(session, connect.password, lambda _: done(None))
            return
        password, user = entry
        check = self._passwords.check
        check(session, password, connect.password, lambda same: done(user if same else None))


def make_leaf_authenticator(options: ServerOptions, turn: Turn) -> Authenticator:
    """Who may connect as a leaf node: the port's own users, or else those of the accounts."""
    if options.leafnodes.authorization.is_configured:
        return _LeafUsers(options, turn)
    if not options.has_users:
        return Everyone()
    return _Configured(options, turn, "LEAFNODE")


def _rights(user: UserOptions) -> Permissions | None:
    return _permissions(user.permissions) if user.permissions is not None else None


def _permissions(options: PermissionOptions) -> Permissions:
    responses = options.allow_responses
    return Permissions(
        tuple(subject.encode() for subject in options.publish_allow),
        tuple(subject.encode() for subject in options.publish_deny),
        tuple(_pattern(text) for text in options.subscribe_allow),
        tuple(_pattern(text) for text in options.subscribe_deny),
        (responses.max_msgs, responses.expires) if responses else None,
    )


def _pattern(text: str) -> SubscribePattern:
    subject, _, queue = text.partition(" ")
    return SubscribePattern(subject.encode(), queue.strip().encode())
