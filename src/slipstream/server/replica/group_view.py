"""What the engine of a leader knows of its group, and asks of it."""

from collections.abc import Callable, Sequence

import msgspec

from slipstream.engine.protocol.group import Member, ServerFacts
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.group import server_name_of
from slipstream.server.replica.replica import Replica

OFFLINE_NS = 2_000_000_000  # without a word from a server, after which it counts as gone
CURRENT_LAG = 64  # entries that a server may be behind and count as current


class GroupView:
    """The `Group` of an engine: `own_url` is where clients find this server. `hand_over` has
    another server lead, soon."""

    def __init__(
        self,
        cluster: ClusterOptions,
        own_url: str,
        replica: Replica,
        hand_over: Callable[[str], None],
    ) -> None:
        self.name = cluster.name
        self._tells_of_others = not cluster.no_advertise
        self.server_name = server_name_of(replica.host.name)
        self._own_url = own_url
        self._replica = replica
        self._hand_over = hand_over
        self._said: dict[str, tuple[bytes, ServerFacts | None]] = {}  # by server

    @property
    def followers(self) -> Sequence[Member]:
        """All other servers, as they are now."""
        host = self._replica.host
        found = []
        for name, synced, active, is_away in host.followers():
            lag = max(host.committed_index - synced, 0)
            is_offline = active > OFFLINE_NS
            is_current = not is_offline and not is_away and lag <= CURRENT_LAG
            facts = self._facts(name)
            address, tags = (facts.cluster_address, facts.tags) if facts is not None else ("", ())
            shown = server_name_of(name)
            found.append(
                Member(
                    shown, is_current, is_offline, active, lag, address, tags, facts, not is_away
                )
            )
        return found

    def _facts(self, name: str) -> ServerFacts | None:
        """What a server has last said of itself; None where that is not known."""
        said = self._replica.host.said_of_itself(name)
        before, facts = self._said.get(name, (b"", None))
        if said != before:
            try:
                facts = msgspec.json.decode(said, type=ServerFacts)
            except (msgspec.MsgspecError, UnicodeDecodeError):  # of another version
                facts = None
            self._said[name] = (said, facts)
        return facts

    @property
    def client_urls(self) -> Sequence[str]:
        """Where clients may connect: here, or at a server that brings them here, and is there. One
        of an earlier version says where that is when it leads."""
        found = {self._own_url: None}
        host, directory = self._replica.host, self._replica.directory
        said_leading = directory.clients if directory is not None else {}
        for name, _, active, _ in host.followers() if self._tells_of_others else ():
            facts = self._facts(name)
            address = (facts.client_address if facts is not None else "") or said_leading.get(name)
            if address and active <= OFFLINE_NS:
                found[address] = None
        return list(found)

    def step_down(self, preferred: str = "") -> None:
        """Have another server lead. Raises `Error`."""
        self._hand_over(preferred)

    def remove(self, server_name: str) -> None:
        """Have a follower leave the group, soon. Raises `Error`."""
        self._replica.remove(server_name)
