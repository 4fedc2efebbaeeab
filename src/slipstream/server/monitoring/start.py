"""Monitoring of a server that starts: what to look at, and the ports that are wanted."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from slipstream.server.banner import disk_for_streams, memory_for_streams
from slipstream.server.listeners import bracketed, cannot_listen
from slipstream.server.logger import Logger
from slipstream.server.monitoring.http import MonitoringListener
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.system import (
    Broadcast,
    Envelopes,
    SystemEvents,
    SystemServices,
)
from slipstream.server.options import ServerOptions
from slipstream.server.runtime import Runtime

if TYPE_CHECKING:
    import ssl


def make_monitor(runtime: Runtime, options: ServerOptions) -> Monitor:
    """The monitor of a runtime; JetStream's directory exists, if there is one."""
    memory, storage = limits_of_jetstream(options)
    return Monitor(
        runtime.engine,
        options,
        runtime.measures,
        max_memory=memory,
        max_storage=storage,
        stalls=lambda: runtime.stalls,
    )


def limits_of_jetstream(options: ServerOptions) -> tuple[int, int]:
    """Bytes of memory and of disk that JetStream may use; nothing where it is off."""
    if not options.jetstream.enabled:
        return 0, 0
    return memory_for_streams(options), disk_for_streams(options)


def start_system_account(monitor: Monitor) -> None:
    """Answer `$SYS` requests, and tell the system account what happens."""
    if monitor.options.no_system_account:
        return
    envelopes = Envelopes(monitor)
    monitor.engine.describe = envelopes.server
    services = SystemServices(envelopes)
    Broadcast(envelopes)
    monitor.engine.observer = SystemEvents(envelopes, services.attach)


async def start_monitoring(
    monitor: Monitor, options: ServerOptions, log: Logger
) -> MonitoringListener:
    """Open the ports. Raises `Error` or `ConfigError` if that is not possible."""
    listener = MonitoringListener(monitor)
    wanted = options.monitoring
    try:
        if wanted.http_port:
            await _listen(listener, options, wanted.http_port, None, log)
        if wanted.https_port and options.tls is not None:
            from slipstream.server.tls import server_context

            # Readers of the endpoints show no certificate.
            context = server_context(replace(options.tls, verify=False, verify_and_map=False))
            await _listen(listener, options, wanted.https_port, context, log)
    except BaseException:
        listener.close()
        raise
    return listener


async def _listen(
    listener: MonitoringListener,
    options: ServerOptions,
    port: int,
    context: "ssl.SSLContext | None",
    log: Logger,
) -> None:
    host = options.monitoring_host
    try:
        found = await listener.start(host, port, context)
    except OSError as error:
        raise cannot_listen("Can't listen to the monitor port", host, port, error) from error
    kind = "http" if context is None else "https"
    log.info(f"Starting {kind} monitor on {bracketed(host)}:{found}")
