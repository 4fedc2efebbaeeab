"""`slipstream-server` (nats-server's command line) and `slipstream serve` (the same, ready to use).

Both read flags, then the configuration file, let the flags override it, and run the server until a
signal ends it. They differ in their defaults: `slipstream serve` has JetStream on, with its store
under ``./slipstream-data``; `slipstream-server` has it off until asked, as nats-server has.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from slipstream.engine.protocol.options import VERSION
from slipstream.errors import ConfigError, Error
from slipstream.server.flags import TLS_HELP, CommandLine, FlagError, parse, usage
from slipstream.server.options import JetStreamOptions, ServerOptions, temporary_directory

PROGRAM = "slipstream-server"
SERVE_STORE_DIR = "./slipstream-data"
CONSOLE_PORT = 8222  # of the console where no monitoring port is configured
TEMPORARY_STORE_DIR = "slipstream"  # in the system's directory for temporary files


class Program(msgspec.Struct, frozen=True):
    """Which of the two commands runs: what it is called, and where it begins."""

    name: str
    defaults: Callable[[], ServerOptions]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `slipstream-server`; returns the exit status."""
    name = os.path.basename(sys.argv[0])
    if name in ("", "-c") or name.endswith(".py"):  # run as a module
        name = PROGRAM
    words = sys.argv[1:] if arguments is None else arguments
    return run(Program(name, ServerOptions), words)


def serve(arguments: Sequence[str]) -> int:
    """`slipstream serve`; returns the exit status."""
    return run(Program("slipstream serve", _serve_defaults), arguments)


def _serve_defaults() -> ServerOptions:
    jetstream = JetStreamOptions(enabled=True, store_dir=SERVE_STORE_DIR)
    return ServerOptions(jetstream=jetstream)


def run(program: Program, arguments: Sequence[str]) -> int:
    """Do what the command line says; the exit status."""
    try:
        line = parse(arguments)
    except FlagError as error:
        print(error, file=sys.stderr)
        print(usage(program.name))
        return 0
    answer = _answer(program, line)
    if answer is not None:
        print(answer)
        return 0
    try:
        if line.words:
            raise ConfigError(f'unrecognized command: "{line.words[0]}"')
        signal = line.last("sl", "signal")
        if signal:
            from slipstream.server.signals import send_signal

            send_signal(signal)
            return 0
        if line.last("t"):
            return _check(program, line)
        options, warnings = load(program, line)
        for warning in warnings:
            print(f"{program.name}: {warning}", file=sys.stderr)
    except Error as error:
        print(f"{program.name}: {error}", file=sys.stderr)
        return 1
    gc.disable()  # nothing that is loaded from here on becomes garbage; the server enables it
    try:
        from slipstream.server.process import run_process

        return run_process(program.name, options, lambda: load(program, line))
    finally:
        gc.enable()  # also where no server came up: the caller's process may go on


def _answer(program: Program, line: CommandLine) -> str | None:
    """What to print instead of running a server."""
    command = line.words[0].lower() if line.words else ""
    if line.last("v", "version") or command == "version":
        return f"nats-server: v{VERSION}"
    if line.last("h", "help") or command == "help":
        return usage(program.name)
    if line.last("help_tls"):
        return TLS_HELP
    return None


def load(program: Program, line: CommandLine) -> tuple[ServerOptions, list[str]]:
    """The validated options of a command line and its configuration file, and warnings.

    Raises `ConfigError`. Called again on reload, so that flags go on overriding the file.
    """
    options = program.defaults()
    warnings: list[str] = []
    path = line.last("c", "config")
    if path:
        from slipstream.server.config import load_file  # without a file, ready the sooner

        loaded = load_file(path, None, options)
        options, warnings = loaded.options, loaded.warnings
    line.apply(options)
    if any(name == "routes" or name.startswith("cluster") for name, _ in line.flags):
        from slipstream.server.config.cluster import apply_flags  # few have them

        apply_flags(line, options.cluster)
    if options.jetstream.enabled and not options.jetstream.store_dir:
        directory = os.path.join(temporary_directory(), TEMPORARY_STORE_DIR)
        options.jetstream.store_dir = directory
    monitoring = options.monitoring
    if options.console.enabled and not monitoring.http_port and not monitoring.https_port:
        monitoring.http_port = CONSOLE_PORT
        monitoring.host = monitoring.host or "127.0.0.1"  # nobody has asked for the endpoints
    options.validate()
    return options, warnings


def _check(program: Program, line: CommandLine) -> int:
    """`-t`: is the configuration file right? Warnings count as errors."""
    if not line.last("c", "config"):
        raise ConfigError("must specify [-c, --config] option to check configuration file syntax")
    options, warnings = load(program, line)
    if warnings:
        raise ConfigError("\n".join(warnings))
    print(
        f"{program.name}: configuration file {options.config_file} is valid "
        f"({options.config_digest})",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
