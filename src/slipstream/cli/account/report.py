"""`slipstream account report|tls`: an account's connections, its servers, their certificates."""

import ssl
from datetime import UTC, datetime
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, properties, say
from slipstream.cli.server.connections import (
    SORTS,
    ReasonOption,
    StateOption,
    SubjectOption,
    UserOption,
    ask_for,
    ranked,
    show_connections,
)
from slipstream.cli.server.fleet import list_servers
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.cli.values import duration, show_duration, show_time
from slipstream.errors import ConfigError

app = new_app()

REPORTS = {"connections": ("conn", "connz", "conns"), "statistics": ("stats", "statsz")}


@command(app, "report")
async def report(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="connections or statistics")
    ] = "connections",
    sort: Annotated[str, typer.Option("--sort", help=", ".join(SORTS))] = "subs",
    top: Annotated[int, typer.Option("--top", help="So many connections", min=1)] = 1000,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="Least first")] = False,
    subject: SubjectOption = "",
    username: UserOption = "",
    state: StateOption = "open",
    closed_reason: ReasonOption = "",
) -> None:
    """Compare the account's connections, or the servers (system account)."""
    chosen = next((name for name, others in REPORTS.items() if kind in (name, *others)), "")
    if not chosen:
        raise UsageError(f'there is no report "{kind}": ask for {", ".join(REPORTS)}')
    async with connection() as nc:
        if chosen == "statistics":
            await list_servers(nc, "account report statistics")
            return
        found = await ask_for(nc, subject=subject, user=username, state=state, reason=closed_reason)
    show_connections(ranked(found, sort, reverse)[:top])


@command(app, "tls")
async def tls(
    expire_warn: Annotated[
        str, typer.Option("--expire-warn", help="Fail if it ends so soon; 0: never")
    ] = "1w",
    pem: Annotated[bool, typer.Option("--pem/--no-pem", help="The certificate itself")] = True,
) -> None:
    """Show the certificate of the server and how the connection is encrypted; 1 if it expires."""
    from cryptography import x509

    async with connection() as nc:
        link: ssl.SSLObject | None = nc.get_extra_info("ssl_object")
        if link is None:
            raise ConfigError("account tls: the connection is not encrypted: use tls:// or --tlsca")
        data = link.getpeercert(binary_form=True) or b""
        version, cipher = link.version() or "", (link.cipher() or ("",))[0]
    found = x509.load_der_x509_certificate(data)
    left = (found.not_valid_after_utc - datetime.now(UTC)).total_seconds()
    text = ssl.DER_cert_to_PEM_cert(data)
    if wants_json():
        facts = {
            "version": version,
            "cipher": cipher,
            "subject": found.subject.rfc4514_string(),
            "issuer": found.issuer.rfc4514_string(),
            "not_before": found.not_valid_before_utc,
            "not_after": found.not_valid_after_utc,
        }
        print_json({**facts, "pem": text} if pem else facts)
    else:
        pairs = [
            ("Version", version),
            ("Cipher", cipher),
            ("Subject", found.subject.rfc4514_string()),
            ("Issuer", found.issuer.rfc4514_string()),
            ("Not Before", show_time(found.not_valid_before_utc)),
            ("Not After", f"{show_time(found.not_valid_after_utc)} ({show_duration(left)})"),
        ]
        properties("TLS of the connection", [("", pairs)])
        if pem:
            say(f"\n{text}")
    if left < duration(expire_warn) or left <= 0:
        raise ConfigError(
            f"account tls: the server's certificate ends {show_time(found.not_valid_after_utc)}"
        )
