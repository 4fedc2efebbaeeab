"""Everything the client can do, in every weather: it ends, nothing is left, and it works again.

An operation may fail where its connection is cut; then with an error of ours, and at once. What it
opened is closed, on both sides, and the same operation over the same connection succeeds.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest

import slipstream
from slipstream.client.sync import connect as connect_sync
from tests.client.operations import OPERATIONS, STORED, World
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy, byte_by_byte, frame_ends
from tests.client.waiting import turns

ALL = pytest.mark.parametrize("name", OPERATIONS)
CUTS_MAX = 5  # of a direction, spread over all places
LONGEST = 4.0  # seconds for what takes some hundredths of one


@pytest.fixture
async def world(server_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Things for an operation to work on, and clients that try again soon."""
    monkeypatch.setattr("slipstream.client.jetstream.ordered.RESET_WAIT_FIRST", 0.01)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    async with await slipstream.connect(server_url) as near:
        made = World(near)
        await made.prepare()
        yield made
        await made.remove()
    assert not reported


def open_routes(nc: slipstream.Connection) -> list[str]:
    """Subscriptions of the client, without the inboxes that live as long as their owners."""
    return [r.subject for r in nc.subscriptions.routes.values() if not r.subject.endswith(".*")]


async def nothing_is_left(
    nc: slipstream.Connection, world: World, tasks: set["asyncio.Task[Any]"]
) -> None:
    """No subscription, no task, no pull request and no consumer."""
    assert not open_routes(nc)
    async with asyncio.timeout(LONGEST):
        for wait in itertools.repeat(0.002):
            if await world.settled() and nc.requests_pending == 0:
                break
            await asyncio.sleep(wait)
        left = [task for task in asyncio.all_tasks() - tasks if is_of_client(task)]
        if left:
            await asyncio.wait(left)


def is_of_client(task: "asyncio.Task[Any]") -> bool:
    """Whether a task is neither the proxy's nor the one that seeks a server."""
    name = getattr(task.get_coro(), "__qualname__", "")
    return not name.startswith("Proxy.") and "reconnect" not in task.get_name()


async def run(nc: slipstream.Connection, world: World, name: str) -> Exception | None:
    """The operation's error, if it ended in one."""
    try:
        async with asyncio.timeout(LONGEST):
            await OPERATIONS[name](nc, world)
    except slipstream.Error as error:
        return error
    return None


def some(places: list[int]) -> list[int]:
    """At most so many of them, the first and last included."""
    step = max(len(places) - 1, 1) / (min(len(places), CUTS_MAX) - 1 or 1)
    return [places[round(i * step)] for i in range(min(len(places), CUTS_MAX))]


async def survives(proxy: Proxy, world: World, name: str) -> None:
    """The operation ends under the cut that the proxy was told of, and succeeds after it."""
    before = asyncio.all_tasks()
    async with await slipstream.connect(
        proxy.url, wait_for_server=True, reconnect_wait=0.001, reconnect_wait_max=0.01
    ) as nc:
        kept = asyncio.all_tasks() | before
        await run(nc, world, name)
        await nothing_is_left(nc, world, kept)
        error = await run(nc, world, name)
        if error is not None:
            error = await run(nc, world, name)  # the cut came between the two
        assert error is None


@ALL
async def test_a_cut_at_the_boundaries_of_what_the_server_sends(
    proxy: Proxy, world: World, name: str
) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        assert await run(nc, world, name) is None
    sent = proxy.lanes[-1].from_server
    start, *ends = frame_ends(sent)
    inside = [end - 1 for end in ends]
    for place in some(sorted({*ends, *inside})):
        proxy.cut_after_info = place - start
        await survives(proxy, world, name)


@ALL
async def test_a_cut_at_the_boundaries_of_what_the_client_sends(
    proxy: Proxy, world: World, name: str
) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        assert await run(nc, world, name) is None
    sent = proxy.lanes[-1].from_client
    lines = [place for place in range(1, len(sent)) if sent[place - 2 : place] == b"\r\n"]
    for place in some(sorted({*lines, *(line - 1 for line in lines)})):
        proxy.cut_after_from_client = place
        await survives(proxy, world, name)


