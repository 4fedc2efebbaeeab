"""One run: servers and clients start, the leader changes again and again, all is compared."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broken_promises import Verdict
from tests.group_clients.changes import LOOK_SECONDS, change, kind_of
from tests.group_clients.judge import Stored, judge
from tests.group_clients.pauses import Change
from tests.group_clients.record import Record
from tests.group_clients.running import Running
from tests.server.group.waiting import until
from tests.server.replica.serving import ServedGroup, followers

MORE = 20  # messages of each client that are acknowledged and delivered between two changes
ACK_WAIT = 10.0  # s
WELL_SECONDS_MAX = 60.0
# Between two changes: clients do not connect to a server again within 2 s.
REST_SECONDS = 2.5


@dataclass
class Outcome:
    """What has come of it."""

    changes: list[Change]
    records: dict[str, Record]  # by the clients' names
    verdicts: dict[str, Verdict]
    notes: list[str] = field(default_factory=list)


async def run(
    commands: dict[str, list[str]], kinds: Sequence[str], directory: Path,
    said: Callable[[str], None] = lambda text: None,
) -> Outcome:  # fmt: skip
    """`commands` are those of the programs, by the names of the clients. Raises AssertionError if
    a client ends by itself, or is not served any more."""
    clients = [Running(name, command, directory) for name, command in commands.items()]
    async with ServedGroup(directory) as group, group.client() as nc:
        try:
            for client in clients:
                await _prepare(nc, client.stream, len(group.servers))
                await client.start(group.urls)
            changes = await _change_leaders(group, nc, clients, kinds, said)
            verdicts = await _finish(nc, clients)
        finally:
            await asyncio.gather(*(client.end() for client in clients))
    records = {client.name: client.record for client in clients}
    return Outcome(changes, records, verdicts)


def alternating(count: int) -> list[str]:
    """Kinds of changes."""
    return [kind_of(number) for number in range(count)]


async def _prepare(nc: Any, stream: str, replicas: int) -> None:
    js = nc.jetstream()
    await js.create_stream(name=stream, subjects=[f"{stream}.>"], num_replicas=replicas)
    await js.create_consumer(stream, durable_name="C", ack_policy="explicit", ack_wait=ACK_WAIT)


async def _change_leaders(
    group: ServedGroup, nc: Any, clients: list[Running], kinds: Sequence[str],
    said: Callable[[str], None],
) -> list[Change]:  # fmt: skip
    changes: list[Change] = []
    await _all_is_well(group, nc, clients)
    for kind in kinds:
        began = await change(group, kind)
        await _all_is_well(group, nc, clients)
        changes.append(Change(kind, began, time.time()))
        said(f"{len(changes)} {kind}, all is well after {changes[-1].end - began:.1f} s")
        await asyncio.sleep(REST_SECONDS)
    return changes


async def _all_is_well(group: ServedGroup, nc: Any, clients: list[Running]) -> None:
    """All servers have what the leader has, and each client publishes and consumes."""
    before = {
        one.name: (len(one.record.acknowledged), len(one.record.delivered)) for one in clients
    }

    def go_on() -> bool:
        for one in clients:
            one.check()
        return all(
            len(one.record.acknowledged) >= before[one.name][0] + MORE
            and len(one.record.delivered) >= before[one.name][1] + MORE
            for one in clients
        )

    await until(go_on, "all clients publish and consume")
    async with asyncio.timeout(WELL_SECONDS_MAX):
        while True:
            if _are_current(await followers(nc, clients[0].stream), len(group.servers)):
                return
            await asyncio.sleep(LOOK_SECONDS)


def _are_current(found: dict[str, bool], size: int) -> bool:
    return len(found) == size - 1 and all(found.values())


async def _finish(nc: Any, clients: list[Running]) -> dict[str, Verdict]:
    for client in clients:
        client.stop()

    def have_stopped() -> bool:
        for one in clients:
            one.check()
        return all(one.record.published is not None for one in clients)

    await until(have_stopped, "all clients have stopped publishing")
    verdicts = {}
    for client in clients:
        left = await _left(nc, client)
        verdicts[client.name] = judge(client.record, await _stored(nc, client.stream), left)
    return verdicts


async def _left(nc: Any, client: Running) -> int:
    """How many messages the consumer has not settled, once that are none or the time is over."""
    deadline = time.monotonic() + WELL_SECONDS_MAX
    while True:
        client.check()
        info = await nc.jetstream().api.request(f"CONSUMER.INFO.{client.stream}.C", timeout=5)
        left: int = info["num_pending"] + info["num_ack_pending"]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(LOOK_SECONDS)


async def _stored(nc: Any, stream: str) -> list[Stored]:
    """All of a stream, read in order."""
    found: list[Stored] = []
    js = nc.jetstream()
    if not (await js.stream_info(stream)).state.messages:
        return found
    async with js.ordered_consumer(stream).messages() as messages:
        async for message in messages:
            about = message.metadata
            message_id = (message.headers or {}).get("Nats-Msg-Id", "")
            found.append(Stored(about.stream_sequence, message_id, bytes(message.data)))
            if about.num_pending == 0:
                break
    return found
