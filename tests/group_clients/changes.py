"""What makes another server lead."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from tests.server.replica.serving import Served, ServedGroup

LEADS_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02

Begun = Callable[[], None]  # to be called at the moment at which it begins


async def kill(group: ServedGroup, leader: Served, begun: Begun) -> None:
    """The leader's process ends without a word, and is started again at once."""
    begun()
    await leader.end(signal.SIGKILL)
    await leader.start()


async def step_down(group: ServedGroup, leader: Served, begun: Begun) -> None:
    """The leader is asked to have another server lead, and stays."""
    async with group.client() as nc:
        streams = [name async for name in nc.jetstream().stream_names()]
        begun()
        await nc.jetstream().api.request(f"STREAM.LEADER.STEPDOWN.{streams[0]}")


async def lame_duck(group: ServedGroup, leader: Served, begun: Begun) -> None:
    """The leader is told to go (SIGUSR2), and is started again once it has."""
    begun()
    await leader.end(signal.SIGUSR2)
    await leader.start()


CHANGES: dict[str, Callable[[ServedGroup, Served, Begun], Awaitable[None]]] = {
    "kill": kill,
    "step-down": step_down,
    "lame duck": lame_duck,
}
PLANNED = ("step-down", "lame duck")


def kind_of(number: int) -> str:
    """Kills and planned ones alternate, and so do the planned ones."""
    return "kill" if number % 2 == 0 else PLANNED[number // 2 % 2]


async def change(group: ServedGroup, kind: str) -> float:
    """Have another server lead; when that began. Returns once another one does, and all run."""
    leader = await group.leader()
    began = time.time()

    def begun() -> None:
        nonlocal began
        began = time.time()

    await CHANGES[kind](group, leader, begun)
    async with asyncio.timeout(LEADS_SECONDS_MAX):
        while True:
            if await group.leader() is not leader:
                return began
            await asyncio.sleep(LOOK_SECONDS)
