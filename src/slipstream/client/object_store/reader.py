"""Reading an object: chunk by chunk or as a whole, with its size and digest checked at the end.

    async with await store.open("backup.tar") as reader:
        async for chunk in reader: ...

`Chunks` asks for a batch of a few megabytes at a time by direct gets; while the reader takes its
chunks the next batch is requested, so that memory stays bounded and the socket busy. A chunk that
was lost on the way, a broken connection or a server that does not answer cost one more request: the
batch continues after the last chunk that came.

`Digest` hashes chunks in another thread, so that hashing and moving overlap. A SHA-256 costs as
much as everything else that happens to a chunk. hashlib releases the interpreter while it works, so
the chunks are handed over a megabyte or more at a time, one load after the other; what comes while
a load is being hashed makes up the next one. What is smaller is not worth a thread.
"""

import asyncio
import builtins
import hashlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

from slipstream.client.errors import OutboundBufferFullError, TimeoutError
from slipstream.client.jetstream.status import header_number
from slipstream.client.jetstream.stored import message_after
from slipstream.client.message import Message, message_of
from slipstream.client.object_store.errors import (
    DigestMismatchError,
    IncompleteObjectError,
    ObjectStoreError,
)
from slipstream.client.object_store.info import ObjectInfo, same_digest
from slipstream.client.object_store.object_bytes import ObjectBytes
from slipstream.client.subscriptions import Sink
from slipstream.errors import Error
from slipstream.model import header_fields
from slipstream.model.header_names import NATS_LAST_SEQUENCE, NATS_NUM_PENDING
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.subscriptions import SinkSubscription
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

LOAD_BYTES = 1024 * 1024
# `update` waits when more than this is held while a load is being hashed.
HELD_BYTES_MAX = 4 * 1024 * 1024


