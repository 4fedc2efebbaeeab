"""A proxy that is bad weather: it cuts, delays, half-closes, splits and holds back.

It stands between a client and a server on the test's own loop. What it does to new bytes is set on
it while it runs; it also remembers what the server sent, so that a test can find the boundaries of
frames in it.
"""

import asyncio
import contextlib
from collections.abc import Callable

from slipstream.wire.operations import MORE
from slipstream.wire.server_frames import ServerFrames
from tests.client.listener import Listener

Split = Callable[[bytes], list[bytes]]


def byte_by_byte(data: bytes) -> list[bytes]:
    """Every byte by itself."""
    return [data[i : i + 1] for i in range(len(data))]


def frame_ends(data: bytes) -> list[int]:
    """Where the frames of a server in `data` end."""
    frames = ServerFrames()
    ends = []
    for i in range(len(data)):
        frames.feed(data[i : i + 1])
        while frames.next() != MORE:
            ends.append(i + 1)
    return ends


class Lane:
    """One client's connection through the proxy."""

    def __init__(
        self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, number: int
    ) -> None:
        self.client = client
        self.server = server
        self.number = number
        self.from_server = b""
        self.from_client = b""
        self.after_info: int | None = None  # where to cut

    def cut(self) -> None:
        """End both sides at once, without a goodbye."""
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy(Listener):
    """Listens on a port of its own and passes everything on to `host:port`."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.removeprefix("nats://").rpartition(":")
        self.upstream = (host, int(port))
        self.lanes: list[Lane] = []
        self.split: Split | None = None  # what the client gets in one read
        self.delay = 0.0  # seconds before each piece, both ways
        self.cut_after: int | None = None  # bytes to the next client; that lane only
        self.cut_after_info: int | None = None  # the same, counted from the end of the first line
        self.cut_after_from_client: int | None = None  # bytes to the server; the same
        self.refuse = False  # close each connection at once
        self.refused = 0  # how many came then
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hold(self) -> None:
        """Pass nothing on, without closing anything."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Pass on what was held back, and what comes."""
        self._flowing.set()

    def cut(self) -> None:
        """Cut every connection that stands."""
        for lane in self.lanes:
            lane.cut()
        self.lanes.clear()

    def half_close(self) -> None:
        """Tell the clients that the server has said its last; it still listens."""
        for lane in self.lanes:
            with contextlib.suppress(OSError):
                lane.client.write_eof()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes, both ways."""
        try:
            await self._relay(reader, writer)
        except asyncio.CancelledError:
            return  # the proxy ends; asyncio's streams would complain about a cancelled task

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            if self.refuse:
                self.refused += 1
                return
            far_reader, far_writer = await asyncio.open_connection(*self.upstream)
            lane = Lane(writer, far_writer, len(self.lanes))
            self.lanes.append(lane)
            down, up = self.cut_after, self.cut_after_from_client
            lane.after_info = self.cut_after_info
            self.cut_after = self.cut_after_info = self.cut_after_from_client = None
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(lane, far_reader, writer, down, to_client=True))
                group.create_task(self._pass(lane, reader, far_writer, up, to_client=False))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self.tasks.discard(task)

    async def _pass(
        self,
        lane: Lane,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: int | None,
        *,
        to_client: bool,
    ) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            if to_client and lane.after_info is not None:
                limit = data.index(b"\r\n") + 2 + lane.after_info
                lane.after_info = None
            if limit is not None:
                data, limit = data[:limit], limit - len(data)
            if to_client:
                lane.from_server += data
            else:
                lane.from_client += data
            for piece in self.split(data) if self.split and to_client else [data]:
                if self.delay:
                    await asyncio.sleep(self.delay)
                try:
                    writer.write(piece)
                except RuntimeError:
                    return  # behind a half-close
                await writer.drain()
                if self.split:
                    await asyncio.sleep(0)  # so that each piece is a read of its own
            if limit is not None and limit <= 0:
                # What was passed on has arrived before the end does.
                writer.close()
                lane.server.transport.abort()
                return
        await self._flowing.wait()
        with contextlib.suppress(OSError):
            writer.close()
