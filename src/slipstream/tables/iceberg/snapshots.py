"""How far streams are in an Iceberg table: properties of its snapshots.

Snapshots of others (Spark's deletes and rewrites) have no such properties; then the last ancestor
that has some counts. A snapshot of ours has those of all streams of the table.
"""

from typing import TYPE_CHECKING

from slipstream.tables.errors import PositionLostError
from slipstream.tables.positions import PREFIX, Position

if TYPE_CHECKING:
    from pyiceberg.table import Table


def properties_of(table: "Table") -> dict[str, str]:
    """What the table's snapshots say of all streams; empty if the table is new.

    Raises `PositionLostError`: to begin with the first message would double what is there.
    """
    metadata = table.metadata
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    at = metadata.current_snapshot_id
    while at is not None and at in by_id:
        summary = by_id[at].summary
        found = summary.additional_properties if summary is not None else {}
        ours = {name: value for name, value in found.items() if name.startswith(PREFIX)}
        if ours:
            return ours
        at = by_id[at].parent_snapshot_id
    if by_id and not _is_empty(table):
        raise PositionLostError(
            f"table {'.'.join(table.name())}: its snapshots were made by other programs and do not "
            "say how far the stream was written; one that does was never there or has expired. "
            "Roll the table back to a snapshot that does, or write into a new table"
        )
    return {}


def _is_empty(table: "Table") -> bool:
    """Whether its snapshot is the first that there ever was and has no rows, as Spark's writer's.

    A later one without rows may be of rows that another program has deleted.
    """
    current = table.current_snapshot()
    if current is None or current.summary is None or current.sequence_number != 1:
        return False
    return current.summary.additional_properties.get("total-records") == "0"


def position_of(table: "Table", stream: str) -> Position | None:
    """Where a stream stands; None if nothing of it was ever written. Raises `PositionLostError`."""
    return Position.among(properties_of(table), stream)
