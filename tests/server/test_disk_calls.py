"""Which calls of the disk a server makes on its event loop, and that it goes on while others last.

The list is exact: whoever takes a call off the loop takes it off the list, and whoever adds one
sees it here. Calls that only close a descriptor are not counted.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError, ServerError

from slipstream import Server
from slipstream.engine.commit.state_commit import StateCommit
from slipstream.errors import DiskFullError
from slipstream.log.disk import OsDisk
from slipstream.log.os_file import OsFile
from slipstream.log.stream_store import Store
from slipstream.server import disk_thread, runtime

SEGMENT_BYTES = 32 * 1024
BODY = bytes(512)
FULL = 3 * SEGMENT_BYTES // len(BODY)  # messages that take several segments
FEW = 10


class WatchedDisk(OsDisk):
    """Notes what is called on the loop; on other threads each call waits while it stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.on_loop: set[str] = set()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._loop_thread = threading.get_ident()

    def stand_still(self) -> None:
        """Each call on another thread waits."""
        self.goes_on.clear()

    def called(self, operation: str) -> None:
        """An operation is about to begin."""
        if threading.get_ident() == self._loop_thread:
            self.on_loop.add(operation)
        else:
            self.goes_on.wait()

    def open(self, path: str) -> OsFile:
        self.called("open")
        return WatchedFile(self, path)

    def exists(self, path: str) -> bool:
        self.called("exists")
        return super().exists(path)

    def list(self, path: str) -> list[str]:
        self.called("list")
        return super().list(path)

    def read(self, path: str) -> bytes:
        self.called("read")
        return super().read(path)

    def mkdir(self, path: str) -> None:
        self.called("mkdir")
        super().mkdir(path)

    def makedirs(self, path: str) -> None:
        self.called("makedirs")
        super().makedirs(path)

    def remove(self, path: str) -> None:
        self.called("remove")
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.called("remove_tree")
        super().remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        self.called("rename")
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self.called("sync_dir")
        super().sync_dir(path)


class WatchedFile(OsFile):
    """A file of a `WatchedDisk`. To append to one that was reserved is no call: that is put off."""

    def __init__(self, disk: WatchedDisk, path: str) -> None:
        self._disk = disk
        self._near: set[tuple[int, int]] = set()  # what is in memory, because it was read before
        super().__init__(path, disk._buffers, disk._fallocate, disk.open_files)

    def append(self, data: bytes) -> None:
        if not self._is_direct:
            self._disk.called("append")
        super().append(data)

    def pread(self, offset: int, size: int) -> bytes:
        self._disk.called("pread")
        self._near.add((offset, size))
        return super().pread(offset, size)

    def pread_near(self, offset: int, size: int) -> bytes | None:
        return super().pread(offset, size) if (offset, size) in self._near else None

    def rename(self, path: str) -> None:
        self._disk.called("rename")
        super().rename(path)

    def pwrite(self, offset: int, data: bytes) -> None:
        self._disk.called("pwrite")
        super().pwrite(offset, data)

    def reserve(self, size: int) -> int:
        if size > self._reserved:
            self._disk.called("reserve")
        return super().reserve(size)

    def reserve_ahead(self, size: int) -> int:
        self._disk.called("reserve")
        return super().reserve_ahead(size)

    def truncate(self, size: int) -> None:
        self._disk.called("truncate")
        super().truncate(size)

    def flush(self) -> None:
        self._disk.called("flush")
        super().flush()

    def sync(self) -> None:
        self._disk.called("sync")
        super().sync()


