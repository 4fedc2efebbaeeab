"""The command line of the server: nats-server's flags under nats-server's names.

The table `FLAGS` is the one place where they stand: parsing, help and what each flag sets are read
from it. The syntax is that of Go programs (docs/server.md): one dash or two, the
value as the next word or after ``=``, no value for switches (``-js``, ``-js=false``), and
everything from the first word without a dash on is a command.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from slipstream.errors import ConfigError
from slipstream.server.options import DEFAULT_PORT, ServerOptions, TlsOptions

SWITCH, NUMBER, TEXT = "switch", "number", "text"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INT64 = 1 << 63


class FlagError(ConfigError):
    """The command line cannot be read. nats-server shows its help and ends with status 0."""


class Flag(msgspec.Struct, frozen=True):
    """One flag: its names, what it takes, the options it sets and its line of help."""

    names: tuple[str, ...]
    kind: str
    sets: tuple[str, ...] = ()  # paths into `ServerOptions`; () is for the command itself
    value: str = ""  # what the help calls the value
    help: str = ""  # "": accepted, not shown


_SECTIONS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    (
        "Server",
        (
            Flag(("a", "addr", "net"), TEXT, ("host",), "host", "Address to listen on (0.0.0.0)"),
            Flag(("p", "port"), NUMBER, ("port",), "port", "Port for clients; -1 is any (4222)"),
            Flag(("n", "name", "server_name"), TEXT, ("server_name",), "name", "Name in INFO (id)"),
            Flag(("P", "pid"), TEXT, ("pid_file",), "file", "Write the process id to a file"),
            Flag(("m", "http_port"), NUMBER, ("monitoring.http_port",), "port", "Monitoring port"),
            Flag(("ms", "https_port"), NUMBER, ("monitoring.https_port",), "port", "The same, TLS"),
            Flag(
                ("console",), SWITCH, ("console.enabled",), "", "Console in the browser, /console"
            ),
            Flag(
                ("telemetry",),
                SWITCH,
                ("telemetry.enabled",),
                "",
                "Send OTLP where OTEL_EXPORTER_OTLP_... say",
            ),
            Flag(
                ("otlp_endpoint",),
                TEXT,
                ("telemetry.endpoint",),
                "url",
                "Send traces and metrics to this collector",
            ),
            Flag(("c", "config"), TEXT, (), "file", "Configuration file; flags override it"),
            Flag(("t",), SWITCH, (), "", "Check the configuration file and exit"),
            Flag(
                ("sl", "signal"),
                TEXT,
                (),
                "signal[=pid|file]",
                "Send ldm, stop, quit, term, reopen or reload",
            ),
            Flag(("client_advertise",), TEXT, ("client_advertise",), "url", "Address in INFO"),
            Flag(
                ("ports_file_dir",),
                TEXT,
                ("ports_file_dir",),
                "dir",
                "Write the ports to <program>_<pid>.ports",
            ),
        ),
    ),
    (
        "Logging",
        (
            Flag(("l", "log"), TEXT, ("logging.log_file",), "file", "Log to a file, not stderr"),
            Flag(("T", "logtime"), SWITCH, ("logging.logtime",), "", "Time in log lines (true)"),
            Flag(("logtime_utc",), SWITCH, ("logging.logtime_utc",), "", "That time is UTC"),
            Flag(("s", "syslog"), SWITCH, ("logging.syslog",), "", "Log to the system's log"),
            Flag(
                ("r", "remote_syslog"),
                TEXT,
                ("logging.remote_syslog",),
                "addr",
                "Log to a syslog server (udp://localhost:514)",
            ),
            Flag(("D", "debug"), SWITCH, ("logging.debug",), "", "Log more, for debugging"),
            Flag(("V", "trace"), SWITCH, ("logging.trace",), "", "Log every protocol line"),
            Flag(
                ("VV",),
                SWITCH,
                ("logging.trace", "logging.trace_verbose"),
                "",
                "And those of the system account",
            ),
            Flag(("DV",), SWITCH, ("logging.debug", "logging.trace"), "", "-D and -V"),
            Flag(
                ("DVV",),
                SWITCH,
                ("logging.debug", "logging.trace", "logging.trace_verbose"),
                "",
                "-D and -VV",
            ),
            Flag(
                ("log_size_limit",),
                NUMBER,
                ("logging.log_size_limit",),
                "bytes",
                "Begin a new log file at this size (never)",
            ),
            Flag(
                ("max_traced_msg_len",),
                NUMBER,
                ("logging.max_traced_msg_len",),
                "bytes",
                "Show so much of a traced message (all)",
            ),
        ),
    ),
    (
        "JetStream",
        (
            Flag(("js", "jetstream"), SWITCH, ("jetstream.enabled",), "", "Turn JetStream on"),
            Flag(("sd", "store_dir"), TEXT, ("jetstream.store_dir",), "dir", "Where streams are"),
        ),
    ),
    (
        "Authorization",
        (
            Flag(("user",), TEXT, ("authorization.user",), "user", "Clients must be this user"),
            Flag(("pass",), TEXT, ("authorization.password",), "password", "With this password"),
            Flag(("auth",), TEXT, ("authorization.token",), "token", "Clients must have the token"),
        ),
    ),
    (
        "TLS",
        (
            Flag(("tls",), SWITCH, (), "", "Clients must use TLS"),
            Flag(("tlscert",), TEXT, (), "file", "The server's certificate"),
            Flag(("tlskey",), TEXT, (), "file", "Its private key"),
            Flag(("tlsverify",), SWITCH, (), "", "Clients must show a certificate too"),
            Flag(("tlscacert",), TEXT, (), "file", "Who signs the certificates of clients"),
        ),
    ),
    (
        "Common",
        (
            Flag(("h", "help"), SWITCH, (), "", "Show this text"),
            Flag(("v", "version"), SWITCH, (), "", "Show the version"),
            Flag(("help_tls",), SWITCH, (), "", "Show help about TLS"),
        ),
    ),
    (
        "Group of servers",
        (
            Flag(("cluster", "cluster_listen"), TEXT, (), "url", "Where the others connect"),
            Flag(("cluster_name",), TEXT, (), "name", "Name of the group"),
            Flag(("cluster_advertise",), TEXT, (), "host:port", "This server, in the routes"),
            Flag(("routes",), TEXT, (), "urls", "All servers of the group, commas between"),
        ),
    ),
    (
        "",  # of nats-server; what they ask for, this server does not have
        (
            Flag(("no_advertise",), SWITCH),
            Flag(("connect_retries",), NUMBER),
            Flag(("profile",), NUMBER),
        ),
    ),
)

FLAGS: dict[str, Flag] = {
    name: flag for _, flags in _SECTIONS for flag in flags for name in flag.names
}
_TLS_FIELDS = {"tlscert": "cert_file", "tlskey": "key_file", "tlscacert": "ca_file"}


class CommandLine(msgspec.Struct):
    """What a command line said: flags in the order given, by the name used, and words after."""

    flags: list[tuple[str, Any]]
    words: list[str]

    def last(self, *names: str) -> Any:
        """The value given last under one of `names`; None if there is none."""
        for name, value in reversed(self.flags):
            if name in names:
                return value
        return None

    def apply(self, options: ServerOptions) -> None:
        """Let the flags override `options`. Raises `ConfigError` for what this server has not."""
        for name, value in self.flags:
            for path in FLAGS[name].sets:
                _set(options, path, value)
            if name.startswith("tls"):
                _set_tls(options, name, value)
            elif name == "otlp_endpoint":
                options.telemetry.enabled = True
        if options.port == 0:
            options.port = DEFAULT_PORT


def parse(arguments: Sequence[str]) -> CommandLine:
    """Read `arguments` (without the program's name). Raises `FlagError`, in Go's words."""
    found = CommandLine([], [])
    rest = list(arguments)
    while rest:
        word = rest[0]
        if len(word) < 2 or word[0] != "-":
            break
        rest.pop(0)
        if word == "--":
            break
        name = word[2:] if word.startswith("--") else word[1:]
        if not name or name[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        name, has_value, value = name.partition("=")
        flag = FLAGS.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if flag.kind == SWITCH:
            found.flags.append((name, _switch(name, value) if has_value else True))
            continue
        if not has_value:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        found.flags.append((name, _number(name, value) if flag.kind == NUMBER else value))
    found.words = rest
    return found


def _switch(name: str, value: str) -> bool:
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise FlagError(f'invalid boolean value "{value}" for -{name}: parse error')


def _number(name: str, value: str) -> int:
    """Decimal, or with a base (0x10, 0o17, 0b1, and 017 as in C)."""
    digits = value.lstrip("+-")
    try:
        if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
            number = int(value, 8)
        else:
            number = int(value, 0)
    except ValueError:
        raise FlagError(f'invalid value "{value}" for flag -{name}: parse error') from None
    if not -_INT64 <= number < _INT64:
        raise FlagError(f'invalid value "{value}" for flag -{name}: value out of range')
    return number


def _set(options: ServerOptions, path: str, value: Any) -> None:
    *groups, field = path.split(".")
    target: Any = options
    for group in groups:
        target = getattr(target, group)
    setattr(target, field, value)


def _set_tls(options: ServerOptions, name: str, value: Any) -> None:
    if name in ("tls", "tlsverify") and not value:
        return
    if options.tls is None:
        options.tls = TlsOptions()
    if name == "tlsverify":
        options.tls.verify = True
    elif name in _TLS_FIELDS:
        setattr(options.tls, _TLS_FIELDS[name], value)


def usage(program: str) -> str:
    """The help."""
    lines = ["", f"Usage: {program} [options]", ""]
    for title, flags in _SECTIONS:
        if not title:
            continue
        lines.append(f"{title} options:")
        lines += [_help_line(flag) for flag in flags]
        lines.append("")
    return "\n".join(lines)


def _help_line(flag: Flag) -> str:
    names = ", ".join(("-" if _is_short(name) else "--") + name for name in flag.names)
    indent = "" if _is_short(flag.names[0]) else "    "
    left = f"    {indent}{names}" + (f" <{flag.value}>" if flag.value else "")
    return f"{left:<41} {flag.help}"


def _is_short(name: str) -> bool:
    return len(name) <= 2 or name.isupper()


TLS_HELP = """
TLS is set up by flags (--tls --tlscert FILE --tlskey FILE) or in the configuration file:

    tls {
        cert_file: "server-cert.pem"      # what the server shows
        key_file:  "server-key.pem"
        ca_file:   "ca.pem"               # who signs the certificates of clients
        verify:    true                   # clients must show one
        timeout:   2                      # seconds for the handshake
        handshake_first: false            # true: TLS before INFO; "300ms": unless nothing comes
        min_version: "1.2"                # or "1.3"
    }

A running server takes over a renewed certificate on reload (--signal reload).
"""
