"""`slipstream`: one command for the server and for what one does with streams.

A thin dispatcher: the first word names a command and the module that has it, which is imported only
then, so that `--help` and `--version` answer at once.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

# Command -> (module, function taking the remaining words and returning the exit status, summary).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("slipstream.server.command", "serve", "Run a server with JetStream"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "--help"
    if name in ("--version", "version"):
        return _print_version()
    if name in ("--help", "-h", "help"):
        print(usage())
        return 0
    if name not in COMMANDS:
        print(
            f'slipstream: there is no command "{name}": `slipstream --help` lists them',
            file=sys.stderr,
        )
        return 2
    module, function, _ = COMMANDS[name]
    command: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    return command(words[1:])


def usage() -> str:
    """The help."""
    lines = ["Usage: slipstream <command> [options]", "", "Commands:"]
    lines += [f"  {name:<12} {summary}" for name, (_, _, summary) in COMMANDS.items()]
    lines += ["", "`slipstream <command> --help` says more. `slipstream --version`: what this is."]
    return "\n".join(lines)


def _print_version() -> int:
    from slipstream import __version__, build

    print(f"slipstream {__version__} ({build.describe()})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
