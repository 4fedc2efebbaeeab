"""The options of the connection, which may stand anywhere on the line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import Error

MORE_HELP = "(`slipstream --help` says more)"


class UsageError(Error):
    """The line cannot be understood."""


def did_you_mean(names: Sequence[str]) -> str:
    """The end of an error about an unknown name: `names` that are close; "" for none."""
    return f"; did you mean {' or '.join(names)}?" if names else ""


@dataclass(frozen=True, slots=True)
class Option:
    """One option; `metavar` is "" for a flag."""

    names: tuple[str, ...]
    metavar: str
    summary: str

    @property
    def field(self) -> str:
        """Its name in `Settings`."""
        return self.names[0][2:].replace("-", "_")

    def usage(self) -> str:
        """How it is written."""
        return ", ".join(reversed(self.names)) + (f" {self.metavar}" if self.metavar else "")


OPTIONS = (
    Option(("--server", "-s"), "URL", "the server, or several with commas (NATS_URL)"),
    Option(("--context",), "NAME", "a saved context (NATS_CONTEXT)"),
    Option(("--user",), "USER", "user name, or a token (NATS_USER)"),
    Option(("--password",), "PASSWORD", "password (NATS_PASSWORD)"),
    Option(("--token",), "TOKEN", "token (NATS_TOKEN)"),
    Option(("--creds",), "FILE", "credentials file (NATS_CREDS)"),
    Option(("--nkey",), "FILE", "file with an NKey seed (NATS_NKEY)"),
    Option(("--tlscert",), "FILE", "client certificate (NATS_CERT)"),
    Option(("--tlskey",), "FILE", "its private key (NATS_KEY)"),
    Option(("--tlsca",), "FILE", "authorities to trust (NATS_CA)"),
    Option(("--tlsfirst", "--tls-first"), "", "TLS handshake before the server says anything"),
    Option(("--timeout",), "TIME", "how long to wait for an answer (NATS_TIMEOUT)"),
    Option(("--js-domain", "--domain"), "DOMAIN", "JetStream domain"),
    Option(("--js-api-prefix",), "SUBJECT", "prefix of the JetStream API"),
    Option(
        ("--js-event-prefix",), "SUBJECT", "prefix of JetStream's events, in place of $JS.EVENT"
    ),
    Option(("--inbox-prefix",), "SUBJECT", "prefix of inboxes (NATS_INBOX_PREFIX)"),
    Option(("--connection-name",), "NAME", "how the server calls this connection"),
    Option(("--no-context",), "", "ignore the selected context"),
    Option(("--trace",), "", "show each request and its answer on stderr"),
    Option(("--json", "-j"), "", "print whole objects as JSON"),
)


def close_options(name: str) -> list[str]:
    """The options which may stand anywhere on the line that are written almost like `name`."""
    from difflib import get_close_matches

    known = [one[2:] for option in OPTIONS for one in option.names if one.startswith("--")]
    wanted = name.partition("=")[0].lstrip("-")
    close = get_close_matches(wanted, [*known, "help", "version"], n=2, cutoff=0.7)
    return [f"--{one}" for one in close]


def take_options(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The options of the connection, as fields of `Settings`, and the words that are left.

    Raises `UsageError` for an option without its value.
    """
    by_name = {name: option for option in OPTIONS for name in option.names}
    given: dict[str, Any] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
            break
        name, equals, value = word.partition("=")
        option = by_name.get(name)
        denied = by_name.get(f"--{name[5:]}") if name.startswith("--no-") else None
        if option is None and denied is not None and not denied.metavar:
            given[denied.field] = False
        elif option is None:
            rest.append(word)
        elif not option.metavar:
            given[option.field] = value != "false"
        elif equals:
            given[option.field] = value
        else:
            following = next(left, None)
            if following is None:
                raise UsageError(f"{name} needs a value: {option.usage()} {MORE_HELP}")
            given[option.field] = following
    return given, rest
