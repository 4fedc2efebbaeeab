"""An owner of a host: what it has applied is the bodies of all entries, and its checkpoints."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from slipstream.server.group import GroupHost


class Bodies:
    """A checkpoint: the bodies of the first entries, some to a piece."""

    def __init__(self, owner: "Owner", found: list[bytes]) -> None:
        self._owner = owner
        self._found = found

    @property
    def index(self) -> int:
        return len(self._found)

    async def pieces(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._found), self._owner.in_piece):
            yield msgspec.msgpack.encode(self._found[at : at + self._owner.in_piece])

    async def close(self) -> None:
        self._owner.open_count -= 1


class Owner:
    """Applies what is committed, and trims the log up to there. It is there after its host ends, as
    a disk is."""

    def __init__(self, trims: bool = True, in_piece: int = 16) -> None:
        self.applied: list[bytes] = []  # by index - 1
        self.in_piece = in_piece
        self.is_half = False  # whether `applied` is a part of a checkpoint
        self.installs = 0  # that were begun ...
        self.installed: list[int] = []  # ... and ended, with these indices
        self.open_count = 0  # checkpoints that are open
        self.may_go_on = asyncio.Event()  # with an install, behind its first piece
        self.may_go_on.set()
        self._trims = trims
        self._host: GroupHost | None = None
        self._reading: asyncio.Task[None] | None = None

    def begin(self, host: GroupHost) -> None:
        """A host is there."""
        self._host = host
        assert not self.is_half or host.is_installing
        self._reading = asyncio.create_task(self._read(host))

    async def end(self) -> None:
        """It is gone."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    async def _read(self, host: GroupHost) -> None:
        async with contextlib.aclosing(host.committed(len(self.applied))) as found:
            async for entries in found:
                assert entries[0].index == len(self.applied) + 1
                self.applied += [entry.body for entry in entries]
                if self._trims:
                    host.trim(len(self.applied))

    def held(self) -> bytes:
        return b"nothing"

    async def open(self, held: bytes) -> Bodies:
        assert held == self.held()
        self.open_count += 1
        return Bodies(self, list(self.applied))

    async def install(self, index: int, pieces: AsyncIterator[bytes]) -> None:
        await self.end()
        self.installs += 1
        self.is_half = True
        self.applied = []
        async for piece in pieces:
            self.applied += msgspec.msgpack.decode(piece, type=list[bytes])
            await self.may_go_on.wait()
        assert len(self.applied) == index
        self.is_half = False
        self.installed.append(index)
        assert self._host is not None
        self._reading = asyncio.create_task(self._read(self._host))
