"""Streams as backups in directories, and back (docs/protocol/streams.md#snapshots-and-restores).

    await js.backup_stream("ORDERS", "backups/ORDERS")
    await js.restore_stream("backups/ORDERS")

A backup is a directory with `backup.json`, the stream's configuration and state, and
`stream.tar.s2`, the archive as the server sent it: what the `nats` tool writes, for either server.
Chunks are on their way while others are written or read, which happens in threads.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from slipstream.client.jetstream.api import check_stream_name, read_answer
from slipstream.client.jetstream.errors import BackupError
from slipstream.client.message import Message
from slipstream.model.configurations import StreamConfig
from slipstream.model.infos import StreamInfo, StreamState

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

META, DATA = "backup.json", "stream.tar.s2"
CHUNK_BYTES = 512 * 1024
WINDOW_BYTES = 16 * 1024 * 1024
WRITE_BACK_BYTES = 4 * 1024 * 1024  # after which the system is to begin to write to the disk
SENT_AHEAD = 16  # chunks of a restore that are on their way
ANSWER_SECONDS_MAX = 20.0  # of a server, which itself waits 5 for a client
COMPLETE_SECONDS = 600.0  # for a server that has all of a restore to make it durable

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class BackupInfo(msgspec.Struct, kw_only=True):
    """What a backup holds: the stream as it was, and how large the archive is."""

    config: StreamConfig
    state: StreamState
    bytes: int  # of the archive, compressed


class FrameMeter:
    """Counts what compressed chunks hold when they are decompressed, from their heads alone."""

    def __init__(self) -> None:
        self.bytes = 0
        self._head = b""  # the beginning of a frame's chunk that came in part
        self._skip = 0  # what is left of the one before

    def feed(self, data: bytes) -> None:
        """More of the archive."""
        at = min(self._skip, len(data))
        self._skip -= at
        if self._head:
            data = self._head + data[at:]
            self._head = b""
            at = 0
        while len(data) - at >= 13:  # type, size, checksum, and at most five bytes of a number
            at += self._chunk(data, at)
        if at < len(data):
            self._head = data[at:]
        self._skip += max(at - len(data), 0)

    def _chunk(self, data: bytes, at: int) -> int:
        size = int.from_bytes(data[at + 1 : at + 4], "little")
        if data[at] == 1:
            self.bytes += size - 4
        elif data[at] == 0:
            for i in range(5):
                self.bytes += (data[at + 8 + i] & 0x7F) << (7 * i)
                if data[at + 8 + i] < 0x80:
                    break
        return 4 + size


class _ArchiveFile:
    """A file that is written from its beginning to its end. What is written goes to the disk while
    more comes, and not only with the sync at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = 0
        self._begun = 0  # up to here the system writes it

    def write(self, chunks: list[bytes]) -> None:
        """Write chunks at the end. Blocks; raises OSError."""
        self._file.writelines(chunks)
        self._size += sum(map(len, chunks))
        new = self._size - self._begun
        if new >= WRITE_BACK_BYTES and hasattr(os, "posix_fadvise"):
            self._file.flush()
            # What is not on the disk yet stays in the cache, and the system begins to write it.
            fd, advice = self._file.fileno(), os.POSIX_FADV_DONTNEED
            os.posix_fadvise(fd, self._begun, new, advice)
            self._begun = self._size


async def backup(
    js: "JetStream",
    name: str,
    directory: "str | os.PathLike[str]",
    consumers: bool,
    check: bool,
    progress: Progress | None,
) -> BackupInfo:
    """See `JetStream.backup_stream`."""
    check_stream_name(name)
    target = Path(directory)
    if (target / DATA).exists() or (target / META).exists():
        raise BackupError(f"{target} holds a backup already: name a directory without one")
    inbox = js.connection.new_inbox()
    chunks: asyncio.Queue[Message] = asyncio.Queue()
    subscription = await js.connection.subscribe(inbox, handler=chunks.put_nowait)
    try:
        asked = {
            "deliver_subject": inbox,
            "no_consumers": not consumers,
            "chunk_size": min(CHUNK_BYTES, js.connection.server_info.max_payload),
            "window_size": WINDOW_BYTES,
            "jsck": check,
        }
        found = await js.api.request(f"STREAM.SNAPSHOT.{name}", asked)
        info = BackupInfo(
            config=StreamConfig.from_wire(found.get("config") or {}),
            state=StreamState.from_wire(found.get("state") or {}),
            bytes=0,
        )
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
        part = target / f"{DATA}.part"
        try:
            with part.open("wb") as file:
                archive = _ArchiveFile(file)
                info.bytes = await _receive(js, chunks, archive, name, info.state.bytes, progress)
                await asyncio.to_thread(_sync, file)
            await asyncio.to_thread(_complete, target, part, found)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    finally:
        await subscription.unsubscribe()
    return info


