"""The advisories by which a server says that it leads: what its group had, and the group itself.

They leave a while after the engine has begun, because who listens was connected to the leader
before and has to come back first; a part at a time, because there may be many consumers.
"""

from collections.abc import Iterator

from slipstream.engine.jetstream.advisories import Advisories, group_led
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.protocol.group import Group, all_peer_infos
from slipstream.engine.session.host import Host
from slipstream.model.durations import SECOND

ELECTED_AFTER = 5 * SECOND
ADVISORIES_PER_STEP = 100
_PAUSE = SECOND // 100  # between two steps


def announce_leader(engine: Host, group: Group) -> None:
    """Tell in a while who leads, everything that JetStream then has."""

    def begin() -> None:
        group_led(engine, group)
        step(_everything(engine))

    def step(left: "Iterator[tuple[Advisories, str, str]]") -> None:
        peers = all_peer_infos(group)
        for _ in range(ADVISORIES_PER_STEP):
            found = next(left, None)
            if found is None:
                return
            advisories, stream, consumer = found
            advisories.leader_elected(stream, consumer, group.server_name, peers)
        engine.timers.after(_PAUSE, lambda: step(left))

    engine.timers.after(ELECTED_AFTER, begin)


def _everything(engine: Host) -> "Iterator[tuple[Advisories, str, str]]":
    """Every stream and consumer that the group keeps: where its advisories go, and its names."""
    for account in list(engine.accounts.values()):
        js: JetStream | None = account.jetstream
        if js is None:
            continue
        for stream in list(js.streams.values()):
            if stream.store is None or stream.closed:
                continue
            yield js.advisories, stream.name, ""
            for consumer in list(stream.consumers.values()):
                if consumer.life.is_kept and not consumer.stopped:
                    yield js.advisories, stream.name, consumer.name
