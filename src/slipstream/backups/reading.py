"""Reads the messages of a stretch of a stream, as entries of an archive.

Where the stream allows direct gets they are asked for in batches. Otherwise a consumer without
acknowledgements reads a stream with limits; streams where a consumer would keep messages alive, or
is refused, are asked for one message after another, many at a time.

Which sequences have a message is known before. One that did not come is asked for at the leader: it
was removed meanwhile, or a replica that lags behind has answered.
"""

import asyncio
import base64
import builtins
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.archive.entries import put_entry
from slipstream.backups.parts import Ranges, ranges_of, without
from slipstream.client.errors import ConnectionLostError, TimeoutError
from slipstream.client.jetstream.errors import (
    ApiError,
    BackupError,
    MaximumConsumersError,
    MessageNotFoundError,
)
from slipstream.client.subscriptions import Sink
from slipstream.errors import Error
from slipstream.model.ack_subject import AckSubject
from slipstream.model.configurations import ConsumerConfig
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
)
from slipstream.model.infos import StreamInfo
from slipstream.model.times import stored_ns
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.headers import VERSION_LINE, fields, find, status, value_end

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

BATCH_BYTES = 8 * 1024 * 1024
BATCH_MESSAGES = 20_000
ONE_BY_ONE = 64  # requests for single messages that are on their way
HOLES_MAX = 10_000  # in one batch, that are asked about one by one
FAILURES_MAX = 5
CONSUMER_SECONDS = 60.0
_ADDED_BY_DIRECT_GET = b"\r\n%b: " % NATS_STREAM


class Batch(Sink):
    """Takes the answers to one request. `last` is the sequence of the last message, 0 for none;
    `is_exhausted` says that the server had no further one."""

    def __init__(self) -> None:
        self.out = OutBuffer()
        self.sequences: list[int] = []
        self.last = self.last_ts = 0
        self.bound = 2**63
        self.is_exhausted = False
        self.knows_batches = True  # a server before 2.11 answers with one message
        self.error: Exception | None = None
        self.ended = asyncio.Event()

    def add(self, seq: int, ts: int, subject: bytes, data: bytes, at: tuple[int, int, int]) -> None:
        """A message: its header block and body begin and end where `at` says."""
        if seq > self.bound:
            self.finish(True)
        elif seq > self.last:
            put_entry(self.out, subject, ts, seq, data, *at)
            self.sequences.append(seq)
            self.last, self.last_ts = seq, ts

    def finish(self, is_exhausted: bool, error: Exception | None = None) -> None:
        """No more comes: the range is exhausted, or it ended early, perhaps with `error`."""
        if not self.ended.is_set():
            self.is_exhausted = is_exhausted
            self.error = error
            self.ended.set()

    def take_status(self, status: int, text: str) -> None:
        """The server says something that is no message."""
        if status == 100:
            return
        if status in (204, 404, 408, 409):
            self.finish(status == 404)
        else:
            self.finish(False, ApiError(status, 0, text, "reading messages for a backup"))

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """A frame of the answer."""
        if self.ended.is_set():
            return
        data, start = frames.data, frames.header_start
        after = start + len(VERSION_LINE)
        code, text = 0, ""
        if data[after : after + 1] == b" ":
            code, text = status(data[start : value_end(data, start, frames.body_start)])
        if code == 204:
            self.is_exhausted = find(data, start, frames.body_start, NATS_NUM_PENDING) == b"0"
            self.finish(self.is_exhausted)
            return
        if code:
            self.take_status(code, text)
            return
        try:
            self.take(frames)
        except (ValueError, IndexError):
            self.finish(False, BackupError("the server has sent what is no message of a stream"))

    def take(self, frames: "ServerFrames") -> None:
        """A message. Raises ValueError, IndexError for other bytes."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """The connection is closed for good, or the inbox is forbidden."""
        self.finish(False, error)

    def on_disconnect(self, handed: int) -> None:
        """The rest went down with the connection."""
        self.finish(False, ConnectionLostError("the connection broke while messages were read"))


class DirectBatch(Batch):
    """Answers of a batched direct get: the server's headers come after the message's own."""

    def take(self, frames: "ServerFrames") -> None:
        """Take the headers off that the server has added."""
        data, start, body = frames.data, frames.header_start, frames.body_start
        if self.sequences and not self.knows_batches:
            return
        added = data.rindex(_ADDED_BY_DIRECT_GET, start, body)
        values = dict(fields(data[added:body]))
        self.knows_batches = NATS_NUM_PENDING in values
        if int(values.get(NATS_LAST_SEQUENCE, self.last)) != self.last:
            self.finish(False, TimeoutError("messages were lost on their way here"))
            return
        seq, subject = int(values[NATS_SEQUENCE]), values[NATS_SUBJECT]
        ts = stored_ns(values[NATS_TIME_STAMP])
        if added == start + 8:  # no headers of its own
            self.add(seq, ts, subject, data, (body, body, frames.end))
        else:
            header = data[start:added] + b"\r\n\r\n"
            whole = header + data[body : frames.end]
            self.add(seq, ts, subject, whole, (0, len(header), len(whole)))
        if not self.knows_batches:
            self.finish(False)


class ConsumerBatch(Batch):
    """Deliveries of a consumer: what is known of a message is in its reply subject. `delivered`
    is the consumer's sequence of the last one."""

    def __init__(self, delivered: int) -> None:
        super().__init__()
        self.delivered = delivered
        self._ack = AckSubject()

    def take(self, frames: "ServerFrames") -> None:
        """Take a message of which the reply subject says everything."""
        ack = self._ack
        if not ack.read(frames.reply):
            raise ValueError(f"not an acknowledgement subject: {frames.reply!r}")
        delivered = ack.consumer_sequence
        if delivered != self.delivered + 1:
            self.finish(False, TimeoutError("messages were lost on their way here"))
            return
        self.delivered = delivered
        at = (frames.header_start, frames.body_start, frames.end)
        self.add(ack.stream_sequence, ack.timestamp_ns, frames.subject, frames.data, at)
        if ack.num_pending == 0:
            self.finish(True)


