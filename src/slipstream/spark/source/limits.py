"""Limits of a micro-batch, which came to sources in Python with Spark 4.2, and stand-ins for 4.1.

Spark 4.1 asks for the latest offset without saying where the batch begins or what limits it.
"""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:
    HAS_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """What limits a micro-batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Nothing does."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A number of rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """It waits for a number of rows."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """A number of bytes."""

        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark freezes the end by itself."""


__all__ = [
    "HAS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
