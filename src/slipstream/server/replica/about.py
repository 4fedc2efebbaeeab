"""What a follower says of itself to the leader, which answers requests of `$SYS` for it."""

import os
import time

import msgspec

from slipstream.engine.protocol.group import ServerFacts
from slipstream.server.options import ServerOptions
from slipstream.server.process_load import ProcessLoad


class AboutServer:
    """A server of a group, from the start of its process on. `server_id` is what it is known by
    over HTTP, too."""

    def __init__(self, options: ServerOptions, server_id: str) -> None:
        self._options = options
        self._load = ProcessLoad()
        self._facts = ServerFacts(
            server_id=server_id,
            host=options.host,
            port=0,
            cluster_address=_cluster_address(options),
            store_dir=f"{options.jetstream.store_dir}/store/files/jetstream",
            start=time.time_ns(),
            memory=0,
            cpu=0.0,
            cores=os.cpu_count() or 1,
            connections=0,
            connections_total=0,
            tags=tuple(tag.lower() for tag in options.server_tags),
            metadata=options.server_metadata,
        )

    def encode(
        self, port: int, client_address: str, connections: int, connections_total: int
    ) -> bytes:
        """What is true now, as `ServerFacts` in JSON."""
        facts = msgspec.structs.replace(
            self._facts,
            port=port,
            client_address=client_address,
            memory=self._load.memory_bytes(),
            cpu=self._load.cpu_percent(),
            connections=connections,
            connections_total=connections_total,
        )
        return msgspec.json.encode(facts)


def _cluster_address(options: ServerOptions) -> str:
    """Host and port by which the routes of the others name this server."""
    cluster = options.cluster
    if cluster.advertise:
        return cluster.advertise
    host = cluster.host.strip("[]")
    if host in ("0.0.0.0", "::", ""):
        host = os.uname().nodename
    return f"[{host}]:{cluster.port}" if ":" in host else f"{host}:{cluster.port}"