class Reader:
    """Reads one stream, whose `gaps` are known as its `info` has them; None: they are not."""

    def __init__(self, js: "JetStream", info: StreamInfo, gaps: Ranges | None) -> None:
        self._js = js
        self._name = info.config.name
        self._gaps = gaps
        self._is_direct = info.config.allow_direct
        self._may_consume = info.config.retention == "limits"
        self._consumer = ""
        self._delivered = 0  # by that consumer
        self._batch_bytes = max(BATCH_BYTES, 2 * js.connection.server_info.max_payload)
        self.removed: Ranges = []  # sequences that were found to have no message, `gaps` apart

    async def read(self, first: int, last: int) -> Batch:
        """The next messages from `first` to `last`. After the last one there may be more if the
        batch is not exhausted. Raises `BackupError` and what the client raises."""
        failures = 0
        while True:
            try:
                return await self._read(first, last)
            except (TimeoutError, ConnectionLostError):
                await self.close()
                failures += 1
                if failures == FAILURES_MAX:
                    raise
                await asyncio.sleep(0.2 * 2**failures)

    async def _read(self, first: int, last: int) -> Batch:
        if not (self._is_direct or self._may_consume):
            return await self._one_by_one(first, last)
        try:
            batch = await (self._direct(first) if self._is_direct else self._consumed(first, last))
        except MaximumConsumersError:
            self._may_consume = False  # no room for another one
            return await self._one_by_one(first, last)
        if batch.error is not None:
            raise batch.error
        if not batch.knows_batches:
            self._is_direct = False
        end = last if batch.is_exhausted else batch.last
        if not batch.sequences and not batch.is_exhausted:
            raise TimeoutError(f"backup of stream {self._name}: the server sends no messages")
        known = self._gaps if self._gaps is not None else []
        came = ranges_of(batch.sequences)
        holes = [hole for gap in without((first, end), came) for hole in without(gap, known)]
        if not await self._are_gone(holes):
            await self.close()
            return await self._one_by_one(first, last)
        self.removed += holes
        return batch

    async def _direct(self, first: int) -> Batch:
        js = self._js
        asked = {"seq": first, "batch": BATCH_MESSAGES, "max_bytes": self._batch_bytes}
        return await self._answers(DirectBatch(), f"DIRECT.GET.{self._name}", asked, js.timeout)

    async def _consumed(self, first: int, last: int) -> Batch:
        batch = ConsumerBatch(self._delivered)
        batch.bound = last
        if not self._consumer:
            batch.delivered = 0
            made = await self._js.create_consumer_raw(
                self._name,
                ConsumerConfig(
                    name=f"backup-{self._js.connection.new_id()}",
                    ack_policy="none",
                    deliver_policy="by_start_sequence",
                    opt_start_seq=first,
                    max_deliver=1,
                    mem_storage=True,
                    num_replicas=1,
                    inactive_threshold=CONSUMER_SECONDS,
                ),
            )
            self._consumer = made.name
            if made.num_pending == 0:
                batch.finish(True)
                return batch
        asked = {"batch": BATCH_MESSAGES, "max_bytes": self._batch_bytes, "no_wait": True}
        endpoint = f"CONSUMER.MSG.NEXT.{self._name}.{self._consumer}"
        await self._answers(batch, endpoint, asked, self._js.timeout)
        self._delivered = batch.delivered
        return batch

    async def _answers(
        self, batch: Batch, endpoint: str, asked: dict[str, Any], timeout: float
    ) -> Batch:
        """Ask, and wait until the answers have ended; `timeout` is how long nothing may come."""
        connection = self._js.connection
        inbox = connection.new_inbox()
        subscription = connection.open_sink(inbox, batch)
        try:
            subject = f"{self._js.api.prefix}.{endpoint}"
            await connection.publish(subject, msgspec.json.encode(asked), reply=inbox)
            came = -1
            while not batch.ended.is_set():
                if came == len(batch.sequences):
                    raise TimeoutError(f"{endpoint}: nothing has come for {timeout} s")
                came = len(batch.sequences)
                with suppress(builtins.TimeoutError):
                    async with asyncio.timeout(timeout):
                        await batch.ended.wait()
            return batch
        finally:
            subscription.close()

    async def _are_gone(self, holes: Ranges) -> bool:
        """Whether the leader has no message in any of `holes`."""
        if self._gaps is None:
            return True
        if len(holes) > HOLES_MAX:
            return False

        async def is_gone(hole: tuple[int, int]) -> bool:
            try:
                asked = {"seq": hole[0], "next_by_subj": ">"}
                found = await self._js.api.request(f"STREAM.MSG.GET.{self._name}", asked)
            except MessageNotFoundError:
                return True
            return bool(found["message"]["seq"] > hole[1])

        for at in range(0, len(holes), ONE_BY_ONE):
            if not all(await asyncio.gather(*map(is_gone, holes[at : at + ONE_BY_ONE]))):
                return False
        return True

    async def _one_by_one(self, first: int, last: int) -> Batch:
        """Read these messages from the leader, one request for each."""
        batch = Batch()
        end = min(last, first + BATCH_MESSAGES - 1)
        wanted = [
            seq
            for start, stop in without((first, end), self._gaps or [])
            for seq in range(start, stop + 1)
        ]
        missing = []
        at = 0
        while at < len(wanted) and batch.out.size < BATCH_BYTES:
            window = wanted[at : at + ONE_BY_ONE]
            found = await asyncio.gather(*map(self._message, window))
            for seq, message in zip(window, found, strict=True):
                if message is None:
                    missing.append(seq)
                else:
                    batch.add(seq, *message)
            at += len(window)
        if at < len(wanted):
            end = wanted[at] - 1
        batch.last = end
        self.removed += ranges_of(missing)
        batch.is_exhausted = end >= last
        return batch

    async def _message(self, seq: int) -> "tuple[int, bytes, bytes, tuple[int, int, int]] | None":
        try:
            answer = await self._js.api.request(f"STREAM.MSG.GET.{self._name}", {"seq": seq})
        except MessageNotFoundError:
            return None
        try:
            found = answer["message"]
            header = base64.b64decode(found.get("hdrs") or "")
            data = header + base64.b64decode(found.get("data") or "")
            ts, subject = stored_ns(found["time"].encode()), found["subject"].encode()
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BackupError(f"message {seq} of stream {self._name} cannot be read") from error
        return ts, subject, data, (0, len(header), len(data))

    async def close(self) -> None:
        """Delete the consumer, if one was made."""
        if self._consumer:
            name, self._consumer = self._consumer, ""
            with suppress(Error):  # it goes by itself, a minute later
                await self._js.delete_consumer(self._name, name)
