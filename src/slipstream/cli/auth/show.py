"""How the claims of JWTs are shown."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from slipstream.cli.auth.claims import (
    Account,
    AccountClaims,
    Claims,
    JetStreamLimits,
    OperatorClaims,
    Permission,
    UserClaims,
    UserLimits,
)
from slipstream.cli.output import properties
from slipstream.cli.values import show_duration, show_size

Pairs = list[tuple[str, str]]
Sections = list[tuple[str, Pairs]]


def when(seconds: int, none: str = "never") -> str:
    """A Unix time."""
    try:
        return (
            datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            if seconds
            else none
        )
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"


def limit(count: int) -> str:
    """A bound on a number."""
    return "unlimited" if count < 0 else f"{count:,}"


def bytes_limit(count: int) -> str:
    """A bound on bytes."""
    return "unlimited" if count < 0 else show_size(count)


def yes(is_so: bool) -> str:
    """A switch."""
    return "true" if is_so else "false"


def some(pairs: Sequence[tuple[str, str]]) -> Pairs:
    """Those that have a value."""
    return [(label, value) for label, value in pairs if value]


def issued(claims: Claims) -> Pairs:
    """Who has issued a JWT, and from when to when it holds."""
    return some(
        [
            ("Issuer", claims.iss),
            ("Issued", when(claims.iat, "")),
            ("Not Before", when(claims.nbf, "")),
            ("Expires", when(claims.exp)),
            ("Audience", claims.aud),
        ]
    )


def operator_sections(claims: OperatorClaims, more: Sequence[tuple[str, str]] = ()) -> Sections:
    """What an operator's JWT says; `more` is known from elsewhere."""
    nats = claims.nats
    return [
        ("", [("Name", claims.name), ("Public Key", claims.sub), *issued(claims)]),
        (
            "Operator",
            some(
                [
                    ("Service URLs", "\n".join(nats.operator_service_urls)),
                    ("Account Server", nats.account_server_url),
                    ("System Account", nats.system_account or "none"),
                    ("Signing Keys Only", yes(nats.strict_signing_key_usage)),
                    ("Signing Keys", "\n".join(sorted(nats.signing_keys))),
                    ("Servers From Version", nats.assert_server_version),
                    ("Tags", ", ".join(nats.tags)),
                    *more,
                ]
            ),
        ),
    ]


def account_sections(claims: AccountClaims, more: Sequence[tuple[str, str]] = ()) -> Sections:
    """What an account's JWT says; `more` is known from elsewhere."""
    nats, limits = claims.nats, claims.nats.limits
    sections: Sections = [
        ("", [("Name", claims.name), ("Public Key", claims.sub), *issued(claims)]),
        (
            "Account",
            some(
                [
                    ("Description", nats.description),
                    ("More About It", nats.info_url),
                    ("Tags", ", ".join(nats.tags)),
                    *more,
                    ("JetStream", yes(limits.has_jetstream)),
                    ("Signing Keys", str(len(nats.signing_keys))),
                    ("Exports", _exchanged(nats, of_others=False)),
                    ("Imports", _exchanged(nats, of_others=True)),
                    ("Mappings", "\n".join(sorted(nats.mappings))),
                    ("Revoked Users", revoked(nats.revocations)),
                    ("Auth Callout Users", "\n".join(nats.authorization.auth_users)),
                ]
            ),
        ),
        (
            "Limits",
            [
                ("Connections", limit(limits.conn)),
                ("Leafnodes", limit(limits.leaf)),
                ("Subscriptions", limit(limits.subs)),
                ("Payload", bytes_limit(limits.payload)),
                ("Exports", limit(limits.exports)),
                ("Imports", limit(limits.imports)),
                ("Wildcard Exports", yes(limits.wildcards)),
                ("Bearer Tokens", yes(not limits.disallow_bearer)),
            ],
        ),
    ]
    if limits.has_jetstream and not limits.tiered_limits:
        sections.append(("JetStream", _jetstream(limits)))
    for tier, bounds in sorted(limits.tiered_limits.items()):
        sections.append((f"JetStream, {tier}", _jetstream(bounds)))
    sections += _permissions(
        "Users May, By Default", nats.default_permissions.pub, nats.default_permissions.sub
    )
    return sections


