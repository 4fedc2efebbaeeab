"""What the servers, proxies and bridges of these tests have in common: a port of their own."""

import asyncio
from types import TracebackType
from typing import Self


class Listener:
    """Serves each client while its context lasts; at the end it cancels its `tasks`."""

    scheme = "nats"

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{self.scheme}://{self.address}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it has gone."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        """The end has come."""
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self.hang_up()
