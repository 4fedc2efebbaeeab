"""`slipstream.Server`: a server inside a Python process.

with Server() as server:                 # a thread with a loop of its own
    print(server.url)

async with Server(store_dir="data") as server:    # on the running loop
    ...
"""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Unpack

import msgspec

from slipstream.errors import ConfigError, Error, StorageError
from slipstream.log.disk import Disk
from slipstream.model.durations import SECOND
from slipstream.model.unknown_name import unknown_name
from slipstream.server.auth import make_authenticator
from slipstream.server.banner import announce, announce_jetstream, announce_listener
from slipstream.server.engine_options import engine_options, prepare_accounts
from slipstream.server.foreign_store import foreign_store
from slipstream.server.listeners import cannot_listen
from slipstream.server.logger import Logger, standard_logger
from slipstream.server.monitoring import MonitoringListener, Reload
from slipstream.server.monitoring.start import (
    make_monitor,
    start_monitoring,
    start_system_account,
)
from slipstream.server.options import JetStreamOptions, ServerOptions, temporary_directory
from slipstream.server.process_files import urls
from slipstream.server.room import RESERVE_IN_GROUP, descriptors_for_clients
from slipstream.server.runtime import Runtime, keep_what_is_there
from slipstream.server.server_thread import ServerThread

if TYPE_CHECKING:
    from slipstream.engine.protocol.group import Group
    from slipstream.server.keywords import ServerKeywords
    from slipstream.server.leaf import LeafLinks
    from slipstream.server.monitoring.http.console import Console
    from slipstream.server.telemetry import Telemetry


class Lead(Protocol):
    """What a server needs that leads a group."""

    @property
    def disk(self) -> Disk:
        """That the group's other servers have copies of."""

    @property
    def root(self) -> str:
        """Of the store, on the disk."""

    @property
    def server_id(self) -> str:
        """Of this process, which may have led before."""

    @property
    def endpoints(self) -> MonitoringListener:
        """Of this process, which answers over HTTP also while it follows."""

    @property
    def relay_key(self) -> bytes:
        """With which the other servers prove that they speak for clients (`relay_proof`)."""

    def may_answer(self) -> bool:
        """Whether all that is committed anywhere is committed here."""

    def run_ahead(self, run: Callable[[], None]) -> "Future[None] | None":
        """Have `run` write to the disk and sync what it has written; done once that is durable.
        None if it was not run."""

    def run_gathered(self, run: Callable[[], None]) -> "Future[None]":
        """The same, for much that is of no use by halves."""


