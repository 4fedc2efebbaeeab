"""What the endpoints look at: the engine, the options it was started with, and the process."""

import time
from collections import Counter
from collections.abc import Callable

from slipstream.engine.engine import Engine
from slipstream.engine.session.facts import Traffic
from slipstream.model.durations import SECOND
from slipstream.model.times import time_text
from slipstream.server.measures import Measures
from slipstream.server.options import ServerOptions
from slipstream.server.process_load import ProcessLoad

# Reads the configuration again, and tells in a turn what was wrong with it, "" for nothing.
Reload = Callable[[Callable[[str], None]], None]
# Switches of nats-server, by its names; all stand for behaviour that is not here.
FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": False,
    "js_snapshot_sources": False,
}


class Monitor:
    """One server, as monitoring sees it. `max_memory` and `max_storage` are JetStream's, resolved.

    `stalls` tells how many publishers were slowed down so far, because somebody did not keep up.
    """

    def __init__(
        self,
        engine: Engine,
        options: ServerOptions,
        measures: Measures,
        *,
        max_memory: int = 0,
        max_storage: int = 0,
        stalls: Callable[[], int] = int,
    ) -> None:
        self.engine = engine
        self.options = options
        self.measures = measures
        self.max_memory = max_memory
        self.max_storage = max_storage
        self.stalls = stalls
        self.started = engine.started  # of the process, where engines come and go
        self.loaded_at = engine.started  # when the configuration was read
        self.requests: Counter[str] = Counter()  # over HTTP, by path
        self.http_port = options.monitoring.http_port
        self.https_port = options.monitoring.https_port
        self.is_listening = True
        self.reload: Reload | None = None
        self._load = ProcessLoad()

    def follow(self, options: ServerOptions, max_memory: int, max_storage: int) -> None:
        """The server goes on with other options."""
        self.options = options
        self.max_memory = max_memory
        self.max_storage = max_storage
        self.loaded_at = self.engine.clock.now

    @property
    def now(self) -> int:
        """ns since the epoch; the engine's clock may be behind while nothing happens."""
        return max(time.time_ns(), self.engine.clock.now)

    def head(self) -> dict[str, object]:
        """How most answers begin."""
        return {"server_id": self.engine.server_id, "now": time_text(self.now)}

    # -- sums ----------------------------------------------------------------------------------

    def traffic(self, account: str) -> Traffic:
        """Messages and bytes of an account's connections since the server started."""
        total = Traffic()
        ended = self.engine.ended_traffic.get(account)
        if ended is not None:
            total.add(ended)
            total.slow = ended.slow
        found = self.engine.accounts[account]
        for session in [*found.sessions.values(), *found.links.values()]:
            total.add(session)
        return total

    def total_traffic(self) -> Traffic:
        """The traffic of all accounts together."""
        total = Traffic(slow=self.engine.slow_consumers)
        for ended in self.engine.ended_traffic.values():
            total.add(ended)
        for session in self.engine.all_sessions():
            total.add(session)
        return total

    def subscription_count(self) -> int:
        """Subscriptions of clients and of the server itself, in all accounts."""
        return sum(len(account.trie) for account in self.engine.accounts.values())

    # -- the process ---------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Resident memory of the process; 0 where the system does not say."""
        return self._load.memory_bytes()

    def cpu_percent(self) -> float:
        """Share of one core that the process used of late, in percent."""
        return self._load.cpu_percent()


def uptime_text(duration: int) -> str:
    """Nanoseconds as `1y2d3h4m5s`, from the largest unit that there is any of."""
    seconds = max(duration, 0) // SECOND
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    years = days // 365
    parts = [(years, "y"), (days % 365, "d"), (hours % 24, "h"), (minutes % 60, "m")]
    while parts and not parts[0][0]:
        parts.pop(0)
    return "".join(f"{n}{unit}" for n, unit in [*parts, (seconds % 60, "s")])


def whole(number: float) -> float:
    """A number that JSON shows without `.0` if it is whole, as Go does."""
    return int(number) if number == int(number) else number
