"""Where the bytes of an object come from: anything that holds or yields bytes, cut into chunks."""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

# Files are read in another thread, this much at a time; what lies in memory is cut into as much.
PIECE_BYTES = 4 * 1024 * 1024


class Readable(Protocol):
    """A file, or whatever reads like one."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        ...


class AsyncReadable(Protocol):
    """An `ObjectReader`, an `asyncio.StreamReader`, or whatever reads like them."""

    async def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        ...


Data: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | str
    | Path
    | Readable
    | AsyncReadable
    | Iterable[bytes]
    | AsyncIterable[bytes]
)


async def pieces_of(data: Data, size: int) -> AsyncIterator[memoryview]:
    """`data` in pieces of a few megabytes; all but the last are a multiple of `size` bytes long.

    Text is UTF-8, a `Path` a file.
    """
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data).cast("B")
        step = max(PIECE_BYTES // size, 1) * size
        for at in range(0, len(view), step):
            yield view[at : at + step]
        return
    held = bytearray()
    async for given in _pieces(data):
        # Whoever yields a bytearray may fill it anew as soon as the next piece is asked for.
        piece = given if isinstance(given, bytes) else bytes(given)
        if not held and len(piece) % size == 0:
            yield memoryview(piece)
            continue
        held += piece
        whole = len(held) - len(held) % size
        if whole:
            cut, held = memoryview(bytes(held[:whole])), held[whole:]
            yield cut
    if held:
        yield memoryview(held)


async def _pieces(data: object) -> AsyncIterator[bytes | bytearray | memoryview]:
    if isinstance(data, Path):
        file: BinaryIO = await asyncio.to_thread(data.open, "rb")
        try:
            async for piece in _read(file):
                yield piece
        finally:
            file.close()
    elif hasattr(data, "read"):
        async for piece in _read(data):
            yield piece
    elif isinstance(data, AsyncIterable):
        async for piece in data:
            yield piece
    elif isinstance(data, Iterable):
        for piece in data:
            yield piece
    else:
        raise TypeError(
            "an object is bytes, text, a Path, a file opened in binary mode, or an iterable or "
            f"async iterable of bytes, not {type(data).__name__}"
        )


async def _read(file: Readable | AsyncReadable) -> AsyncIterator[bytes]:
    while True:
        given = (
            file.read(PIECE_BYTES)
            if inspect.iscoroutinefunction(file.read)
            else asyncio.to_thread(file.read, PIECE_BYTES)
        )
        if not (piece := await given):
            return
        if not isinstance(piece, bytes):
            raise TypeError("what is read has to be bytes: open the file with 'rb'")
        yield piece