class Server:
    """A server with JetStream on a port of the system's choice, unless told otherwise.

    `store_dir` keeps the streams; without one they live in a temporary directory that `stop`
    removes. `monitoring_port` opens the HTTP endpoints (0: on any free port). `options` take
    anything that `ServerOptions` has. `config`, in place of all of these but `store_dir`, is a
    whole one or the path of a configuration file; `store_dir` counts before the one that it
    names. What the server has to say goes to the `logging` module's ``slipstream.server``, or to
    `log`.

    Raises `ConfigError` for wrong options and `Error` if it cannot start.
    """

    def __init__(
        self,
        port: int = 0,
        store_dir: str | None = None,
        *,
        host: str = "127.0.0.1",
        config: "ServerOptions | str | os.PathLike[str] | None" = None,
        monitoring_port: int | None = None,
        log: Logger | None = None,
        **options: "Unpack[ServerKeywords]",
    ) -> None:
        if config is None:
            if unknown := options.keys() - set(ServerOptions.__struct_fields__):
                known = {"store_dir", "monitoring_port", *ServerOptions.__struct_fields__}
                raise ConfigError(unknown_name("Server", "option", unknown, known))
            options["jetstream"] = options.get("jetstream") or JetStreamOptions(enabled=True)
            config = ServerOptions(host=host, port=port or -1, **options)
            if monitoring_port is not None:
                http_port = monitoring_port or -1
                config.monitoring = msgspec.structs.replace(config.monitoring, http_port=http_port)
        else:
            named = {"port": port, "host": host != "127.0.0.1", **dict.fromkeys(options, True)}
            named["monitoring_port"] = monitoring_port is not None
            if beside := [name for name, is_given in named.items() if is_given]:
                raise ConfigError(
                    f"Server was given a config, and {', '.join(beside)} beside it, which it does "
                    "not look at: put that into the config"
                )
        warnings: list[str] = []
        if not isinstance(config, ServerOptions):
            from slipstream.server.config import load_file  # without a file, ready the sooner

            loaded = load_file(os.fspath(config))
            config, warnings = loaded.options, loaded.warnings
        config.validate()
        if config.cluster.is_configured:
            raise ConfigError(
                "cluster: a slipstream.Server is one by itself: run `slipstream serve` for a "
                "server of a group"
            )
        self.options = config
        self.log = log or standard_logger(config.logging)
        for warning in warnings:
            self.log.warn(warning)
        self.group: Group | None = None  # whom it leads; to be set before the start
        self.runtime: Runtime | None = None
        self.monitoring: MonitoringListener | None = None
        self._console: Console | None = None
        self.leaf_links: LeafLinks | None = None
        self._telemetry: Telemetry | None = None
        self.port = 0
        self._temporary = ""
        self.lead: Lead | None = None  # of a group; the store is its own then
        self._opening: Future[None] | None = None  # what that has written, on its way to the others
        if config.jetstream.enabled and (store_dir or not config.jetstream.store_dir):
            if store_dir is None and config.jetstream.log_dir:
                raise ConfigError(
                    f"jetstream: log_dir {config.jetstream.log_dir} needs a store_dir: without one "
                    "the store is a temporary directory, which goes when the server stops"
                )
            if store_dir is None:
                import tempfile

                store_dir = self._temporary = tempfile.mkdtemp(prefix="slipstream-")
            config.jetstream = msgspec.structs.replace(config.jetstream, store_dir=store_dir)
        self._thread: ServerThread | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = "127.0.0.1" if self.options.host in ("0.0.0.0", "::", "") else self.options.host
        scheme = "nats" if self.options.tls is None else "tls"
        return f"{scheme}://{host}:{self.port}"

    @property
    def monitoring_url(self) -> str:
        """Where the HTTP endpoints are; "" if they are off."""
        return next(iter(self.ports().get("monitoring", [])), "")

    @property
    def client_count(self) -> int:
        """How many clients are connected."""
        return len(self.runtime.engine.sessions) if self.runtime else 0

    def ports(self) -> dict[str, list[str]]:
        """The URLs of every listener, by kind, as the ports file has them."""
        scheme = "nats" if self.options.tls is None else "tls"
        found = {"nats": urls(scheme, self.options.host, self.port)}
        if self.monitoring is not None:
            endpoints = self.monitoring.urls(self.options.monitoring_host)
            if endpoints:
                found["monitoring"] = endpoints
        if self.leaf_links is not None and self.leaf_links.port:
            found["leafnodes"] = self.leaf_links.urls()
        return found

    # -- on the caller's loop ------------------------------------------------------------------

    async def start_here(self) -> None:
        """Start on the running loop. Raises `Error` with what to do about it."""
        options = self.options
        log = self.log
        runtime = Runtime(engine_options(options), log=log, group=self.group)
        runtime.engine.authenticator = make_authenticator(options, runtime.turn)
        runtime.engine.on_problem = log.error
        runtime.write_deadline_seconds = options.limits.write_deadline / SECOND
        runtime.allow_non_tls = options.allow_non_tls
        runtime.proxy_protocol = options.proxy_protocol
        if self.lead is not None:
            runtime.relay_key = self.lead.relay_key
            runtime.room.most = descriptors_for_clients(RESERVE_IN_GROUP)
            runtime.engine.server_id = self.lead.server_id
        if options.tls is not None:
            from slipstream.server.tls import Tls

            runtime.tls = Tls(options.tls)
        prepare_accounts(runtime.engine, options)
        announce(log, runtime.engine, options)
        try:
            self._open_telemetry(runtime)
            if options.jetstream.enabled:
                self._start_jetstream(runtime)
            monitor = make_monitor(runtime, options)
            start_system_account(monitor)
            if self.lead is not None:
                self.monitoring = self.lead.endpoints
                monitor.started = self.monitoring.monitor.started
                self.monitoring.show(monitor)
            else:
                self.monitoring = await start_monitoring(monitor, options, log)
            if options.console.enabled:
                from slipstream.server.monitoring.http.console import open_console  # few have it

                self._console = open_console(self.monitoring, options, lambda: self.url, log)
            # Where it leads a group, clients come by that server's port, which is open already.
            self.port = await self._listen(runtime) if self.lead is None else options.port
            if self._opening is not None:  # before anybody is shown what it has written
                await asyncio.wrap_future(self._opening)
            self.leaf_links = await self._open_links(runtime)
            if self._telemetry is not None:
                self._telemetry.begin(monitor)
        except BaseException:
            await self._stop_console()
            self._stop_monitoring()
            await self._close_links()
            await runtime.close()
            await self._end_telemetry()
            self._remove_temporary()
            raise
        runtime.engine.options.port = self.port
        self.runtime = runtime
        announce_listener(log, options, self.port)
        log.info("Server is ready")

    def _start_jetstream(self, runtime: Runtime) -> None:
        """Open the store and recover what is in it. Raises `StorageError`."""
        begin = time.perf_counter()
        self.log.info("Starting JetStream")
        directory = self.options.jetstream.store_dir
        foreign = foreign_store(directory)
        if foreign:
            raise StorageError(f"Can't start JetStream: {foreign}")
        try:
            if self.lead is not None:
                self._opening = self.lead.run_gathered(partial(_open_to_lead, runtime, self.lead))
            else:
                store = runtime.open_store(directory, self.options.jetstream.log_dir)
                runtime.engine.start_jetstream(store)
        except OSError as error:
            raise StorageError(
                f"Can't start JetStream: could not create storage directory {directory} - "
                f"{_reason(error)}; name one that can be written (-sd, store_dir)"
            ) from error
        except StorageError as error:
            raise StorageError(f"Can't start JetStream: {error}") from error
        if not self._temporary and os.path.abspath(directory).startswith(temporary_directory()):
            self.log.warn("Temporary storage directory used, data could be lost on system reboot")
        announce_jetstream(self.log, runtime.engine, self.options, time.perf_counter() - begin)

    async def _listen(self, runtime: Runtime) -> int:
        """Accept clients; the port. Raises `Error` if that is not possible."""
        options = self.options
        try:
            return await runtime.listen(options.host, max(options.port, 0))
        except OSError as error:
            what = "Error listening on port"
            raise cannot_listen(what, options.host, options.port, error) from error

    async def _open_links(self, runtime: Runtime) -> "LeafLinks | None":
        """Links to other servers, where any are configured. Raises `Error`."""
        leafnodes = self.options.leafnodes
        if not leafnodes.port and not leafnodes.remotes:
            return None
        from slipstream.server.leaf import LeafLinks  # few need it

        self.leaf_links = LeafLinks(runtime, self.options)
        await self.leaf_links.start()
        return self.leaf_links

    def _open_telemetry(self, runtime: Runtime) -> None:
        """Have what is asked for sent to a collector. Raises `Error`."""
        options = self.options.telemetry
        if not options.enabled:
            return
        try:
            from slipstream.server.telemetry import Telemetry  # few have it

            self._telemetry = Telemetry(runtime.engine, options, self.log)
        except ValueError as error:
            raise ConfigError(
                f"telemetry: a variable of OpenTelemetry in the environment is wrong: {error}"
            ) from error
        runtime.engine.message_watch = self._telemetry.spans
        where = options.endpoint or "where the environment's OTEL_EXPORTER_OTLP_ variables say"
        self.log.info(f"Sending telemetry to {where}")

    async def _end_telemetry(self) -> None:
        if self._telemetry is not None:
            telemetry, self._telemetry = self._telemetry, None
            await telemetry.end()

    async def _close_links(self) -> None:
        if self.leaf_links is not None:
            await self.leaf_links.stop()
            self.leaf_links = None

    def reload_when_asked(self, reload: Reload) -> None:
        """Have the configuration read again when the system account asks for it."""
        if self.monitoring is not None:
            self.monitoring.monitor.reload = reload

    def have_process_alone(self) -> None:
        """The process is only this server."""
        keep_what_is_there()
        if self.runtime is not None and self.options.busy_poll:
            self.runtime.poll_busily()

    async def stop_here(self) -> None:
        """Stop; the counterpart of `start_here`."""
        if self.runtime is not None:
            runtime = self.runtime
            self.runtime = None
            self.log.info("Initiating Shutdown...")
            if self.lead is not None:
                await runtime.settle()
            if self._telemetry is not None:
                await self._telemetry.read_last()
            await self._stop_console()
            self._stop_monitoring()
            if self.options.jetstream.enabled:
                self.log.info("Initiating JetStream Shutdown...")
            await self._close_links()
            await runtime.close()
            await self._end_telemetry()
            if self.options.jetstream.enabled:
                self.log.info("JetStream Shutdown")
        self._remove_temporary()

    async def abandon_here(self) -> None:
        """Stop at once and leave the store as it is: another server of the group leads now."""
        if self.runtime is not None:
            runtime, self.runtime = self.runtime, None
            try:
                await self._stop_console()
                self._stop_monitoring()
                await self._close_links()
            finally:  # whatever befalls those
                await runtime.abandon()
                if self._telemetry is not None:
                    telemetry, self._telemetry = self._telemetry, None
                    telemetry.abandon()

    def _remove_temporary(self) -> None:
        if self._temporary:
            import shutil

            shutil.rmtree(self._temporary, ignore_errors=True)

    async def _stop_console(self) -> None:
        if self._console is not None:
            console, self._console = self._console, None
            if self.monitoring is not None:  # which may stay
                self.monitoring.console = None
            await console.close()

    def _stop_monitoring(self) -> None:
        if self.monitoring is not None and self.lead is None:
            self.monitoring.close()
        self.monitoring = None

    async def __aenter__(self) -> "Server":
        await self.start_here()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop_here()

    def reload_here(self, options: ServerOptions) -> None:
        """Go on with other `options`, on the running loop.

        What is different must be something that a running server can take over
        (docs/configuration.md#reload). Raises `ConfigError`; nothing has changed then.
        """
        from slipstream.server.reload import reload_server  # few need it, and it reads files

        reload_server(self, options)

    # -- in a thread of its own ----------------------------------------------------------------

    def start(self) -> "Server":
        """Start in a thread; returns once clients can connect."""
        self._thread = ServerThread(self, "slipstream-server")
        self._thread.start()
        self._thread.wait_until_started()
        return self

    def stop(self) -> None:
        """Stop; returns once everything is on disk and the thread has ended."""
        if self._thread is not None:
            self._thread.ask_to_stop()
            self._thread.join()
            self._thread = None

    def reload(self, options: ServerOptions) -> None:
        """`reload_here` for a server in a thread of its own."""
        if self._thread is None or self.runtime is None:
            raise Error("the server is not running in a thread: there is nothing to reload")
        self._thread.call(lambda: self.reload_here(options))

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _open_to_lead(runtime: Runtime, lead: Lead) -> None:
    """Open the store of a group and recover what is in it. Raises OSError, `StorageError`."""
    runtime.engine.output.may_answer = lead.may_answer
    store = runtime.open_group_store(lead.disk, lead.root, lead.run_ahead, lead.run_gathered)
    runtime.engine.start_jetstream(store)


def _reason(error: OSError) -> str:
    """What the system says, without the numbers around it."""
    return (os.strerror(error.errno) if error.errno else str(error)).lower()