class World:
    """A server on a watched disk, with a client."""

    def __init__(self, disk: WatchedDisk, server: Server, client: Client) -> None:
        self.disk = disk
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=60)
        assert server.runtime is not None
        self._disk_thread = server.runtime.disk_thread

    async def create(self, stream: str, **config: Any) -> None:
        """A stream that takes what is published to <stream>.>."""
        await self.js.add_stream(name=stream, subjects=[f"{stream}.>"], **config)

    async def fill(self, stream: str, count: int = FULL) -> None:
        """Publish so many messages, of which a few make a segment."""
        for _ in range(count):
            await self.js.publish(f"{stream}.a", BODY)

    async def rest(self) -> None:
        """What the disk was asked for so far, and what followed from that, has happened."""
        for _ in range(4):
            await asyncio.to_thread(self._disk_thread.wait)
            await self.client.flush()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A server on a watched disk, with small segments and next to no cache."""
    disk = WatchedDisk()
    small = partial(Store, segment_bytes=SEGMENT_BYTES, cache_bytes_max=1)
    monkeypatch.setattr(runtime, "OsDisk", lambda: disk)
    monkeypatch.setattr(runtime, "Store", small)
    monkeypatch.setattr(disk_thread, "INLINE_BYTES_MAX", -1)  # no batch runs on the loop
    async with Server(store_dir=str(tmp_path)) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        yield World(disk, server, client)
        disk.goes_on.set()
        await client.close()


Act = Callable[[World], Awaitable[object]]


async def nothing(_world: World) -> None:
    """There need be nothing before."""


async def a_stream(world: World) -> None:
    await world.create("S", allow_direct=True)


async def some_messages(world: World) -> None:
    await a_stream(world)
    await world.fill("S", FEW)


async def many_messages(world: World) -> None:
    await a_stream(world)
    await world.fill("S")


async def add_consumer(world: World) -> None:
    await world.js.add_consumer("S", ConsumerConfig(durable_name="C"))


async def a_consumer(world: World) -> None:
    await many_messages(world)
    await add_consumer(world)


async def a_full_stream(world: World) -> None:
    await world.create("S", max_msgs=FULL)
    await world.fill("S")


async def publish_on(world: World) -> None:
    """Enough for several segments, no quicker than the threads follow."""
    for _ in range(FULL):
        await world.fill("S", 1)
        await world.rest()


async def fetch(world: World) -> None:
    subscription = await world.js.pull_subscribe_bind("C", "S")
    messages = await subscription.fetch(FULL, timeout=60)
    assert [message.metadata.sequence.stream for message in messages] == list(range(1, FULL + 1))


async def get(world: World) -> None:
    assert (await world.js.get_msg("S", 1)).data == BODY


async def get_directly(world: World) -> None:
    assert (await world.js.get_msg("S", 1, direct=True)).data == BODY


async def erase(world: World) -> None:
    await world.js.delete_msg("S", 2)


async def purge(world: World) -> None:
    await world.js.purge_stream("S")


async def delete_consumer(world: World) -> None:
    await world.js.delete_consumer("S", "C")


async def delete_stream(world: World) -> None:
    await world.js.delete_stream("S")


async def create_anew(world: World) -> None:
    """Under a name whose directory is on its way out."""
    deleting = asyncio.ensure_future(delete_stream(world))
    await asyncio.sleep(0)
    await a_stream(world)
    await deleting
    await world.fill("S", 1)
    assert (await world.js.stream_info("S")).state.messages == 1


async def be_refused(world: World) -> None:
    """A configuration that the commit log does not take."""

    def full(*_args: Any) -> None:
        raise DiskFullError("no space left on the disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateCommit, "keep", full)
        with pytest.raises(ServerError, match="no space left"):
            await a_stream(world)
    with pytest.raises(NotFoundError):
        await world.js.stream_info("S")


# What is done, after what, and which calls it makes on the loop.
OPERATIONS: list[tuple[str, Act, Act, set[str]]] = [
    ("create a stream", nothing, a_stream, set()),
    ("create a stream anew", some_messages, create_anew, set()),
    ("create a stream that the log refuses", nothing, be_refused, set()),
    ("publish the first message", a_stream, publish_on, set()),
    ("publish on into new segments", some_messages, publish_on, set()),
    ("publish while old messages go", a_full_stream, publish_on, {"pread"}),
    ("get an old message", many_messages, get, set()),
    ("get an old message directly", many_messages, get_directly, set()),
    ("deliver old messages", a_consumer, fetch, set()),
    ("erase a message", many_messages, erase, {"pread", "pwrite"}),
    ("purge a stream", many_messages, purge, set()),
    ("create a consumer", many_messages, add_consumer, set()),
    ("delete a consumer", a_consumer, delete_consumer, set()),
    ("delete a stream", many_messages, delete_stream, set()),
]


@pytest.mark.parametrize(
    ("before", "act", "expected"),
    [operation[1:] for operation in OPERATIONS],
    ids=[operation[0] for operation in OPERATIONS],
)
async def test_an_operation_calls_the_disk_on_the_loop_as_listed_and_no_more(
    world: World, before: Act, act: Act, expected: set[str]
) -> None:
    await before(world)
    await world.rest()
    world.disk.on_loop.clear()
    await act(world)
    await world.rest()
    assert world.disk.on_loop == expected


async def create_memory_stream(world: World) -> None:
    await world.create("M", storage="memory")


# What may go on for as long as the disk likes, while others are served.
WAITING: list[tuple[str, Act, Act]] = [
    ("create a stream", nothing, a_stream),
    ("create a stream anew", some_messages, create_anew),
    ("create a consumer", many_messages, add_consumer),
    ("publish the first message", a_stream, publish_on),
    ("purge a stream", many_messages, purge),
    ("publish", some_messages, publish_on),
    ("get an old message", many_messages, get),
    ("get an old message directly", many_messages, get_directly),
    ("deliver old messages", a_consumer, fetch),
    ("delete a consumer", a_consumer, delete_consumer),
    ("delete a stream", many_messages, delete_stream),
]


@pytest.mark.parametrize(
    ("before", "act"),
    [operation[1:] for operation in WAITING],
    ids=[operation[0] for operation in WAITING],
)
async def test_while_the_disk_stands_still_pings_are_answered_and_memory_streams_take_messages(
    world: World, before: Act, act: Act
) -> None:
    await before(world)
    await create_memory_stream(world)
    await world.rest()
    world.disk.stand_still()
    operation = asyncio.ensure_future(act(world))
    for seq in range(1, 50):
        assert (await world.js.publish("M.a", BODY)).seq == seq
        await world.client.flush()
    assert not operation.done()
    world.disk.goes_on.set()
    await operation
