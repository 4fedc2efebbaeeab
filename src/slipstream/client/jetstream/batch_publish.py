"""Publishing many messages as one: atomic batches and fast batches
(docs/protocol/streams.md#atomic-batches, docs/protocol/streams.md#fast-batches).

    async with js.atomic_batch() as batch:
        await batch.add("orders.1", b"...")
        await batch.add("orders.2", b"...")
    print(batch.ack.sequence)      # of the last of them; all are stored, or none is

    async with js.fast_batch() as batch:
        for reading in readings:
            await batch.add("readings", reading)

An atomic batch holds up to 1000 messages. A fast batch has no end of its own: the server says how
many messages it takes ahead of the disk, and the client keeps within that.
"""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from slipstream.client.codecs import encode
from slipstream.client.errors import ConnectionLostError, NoRespondersError
from slipstream.client.jetstream.api import new_name
from slipstream.client.jetstream.errors import (
    BatchError,
    InvalidAnswerError,
    NoStreamError,
    PublishInterruptedError,
    PublishTimeoutError,
    api_error,
)
from slipstream.client.jetstream.publish import PubAck, PublishOptions, block_of, read_ack
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike
from slipstream.client.subscriptions import Route, Sink
from slipstream.errors import Error
from slipstream.model.header_fields import NATS_BATCH_COMMIT, NATS_BATCH_ID, NATS_BATCH_SEQUENCE
from slipstream.wire.headers import with_fields

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

# A server takes this many messages in an atomic batch unless it is configured otherwise.
ATOMIC_MESSAGES_MAX = 1000
# How often an atomic batch asks whether the server still follows.
CHECK_EVERY = 100


