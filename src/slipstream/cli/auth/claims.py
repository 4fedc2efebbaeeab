"""What the JWTs of operators, accounts and users say, and how they are signed.

The fields are those of version 2 of NATS's JWTs (github.com/nats-io/jwt/v2 2.8.2). Fields that are
not known here are kept, so that a JWT which a newer tool has made loses nothing when it is signed
again.
"""

import base64
import hashlib
import re
import time
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec

from slipstream.errors import ConfigError
from slipstream.model.documents import Document
from slipstream.model.errors import InvalidAnswerError
from slipstream.wire.nkeys import KeyPair, read_public, verify

VERSION = 2
UNLIMITED = -1
SCOPE_KIND = "user_scope"
_HEADER: dict[str, object] = {"typ": "JWT", "alg": "ed25519-nkey"}
_ALGORITHMS = {"ed25519", "ed25519-nkey"}
_BLOCK = re.compile(r"-{3,}BEGIN NATS \w+ JWT-{3,}\s*([\w.=-]+)\s*-{3,}END NATS \w+ JWT-{3,}")


class Permission(Document):
    """Subjects that are allowed and denied; none of either: all are allowed."""

    allow: list[str] = []
    deny: list[str] = []


class ResponsePermission(Document):
    """How often, and for how many nanoseconds, a request may be answered on its reply subject."""

    _always = frozenset({"max", "ttl"})

    max: int = 0
    ttl: int = 0


class Permissions(Document):
    """What may be published and subscribed."""

    pub: Permission = msgspec.field(default_factory=Permission)
    sub: Permission = msgspec.field(default_factory=Permission)
    resp: ResponsePermission | None = None


class TimeRange(Document):
    """The hours of the day in which a user may connect, as "15:04:05"."""

    start: str = ""
    end: str = ""


class UserLimits(Permissions):
    """What a user may: in the user's JWT, or as the template of a scoped signing key."""

    src: list[str] = []
    times: list[TimeRange] = []
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] = []


class UserScope(Document):
    """A signing key of an account, and what the users may whom it signs."""

    _always = frozenset({"kind", "key", "role", "template", "description"})

    kind: str = SCOPE_KIND
    key: str = ""
    role: str = ""
    template: UserLimits = msgspec.field(default_factory=UserLimits)
    description: str = ""


class User(UserLimits):
    """The part of a user's JWT that is about NATS."""

    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class JetStreamLimits(Document):
    """What an account may store; no memory and no disk: JetStream is off."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class AccountLimits(JetStreamLimits):
    """What an account may have; for all replicas together, or by their number in tiers."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamLimits] = {}

    @property
    def has_jetstream(self) -> bool:
        """Whether the account may store anything."""
        tiers = self.tiered_limits.values() if self.tiered_limits else (self,)
        return any(one.mem_storage or one.disk_storage for one in tiers)


class Export(Document):
    """A subject that other accounts may import."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    service_latency: dict[str, object] | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class Import(Document):
    """A subject of another account, and what it is called in this one."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""  # what `local_subject` was called before
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False

    @property
    def local(self) -> str:
        """The subject in the importing account."""
        return self.local_subject or self.to or self.subject


class WeightedMapping(Document):
    """Where a part of the messages of a subject goes."""

    _always = frozenset({"subject"})

    subject: str = ""
    weight: int = 0
    cluster: str = ""


class ExternalAuthorization(Document):
    """Who decides for the account about users (the auth callout)."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class Account(Document):
    """The part of an account's JWT that is about NATS."""

    imports: list[Import] = []
    exports: list[Export] = []
    limits: AccountLimits = msgspec.field(default_factory=AccountLimits)
    signing_keys: list[str | dict[str, object]] = []  # keys without a scope are texts
    revocations: dict[str, int] = {}
    default_permissions: Permissions = msgspec.field(default_factory=Permissions)
    mappings: dict[str, list[WeightedMapping]] = {}
    authorization: ExternalAuthorization = msgspec.field(default_factory=ExternalAuthorization)
    trace: dict[str, object] | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0

    def scopes(self) -> dict[str, UserScope | None]:
        """The signing keys; None for the scope of one that has none."""
        found: dict[str, UserScope | None] = {}
        for one in self.signing_keys:
            if isinstance(one, str):
                found[one] = None
            else:
                scope = checked(one, UserScope, "a signing key of the account")
                found[scope.key] = scope
        return found

    def put_scopes(self, scopes: dict[str, UserScope | None]) -> None:
        """Have these signing keys."""
        self.signing_keys = [
            scope.to_wire() if scope is not None else key for key, scope in scopes.items()
        ]


class Operator(Document):
    """The part of an operator's JWT that is about NATS."""

    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: list[str] = []
    type: str = ""
    version: int = 0


class Claims(Document):
    """What every JWT says: who is meant, who says so, and when."""

    aud: str = ""
    exp: int = 0
    jti: str = ""
    iat: int = 0
    iss: str = ""
    name: str = ""
    nbf: int = 0
    sub: str = ""


class OperatorClaims(Claims):
    """An operator's JWT."""

    _always = frozenset({"nats"})

    nats: Operator = msgspec.field(default_factory=Operator)


class AccountClaims(Claims):
    """An account's JWT."""

    _always = frozenset({"nats"})

    nats: Account = msgspec.field(default_factory=Account)


class UserClaims(Claims):
    """A user's JWT."""

    _always = frozenset({"nats"})

    nats: User = msgspec.field(default_factory=User)


KINDS: dict[type[Claims], tuple[str, str]] = {  # what they are called, whose key signs them
    OperatorClaims: ("operator", "O"),
    AccountClaims: ("account", "OA"),
    UserClaims: ("user", "A"),
}
BY_NAME = {name: kind for kind, (name, _) in KINDS.items()}

