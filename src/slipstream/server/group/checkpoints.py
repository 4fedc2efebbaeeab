"""What an owner of a host gives it, so that the log's beginning can go: checkpoints.

What entries do to the world is known to the owner alone. It says what they have come to, in pieces,
for another server that lacks entries that are gone, and takes such pieces in place of all that it
had applied itself.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from slipstream.errors import Error

PIECE_MAX = 1024 * 1024  # bytes of one piece


class TrimmedError(Error):
    """Entries were asked for that are gone from the log."""


class TransferBrokenError(Error):
    """A checkpoint has not come to its end: the link has broken, or the source has failed."""


class Checkpoint(Protocol):
    """What the entries up to `index` have come to."""

    @property
    def index(self) -> int:
        """Up to which entries are in it: at most what `committed` has given, and at least what
        `trim` was last called with."""

    def pieces(self) -> AsyncIterator[bytes]:
        """All of it, in pieces of at most `PIECE_MAX` bytes; asked for once at most."""

    async def close(self) -> None:
        """It is needed no more; called once, however the sending ends."""


class Checkpoints(Protocol):
    """What a host asks of its owner."""

    def held(self) -> bytes:
        """What is here already of a checkpoint that is to be asked for, as the owner that sends it
        understands it; empty if nothing is. It goes with the question."""

    async def open(self, held: bytes) -> Checkpoint:
        """A checkpoint to send, to a server that has said this. Several may be open at once."""

    async def install(self, index: int, pieces: AsyncIterator[bytes]) -> None:
        """Take the place of everything that this server had applied with these pieces, durably;
        afterwards `committed(after=index)` goes on. Readers of `committed` have to be stopped.

        `pieces` raises `TransferBrokenError` where the link breaks, which is to be passed on. Then,
        and after a crash, it is called again with another checkpoint, from the first piece on.
        """
