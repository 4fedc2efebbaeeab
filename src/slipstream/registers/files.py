"""A group's register as a file, for servers of one machine.

The version is a checksum of the content. A lock of the system (`flock`) is held by whoever reads or
replaces the file, and ends with its process, so two servers never replace the same version. What is
read is durable first: whoever has put it there may have died before it was.

It is for two servers on a laptop or in a test. Servers of two machines would each have a file of
their own, and two leaders; the configuration refuses such a group (`ClusterOptions.faults`).
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from slipstream.errors import Error

LOCK_SECONDS_MAX = 1.0  # another server has it for as long as a write takes
LOCK_AGAIN_SECONDS = 0.005


class FileRegister:
    """The file with the group's name in a directory, which is made when it is needed. Its requests
    run on threads: a lock and a sync may take a while."""

    def __init__(self, directory: str, group: str) -> None:
        self._directory = Path(directory)
        self._path = self._directory / f"{group}.json"

    @property
    def called(self) -> str:
        """Its URL."""
        return self._path.as_uri()

    async def get(self) -> tuple[bytes, str]:
        """Read the file."""
        return await asyncio.to_thread(self._get)

    async def put(self, data: bytes, version: str) -> bool:
        """Replace the file, if its content is the one of that version."""
        return await asyncio.to_thread(self._put, data, version)

    async def close(self) -> None:
        """Nothing is held."""

    def _get(self) -> tuple[bytes, str]:
        with self._locked() as directory:
            data = self._read()
            if data:
                os.fsync(directory)
            return data, _version(data)

    def _put(self, data: bytes, version: str) -> bool:
        with self._locked() as directory:
            if _version(self._read()) != version:
                return False
            beside = self._path.with_suffix(".new")
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            os.fsync(directory)
            return True

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The directory, which no other server looks at meanwhile. Raises `Error`, OSError."""
        self._make_directory()
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(directory)
            yield directory
        finally:
            fcntl.flock(directory, fcntl.LOCK_UN)  # also where a forked process has it open
            os.close(directory)

    def _make_directory(self) -> None:
        """Make it, so that a power failure does not take it away. Raises OSError."""
        missing = [one for one in (self._directory, *self._directory.parents) if not one.exists()]
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in missing:
            above = os.open(one.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(above)
            finally:
                os.close(above)

    def _lock(self, directory: int) -> None:
        until = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Error(
                        f"another process has had the lock of {self._directory} for "
                        f"{LOCK_SECONDS_MAX:g} s: continue it if it is stopped, or kill it"
                    ) from None
                time.sleep(LOCK_AGAIN_SECONDS)
            else:
                return


def _version(data: bytes) -> str:
    return sha256(data).hexdigest() if data else ""
