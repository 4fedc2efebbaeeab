"""From the options of a server to its host in a group."""

from importlib import import_module

from slipstream.log.disk import Disk
from slipstream.model.durations import SECOND
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.group.certificates import make_contexts
from slipstream.server.group.checkpoints import Checkpoints
from slipstream.server.group.host import GroupHost
from slipstream.server.group.links import LinkSettings
from slipstream.server.group.outside import RegisterStore
from slipstream.server.group.store import GroupStore
from slipstream.server.logger import Logger
from slipstream.server.options import ServerOptions


def make_host(
    cluster: ClusterOptions,
    server: ServerOptions,
    disk: Disk,
    directory: str,
    log: Logger,
    checkpoints: Checkpoints | None = None,
) -> GroupHost:
    """A host that is not started, with its store in `directory`. `server` is validated already.
    Raises `ConfigError` for certificates that cannot be used."""
    name = server.server_name
    return GroupHost(
        name,
        cluster.name,
        cluster.size(name),
        GroupStore(disk, directory),
        LinkSettings(
            host=cluster.host,
            port=cluster.port,
            routes=[(route.host, route.port) for route in cluster.others(name)],
            secret=cluster.secret,
            timeout=cluster.timeout / SECOND,
        ),
        log,
        contexts=make_contexts(cluster.tls) if cluster.tls is not None else None,
        checkpoints=checkpoints,
        register=open_register(cluster),
    )


def open_register(cluster: ClusterOptions) -> RegisterStore | None:
    """The register outside of the group; None if the group keeps its own. Raises `ConfigError`,
    also if a package that it needs is not installed."""
    if cluster.register is None:
        return None
    # It stands above the server and the client: the server finds it by its name.
    stores = import_module("slipstream.registers")
    found: RegisterStore = stores.open_register(cluster.register, cluster.name)
    return found