@ALL
async def test_frames_that_come_byte_by_byte(proxy: Proxy, world: World, name: str) -> None:
    proxy.split = byte_by_byte
    async with await slipstream.connect(proxy.url) as nc:
        kept = asyncio.all_tasks()
        assert await run(nc, world, name) is None
        await nothing_is_left(nc, world, kept)


@ALL
async def test_a_slow_network_and_half_a_goodbye(proxy: Proxy, world: World, name: str) -> None:
    proxy.delay = 0.002
    async with await slipstream.connect(proxy.url, reconnect_wait=0.001) as nc:
        kept = asyncio.all_tasks()
        assert await run(nc, world, name) is None
        running = asyncio.ensure_future(run(nc, world, name))
        await turns()
        proxy.half_close()
        await running
        await nothing_is_left(nc, world, kept)
        assert await run(nc, world, name) is None


async def test_a_server_that_stops_and_returns_on_its_port(own_server: OwnServer) -> None:
    async with (
        await slipstream.connect(own_server.url, reconnect_wait=0.01) as near,
        await slipstream.connect(own_server.url, reconnect_wait=0.01) as nc,
    ):
        world = World(near, "file")
        await world.prepare()
        kept = asyncio.all_tasks()
        running = [asyncio.ensure_future(run(nc, world, name)) for name in OPERATIONS]
        await turns()
        await own_server.astop()
        await own_server.astart()
        await asyncio.gather(*running)
        await near.flush(LONGEST)
        await nothing_is_left(nc, world, kept)
        for name in OPERATIONS:
            assert await run(nc, world, name) is None, name


async def test_a_script_without_await_goes_on_behind_a_cut(proxy: Proxy, world: World) -> None:
    def script() -> tuple[int, list[int]]:
        with connect_sync(proxy.url, reconnect_wait=0.001) as nc:
            js = nc.jetstream()
            loop.call_soon_threadsafe(proxy.cut)
            for _ in range(100):  # until the cut has come, and a connection stands again
                with contextlib.suppress(slipstream.Error):
                    js.publish(f"{world.name}.0", "0", message_id="script")
                if nc.stats.reconnects and nc.is_connected:
                    break
                time.sleep(0.002)
            ack = js.publish(f"{world.name}.0", "0", message_id="script")
            found = js.consumer(world.name, "pull").fetch(STORED, timeout=1)
            return ack.sequence, [int(message.data) for message in found]

    loop = asyncio.get_running_loop()
    sequence, found = await asyncio.to_thread(script)
    assert sequence == STORED + 1
    assert found == list(range(STORED))


class CancelledAt:
    """Awaits `work`, and cancels its task at the suspension of a number."""

    def __init__(self, work: Coroutine[Any, Any, None], number: int) -> None:
        self._work = work
        self._number = number
        self.reached = False

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        number = 0
        value, error = None, None
        while True:
            try:
                waits = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                return
            if number == self._number:
                self.reached = True
                asyncio.get_running_loop().call_soon(task.cancel)
            number += 1
            value, error = None, None
            try:
                value = yield waits
            except BaseException as raised:
                error = raised


@ALL
async def test_a_cancellation_at_every_await(world: World, server_url: str, name: str) -> None:
    async with await slipstream.connect(server_url) as nc:
        await run(nc, world, name)
        kept = asyncio.all_tasks()
        for number in range(60):
            cancelled = CancelledAt(OPERATIONS[name](nc, world), number)  # type: ignore[arg-type]

            async def work(cancelled: CancelledAt = cancelled) -> None:
                await cancelled

            task = asyncio.create_task(work())
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await nothing_is_left(nc, world, kept | {task})
            if not cancelled.reached:
                break
        assert await run(nc, world, name) is None
