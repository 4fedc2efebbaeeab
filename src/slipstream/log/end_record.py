"""Where a log ends, kept beside it: what is missing at the next start shows by comparison.

A segment that lost its last records looks like one that never had more, and a file that is gone
leaves no trace among the others. So the last durable sequence, the first live one, the sequences
that no segment covers, and the salts of the segments without a footer are kept in two copies
outside of the log's directory. Nothing in it is ahead of what is durable; it may be a second old,
or 2 ms for each stream of the account if that is more.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.scrub import TwoCopies
from slipstream.log.segment import SEQUENCE_MAX

_VERSION = 1
# version, last and first sequence, base and size of what is durable of the last segment, counts of:
# salts, gaps
_HEAD = struct.Struct("<BQQQQII")
_SALT = struct.Struct("<QI")
_GAP = struct.Struct("<QQ")
_ROOM = 512  # bytes: what is no longer than the one before fits on a full disk


class Copies(TwoCopies, Protocol):
    """Small content in two copies, such as `stream_store.TwinFile`."""

    def load(self) -> bytes:
        """The newest whole content; raises `CorruptionError` if there is none."""

    def save(self, content: bytes, sync: bool) -> None:
        """Replace the content. Raises OSError, `StorageError`."""

    def retire(self) -> None:
        """Write no more."""


@dataclass
class EndRecord:
    """What is known of a log from elsewhere."""

    last_seq: int = 0  # durable
    first_seq: int = 0  # what lies below was removed
    durable: tuple[int, int] = (0, 0)  # a segment's base, and how many of its bytes are durable
    salts: dict[int, int] = field(default_factory=dict)  # of segments without a footer, by base
    gaps: list[tuple[int, int]] = field(default_factory=list)  # sequences without a segment

    def encode(self) -> bytes:
        """As bytes; a multiple of a sector."""
        head = _HEAD.pack(_VERSION, self.last_seq, self.first_seq, *self.durable,
                          len(self.salts), len(self.gaps))  # fmt: skip
        parts = [head]
        parts += [_SALT.pack(base, salt) for base, salt in self.salts.items()]
        parts += [_GAP.pack(first, last) for first, last in self.gaps]
        content = b"".join(parts)
        return content + bytes(-len(content) % _ROOM)

    @staticmethod
    def decode(content: bytes) -> "EndRecord":
        """What `encode` gave `content` for. Raises `CorruptionError`."""
        try:
            version, last_seq, first_seq, base, size, salts, gaps = _HEAD.unpack_from(content)
            if version != _VERSION:
                raise CorruptionError(
                    f"the record of a log's end has the unknown version {version}"
                )
            if max(last_seq, first_seq, base) > SEQUENCE_MAX:
                raise CorruptionError("the record of a log's end names sequences that cannot be")
            at = _HEAD.size
            gaps_at = at + salts * _SALT.size
            if gaps_at + gaps * _GAP.size > len(content):
                raise CorruptionError("the record of a log's end is too short")
            return EndRecord(
                last_seq,
                first_seq,
                (base, size),
                dict(_SALT.iter_unpack(content[at:gaps_at])),
                list(_GAP.iter_unpack(content[gaps_at : gaps_at + gaps * _GAP.size])),
            )
        except struct.error as error:
            raise CorruptionError(f"the record of a log's end is too short: {error}") from error

    def missing(self, covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The sequences from `first_seq` to `last_seq` that are neither covered nor in a gap."""
        found = []
        expected = max(self.first_seq, 1)
        for first, last in sorted([*covered, *self.gaps]):
            if first > self.last_seq:
                break
            if first > expected:
                found.append((expected, first - 1))
            expected = max(expected, last + 1)
        if expected <= self.last_seq:
            found.append((expected, self.last_seq))
        return found


class EndJob:
    """Saves an `EndRecord`, encoded; `done` is called on the loop with what went wrong, if
    anything did."""

    def __init__(
        self,
        copies: Copies,
        content: bytes,
        sync: bool,
        done: Callable[[Exception | None], None],
    ) -> None:
        self.error: Exception | None = None
        self._copies = copies
        self._content = content
        self._sync = sync
        self._done = done

    def run(self) -> None:
        """Write the record to its copies, unless the log was deleted."""
        try:
            self._copies.save(self._content, self._sync)
        except (OSError, StorageError) as error:  # the log itself is as it was
            self.error = error

    def finish(self) -> None:
        """Say how it went."""
        self._done(self.error)
