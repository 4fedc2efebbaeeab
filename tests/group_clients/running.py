"""A client's program while it runs."""

import asyncio
from pathlib import Path

from tests.group_clients.record import Record

END_SECONDS_MAX = 20.0
LINE_BYTES_MAX = 1 << 20


class Running:
    """One process, from `start` to `end`; `record` grows meanwhile."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.stream = name.upper()
        self.record = Record()
        self._command = command
        self._errors = directory / f"{name}.errors"
        self._events = directory / f"{name}.events"
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, urls: list[str]) -> None:
        """Start the process."""
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, self.stream, ",".join(urls), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, stderr=errors, limit=LINE_BYTES_MAX,
            )  # fmt: skip
        self._reading = asyncio.create_task(self._read(), name=f"events of {self.name}")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._events.open("wb", buffering=0) as events:
            async for line in self._process.stdout:
                events.write(line)
                self.record.take(line.decode().rstrip("\n"))

    def check(self) -> None:
        """Raises AssertionError if the client has ended by itself, or says what is no event."""
        assert self._process is not None
        assert self._reading is not None
        if self._reading.done():
            self._reading.result()
            raise AssertionError(f"{self.name} has ended: {self._errors.read_text()[-2000:]}")

    def stop(self) -> None:
        """Have it publish no more."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")

    async def end(self) -> int | None:
        """Have it end; its status."""
        process = self._process
        if process is None:
            return None
        assert process.stdin is not None
        assert self._reading is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS_MAX):
                await process.wait()
                await self._reading
        except TimeoutError:
            process.kill()
            await process.wait()
        return process.returncode
