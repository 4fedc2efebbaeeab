"""`slipstream console`: the web server around the console."""

import socket
from typing import Annotated

import msgspec
import typer

from slipstream.cli.output import note, say
from slipstream.cli.session import (
    DEFAULT_SERVER,
    Settings,
    command,
    context_of,
    new_app,
    server_urls,
    settings,
)
from slipstream.client import connect
from slipstream.client.connection import Connection
from slipstream.console.options import (
    ACCESS,
    DEFAULT_HOST,
    DEFAULT_PORT,
    LOCAL_NAMES,
    ConsoleOptions,
)
from slipstream.console.sessions import Credentials, Sessions
from slipstream.errors import ConfigError

app = new_app(group=False)

MISSING = (
    "console: it needs Starlette, Uvicorn and Jinja, which are not installed: "
    "pip install 'slipstream[console]'"
)
CREDENTIALS = ("user", "password", "token", "creds", "nkey", "tlscert")
GRACE_SECONDS = 2  # for answers that are under way when the console ends


@command(app, "console")
async def console(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others are not protected by TLS")
    ] = DEFAULT_HOST,
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: any")] = DEFAULT_PORT,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse whatever changes something")
    ] = False,
    allow_host: Annotated[
        list[str], typer.Option("--allow-host", help="A name that browsers may ask for it by")
    ] = [],  # noqa: B006
    mask_header: Annotated[
        list[str], typer.Option("--mask-header", help="Hide this header; * for any letters")
    ] = [],  # noqa: B006
    mask_field: Annotated[
        list[str], typer.Option("--mask-field", help="Hide this JSON field: ssn, or user.*.ssn")
    ] = [],  # noqa: B006
) -> None:
    """Show streams, consumers, buckets and messages in a browser. Ctrl-C ends it."""
    options = ConsoleOptions(
        host=host,
        port=port,
        read_only=read_only,
        hosts=tuple(allow_host),
        mask_headers=tuple(mask_header),
        mask_fields=tuple(mask_field),
    )
    await serve(options, settings())


async def serve(options: ConsoleOptions, asked: Settings) -> None:
    """Run the console until a signal ends it. Raises what `connect` raises, and `ConfigError`."""
    try:
        import uvicorn

        from slipstream.console.app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise ConfigError(MISSING) from error
    listener = listen(options)
    options = msgspec.structs.replace(options, port=listener.getsockname()[1])
    sessions = sessions_for(asked, options)
    with listener:
        try:
            await sessions.open()
            announce(options, sessions)
            config = uvicorn.Config(
                make_app(options, sessions),
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                lifespan="off",  # opened above, where an error ends the command with one line
            )
            await uvicorn.Server(config).serve(sockets=[listener])
        finally:
            await sessions.close()


def listen(options: ConsoleOptions) -> socket.socket:
    """The socket that browsers connect to. Raises `ConfigError`."""
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise ConfigError(
            f"console: cannot listen on {options.host} port {options.port}: {error.strerror}; "
            "--port takes another one, 0 any that is free"
        ) from error


def sessions_for(asked: Settings, options: ConsoleOptions) -> Sessions:
    """Sessions on connections made as the command line says, or as somebody who logs in."""
    urls = server_urls(asked.server or DEFAULT_SERVER)
    common = asked.connect_options() | {"name": asked.connection_name or "slipstream console"}

    async def dial(credentials: Credentials | None) -> Connection:
        given = dict(common)
        if credentials is not None:
            for name in ("user", "password", "token", "credentials", "nkey_seed"):
                given.pop(name, None)
            given |= {
                name: value for name, value in msgspec.structs.asdict(credentials).items() if value
            }
        return await connect(urls, **given)

    return Sessions(
        dial,
        lambda connection: context_of(connection, asked),
        options,
        has_credentials=any(getattr(asked, name) for name in CREDENTIALS) or "@" in ",".join(urls),
    )


def announce(options: ConsoleOptions, sessions: Sessions) -> None:
    """Say where it is; the key belongs to who started it."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    key = f"/?{ACCESS}={sessions.key}" if sessions.key else ""
    say(f"http://{host}:{options.port}{key}")
    if options.host not in LOCAL_NAMES:
        note("The console is open to other machines, without TLS: put it behind a proxy with TLS.")
    if sessions.needs_login:
        note("The server asks who you are: the console has a page to log in.")
