"""Reading an object: chunk by chunk or whole, with its size and digest checked at the end.

async with await store.open("backup.tar") as reader:
    async for chunk in reader: ...
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from slipstream.client.object_store.chunks import Chunks
from slipstream.client.object_store.digest import Digest
from slipstream.client.object_store.errors import (
    DigestMismatchError,
    IncompleteObjectError,
    ObjectStoreError,
)
from slipstream.client.object_store.info import ObjectInfo, same_digest
from slipstream.client.object_store.whole import Whole

Progress: TypeAlias = Callable[[int, int], object]
"""Called with bytes done and bytes in all (-1 if that is not known) as an object moves."""


class ObjectReader:
    """An object on its way here; iterate over it, or `read` it.

    `info` describes it. The last chunk is given out only after size and digest were checked, so
    that nobody who reads to the end has read something else than what was put.
    """

    def __init__(self, info: ObjectInfo, chunks: Chunks, progress: Progress | None = None) -> None:
        self.info = info
        self._chunks: Chunks | None = chunks
        self._progress = progress
        self._digest = Digest()
        self._bytes = 0
        self._count = 0
        self._rest: bytes | memoryview = b""
        self._is_checked = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = self._rest
        if chunk:
            self._rest = b""
        else:
            found = await self.next_chunk()
            if found is None:
                raise StopAsyncIteration
            chunk = found
        return bytes(chunk)

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, or all that is left; b"" at the end.

        Raises `IncompleteObjectError`, `DigestMismatchError`.
        """
        if size < 0:
            return await self._read_all()
        while not self._rest:
            chunk = await self.next_chunk()
            if chunk is None:
                return b""
            self._rest = chunk
        given, self._rest = self._rest[:size], self._rest[size:]
        return bytes(given)

    async def _read_all(self) -> bytes:
        """The rest. Each chunk goes to its place at once: nothing is held twice."""
        rest, self._rest = self._rest, b""
        whole = Whole(len(rest) + max(self.info.size - self._bytes, 0))
        whole.put(rest)
        while (chunk := await self._arrival()) is not None:
            await self._pass(whole.put(chunk))
        return whole.take()

    async def next_chunk(self) -> bytes | memoryview | None:
        """The next chunk as it came, None at the end; see `__anext__`, which gives bytes.

        The last one is checked before it is given out.
        """
        chunk = await self._arrival()
        if chunk is not None:
            await self._pass(chunk)
        return chunk

    async def _arrival(self) -> bytes | memoryview | None:
        """The next chunk as it came, and counted; None at the end."""
        if self._count >= self.info.chunks:
            if not self._is_checked:
                await self._check_end()
            return None
        if self._chunks is None:
            raise ObjectStoreError(f"read object {self.info.name!r}: its reader is closed")
        chunk = await self._chunks.next()
        if chunk is None:
            raise self._incomplete(f"{self.info.chunks - self._count} chunks are missing")
        self._count += 1
        self._bytes += len(chunk)
        if self._bytes > self.info.size:
            raise self._wrong_size()
        return chunk

    async def _pass(self, chunk: bytes | memoryview) -> None:
        """A chunk is about to be given out: hash it, tell of it, and check the last one."""
        await self._digest.update(chunk)
        if self._progress is not None:
            self._progress(self._bytes, self.info.size)
        if self._count == self.info.chunks:
            await self._check_end()

    async def _check_end(self) -> None:
        self.close()
        self._is_checked = True
        info = self.info
        if self._bytes != info.size:
            raise self._wrong_size()
        if info.digest and not same_digest(info.digest, await self._digest.finish()):
            raise DigestMismatchError(
                f"object {info.name!r} of store {info.bucket!r}: its bytes do not have the digest "
                f"{info.digest}. It was damaged, or written by something that is no object store"
            )

    def _wrong_size(self) -> IncompleteObjectError:
        return self._incomplete(f"its chunks have {self._bytes} bytes, not {self.info.size}")

    def _incomplete(self, what: str) -> IncompleteObjectError:
        self.close()
        return IncompleteObjectError(
            f"object {self.info.name!r} of store {self.info.bucket!r}: {what}. It was replaced or "
            "deleted while it was read, or lost in part: get it again"
        )

    def close(self) -> None:
        """Read no more."""
        if self._chunks is not None:
            self._chunks.close()
            self._chunks = None

    def __del__(self) -> None:
        # Whoever left an object half read, without a word: nothing more is to be sent for it.
        chunks: Chunks | None = getattr(self, "_chunks", None)
        if chunks is not None:
            chunks.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