Made = TypeVar("Made", bound=Document)
Signed: TypeAlias = OperatorClaims | AccountClaims | UserClaims
Kind = TypeVar("Kind", bound=Signed)


@dataclass(frozen=True, slots=True)
class Token:
    """A JWT whose signature is right."""

    text: str
    claims: dict[str, object]

    @property
    def kind(self) -> str:
        """What it is called: operator, account, user, activation ..."""
        nats = self.claims.get("nats")
        inside = nats.get("type") if isinstance(nats, dict) else ""
        return str(self.claims.get("type") or inside or "generic")


def unlimited_template() -> UserLimits:
    """What the users of a scope may about which nothing was said: everything."""
    return UserLimits(subs=UNLIMITED, data=UNLIMITED, payload=UNLIMITED)


def unlimited_user() -> User:
    """What a user may about whom nothing was said: everything."""
    return User(subs=UNLIMITED, data=UNLIMITED, payload=UNLIMITED)


def limits_of_account() -> AccountLimits:
    """What an account may have about which nothing was said: everything but JetStream."""
    made = AccountLimits(wildcards=True)
    for name in ("subs", "data", "payload", "imports", "exports", "conn", "leaf"):
        setattr(made, name, UNLIMITED)
    return made


def token_in(text: str) -> str:
    """The JWT in what a file says: the text itself, or the first block of a credentials file."""
    found = _BLOCK.search(text)
    return found[1] if found else text.strip()


def read_token(text: str, where: str) -> Token:
    """The JWT that `text` is. Raises `ConfigError`, about `where` it is from, if it is damaged."""
    parts = text.split(".")
    if len(parts) != 3:
        raise ConfigError(f"{where} is no JWT: it has {len(parts)} parts with dots between, not 3")
    header = _decoded(parts[0], f"the header of {where}")
    claims = _decoded(parts[1], f"{where}")
    if str(header.get("alg", "")).lower() not in _ALGORITHMS:
        raise ConfigError(
            f"{where} is no JWT of NATS: its algorithm is {header.get('alg')!r}, "
            f"not {_HEADER['alg']}"
        )
    token = Token(text, claims)
    # Version 1 has the type beside the other claims, and signs these without the header.
    signed = parts[1] if "type" in claims else f"{parts[0]}.{parts[1]}"
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise ConfigError(f"{where} does not say who has issued it")
    try:
        is_right = verify(issuer, _bytes(parts[2]), signed.encode())
    except ValueError as error:
        raise ConfigError(f"the signature of {where} cannot be read: {error}") from error
    if not is_right:
        raise ConfigError(
            f"the signature of {where} is not that of its issuer {issuer}: "
            "it was changed, or cut off; get it again"
        )
    return token


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _decoded(part: str, what: str) -> dict[str, object]:
    try:
        found = msgspec.json.decode(_bytes(part))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is damaged: {error}; get it again") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{what} is damaged: it holds no JSON object; get it again")
    return found


def claims_of(token: Token, kind: type[Kind], where: str) -> Kind:
    """The claims of a JWT of this kind. Raises `ConfigError` if it is another, or cannot be."""
    name, issuers = KINDS[kind]
    if token.kind != name:
        raise ConfigError(f"{where} is the JWT of a different thing: {token.kind}, not {name}")
    found = checked(token.claims, kind, where)
    if found.nats.version != VERSION:
        raise ConfigError(
            f"{where} is a JWT of version {found.nats.version or 1}; this tool reads version "
            f"{VERSION}. `nsc` rewrites older ones when it edits them"
        )
    if not _is_key(found.sub, name[0].upper()):
        raise ConfigError(
            f"{where} is that of {found.sub!r}, who is no {name}: that is a public NKey which "
            f"begins with {name[0].upper()}"
        )
    if found.iss[:1] not in issuers:
        raise ConfigError(f"{where} was issued by {found.iss}, who may not issue {name} JWTs")
    return found


def _is_key(text: str, kind: str) -> bool:
    try:
        return read_public(text)[0] == kind
    except ConfigError:
        return False


def checked(raw: dict[str, object], kind: type[Made], where: str) -> Made:
    """A decoded JSON object, whose fields are of the kinds that they have to be."""
    try:
        found = kind.from_wire(raw)
        # `from_wire` takes numbers and texts as they come; this looks at each.
        msgspec.convert(msgspec.to_builtins(found), kind)
    except (InvalidAnswerError, msgspec.ValidationError) as error:
        cause = error.__cause__ if isinstance(error, InvalidAnswerError) else error
        raise ConfigError(f"{where} says what no JWT of NATS says: {cause}") from error
    return found


def read_claims(text: str, kind: type[Kind], where: str) -> Kind:
    """The claims of the JWT of this kind that `text` is."""
    return claims_of(read_token(text, where), kind, where)


def signed(claims: Signed, key: KeyPair) -> str:
    """The JWT, issued now by the owner of `key`."""
    name, issuers = KINDS[type(claims)]
    if key.kind not in issuers:
        raise ConfigError(f"a key of kind {key.kind} cannot sign the JWT of {name} {claims.name}")
    claims.nats.type, claims.nats.version = name, VERSION
    claims.iss, claims.iat, claims.jti = key.public, int(time.time()), ""
    claims.jti = (
        base64.b32encode(hashlib.sha256(msgspec.json.encode(claims.to_wire())).digest())
        .decode()
        .rstrip("=")
    )
    body = f"{_text(_HEADER)}.{_text(claims.to_wire())}"
    return f"{body}.{_unpadded(key.sign(body.encode()))}"


def _text(value: dict[str, object]) -> str:
    return _unpadded(msgspec.json.encode(value))


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
