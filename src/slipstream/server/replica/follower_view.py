"""What a server that follows knows of its group, of itself, and of the clients that it relays."""

import time
from collections.abc import Callable
from random import SystemRandom

from slipstream.engine.engine import Engine
from slipstream.engine.loop.clock import Clock
from slipstream.engine.session.facts import SessionFacts
from slipstream.log.durability import Job
from slipstream.server.engine_options import engine_options
from slipstream.server.group import server_name_of
from slipstream.server.measures import Measures
from slipstream.server.monitoring import Monitor
from slipstream.server.monitoring.start import limits_of_jetstream
from slipstream.server.options import ServerOptions
from slipstream.server.replica.relay import Relay, Relayed
from slipstream.server.replica.replica import Replica

# Entries that a healthy server may be behind: under load some tens are on their way at any moment.
BEHIND_MAX = 1000


class _NoDisk:
    """The runner of an engine that stores nothing."""

    def start(self, job: Job) -> None:
        """Nothing is stored."""
        raise AssertionError("an engine without streams has something to store")

    start_beside = start_read = start

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Nothing is stored."""
        self.start(job)

    def run_here(self, job: Job, size: int, is_second: bool) -> bool:
        """Nothing is stored."""
        raise AssertionError("an engine without streams has something to store")


def idle_monitor(options: ServerOptions) -> Monitor:
    """The monitor of a server that follows: its engine has no clients and no streams, and stands
    for the process: its name, its settings, since when it runs."""
    engine = Engine(Clock(time.time_ns()), SystemRandom(), engine_options(options), _NoDisk())
    max_memory, max_storage = limits_of_jetstream(options)
    return Monitor(engine, options, Measures(), max_memory=max_memory, max_storage=max_storage)


class FollowerView:
    """See the module's text. `failed` says why this server takes no part in the group, "" if it
    does."""

    def __init__(
        self,
        cluster: str,
        options: ServerOptions,
        replica: Replica,
        relay: Relay,
        failed: Callable[[], str],
    ) -> None:
        self.cluster = cluster
        self.options = options
        self._replica = replica
        self._relay = relay
        self._failed = failed

    # -- the group -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """This server."""
        return self.options.server_name

    @property
    def leader(self) -> str:
        """Who leads, as far as this server knows; "" if it does not."""
        return server_name_of(self._replica.host.leader_name)

    @property
    def leader_address(self) -> str:
        """Host and port at which clients find the leader; "" if that is not known."""
        return self._replica.leader_url

    @property
    def others(self) -> list[str]:
        """The other servers of the group."""
        names = (server_name_of(member) for member in self._replica.host.members)
        return [name for name in names if name != self.name]

    @property
    def linked(self) -> list[str]:
        """To which servers there is a connection."""
        return sorted(server_name_of(name) for name in self._replica.host.linked_names)

    @property
    def behind(self) -> int:
        """Entries that are committed, as the leader has said, and not in the files here."""
        directory = self._replica.directory
        applied = directory.applied if directory is not None else 0
        return max(self._replica.host.heard_committed_index - applied, 0)

    @property
    def problem(self) -> str:
        """Why this server is not a follower that has what the leader has; "" if it is."""
        host, leader = self._replica.host, self.leader
        failed = self._failed() or host.failed
        if failed:
            return f"this server takes no part in the group {self.cluster}: {failed}"
        if not leader:
            linked = ", ".join(self.linked) or "no other server"
            return (
                f"no server leads the group {self.cluster}, as far as this one knows, which has a "
                f"connection to {linked}"
            )
        if leader == self.name:
            return f"this server begins to lead the group {self.cluster}, or ceases to"
        if leader not in self.linked:
            return f"there is no connection to {leader}, which leads the group {self.cluster}"
        if host.is_installing:
            return f"this server is being sent the files of the store by {leader}"
        behind = self.behind
        if behind > BEHIND_MAX:
            return f"this server is {behind:,} entries behind what {leader} has committed"
        return ""

    @property
    def who_knows(self) -> str:
        """Whom to ask for what only the leader knows."""
        leader, address = self.leader, self.leader_address
        if not leader or leader == self.name:
            return (
                f"the leader of the group {self.cluster} alone knows: ask again once there is one"
            )
        where = f" at {address}" if address else ""
        return f"{leader} alone knows, which leads the group {self.cluster}{where}: ask there"

    # -- clients ---------------------------------------------------------------------------------

    @property
    def client_count(self) -> int:
        """Clients that are relayed now."""
        return len(self._relay.clients)

    @property
    def client_total(self) -> int:
        """Clients that were relayed so far."""
        return self._relay.total

    @property
    def slow_count(self) -> int:
        """Clients that were cut off here because they took nothing."""
        return self._relay.slow_count

    @property
    def brought_bytes(self) -> tuple[int, int]:
        """From clients that were relayed so far, and to them."""
        return self._relay.brought_bytes

    def clients(self) -> list[SessionFacts]:
        """Who is relayed now. What they say is the leader's to read: bytes are counted here."""
        return [_facts(client) for client in self._relay.clients.values()]


def _facts(client: Relayed) -> SessionFacts:
    return SessionFacts(
        cid=client.cid,
        facts={"ip": client.address.host, "port": client.address.port},
        started=client.started,
        last_activity=client.last_activity,
        stopped=0,
        reason="",
        rtt=0,
        in_msgs=0,
        in_bytes=client.in_bytes,
        out_msgs=0,
        out_bytes=client.out_bytes,
        pending=client.pending,
        name="",
        lang="",
        version="",
        user="",
        account="",
        is_admitted=False,
        subscription_count=0,
        subscriptions=[],
    )
