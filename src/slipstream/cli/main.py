"""`slipstream`: one command for the server and for what one does with streams.

A thin dispatcher: the table names every command and the module that has it, which is imported only
then, so that `--help` and `--version` answer at once. Options of the connection (`--server`,
`--user`, `--context` ...) may stand anywhere on the line, as with the `nats` tool.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.cli.global_options import (
    MORE_HELP,
    OPTIONS,
    UsageError,
    close_options,
    did_you_mean,
    take_options,
)
from slipstream.cli.refusals import reason_against
from slipstream.cli.spellings import respelt
from slipstream.errors import Error

if TYPE_CHECKING:
    import typer

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130  # exit codes; see docs/cli.md

# Command -> (module, what it has there, summary). `serve` reads its own words; the rest is Typer.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("slipstream.cli.server.serve", "serve", "Run a server with JetStream"),
    "group": ("slipstream.cli.group", "app", "Run a group of servers on this machine"),
    "pub": ("slipstream.cli.message.publish", "pub_app", "Publish messages"),
    "sub": ("slipstream.cli.message.subscribe", "sub_app", "Show the messages of subjects"),
    "trace": ("slipstream.cli.message.trace", "app", "Show where a message would go"),
    "request": (
        "slipstream.cli.message.publish",
        "request_app",
        "Send a request and show the answers",
    ),
    "reply": ("slipstream.cli.message.reply", "app", "Answer requests"),
    "stream": ("slipstream.cli.stream.command", "app", "Manage streams"),
    "consumer": ("slipstream.cli.consumer.command", "app", "Manage consumers and read from them"),
    "service": ("slipstream.cli.service", "app", "Find, measure and ask services"),
    "kv": ("slipstream.cli.kv", "app", "Key-value buckets"),
    "counter": ("slipstream.cli.counter", "app", "Totals that a stream keeps"),
    "schema": ("slipstream.cli.schema", "app", "Schemas of bodies, in a bucket"),
    "object": ("slipstream.cli.objects", "app", "Object stores"),
    "account": ("slipstream.cli.account.command", "app", "What the account uses and may use"),
    "server": ("slipstream.cli.server.command", "app", "Look after a server"),
    "bench": ("slipstream.cli.bench.command", "app", "Measure a server"),
    "events": ("slipstream.cli.events", "app", "Show advisories as they happen"),
    "latency": ("slipstream.cli.bench.latency", "latency_app", "Measure how long a message takes"),
    "rtt": ("slipstream.cli.bench.latency", "rtt_app", "Measure the round trip to the server"),
    "context": (
        "slipstream.cli.context.command",
        "app",
        "Named connections, shared with the nats tool",
    ),
    "errors": ("slipstream.cli.error_codes", "app", "Look up JetStream's error codes"),
    "pipeline": (
        "slipstream.cli.pipeline.command",
        "app",
        "Streams into tables; Spark's pipelines",
    ),
    "why": (
        "slipstream.cli.consumer.why",
        "app",
        "Say why a consumer does or does not get messages",
    ),
    "top": ("slipstream.cli.top.command", "app", "Watch streams, consumers and rates"),
    "auth": ("slipstream.cli.auth.command", "app", "Operators, accounts, users and their keys"),
    "jwt": ("slipstream.cli.auth.jwt", "app", "Say what a JWT or a credentials file says"),
    "console": ("slipstream.console.command", "app", "Streams and messages in a browser"),
    "store": ("slipstream.cli.store.command", "app", "Take over the streams of nats-server"),
    "check": ("slipstream.cli.store.check", "app", "Read a store while no server runs"),
    "cheat": ("slipstream.cli.cheat", "app", "Show examples"),
    "completion": ("slipstream.cli.completion", "app", "Completion for bash, zsh and fish"),
}
# Groups of which parts lie in modules of their own, so that only the one asked for is imported.
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "stream": {
        "slipstream.cli.stream.show": (
            "ls",
            "info",
            "state",
            "report",
            "subjects",
            "gaps",
            "find",
        ),
        "slipstream.cli.stream.messages": ("get", "view", "rmm"),
        "slipstream.cli.stream.graph": ("graph",),
        "slipstream.cli.cluster.stream": ("cluster",),
        "slipstream.cli.backup.stream": ("backup", "restore"),
    },
    "account": {
        "slipstream.cli.backup.account": ("backup", "restore"),
        "slipstream.cli.account.report": ("report", "tls"),
    },
    "consumer": {
        "slipstream.cli.consumer.read": ("next", "sub"),
        "slipstream.cli.consumer.graph": ("graph",),
        "slipstream.cli.cluster.consumer": ("cluster",),
    },
    "pipeline": {"slipstream.cli.pipeline.table": ("table",)},
    "server": {
        "slipstream.cli.server.fleet": ("ls", "ping", "watch", "passwd"),
        "slipstream.cli.server.manage": ("info", "account", "config", "mappings"),
        "slipstream.cli.server.report": ("report",),
        "slipstream.cli.server.request": ("request",),
        "slipstream.cli.cluster.server": ("cluster",),
    },
}
# Groups inside a group, by the words before them: the module of each, and its other names.
GROUPS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "auth": {
        "operator": ("slipstream.cli.auth.operator", ("o", "op")),
        "account": ("slipstream.cli.auth.account", ("a", "acct", "act")),
        "user": ("slipstream.cli.auth.user", ("u", "usr", "users")),
        "nkey": ("slipstream.cli.auth.nkey", ("nk",)),
        "jwt": ("slipstream.cli.auth.jwt", ()),
    },
    "auth operator": {"keys": ("slipstream.cli.auth.operator_keys", ("sk", "s"))},
    "auth account": {
        "keys": ("slipstream.cli.auth.account_keys", ("sk", "s")),
        "exports": ("slipstream.cli.auth.exports", ("e", "exp", "export")),
        "imports": ("slipstream.cli.auth.imports", ("imp", "import")),
        "mappings": ("slipstream.cli.auth.mappings", ("m", "map", "mapping")),
    },
}
ALIASES = {  # as the `nats` tool has them
    "a": "account",
    "c": "consumer",
    "con": "consumer",
    "ctr": "counter",
    "ctx": "context",
    "e": "events",
    "event": "events",
    "err": "errors",
    "error": "errors",
    "lat": "latency",
    "micro": "service",
    "ms": "stream",
    "obj": "object",
    "obs": "consumer",
    "publish": "pub",
    "r": "reply",
    "req": "request",
    "s": "stream",
    "srv": "server",
    "st": "stream",
    "str": "stream",
    "subscribe": "sub",
    "sys": "server",
    "system": "server",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UsageError as error:
        _complain(str(error))
        return MISUSED
    except Error as error:
        from slipstream.cli.advice import one_line

        _complain(one_line(error))
        return FAILED
    except OSError as error:  # a file that cannot be read or written
        if isinstance(error, BrokenPipeError):
            # The reader of our output has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        _complain(str(error))
        return FAILED


def _complain(text: str) -> None:
    from slipstream.cli.output import harmless

    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    name = "\x1b[31mslipstream:\x1b[0m" if colour else "slipstream:"
    print(name, harmless(text), file=sys.stderr)


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["serve"]:
        return int(load("serve")(words[1:]))
    if words[:1] == ["__complete"]:
        from slipstream.cli.completion import complete

        return complete(words[1:])
    given, rest = take_options(words)
    if rest:
        rest = respelt([ALIASES.get(rest[0], rest[0]), *rest[1:]])
    name = rest[0] if rest else "--help"
    if name in ("--version", "version"):
        return _print_version()
    if name == "help" and len(rest) > 1:
        return _dispatch([*rest[1:], "--help"])
    if name in ("--help", "-h", "help"):
        print(usage())
        return OK
    reason = reason_against(_own_words(rest))
    if reason:
        raise UsageError(reason)
    if name not in COMMANDS:
        raise UsageError(_no_command(name))
    return run(name, rest[1:], given)


def _own_words(words: list[str]) -> list[str]:
    """A line with the command of its group by the name that it has here."""
    if len(words) < 2 or words[1].startswith("-"):
        return words
    from slipstream.cli.session import ALIASES as OTHERS

    return [words[0], OTHERS.get(words[1], words[1]), *words[2:]]


def _no_command(name: str) -> str:
    from difflib import SequenceMatcher, get_close_matches

    if name.startswith("-"):
        ending = did_you_mean(close_options(name)) or ";"
        return f'there is no option "{name}"{ending} `slipstream --help` lists them'
    begun = [command for command in COMMANDS if command.startswith(name)]
    close = get_close_matches(name, [*COMMANDS, *ALIASES], n=2)
    likeness = [SequenceMatcher(None, word, name).ratio() for word in close]
    if len(close) == 2 and likeness[1] < likeness[0] - 0.1:
        close.pop()
    meant = dict.fromkeys(ALIASES.get(word, word) for word in begun or close)
    ending = did_you_mean(list(meant)) or ";"
    return f'there is no command "{name}"{ending} `slipstream --help` lists them'


def load(name: str) -> Any:
    """A whole command, with all its sub-commands."""
    module, attribute, _ = COMMANDS[name]
    found = getattr(import_module(module), attribute)
    for part in PARTS.get(name, {}):
        found.add_typer(import_module(part).app)
    _add_groups(found, name)
    return found


def _add_groups(app: "typer.Typer", path: str) -> None:
    for name, (module, _) in GROUPS.get(path, {}).items():
        inner = import_module(module).app
        _add_groups(inner, f"{path} {name}")
        app.add_typer(inner, name=name)


def innermost(path: str, words: list[str]) -> tuple[str, list[str]]:
    """The group that `words` name inside the group `path`, and the words for it."""
    while words:
        inside = GROUPS.get(path, {})
        names = (name for name, (_, more) in inside.items() if words[0] in (name, *more))
        name = next(names, "")
        if not name:
            break
        path, words = f"{path} {name}", words[1:]
    return path, words


def _part(name: str, words: list[str]) -> tuple[Any, list[str], bool]:
    """The app that has the command which `words` begin with, `words` with its own name, and whether
    the app is a part of a group, of which that may be the only command."""
    from slipstream.cli.session import ALIASES as OTHERS

    outer, _, inner = name.rpartition(" ")
    if outer:
        module, attribute = GROUPS[outer][inner][0], "app"
    else:
        module, attribute, _ = COMMANDS[name]
    parts = PARTS.get(name, {})
    for word in (words[0], OTHERS.get(words[0], "")) if words else ():
        for part, commands in parts.items():
            if word in commands:
                return import_module(part).app, [word, *words[1:]], True
    app = getattr(import_module(module), attribute)
    own = {command.name for command in app.registered_commands}
    if words and words[0] not in own and OTHERS.get(words[0]) in own:
        words = [OTHERS[words[0]], *words[1:]]
    return app, words, False


def run(name: str, words: list[str], given: dict[str, Any]) -> int:
    """Run a command with the options of the connection that were given; its exit status."""
    import typer

    from slipstream.cli.line import command_of, names_on_the_line
    from slipstream.cli.session import Settings, use

    path, inside = innermost(name, words)
    found = command_of(*_part(path, inside))
    with use(Settings(**given)):
        try:
            if found is not None:
                callback, arguments = found
                status = callback(**arguments)
            else:
                command = typer.main.get_command(load(name))
                words = [*path.split()[1:], *inside]
                status = command(words, prog_name=f"slipstream {name}", standalone_mode=False)
        except UsageError:
            raise
        except Error as error:
            from slipstream.cli.advice import one_line

            _complain(one_line(error, names_on_the_line(*found) if found is not None else {}))
            return FAILED
        except typer.Exit as ending:
            return ending.exit_code
        except typer.Abort:
            return INTERRUPTED
        except typer.TyperException as error:
            text = " ".join(error.format_message().split())
            if not text:  # a group without a command has shown its help
                return MISUSED
            raise UsageError(f"{text}{_where_to_look(error, name)}") from error
    return status if isinstance(status, int) else OK


def _where_to_look(error: Exception, name: str) -> str:
    """The end of one of Typer's errors: the option of the connection that was meant, or help."""
    if hasattr(error, "possibilities"):  # there is no such option
        close = close_options(getattr(error, "option_name", ""))
        if close:
            return f"{did_you_mean(close)} {MORE_HELP}"
    path = getattr(getattr(error, "ctx", None), "command_path", f"slipstream {name}")
    return f" (`{path} --help` says more)"


def usage() -> str:
    """The help."""
    lines = ["Usage: slipstream <command> [options]", "", "Commands:"]
    lines += [f"  {name:<12} {summary}" for name, (_, _, summary) in COMMANDS.items()]
    lines += ["", "Options of the connection, anywhere on the line:"]
    lines += [f"  {option.usage():<28} {option.summary}" for option in OPTIONS]
    lines += ["", "`slipstream <command> --help` says more. `slipstream --version`: what this is."]
    return "\n".join(lines)


def _print_version() -> int:
    from slipstream import __version__, build

    print(f"slipstream {__version__} ({build.describe()})")
    return OK


if __name__ == "__main__":
    sys.exit(main())