class Digest:
    """SHA-256 of the chunks given to `update`, in their order."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._held: list[bytes | memoryview] = []
        self._held_bytes = 0
        self._job: asyncio.Future[None] | None = None

    async def update(self, chunk: bytes | memoryview) -> None:
        """Take the next chunk, which must not change from now on; waits while too much is held."""
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


BATCH_BYTES = 8 * 1024 * 1024
_BATCH_MESSAGES = 1_000_000  # the bound that counts is the one on bytes
_TRIES = 5
# Nobody answers for a stream that is gone, and for a while after its server has come back.
_UNHEARD_MAX = 4
_NOT_BACK_YET = 0.25  # seconds
_DIGITS_MAX = 19


class _Answers(Sink):
    """The answers of one request: header block and bytes of each chunk, as they lie in the read."""

    def __init__(self, on_status: "Callable[[_Answers], None]") -> None:
        self._on_status = on_status
        self.chunks: deque[tuple[bytes, memoryview]] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.subscription: SinkSubscription | None = None
        self.status: Message | None = None
        self.is_broken = False
        self.error: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self.status is not None or self.is_broken

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """A chunk, or the status that ends the batch."""
        data, start = frames.data, frames.body_start
        block = data[frames.header_start : start]
        if block[8:9] == b" ":
            self.status = message_of(frames, write_buffer)
            self._wake()
            self._on_status(self)
            return
        self.chunks.append((block, memoryview(data)[start : frames.end]))
        self._wake()

    def failed(self, error: Exception) -> None:
        """The connection is closed for good."""
        self.error = error
        self.on_disconnect(0)

    def on_disconnect(self, handed: int) -> None:
        """The rest went down with the connection."""
        self.is_broken = True
        self._wake()

    async def arrival(self, timeout: float) -> bool:
        """Wait for something to come; False if nothing does in time."""
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self.waiter
        except builtins.TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Await nothing more."""
        if self.subscription is not None:
            self.subscription.close()

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Chunks:
    """The messages on `subject` in order; `next` gives one after the other."""

    def __init__(self, js: "JetStream", stream: str, subject: str, *, is_direct: bool) -> None:
        self._js = js
        self._stream = stream
        self._subject = subject
        self._is_direct = is_direct
        self._after = 0  # sequence of the last message that was given out
        self._previous = 0  # the sequence that the next message names as the one before it
        self._answers: _Answers | None = None
        self._ahead: _Answers | None = None  # those of the next batch
        self._is_end = False
        self._unheard = 0  # requests in a row that nobody answered

    async def next(self) -> bytes | memoryview | None:
        """The next chunk; None if there is none. Raises `TimeoutError` if the server is silent."""
        if not self._is_direct:
            found = await message_after(self._js, self._stream, self._subject, self._after)
            if found is None:
                return None
            self._after = found.sequence
            return found.data
        for _ in range(_TRIES):
            while (arrived := await self._arrival()) is not None:
                block, chunk = arrived
                if self._accept(block):
                    return chunk
                self.close()  # one is missing before this: ask again from the last good one
            if self._is_end:
                return None
            if self._unheard:
                await asyncio.sleep(_NOT_BACK_YET)
        raise TimeoutError(
            f"read chunks on {self._subject!r} of stream {self._stream!r}: the server fell silent "
            f"{_TRIES} times"
        )

    def _accept(self, block: bytes) -> bool:
        previous = find(block, 0, len(block), header_fields.NATS_LAST_SEQUENCE)
        if previous is not None and previous != b"%d" % self._previous:
            return False
        sequence = find(block, 0, len(block), header_fields.NATS_SEQUENCE) or b""
        if not sequence.isdigit() or len(sequence) > _DIGITS_MAX:
            raise IncompleteObjectError(
                f"read chunks on {self._subject!r} of stream {self._stream!r}: an answer has no "
                f"Nats-Sequence in its headers: {block[:200]!r}"
            )
        self._after = self._previous = int(sequence)
        self._unheard = 0
        if previous is None:  # a server that knows no batches answers with one message
            self.close()
        return True

    async def _arrival(self) -> tuple[bytes, memoryview] | None:
        """The next answer; None if nothing came in time, or nothing is left."""
        while True:
            answers = self._answers
            if answers is None:
                write_buffer = self._js.connection.write_buffer
                if write_buffer.crowded:
                    await write_buffer.room()
                answers = self._answers = self._request(self._after + 1)
                self._previous = 0
            if not answers.chunks and not answers.is_over:
                if not await answers.arrival(self._js.timeout):
                    self.close()
                    return None
            self._request_ahead(answers)
            if answers.chunks:
                return answers.chunks.popleft()
            if answers.error is not None:
                raise answers.error
            if answers.is_broken or not self._is_whole(answers):
                self.close()
                return None
            answers.close()
            self._answers, self._ahead, self._previous = self._ahead, None, 0
            if self._answers is None and not _has_more(answers):
                self._is_end = True
                return None

    def _request_ahead(self, answers: _Answers) -> None:
        """A batch that is being read has come whole: have the next one sent meanwhile."""
        if answers is not self._answers or self._ahead is not None:
            return
        if last := _has_more(answers):
            with suppress(OutboundBufferFullError):  # then it is asked for when it is needed
                self._ahead = self._request(last + 1)

    def _is_whole(self, answers: _Answers) -> bool:
        """Whether the batch that ended with a status held all that the server sent."""
        status = answers.status
        assert status is not None
        code = status.status
        if code == 404:
            return True
        if code == 204:
            return header_number(status, NATS_LAST_SEQUENCE) == self._previous
        if code == 503 and self._unheard < _UNHEARD_MAX:
            self._unheard += 1
            return False
        said = "the stream is gone" if code == 503 else f"{code} {status.description}"
        raise IncompleteObjectError(
            f"read chunks on {self._subject!r} of stream {self._stream!r}: {said}"
        )

    def _request(self, sequence: int) -> _Answers:
        connection = self._js.connection
        inbox = connection.new_inbox()
        answers = _Answers(self._request_ahead)
        answers.subscription = connection.open_sink(inbox, answers)
        body = {"seq": sequence, "next_by_subj": self._subject}
        body |= {"batch": _BATCH_MESSAGES, "max_bytes": BATCH_BYTES}
        subject = f"{self._js.api.prefix}.DIRECT.GET.{self._stream}"
        try:
            connection.publish_nowait(subject, msgspec.json.encode(body), reply=inbox)
        except Error:
            answers.close()
            raise
        return answers

    def close(self) -> None:
        """Ask for no more."""
        for answers in (self._answers, self._ahead):
            if answers is not None:
                answers.close()
        self._answers = self._ahead = None

    def abandon(self) -> None:
        """`close`, from wherever objects are collected."""
        loop = self._js.connection.loop
        if self._answers is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.close)


def _has_more(answers: _Answers) -> int:
    """The last sequence of a batch that came in full and has messages after it; else 0."""
    status = answers.status
    if status is None or status.status != 204 or status.header(NATS_NUM_PENDING) == "0":
        return 0
    return header_number(status, NATS_LAST_SEQUENCE)


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
        whole = ObjectBytes(len(rest) + max(self.info.size - self._bytes, 0))
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
        """A chunk is about to be given out: hash it, report progress, and check the last one."""
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
        # The reader was dropped before its end: nothing more is to be sent for it.
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
