"""From the options of the line, the environment and the selected context to a connection."""

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec

import msgspec
import typer
import typer.core

import slipstream.cli.context.files as context_files
from slipstream.cli.global_options import MORE_HELP, UsageError
from slipstream.cli.output import clock, note
from slipstream.cli.refusals import NO_SOCKS_PROXY
from slipstream.cli.values import duration
from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.jetstream.context import JetStream

P = ParamSpec("P")

INTERRUPTED = 130
DEFAULT_SERVER = "nats://127.0.0.1:4222"
# Environment variables of the `nats` tool.
ENVIRONMENT = {
    "NATS_URL": "server",
    "NATS_CONTEXT": "context",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_CERT": "tlscert",
    "NATS_KEY": "tlskey",
    "NATS_CA": "tlsca",
    "NATS_TIMEOUT": "timeout",
    "NATS_INBOX_PREFIX": "inbox_prefix",
    "NATS_SOCKS_PROXY": "socks_proxy",
}


class Settings(msgspec.Struct, kw_only=True):
    """The options of the connection, as given."""

    server: str = ""
    context: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    creds: str = ""
    nkey: str = ""
    tlscert: str = ""
    tlskey: str = ""
    tlsca: str = ""
    tlsfirst: bool | None = None
    timeout: str = ""
    js_domain: str = ""
    js_api_prefix: str = ""
    js_event_prefix: str = ""
    inbox_prefix: str = ""
    socks_proxy: str = ""
    connection_name: str = ""
    no_context: bool = False
    trace: bool = False
    json: bool = False

    def complete(self) -> "Settings":
        """With what the environment and the context say where the line says nothing."""
        found = msgspec.structs.asdict(self)
        for variable, name in ENVIRONMENT.items():
            found[name] = found[name] or os.environ.get(variable, "")
        name = found["context"] or ("" if self.no_context else context_files.selected())
        if name and not self.no_context:
            saved = context_files.load(name)
            for field, option in context_files.FIELDS.items():
                if found[option] in (None, ""):  # False: the line says no
                    found[option] = saved.get(field) or found[option]
        return Settings(**found)

    def connect_options(self) -> dict[str, Any]:
        """Arguments of `slipstream.connect`, after the URL."""
        options: dict[str, Any] = {"name": self.connection_name or "slipstream CLI"}
        if self.user and not self.password and not self.token:
            options["token"] = self.user
        elif self.user:
            options |= {"user": self.user, "password": self.password}
        names = {
            "token": "token",
            "creds": "credentials",
            "nkey": "nkey_seed",
            "tlscert": "tls_certificate",
            "tlskey": "tls_key",
            "tlsca": "tls_ca",
            "tlsfirst": "tls_handshake_first",
            "inbox_prefix": "inbox_prefix",
        }
        for name, option in names.items():
            value = getattr(self, name)
            if value:
                options[option] = os.path.expanduser(value) if isinstance(value, str) else value
        if self.timeout:
            options["timeout"] = self.timeout_seconds()
        return options

    def timeout_seconds(self) -> float:
        """How long to wait for an answer. Raises `UsageError` if it is no duration."""
        try:
            return duration(self.timeout)
        except typer.BadParameter as error:
            raise UsageError(f"--timeout (NATS_TIMEOUT): {error} {MORE_HELP}") from error


def server_urls(text: str) -> list[str]:
    """The URLs of `text`, with commas between them. Raises `UsageError` for an invalid one."""
    from slipstream.client.servers import parse_servers

    try:
        parse_servers(text)
    except ConfigError as error:
        raise UsageError(f"--server (NATS_URL, context): {error} {MORE_HELP}") from error
    return text.split(",")


_given: ContextVar[Settings] = ContextVar("settings of the running command")


@contextmanager
def use(given: Settings) -> Iterator[None]:
    """Run a command with these settings."""
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


def settings() -> Settings:
    """The settings of the running command, complete."""
    return _given.get().complete()


def given_settings() -> Settings:
    """The settings of the running command, as given on the line alone."""
    return _given.get()


def wants_json() -> bool:
    """Whether `--json` was given."""
    return _given.get().json


