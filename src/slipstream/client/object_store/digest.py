"""The digest of an object as it passes: in another thread, so that hashing and moving overlap.

A SHA-256 costs as much as everything else that happens to a chunk on its way. hashlib lets go of
the interpreter while it works, so the chunks are handed over a megabyte or more at a time, one load
after the other: what comes while a load is being hashed makes up the next one. What is smaller is
not worth a thread.
"""

import asyncio
import hashlib

LOAD_BYTES = 1024 * 1024
# Whoever brings more than this while a load is being hashed waits for it.
HELD_BYTES_MAX = 4 * 1024 * 1024


class Digest:
    """SHA-256 of the chunks given to `update`, in their order."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._held: list[bytes | memoryview] = []
        self._held_bytes = 0
        self._job: asyncio.Future[None] | None = None

    async def update(self, chunk: bytes | memoryview) -> None:
        """Take the next chunk, which may not change any more; waits while too much is held."""
        self._held.append(chunk)
        self._held_bytes += len(chunk)
        is_busy = self._job is not None and not self._job.done()
        if self._held_bytes >= (HELD_BYTES_MAX if is_busy else LOAD_BYTES):
            await self._wait()
            load, self._held, self._held_bytes = self._held, [], 0
            self._job = asyncio.get_running_loop().run_in_executor(None, self._hash, load)

    async def finish(self) -> bytes:
        """The digest of all that was given."""
        await self._wait()
        self._hash(self._held)
        self._held = []
        return self._sha.digest()

    async def _wait(self) -> None:
        if self._job is not None:
            await self._job
            self._job = None

    def _hash(self, load: list[bytes | memoryview]) -> None:
        for chunk in load:
            self._sha.update(chunk)