def _jetstream(limits: JetStreamLimits) -> Pairs:
    return [
        ("Disk", bytes_limit(limits.disk_storage)),
        ("Memory", bytes_limit(limits.mem_storage)),
        ("Streams", limit(limits.streams)),
        ("Consumers", limit(limits.consumer)),
        ("Max Ack Pending", limit(limits.max_ack_pending or -1)),
        ("Disk For A Stream", bytes_limit(limits.disk_max_stream_bytes or -1)),
        ("Memory For A Stream", bytes_limit(limits.mem_max_stream_bytes or -1)),
        ("Streams Say Their Size", yes(limits.max_bytes_required)),
    ]


def _exchanged(nats: Account, of_others: bool) -> str:
    if of_others:
        return "\n".join(f"{one.local} ({one.type}), from {one.account}" for one in nats.imports)
    return "\n".join(f"{one.subject} ({one.type})" for one in nats.exports)


def revoked(revocations: Mapping[str, int]) -> str:
    """Whose JWTs do not count any more, and from when on newer ones do."""
    return "\n".join(
        f"{'all' if key == '*' else key}, issued until {when(until)}"
        for key, until in sorted(revocations.items())
    )


def user_sections(
    claims: UserClaims, limits: UserLimits | None = None, more: Sequence[tuple[str, str]] = ()
) -> Sections:
    """What a user's JWT says; `limits` are those of the scope of the key that has signed it."""
    account = claims.nats.issuer_account or claims.iss
    about = [
        ("Name", claims.name),
        ("Public Key", claims.sub),
        ("Account", account),
        *issued(claims),
        *some([("Tags", ", ".join(claims.nats.tags))]),
        *more,
    ]
    return [("", about), *limits_sections(limits or claims.nats)]


def limits_sections(limits: UserLimits) -> Sections:
    """What a user may, or the users of a scope."""
    answers = limits.resp
    shown = [
        ("Bearer Token", yes(limits.bearer_token)),
        ("Through Proxies Only", yes(True) if limits.proxy_required else ""),
        ("Payload", bytes_limit(limits.payload or -1)),
        ("Data", bytes_limit(limits.data or -1)),
        ("Subscriptions", limit(limits.subs or -1)),
        ("Connection Types", ", ".join(limits.allowed_connection_types)),
        ("From Networks", ", ".join(limits.src)),
        ("Times", "\n".join(f"{one.start} to {one.end}" for one in limits.times)),
        ("Time Zone", limits.times_location),
    ]
    if answers is not None:
        shown.append(
            ("Answers", f"{limit(answers.max or -1)}, for {show_duration(answers.ttl / 1e9)}")
        )
    return [("Limits", some(shown)), *_permissions("Permissions", limits.pub, limits.sub)]


def _permissions(title: str, pub: Permission, sub: Permission) -> Sections:
    pairs = some(
        [
            ("Publish", "\n".join(pub.allow)),
            ("Publish Not", "\n".join(pub.deny)),
            ("Subscribe", "\n".join(sub.allow)),
            ("Subscribe Not", "\n".join(sub.deny)),
        ]
    )
    return [(title, pairs)] if pairs else []


def show_operator(claims: OperatorClaims, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print what an operator's JWT says."""
    properties(f"Operator {claims.name}", operator_sections(claims, more))


def show_account(claims: AccountClaims, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print what an account's JWT says."""
    properties(f"Account {claims.name}", account_sections(claims, more))


def show_user(
    claims: UserClaims, limits: UserLimits | None = None, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Print what a user's JWT says."""
    properties(f"User {claims.name}", user_sections(claims, limits, more))