@asynccontextmanager
async def connection(server: str = "", **options: Any) -> "AsyncIterator[Connection]":
    """An open connection; it is closed at the end, after what was published is sent.

    What the server forbids ends the command with that `PermissionsError`, also where no call would
    raise it. A connection that is lost, and found again, is said on stderr.
    """
    from slipstream.client import PermissionsError, connect
    from slipstream.client.events import Disconnected, ErrorEvent, Reconnected

    asked = settings()
    if asked.socks_proxy:
        raise UsageError(f"NATS_SOCKS_PROXY, or the context: {NO_SOCKS_PROXY}")
    refused: list[Exception] = []
    task = asyncio.current_task()

    def heed(event: object) -> None:
        if isinstance(event, Disconnected):
            note(f"{clock()} Lost the connection to {event.server}: {event.error}")
        elif isinstance(event, Reconnected):
            note(f"{clock()} Connected again, to {event.server}")
        if not isinstance(event, ErrorEvent):
            return
        if not isinstance(event.error, PermissionsError):
            typer.echo(f"slipstream: {event.error}", err=True)
        elif not refused and task is not None:
            refused.append(event.error)
            task.cancel()

    urls = server_urls(server or asked.server or DEFAULT_SERVER)
    nc = await connect(urls, **asked.connect_options() | {"on_event": heed} | options)
    if asked.trace:
        _trace(nc)
    try:
        async with nc:
            yield nc
    except asyncio.CancelledError:
        if not refused or task is None:
            raise
        task.uncancel()
    if refused:
        raise refused[0]


def _trace(nc: "Connection") -> None:
    """Show each request and its answer on stderr."""
    ask = nc.request

    async def request(subject: str, data: Any = b"", **more: Any) -> Any:
        note(f">>> {subject}\n{_shown(data)}")
        answer = await ask(subject, data, **more)
        note(f"<<< {_shown(answer.data)}")
        return answer

    nc.request = request  # type: ignore[method-assign]


def _shown(data: object) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)


@asynccontextmanager
async def jetstream(**options: Any) -> "AsyncIterator[JetStream]":
    """A JetStream context on a connection of its own; its connection is `js.connection`."""
    asked = settings()
    async with connection() as nc:
        yield context_of(nc, asked, **options)


def context_of(nc: "Connection", asked: Settings, **wanted: Any) -> "JetStream":
    """The JetStream context that the settings ask for."""
    if asked.js_domain:
        wanted["domain"] = asked.js_domain
    elif asked.js_api_prefix:
        wanted["prefix"] = asked.js_api_prefix
    if asked.timeout:
        wanted["timeout"] = asked.timeout_seconds()
    made: JetStream = nc.jetstream(**wanted)
    return made


async def round_trip(nc: "Connection") -> float:
    """Seconds from here to the server and back."""
    began = perf_counter()
    await nc.flush()
    return perf_counter() - began


def command(app: typer.Typer, name: str, **more: Any) -> Callable[..., Any]:
    """Add a coroutine function to `app` as a command that runs in a loop of its own."""

    def register(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                asyncio.run(function(*args, **kwargs))
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None

        app.command(name, **more)(call)
        return call

    return register


# Other names of commands, which the `nats` tool has.
ALIASES = {
    "create": "add",
    "cp": "copy",
    "del": "rm",
    "delete": "rm",
    "i": "info",
    "l": "ls",
    "list": "ls",
    "new": "add",
    "nfo": "info",
    "query": "find",
    "show": "info",
    "snapshot": "backup",
    "status": "info",
    "subj": "subjects",
    "update": "edit",
    "view": "info",
}


class Group(typer.core.TyperGroup):
    """A group of commands that knows their other names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; of its own name first."""
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, ALIASES.get(cmd_name, ""))


def new_app(summary: str = "", group: bool = True) -> typer.Typer:
    """A group of commands, or with `group` False an app of a single one."""
    app = typer.Typer(
        cls=Group,
        help=summary,
        no_args_is_help=group,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if group and summary:
        app.callback(help=summary)(_nothing)  # so that a group of one command stays a group
    return app


def _nothing() -> None:
    """A group does nothing by itself."""
