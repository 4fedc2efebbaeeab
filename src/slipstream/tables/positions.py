"""How far a stream is in a table: said by the commit that has the rows, so never by guessing.

    slipstream.<stream>.created     when the stream was made: its identity
    slipstream.<stream>.sequence    everything up to this sequence is in the table, or rejected
    slipstream.<stream>.writer      who may commit the next rows
    slipstream.<stream>.lost        messages that were gone before they were read, all in all

Where these stand is the format's affair: Iceberg has properties of snapshots, Delta transactions of
applications and properties of the table, and a folder of Parquet files a file of its own.
"""

from collections.abc import Mapping

import msgspec

PREFIX = "slipstream."


class Position(msgspec.Struct, frozen=True):
    """Where a stream stands in a table."""

    created: str = ""
    sequence: int = 0
    writer: str = ""
    lost: int = 0

    def properties(self, stream: str) -> dict[str, str]:
        """As texts under names that have the stream's."""
        fields = msgspec.structs.asdict(self)
        return {f"{PREFIX}{stream}.{name}": str(value) for name, value in fields.items()}

    @classmethod
    def among(cls, properties: Mapping[str, str], stream: str) -> "Position | None":
        """What such texts say of a stream; None if they say nothing."""
        start = f"{PREFIX}{stream}."
        found = {n.removeprefix(start): properties[n] for n in properties if n.startswith(start)}
        return msgspec.convert(found, cls, strict=False) if found else None
