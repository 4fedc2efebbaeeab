"""What a simulated server of a group makes of committed entries: here, a list of them.

It has the calls that `simulated_group` needs of what stands for the entries once they are gone from
the log: a crash leaves what was kept, and a copy of it is a checkpoint for another server.
"""

from collections.abc import Iterator
from random import Random
from typing import Protocol, TypeAlias

from slipstream.group import Entry
from slipstream.testing.linearizability import Value

Piece: TypeAlias = Value  # of a checkpoint, as who makes it likes


class Applied(Protocol):
    """What the entries have come to on one server, with the disk that keeps it."""

    @property
    def index(self) -> int:
        """Up to which entry there is all."""

    @property
    def durable(self) -> int:
        """Up to which it was kept."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries from the first one on, as far as they are known here."""

    def open(self, log_end: int) -> None:
        """A server starts; `log_end` is the last index that its log has."""

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """The next entries are committed."""

    def keep(self) -> None:
        """Make durable what was applied."""

    def held(self) -> Piece:
        """What need not be sent here of a checkpoint that is asked for."""

    def copy(self, random: Random, first: int, held: Piece) -> tuple[int, Iterator[Piece]]:
        """A checkpoint up to an index, not before `first`, for who has what is `held`: that index
        and its pieces."""

    def begin_install(self) -> None:
        """A checkpoint is about to take the place of what was applied."""

    def install(self, index: int, pieces: list[Piece]) -> None:
        """It does so."""

    def break_off(self, index: int, pieces: list[Piece]) -> None:
        """No more pieces of it come than these first ones."""

    def crash(self, random: Random) -> None:
        """The power fails."""

    def lose(self) -> None:
        """All of it is gone for good, while the server is down."""


class AppliedEntries:
    """The entries themselves, in a list."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._kept: list[Entry] = []

    @property
    def index(self) -> int:
        """Up to which entry there is all."""
        return len(self._entries)

    @property
    def durable(self) -> int:
        """Up to which it was kept."""
        return len(self._kept)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return tuple(self._entries)

    def open(self, log_end: int) -> None:
        """A server starts, and finds what was kept."""
        self._entries = list(self._kept)

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """The next entries are committed."""
        self._entries += entries

    def keep(self) -> None:
        """Have what was applied survive a crash."""
        self._kept = list(self._entries)

    def held(self) -> None:
        """Nothing."""

    def copy(self, random: Random, first: int, held: None) -> tuple[int, Iterator[list[Entry]]]:
        """The entries up to one of those that are here."""
        index = random.choice((random.randint(first, len(self._entries)), len(self._entries)))
        content = self._entries[:index]
        step = max(len(content) // 4, 1)
        pieces = [content[at : at + step] for at in range(0, len(content), step)]
        return index, iter(pieces)

    def begin_install(self) -> None:
        """Nothing that was kept counts any more."""
        self._kept = []

    def install(self, index: int, pieces: list[list[Entry]]) -> None:
        """Have the entries of a checkpoint instead, durably."""
        self._entries = [entry for piece in pieces for entry in piece]
        self.keep()

    def break_off(self, index: int, pieces: list[list[Entry]]) -> None:
        """All of it is to come anew."""

    def crash(self, random: Random) -> None:
        """What was not kept goes, with the next `open`."""

    def lose(self) -> None:
        """Nothing is left."""
        self._kept = []