class AtomicBatch:
    """Messages stored all together by `commit`, or not at all.

    Leaving its ``async with`` commits; leaving it with an exception, or `discard`, stores nothing.
    `ack` is the server's answer to the commit.
    """

    def __init__(self, connection: "Connection", batch_id: str, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self.batch_id = batch_id or new_name()
        self.size = 0
        self.ack: PubAck | None = None
        self._is_ended = False
        self._last_subject = ""

    async def add(
        self,
        subject: str,
        data: Any = b"",
        *,
        headers: HeadersLike | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Add a message. The first one, and one of every hundred, waits for the server's answer.

        Raises `BatchError` if the batch has ended, `NoStreamError` if no stream listens, and the
        server's refusal as an `ApiError` (`ATOMIC_PUBLISH_DISABLED`: the stream does not allow
        atomic batches).
        """
        self._check(subject)
        if self._connection.write_buffer.crowded:  # from here on nothing waits before it is sent
            await self._connection.write_buffer.room()
            self._check(subject)
        size = self.size + 1
        body, block = encode(data), self._block(size, headers, options, b"")
        if size % CHECK_EVERY == 1:
            self.size, self._last_subject = size, subject
            await self._request(subject, body, block, is_commit=False)
        else:
            await self._connection.publish(subject, body, headers=block)
            self.size, self._last_subject = size, subject  # what was not sent does not count

    async def commit(
        self,
        subject: str = "",
        data: Any = b"",
        *,
        headers: HeadersLike | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Store everything, together with a last message if a subject is given.

        Raises the server's refusal as an `ApiError`; nothing is stored then. Whether something is
        when the answer does not come, `PublishTimeoutError` and `PublishInterruptedError` are
        raised.
        """
        self._check(subject or self._last_subject)
        self._is_ended = True
        if not subject and not self.size:
            raise BatchError(f"commit batch {self.batch_id!r}: there is no message in it")
        self.size += 1
        block = self._block(self.size, headers, options, b"1" if subject else b"eob")
        body = await self._request(
            subject or self._last_subject, encode(data), block, is_commit=True
        )
        self.ack = read_ack(body, f"commit batch {self.batch_id!r}")
        self.size = self.ack.batch_size
        return self.ack

    def discard(self) -> None:
        """Store nothing: the server forgets the batch when nothing more comes for it."""
        self._is_ended = True

    def _check(self, subject: str) -> None:
        if self._is_ended:
            raise BatchError(
                f"batch {self.batch_id!r}, message on {subject!r}: the batch has ended; make "
                "another one"
            )

    def _block(
        self, size: int, headers: HeadersLike | None, options: PublishOptions, commit: bytes
    ) -> bytes:
        fields = [
            (NATS_BATCH_ID, self.batch_id.encode()),
            (NATS_BATCH_SEQUENCE, b"%d" % size),
        ]
        if commit:
            fields.append((NATS_BATCH_COMMIT, commit))
        return with_fields(block_of(headers, options), fields)

    async def _request(self, subject: str, body: bytes, block: bytes, *, is_commit: bool) -> bytes:
        """Publish, and await the server's answer: empty while all is well. Else the batch ends."""
        try:
            answer = await self._answer(subject, body, block, is_commit)
        except BaseException:
            self._is_ended = True
            raise
        return answer

    async def _answer(self, subject: str, body: bytes, block: bytes, is_commit: bool) -> bytes:
        asked = f"batch {self.batch_id!r}, message {self.size} on {subject!r}"
        try:
            answer = await self._connection.request(
                subject, body, headers=block, timeout=self._timeout
            )
        except NoRespondersError as error:
            raise NoStreamError(
                f"{asked}: no stream listens on this subject", subject=subject, may_be_stored=False
            ) from error
        except TimeoutError as error:
            raise PublishTimeoutError(
                f"{asked}: the server did not answer; the batch is abandoned",
                subject=subject,
                may_be_stored=is_commit,
            ) from error
        except ConnectionLostError as error:
            raise PublishInterruptedError(
                f"{asked}: the connection broke before the answer came; the batch "
                + ("may be stored" if is_commit else "is abandoned"),
                subject=subject,
                may_be_stored=is_commit,
            ) from error
        if answer.data and b"error" in answer.data:
            read_ack(answer.data, asked)  # raises
        if answer.data and not is_commit:
            raise BatchError(
                f"{asked}: the server stored the message by itself, without the batch; it is too "
                "old for batches"
            )
        return answer.data

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
        elif not self._is_ended:
            await self.commit()


class FastBatch(Sink):
    """Messages stored as fast as the server takes them, acknowledged together.

    `flow` is how many messages may go between two acknowledgements at most; about twice as many are
    in flight. If messages are lost on the way, the batch ends there with a `BatchError`, or goes on
    if `allow_gaps`. `acknowledged` counts what is stored; `ack` is the answer to the commit.
    """

    def __init__(
        self,
        connection: "Connection",
        batch_id: str,
        timeout: float,
        flow: int,
        allow_gaps: bool,
    ) -> None:
        if not 1 <= flow <= 65535:
            raise ValueError(f"flow is 1 to 65535, not {flow}")
        self._connection = connection
        self._timeout = timeout
        self.batch_id = batch_id or new_name()
        self._inbox = connection.new_inbox()
        self._reply = f"{self._inbox}.{self.batch_id}.{flow}.{'ok' if allow_gaps else 'fail'}"
        self._route: Route | None = None
        self._allow_gaps = allow_gaps
        self._window = 1
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_ended = False
        self._last_subject = ""
        self.size = 0
        self.acknowledged = 0
        self.gaps: list[tuple[int, int]] = []  # (first lost, first after) batch sequences
        self.ack: PubAck | None = None

    async def add(
        self,
        subject: str,
        data: Any = b"",
        *,
        headers: HeadersLike | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Add a message; waits while as many are in flight as the server allows.

        Raises `BatchError`, or the server's refusal as an `ApiError`
        (`BATCH_PUBLISH_DISABLED`: the stream does not allow fast batches), for what has happened so
        far.
        """
        self._check(subject)
        if self._route is None:
            self._route = self._connection.subscriptions.open(f"{self._inbox}.>", "", self)
        self._last_subject = subject
        self._put(subject, encode(data), block_of(headers, options), 0 if self.size == 0 else 1)
        if self.size == 1:
            await self._until(lambda: self._window > 1 or self.acknowledged > 0, "the first answer")
        elif self.size - self.acknowledged >= 2 * self._window:
            await self._until(
                lambda: self.size - self.acknowledged < 2 * self._window, "room for more"
            )
        if self._connection.write_buffer.crowded:
            await self._connection.write_buffer.room()

    async def commit(self) -> PubAck:
        """End the batch; returns when everything in it is stored."""
        self._check(self._last_subject)
        if not self.size:
            raise BatchError(f"commit batch {self.batch_id!r}: there is no message in it")
        self._is_ended = True
        try:
            self._put(self._last_subject, b"", b"", 3)
            self.size -= 1
            await self._until(lambda: self.ack is not None, "the acknowledgement")
        finally:
            self._close()
        assert self.ack is not None
        return self.ack

    def _put(self, subject: str, body: bytes, block: bytes, operation: int) -> None:
        self._connection.publish_nowait(
            subject,
            body,
            reply=f"{self._reply}.{self.size + 1}.{operation}.$FI",
            headers=block or None,
        )
        self.size += 1  # what was not sent does not count

    def _check(self, subject: str) -> None:
        if self._error is not None:
            self._close()
            raise self._error
        if self._is_ended:
            raise BatchError(
                f"batch {self.batch_id!r}, message on {subject!r}: the batch has ended; make "
                "another one"
            )

    async def _until(self, condition: Any, what: str) -> None:
        """Wait until `condition` holds; raises what went wrong instead."""
        try:
            async with asyncio.timeout(self._timeout):
                while not condition() and self._error is None:
                    waiter = self._waiter
                    if waiter is None or waiter.done():
                        waiter = self._waiter = self._connection.loop.create_future()
                    # Several tasks may add; none of them may cancel the future for the others.
                    await asyncio.shield(waiter)
        except TimeoutError:
            self._error = PublishTimeoutError(
                f"batch {self.batch_id!r}: {what} did not come within {self._timeout} s; "
                f"{self.acknowledged} of {self.size} messages are known to be stored",
                subject=self._last_subject,
            )
        if self._error is not None and not condition():
            self._close()
            raise self._error

    # -- what the server says ------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """An acknowledgement of flow, a gap, an error, or the end."""
        if message.status == 503:
            self._error = NoStreamError(
                f"batch {self.batch_id!r} on {self._last_subject!r}: no stream listens on this "
                "subject",
                subject=self._last_subject,
                may_be_stored=False,
            )
        elif message.data:
            try:
                self._act(msgspec.json.decode(message.data))
            except Error as error:
                self._error = error
            except Exception as error:
                self._error = InvalidAnswerError(
                    f"batch {self.batch_id!r} on {self._last_subject!r}: the answer is none of a "
                    f"stream's but {message.data[:80]!r}"
                )
                self._error.__cause__ = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _act(self, said: dict[str, Any]) -> None:
        asked = f"batch {self.batch_id!r} on {self._last_subject!r}"
        match said.get("type"):
            case "ack":
                self.acknowledged = max(self.acknowledged, said["seq"])
                self._window = max(said["msgs"], 1)
                if said["seq"] == 0:
                    self._window = max(self._window, 2)
            case "gap":
                self.gaps.append((said["last_seq"], said["seq"]))
                if not self._allow_gaps:
                    self._error = BatchError(
                        f"{asked}: messages {said['last_seq']} to {said['seq'] - 1} were lost on "
                        "the way; what came before is stored"
                    )
            case "err":
                error = api_error(said["error"], f"{asked}, message {said['seq']}")
                if not self._allow_gaps:
                    self._error = error
            case _:
                self._finish(said, asked)

    def _finish(self, said: dict[str, Any], asked: str) -> None:
        if "error" in said:
            raise api_error(said["error"], asked)
        ack = msgspec.convert(said, PubAck)
        if not ack.batch_id:
            raise BatchError(
                f"{asked}: the server stored the message by itself, without the batch; it is too "
                "old for fast batches"
            )
        self.ack = ack
        self.acknowledged = ack.batch_size

    def failed(self, error: Exception) -> None:
        """The connection was closed."""
        self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_disconnect(self, handed: int) -> None:
        """The connection broke: the server has committed what came, and ended the batch."""
        self.failed(
            BatchError(
                f"batch {self.batch_id!r}: the connection broke; {self.acknowledged} of "
                f"{self.size} messages are known to be stored, more may be"
            )
        )

    def _close(self) -> None:
        self._is_ended = True
        if self._route is not None:
            self._connection.subscriptions.drop(self._route)
            self._route = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._close()
        elif not self._is_ended:
            if self.size:
                await self.commit()
            else:
                self._close()
