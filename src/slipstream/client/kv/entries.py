"""Entries of a key-value bucket, and watching them.

An entry is what was stored under a key, when, and by which operation
(docs/protocol/buckets.md#entries). A watch gives the entries as they are, None once, then every
change (docs/protocol/buckets.md#watching).
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self

import msgspec

from slipstream.client.codecs import decode
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.ordered import OrderedConsumerConfig
from slipstream.client.jetstream.watcher import HEARTBEAT_SECONDS, Watcher
from slipstream.client.kv.config import KeyCodec
from slipstream.client.kv.errors import BucketOptionError
from slipstream.client.value_types import Value_co
from slipstream.model.header_names import NATS_MARKER_REASON
from slipstream.model.times import Timestamp

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

OPERATION_HEADER = "KV-Operation"


class Operation(StrEnum):
    """What an entry did to its key."""

    PUT = "PUT"
    """A value was stored."""
    DELETE = "DEL"
    """The key was deleted; older values may remain in its history."""
    PURGE = "PURGE"
    """The key was deleted with its history, or its last value expired."""


class KeyValueEntry(Generic[Value_co]):
    """One revision of a key.

    `revision` is its sequence in the bucket's stream, `created` when it was stored (UTC, with the
    nanoseconds), `delta` how many revisions of what was asked for come after it (0: the latest).
    """

    __slots__ = ("_kind", "bucket", "created_ns", "data", "delta", "key", "operation", "revision")

    def __init__(
        self,
        *,
        bucket: str,
        key: str,
        data: bytes,
        revision: int,
        created_ns: int,
        delta: int = 0,
        operation: Operation = Operation.PUT,
        kind: Any = None,
    ) -> None:
        self.bucket = bucket
        self.key = key
        self.data = data
        self.revision = revision
        self.created_ns = created_ns
        self.delta = delta
        self.operation = operation
        self._kind = kind

    @property
    def value(self) -> Value_co:
        """What was stored, as the type the bucket was opened with; bytes if with none.

        None for a delete or purge. Decoded at each use; raises `CodecError` for another type.
        """
        value: Any = None
        if self.operation is Operation.PUT:
            value = self.data if self._kind is None else self._decoded()
        found: Value_co = value
        return found

    def _decoded(self) -> object:
        return decode(self.data, self._kind, f"key {self.key!r} of bucket {self.bucket!r}")

    @property
    def created(self) -> datetime:
        """When it was stored, in UTC."""
        return Timestamp.from_ns(self.created_ns)

    @property
    def is_deleted(self) -> bool:
        """Whether the key has no value since this entry."""
        return self.operation is not Operation.PUT

    def __repr__(self) -> str:
        value = repr(self.data) if len(self.data) <= 64 else f"<{len(self.data)} bytes>"
        return (
            f"KeyValueEntry({self.bucket}/{self.key}, {self.operation.name}, {value}, "
            f"revision={self.revision}, delta={self.delta})"
        )


def operation_of(header: Callable[[str], str | None]) -> Operation:
    """Which operation a message stands for; `header` looks a header up
    (docs/protocol/buckets.md#entries)."""
    named = header(OPERATION_HEADER)
    if named == Operation.DELETE.value:
        return Operation.DELETE
    if named == Operation.PURGE.value:
        return Operation.PURGE
    reason = header(NATS_MARKER_REASON)
    if reason == "Remove":
        return Operation.DELETE
    if reason in ("MaxAge", "Purge"):
        return Operation.PURGE
    return Operation.PUT


DeliverPolicy = Literal["all", "new", "by_start_sequence", "last_per_subject"]


class WatchOptions(msgspec.Struct, frozen=True):
    """What a watch begins with and what it leaves out; see `KeyValue.watch`."""

    include_history: bool = False
    updates_only: bool = False
    ignore_deletes: bool = False
    meta_only: bool = False
    resume_from: int = 0
    heartbeat: float = HEARTBEAT_SECONDS

    def deliver_policy(self) -> DeliverPolicy:
        """Where the consumer begins. Raises `BucketOptionError` if the options contradict."""
        if self.include_history + self.updates_only + bool(self.resume_from) > 1:
            raise BucketOptionError(
                "watch: give one of include_history, updates_only and resume_from; each says where "
                "to begin"
            )
        if self.include_history:
            return "all"
        if self.updates_only:
            return "new"
        return "by_start_sequence" if self.resume_from else "last_per_subject"


class Watch(Generic[Value_co]):
    """Entries as they come; made by `KeyValue.watch`.

    Iterate over it, or ask for the `next`. None comes once, when all that there was at the start
    has been given (at once if that is nothing; never with `updates_only`). It survives reconnects
    and restarts of the server; an entry may come twice then. `stop` ends it.
    """

    def __init__(
        self,
        js: "JetStream",
        *,
        stream: str,
        bucket: str,
        prefix: str,
        patterns: list[str],
        options: WatchOptions,
        key_codec: KeyCodec,
        kind: Any,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._options = options
        self._keys = key_codec
        self._kind = kind
        config = OrderedConsumerConfig(
            filter_subjects=[prefix + pattern for pattern in patterns],
            deliver_policy=options.deliver_policy(),
            opt_start_seq=options.resume_from,
            headers_only=options.meta_only,
            idle_heartbeat=options.heartbeat,
            push=True,
        )
        self._watcher = Watcher(
            js,
            stream,
            config,
            signals_done=not options.updates_only,
            heartbeat=options.heartbeat,
        )

    async def start(self) -> None:
        """Begin; done by `KeyValue.watch`."""
        await self._watcher.start()

    async def next(self) -> "KeyValueEntry[Value_co | None] | None":
        """The next entry; None once, after the initial values.

        Raises StopAsyncIteration once it is stopped.
        """
        while True:
            message = await self._watcher.next()
            if message is None:
                return None
            entry = self._entry(message)
            if not (entry.is_deleted and self._options.ignore_deletes):
                return entry

    def _entry(self, message: JetStreamMessage) -> "KeyValueEntry[Value_co | None]":
        metadata = message.metadata
        return KeyValueEntry(
            bucket=self._bucket,
            key=self._keys.decode(message.subject[len(self._prefix) :]),
            data=message.data,
            revision=metadata.stream_sequence,
            created_ns=metadata.timestamp_ns,
            delta=metadata.num_pending,
            operation=operation_of(message.header),
            kind=self._kind,
        )

    async def stop(self) -> None:
        """End it; an iteration over it ends."""
        self._watcher.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "KeyValueEntry[Value_co | None] | None":
        return await self.next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
