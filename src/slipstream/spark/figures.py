"""What is known of a streaming query, for reporters and for those who read what these have kept.

Nothing here needs Spark: the console reads a bucket with it where there is none.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

State = Literal["running", "ended", "failed"]
DEFAULT_BUCKET = "spark-queries"


class StreamLag(msgspec.Struct, frozen=True):
    """Where a query stands in one stream: the first sequence not read, and what waits there."""

    stream: str
    next: int
    backlog_messages: int
    backlog_bytes: int
    lost_messages: int


class Query(msgspec.Struct, frozen=True):
    """A query: its id lasts as long as its checkpoint, its run's id as long as it runs."""

    id: str
    run_id: str
    name: str = ""

    @property
    def label(self) -> str:
        """Its name, or its id if it has none."""
        return self.name or self.id


class Progress(msgspec.Struct, frozen=True):
    """One micro-batch, or a look at a query that has nothing to do. Times are milliseconds."""

    query: Query
    timestamp: str
    batch: int
    input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    duration_ms: int
    durations_ms: Mapping[str, int]
    streams: tuple[StreamLag, ...]
    output_rows: int | None  # of sinks that say it

    def kafka_metrics(self) -> dict[str, str]:
        """The lag under the names and in the form that Spark's Kafka source has; empty if none."""
        waiting = [lag.backlog_messages for lag in self.streams]
        if not waiting:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(waiting)),
            "maxOffsetsBehindLatest": str(max(waiting)),
            "avgOffsetsBehindLatest": str(sum(waiting) / len(waiting)),
            "estimatedTotalBytesBehindLatest": str(sum(lag.backlog_bytes for lag in self.streams)),
        }


class Standing(msgspec.Struct, frozen=True):
    """How a query stands: what a bucket of progress has under its name, as JSON."""

    query: Query
    state: State
    error: str = ""
    progress: Progress | None = None
