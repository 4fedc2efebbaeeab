"""A stream's two tables, and the commits that give each message a place exactly once.

`<table>` has the rows, `<table>_rejected` the messages that do not fit, with the reason. A format
commits one table at a time, so a commit of both is two, and a writer may be killed in between:

1. rejected messages are appended to `<table>_rejected`, with the sequence N of the last message;
2. rows are appended to `<table>` with N. This is the commit that counts: the position is the
   sequence that `<table>` says.

A writer that goes on after a kill between 1 and 2 reads the same messages again. Those
that are already among the rejected ones (after the position; the table is asked once) are left out,
whether they would fit now or not. So no message is in both, and none is twice in one.

A writer that begins takes both tables over: it commits its own name to each, first to `<table>`.
Commits are made on condition that the table is as the writer knows it. A commit that loses this
race is made again only if the position is still the writer's own (a compaction, or another stream's
writer, was in between); otherwise the writer ends with `OtherWriterError`. Only after both are
taken over is the list of rejected messages read, so that no earlier writer can add to it. Of two
that begin at once, each may be the last in another table. So a writer that has both looks whether
`<table>` is still its own, and ends if it is not, before it has appended anything; the one that has
`<table>` takes the other table back.
"""

import time
from collections.abc import Callable, Mapping

import pyarrow as pa
from msgspec.structs import replace

from slipstream.client.jetstream.api import new_name
from slipstream.tables.errors import NoTableError, OtherWriterError, TableError, said
from slipstream.tables.layout import HEADERS, rejected_layout, rows_layout
from slipstream.tables.options import MESSAGE_COLUMNS, Column, TableOptions
from slipstream.tables.parts import Part, Wanted
from slipstream.tables.positions import Position

_RACES_MAX = 100
_TENDED_EVERY_COMMITS = 16
_UNUSED_EVERY_SECONDS = 600.0

TableName = tuple[str, ...]


def rejected_name(name: TableName) -> TableName:
    """The table of the messages that do not fit into the table `name`."""
    return (*name[:-1], f"{name[-1]}_rejected")


def body_columns(part: Part) -> dict[str, Column]:
    """The columns of a table that come from bodies."""
    return {n: column for n, column in part.columns().items() if n not in MESSAGE_COLUMNS}


def rejected_after(rejected: Part | None, stream: str, position: Position) -> frozenset[int]:
    """Sequences of messages after a position that were rejected, though no commit of rows came.

    They have their place: a writer that reads them again leaves them out. Raises `TableError`.
    """
    if rejected is None:
        return frozenset()
    with said(rejected.name, "reading it"):
        wanted = Wanted(stream, position.created, position.sequence)
        found = rejected.batches(wanted, ["_sequence"])
        return frozenset(n for batch in found for n in batch.column(0).to_pylist())


class _Fenced:
    """One of the two tables, and the position of which we have made the last commit there."""

    def __init__(self, part: Part, stream: str) -> None:
        self.part = part
        self._stream = stream
        self.position = Position()

    def found(self) -> Position | None:
        """Where the table says that the stream stands. Raises `TableError`."""
        with said(self.part.name, "reading it"):
            return self.part.position(self._stream)

    def take_over(self, writer: str) -> Position | None:
        """Have no earlier writer commit again; where the stream stood. Raises `TableError`."""
        for _ in range(_RACES_MAX):
            found = self.found()
            mine = Position(writer=writer)
            if found is not None:
                mine = Position(found.created, found.sequence, writer, found.lost)
            if self._commit(None, mine):
                return found
        raise self._crowded()

    def append(
        self, rows: pa.Table, to: Position, is_ours: Callable[[], bool] = lambda: False
    ) -> None:
        """Commit rows once. Raises `OtherWriterError`, `TableError`.

        One who took over this table and has appended nothing loses it again if it `is_ours`.
        """
        for _ in range(_RACES_MAX):
            found = self.found() or Position()
            if found != self.position:
                if replace(found, writer=self.position.writer) != self.position or not is_ours():
                    raise self._overtaken(found)
                self._commit(None, self.position)
                continue
            if self._commit(rows, to):
                return
            if self.found() == to:  # it was made, and the answer lost
                self.position = to
                return
        raise self._crowded()

    def check_ours(self) -> None:
        """Raise `OtherWriterError` if somebody has taken the table over."""
        if not self.is_ours():
            raise self._overtaken(self.found() or Position())

    def is_ours(self) -> bool:
        """Whether nobody has taken the table over. Raises `TableError`."""
        with said(self.part.name, "reading it"):
            self.part.refresh()
        return self.found() == self.position

    def add_columns(self, columns: Mapping[str, Column]) -> None:
        """Add those that the table does not have. Raises `TableError`."""
        for _ in range(_RACES_MAX):
            have = self.part.columns()
            missing = {name: column for name, column in columns.items() if name not in have}
            if not missing:
                return
            with said(self.part.name, f"adding the columns {', '.join(missing)}"):
                self.part.add_columns(missing)
        raise self._crowded()

    def _commit(self, rows: pa.Table | None, to: Position) -> bool:
        with said(self.part.name, "a commit"):
            is_made = self.part.append(rows, self._stream, to)
        if is_made:
            self.position = to
        return is_made

    def _overtaken(self, found: Position) -> OtherWriterError:
        return OtherWriterError(
            f"table {self.part.name}: another writer has taken stream {self._stream} over at "
            f"sequence {self.position.sequence} and stands at {found.sequence}. One writer for a "
            "stream and table is enough; this one has written nothing twice, and ends"
        )

    def _crowded(self) -> TableError:
        return TableError(f"table {self.part.name}: other programs keep committing; try again")