async def _receive(
    js: "JetStream",
    chunks: "asyncio.Queue[Message]",
    archive: "_ArchiveFile",
    name: str,
    size: int,
    progress: Progress | None,
) -> int:
    """Write what comes until the end; how many bytes that were. A chunk is acknowledged once it is
    written, so that a slow disk slows the server down."""
    meter = FrameMeter()
    written = 0
    while True:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                messages = [await chunks.get()]
        except TimeoutError:
            raise BackupError(f"backup of stream {name}: the server has stopped sending") from None
        while not chunks.empty():
            messages.append(chunks.get_nowait())
        bodies = [message.data for message in messages]
        await asyncio.to_thread(archive.write, bodies)
        for message in messages:
            if not message.data:
                if message.status >= 300:
                    raise BackupError(
                        f"backup of stream {name}: the server gave up: "
                        f"{message.status} {message.description}"
                    )
                if progress is not None:
                    progress(size, size)
                return written
            written += len(message.data)
            meter.feed(message.data)
            if message.reply:
                await js.connection.publish(message.reply)
        if progress is not None:
            progress(min(meter.bytes, size), size)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _complete(target: Path, part: Path, found: dict[str, Any]) -> None:
    """Give the archive its name, last: a backup without it is none."""
    kept = {"config": found.get("config"), "state": found.get("state")}
    with (target / META).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(kept), indent=2))
        _sync(file)
    part.replace(target / DATA)


def read_meta(source: Path) -> dict[str, Any]:
    """The `backup.json` of a directory. Raises `BackupError`."""
    try:
        meta: dict[str, Any] = msgspec.json.decode((source / META).read_bytes(), type=dict)
    except (OSError, msgspec.MsgspecError) as error:
        raise BackupError(f"{source} is no backup: {META} cannot be read: {error}") from error
    if not isinstance(meta.get("config"), dict) or not (source / DATA).is_file():
        raise BackupError(f"{source} is no backup: it has no {DATA}, or {META} no configuration")
    return meta


async def restore(
    js: "JetStream",
    directory: "str | os.PathLike[str]",
    config: StreamConfig | None,
    progress: Progress | None,
) -> StreamInfo:
    """See `JetStream.restore_stream`."""
    source = Path(directory)
    meta = await asyncio.to_thread(read_meta, source)
    wanted = config.to_wire() if config is not None else meta["config"]
    with (source / DATA).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        chunks = _chunks(js, file)
        return await upload(js, wanted, meta.get("state") or {}, chunks, size, progress)


async def _chunks(js: "JetStream", file: BinaryIO) -> AsyncIterator[bytes]:
    step = min(CHUNK_BYTES, js.connection.server_info.max_payload)
    while chunk := await asyncio.to_thread(file.read, step):
        yield chunk


async def upload(
    js: "JetStream",
    config: dict[str, Any],
    state: dict[str, Any],
    chunks: AsyncIterator[bytes],
    size: int,
    progress: Progress | None,
) -> StreamInfo:
    """Have the server make a stream of `config` from an archive that comes in chunks, none larger
    than its `max_payload`; `size` is what they come to. Raises `ApiError`, `BackupError` and what
    the chunks raise."""
    name = check_stream_name(str(config.get("name", "")))
    endpoint = f"STREAM.RESTORE.{name}"
    answer = await js.api.request(endpoint, {"config": config, "state": state})
    sending = _Upload(js, endpoint, str(answer.get("deliver_subject", "")))
    return StreamInfo.from_wire(await sending.run(chunks, size, progress))


class _Upload:
    """Sends an archive in chunks, some ahead of their answers."""

    def __init__(self, js: "JetStream", endpoint: str, subject: str) -> None:
        self._connection = js.connection
        self._endpoint = endpoint
        self._subject = subject
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._waiting = 0

    async def run(
        self, chunks: AsyncIterator[bytes], size: int, progress: Progress | None
    ) -> dict[str, Any]:
        """The final answer. Raises `BackupError` and what the server says."""
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, handler=self._answers.put_nowait)
        sent = 0
        try:
            async for chunk in chunks:
                while self._waiting >= SENT_AHEAD:
                    await self._answered(ANSWER_SECONDS_MAX)
                await self._connection.publish(self._subject, chunk, reply=inbox)
                self._waiting += 1
                sent += len(chunk)
                if progress is not None:
                    progress(sent, size)
            while self._waiting:
                await self._answered(ANSWER_SECONDS_MAX)
            await self._connection.publish(self._subject, b"", reply=inbox)
            return await self._final()
        finally:
            await subscription.unsubscribe()

    async def _next(self, timeout: float) -> Message:
        try:
            async with asyncio.timeout(timeout):
                message = await self._answers.get()
        except TimeoutError:
            raise BackupError(f"{self._endpoint}: the server has stopped answering") from None
        if message.status == 503:
            raise BackupError(f"{self._endpoint}: the server has given the restore up")
        return message

    async def _answered(self, timeout: float) -> None:
        """One chunk was taken; an answer with something in it says what is wrong."""
        message = await self._next(timeout)
        self._waiting -= 1
        if message.data:
            read_answer(message, self._endpoint)

    async def _final(self) -> dict[str, Any]:
        return read_answer(await self._next(COMPLETE_SECONDS), self._endpoint)
