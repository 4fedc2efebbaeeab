"""An entry of a key-value bucket: what was stored under a key, when, and by which operation."""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any

from slipstream.client.codecs import decode
from slipstream.client.jetstream.model import Timestamp

OPERATION_HEADER = "KV-Operation"
MARKER_HEADER = "Nats-Marker-Reason"


class Operation(Enum):
    """What an entry did to its key."""

    PUT = "PUT"
    """A value was stored."""
    DELETE = "DEL"
    """The key was deleted; older values may remain in its history."""
    PURGE = "PURGE"
    """The key was deleted with its history, or its last value expired."""


class KeyValueEntry:
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
    def value(self) -> Any:
        """What was stored, as the type the bucket was opened with; bytes if with none.

        None for a delete or purge. Decoded at each use; raises `CodecError` for another type.
        """
        if self.operation is not Operation.PUT:
            return None
        if self._kind is None:
            return self.data
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
    """Which operation a message stands for; `header` looks a header up (kv-object.md section 4)."""
    named = header(OPERATION_HEADER)
    if named == Operation.DELETE.value:
        return Operation.DELETE
    if named == Operation.PURGE.value:
        return Operation.PURGE
    reason = header(MARKER_HEADER)
    if reason == "Remove":
        return Operation.DELETE
    if reason in ("MaxAge", "Purge"):
        return Operation.PURGE
    return Operation.PUT
