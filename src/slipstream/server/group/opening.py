"""From the options of a server to its host in a group."""

from slipstream.log.disk import Disk
from slipstream.model.durations import SECOND
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.group.certificates import make_contexts
from slipstream.server.group.checkpoints import Checkpoints
from slipstream.server.group.host import GroupHost
from slipstream.server.group.links import LinkSettings
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
    )