class StreamTable:
    """The tables of one stream. Its calls block; not thread-safe.

    `part_of` makes the part of a name. Made by `stream_table`.
    """

    def __init__(
        self,
        part_of: Callable[[TableName], Part],
        name: TableName,
        stream: str,
        options: TableOptions,
    ) -> None:
        self._part_of = part_of
        self._name = name
        self.stream = stream
        self.options = options
        self.name = ".".join(name)
        self._commits = 0
        self._cleaned_at = time.monotonic()

    def parts(self) -> tuple[Part, Part]:
        """The table of the rows and that of the rejected ones, not opened yet."""
        return self._part_of(self._name), self._part_of(rejected_name(self._name))

    # -- reading -------------------------------------------------------------------------------

    def read(self) -> tuple[Part, Part | None]:
        """The table of the rows and that of the rejected ones, as they are now.

        Spark's writer makes none of rejected ones: None then. Raises `TableError`.
        """
        with said(self.name, "opening it"):
            rows, rejected = self.parts()
            rows.load()
            try:
                rejected.load()
            except NoTableError:
                return rows, None
        return rows, rejected

    # -- writing -------------------------------------------------------------------------------

    def open(self) -> Position | None:
        """Make the tables if they are not there, and take them over; where the stream stood.

        None if nothing of the stream was ever written. Raises `TableError`.
        """
        with said(self.name, "opening it"):
            rows, rejected = self.parts()
        layouts = rows_layout(self.options), rejected_layout(self.options)
        for part, layout in zip((rows, rejected), layouts, strict=True):
            with said(self.name, "opening it"):
                part.make(layout)
            missing = layout.columns.keys() - part.columns().keys()
            if missing:
                raise TableError(
                    f"table {part.name} was not made from a stream: it has no column "
                    f"{', '.join(sorted(missing))}. Choose another name"
                )
        self._rows, self._rejected = _Fenced(rows, self.stream), _Fenced(rejected, self.stream)
        if self.options.headers:
            for fenced in (self._rows, self._rejected):
                fenced.add_columns({"_headers": Column(HEADERS)})
        self._rows.add_columns(self.options.given_columns())
        writer = new_name()
        position = self._rows.take_over(writer)
        self._rejected.take_over(writer)
        self._rows.check_ours()
        return position if position is not None and position.created else None

    def rejected_after(self, position: Position) -> frozenset[int]:
        """See the function `rejected_after`."""
        return rejected_after(self._rejected.part, self.stream, position)

    def body_columns(self) -> dict[str, Column]:
        """The columns that come from bodies."""
        return body_columns(self._rows.part)

    def commit(
        self, columns: Mapping[str, Column], rows: pa.Table, rejected: pa.Table, to: Position
    ) -> None:
        """Commit rows and rejected messages, everything up to `to`, exactly once.

        `columns` are those of the bodies; what the table lacks of them is added. The writer's name
        of `to` is ours, whatever it says. Raises `OtherWriterError`, `TableError`.
        """
        self._rows.add_columns(columns)
        to = Position(to.created, to.sequence, self._rows.position.writer, to.lost)
        if rejected.num_rows:
            self._rejected.append(rejected, to, self._rows.is_ours)
        self._rows.append(rows, to)

    def tend(self) -> None:
        """Look after the files, every so many commits; called after each. Raises `TableError`."""
        self._commits += 1
        if self._commits % _TENDED_EVERY_COMMITS:
            return
        is_due = time.monotonic() - self._cleaned_at > _UNUSED_EVERY_SECONDS
        for fenced in (self._rows, self._rejected):
            with said(fenced.part.name, "its maintenance"):
                fenced.part.tend(self.options, deletes_unused=is_due)
        if is_due:
            self._cleaned_at = time.monotonic()
