"""What reads the bodies of messages: which of them are rows, and what their columns are."""

from typing import Protocol

import msgspec
import pyarrow as pa

from slipstream.tables.options import Column


class Fitting(msgspec.Struct):
    """What has come of some bodies: columns of those at `places`; the `reasons` of the others."""

    columns: dict[str, pa.Array | pa.ChunkedArray]
    places: list[int]
    reasons: dict[int, str]


class Bodies(Protocol):
    """Reads bodies as columns. `columns` are those that were known or met until now."""

    columns: dict[str, Column]
    needs_headers: bool

    def read(self, messages: pa.Table) -> Fitting:
        """The columns of the messages' bodies; `messages` has `data`, and `headers` if needed."""

    def close(self) -> None:
        """Close what was opened for reading."""


class RawBodies:
    """Bodies as they are, in a column `data`."""

    needs_headers = False

    def __init__(self, columns: dict[str, Column]) -> None:
        self.columns = columns

    def read(self, messages: pa.Table) -> Fitting:
        """Every body fits."""
        return Fitting({"data": messages["data"]}, list(range(messages.num_rows)), {})

    def close(self) -> None:
        """Nothing is open."""
