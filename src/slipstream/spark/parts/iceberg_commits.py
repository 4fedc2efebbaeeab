"""Commits to an Iceberg table by Spark, each on condition that nobody has committed in between.

Iceberg makes a commit that has lost a race again, on top of the one that has won. A commit that
says how far streams are in the table must not be: the positions that it carries on would be those
of before. So it takes two steps, in a branch of the writer's own:

1. the branch is set to the snapshot S that the table's main branch points to, and the rows are
   appended to the branch. Nobody sees them yet;
2. main is fast-forwarded to the branch. Iceberg does so only if main is an ancestor of the branch,
   which is to say still at S; and it does not make this change again on top of another one.

Between the two it is checked that the branch's snapshot came right after S and says what it should:
who removes the branches of writers that have gone may remove one of a writer that has not, and
Iceberg then makes the branch anew from main.

(An overwrite with Iceberg's own validation would be one step. But it takes files for conflicts that
hold rows of several streams, or of streams with long names that begin alike; it does not see that
another stream's position has moved; and it replaces rows, where a stream that was begun anew is
behind rows of the old one.)
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from slipstream.errors import Error
from slipstream.tables.errors import PositionLostError, TableError
from slipstream.tables.positions import PREFIX, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

log = logging.getLogger("slipstream.spark")

_MAIN = "main"
_PASSED_ON = ("An error occurred while", "An exception was thrown from the Python worker")
_LOOKS_MAX = 5
_STATEMENTS_MAX = 10
_BRANCH_DAYS = 1  # then expire_snapshots removes what a killed writer has left
# Of options of a write Spark makes names in lower case, streams have others.
_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."


class Head(msgspec.Struct, frozen=True):
    """The end of a table's main branch.

    `ours` is what it says of positions, or the last snapshot before it that says something;
    `is_ours`: it does so itself, or there is nothing to say, as the table is empty. `snapshot` is
    None for a table without any.
    """

    snapshot: int | None
    ours: dict[str, str]
    is_ours: bool
    branches: dict[str, int]

    def position_of(self, stream: str) -> Position | None:
        """Where a stream stands; None if nothing of it was ever written."""
        position = Position.among(self.ours, stream)
        return position if position is not None and position.created else None


class IcebergTable:
    """A table as a session has it; `name` is its catalog, namespace and own name."""

    def __init__(self, spark: "SparkSession", name: tuple[str, ...]) -> None:
        self._spark = spark
        self._name = name
        self.name = ".".join(name)
        self.quoted = ".".join(quoted(part) for part in name)

    def sql(self, text: str) -> "list[Row]":
        """Run a statement. Raises what Spark raises."""
        return self._spark.sql(text).collect()

    def head(self) -> Head:
        """The table as it is now. Raises `PositionLostError`, `TableError`."""
        for _ in range(_LOOKS_MAX):
            self.sql(f"REFRESH TABLE {self.quoted}")
            found = self.sql(f"SELECT name, snapshot_id, type FROM {self.quoted}.refs")
            branches = {row.name: row.snapshot_id for row in found if row.type == "BRANCH"}
            at = branches.get(_MAIN)
            if at is None:
                return Head(None, {}, True, branches)
            snapshots = {row.snapshot_id: row for row in self._snapshots()}
            if at in snapshots:  # or somebody has committed between the two
                return Head(at, *self._positions(at, snapshots), branches)
        raise TableError(f"table {self.name}: other programs keep committing; try again")

    def _snapshots(self, where: str = "true") -> "list[Row]":
        ours = f"map_filter(summary, (name, _) -> startswith(name, '{PREFIX}')) AS ours"
        columns = f"snapshot_id, parent_id, summary['total-records'] AS rows, {ours}"
        return self.sql(f"SELECT {columns} FROM {self.quoted}.snapshots WHERE {where}")

    def _positions(self, at: int, snapshots: "dict[int, Row]") -> tuple[dict[str, str], bool]:
        """What the last snapshot that says something says, and whether that is the one at hand."""
        before: int | None = at
        while before is not None and before in snapshots:
            if snapshots[before].ours:
                return dict(snapshots[before].ours), before == at
            before = snapshots[before].parent_id
        if snapshots[at].rows == "0":
            return {}, True
        raise PositionLostError(
            f"table {self.name}: its snapshots were made by other programs and do not say how far "
            "streams were written; one that does was never there or has expired. Roll the table "
            "back to a snapshot that does, or write into a new table"
        )

    def commit(
        self, head: Head, rows: "DataFrame", properties: Mapping[str, str], branch: str
    ) -> Head | None:
        """Append rows on condition that the table is still as `head` says.

        Returns the new head, or None if the table is another one. Raises `TableError`.
        """
        is_set = False
        try:
            if head.snapshot is None:  # an empty snapshot, so that there is one to be the condition
                self._insist(f"ALTER TABLE {self.quoted} CREATE BRANCH IF NOT EXISTS {_MAIN}", head)
                return None
            self._set(branch, head)
            is_set = True
            made = self._append(head, rows, properties, branch)
            if made is None:
                return None
            self._insist(self._fast_forward_to(branch), head)
        except Error:
            raise
        except Exception as error:  # refused, or nobody knows: the table shows it
            now = self.head()
            is_removed = is_set and branch not in now.branches
            if now.snapshot == head.snapshot and not is_removed:
                raise TableError(f"table {self.name}: a commit failed: {said(error)}") from error
            log.info("table %s: a commit is made again: %s", self.name, said(error))
            return now if now.is_ours and now.ours == dict(properties) else None
        return Head(made, dict(properties), True, {**head.branches, _MAIN: made, branch: made})

    def _insist(self, text: str, head: Head) -> None:
        """Run a statement that changes branches; again, while others change theirs, not main.

        Iceberg does not do so by itself.
        """
        for left in reversed(range(_STATEMENTS_MAX)):
            try:
                self.sql(text)
                return
            except Exception:
                if not left or self.head().snapshot != head.snapshot:
                    raise

    def _set(self, branch: str, head: Head) -> None:
        """Have the branch begin at the head."""
        if head.branches.get(branch) != head.snapshot:
            at = f"AS OF VERSION {head.snapshot} RETAIN {_BRANCH_DAYS} DAYS"
            statement = f"CREATE OR REPLACE BRANCH {quoted(branch)} {at}"
            self._insist(f"ALTER TABLE {self.quoted} {statement}", head)

    def _fast_forward_to(self, branch: str) -> str:
        target = ".".join(quoted(part) for part in self._name[1:])
        words = ", ".join(literal(word) for word in (target, _MAIN, branch))
        return f"CALL {quoted(self._name[0])}.system.fast_forward({words})"

    def _append(
        self, head: Head, rows: "DataFrame", properties: Mapping[str, str], branch: str
    ) -> int | None:
        """The snapshot with the rows, in the branch; None if it does not follow on the head."""
        with self._snapshot_properties(properties):
            rows.writeTo(f"{self.quoted}.{quoted(f'branch_{branch}')}").append()
        self.sql(f"REFRESH TABLE {self.quoted}")
        branch_head = f"SELECT snapshot_id FROM {self.quoted}.refs WHERE name = {literal(branch)}"
        found = self._snapshots(f"snapshot_id IN ({branch_head})")
        if not found or found[0].parent_id != head.snapshot:
            return None
        if found[0].ours != dict(properties):
            raise TableError(
                f"table {self.name}: Iceberg did not put the positions into the snapshot "
                f"({found[0].ours!r}): its runtime is too old"
            )
        return int(found[0].snapshot_id)

    def drop_if_possible(self, branch: str) -> None:
        """Remove a branch, if it is there. One that stays costs nothing but space."""
        try:
            self.sql(f"ALTER TABLE {self.quoted} DROP BRANCH IF EXISTS {quoted(branch)}")
        except Exception as error:
            log.info("table %s: branch %s stays: %s", self.name, branch, said(error))

    @contextmanager
    def _snapshot_properties(self, properties: Mapping[str, str]) -> Iterator[None]:
        conf = self._spark.conf
        names = {f"{_SNAPSHOT_PROPERTY}{name}": value for name, value in properties.items()}
        for name, value in names.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name in names:
                conf.unset(name)


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def said(error: Exception) -> str:
    """What an error says, in a line: that of Java, if there is one."""
    lines = [line.strip(" :") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_PASSED_ON)]
    return lines[0] if lines else type(error).__name__


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
