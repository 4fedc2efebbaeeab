"""How streaming queries get on, for dashboards: lag as Kafka's source has it, rates, batch times.

    watch(spark, PrometheusReporter(port=9464), BucketReporter(servers=url))

Spark 4.3 lets a Python source put nothing into the `metrics` of a query's progress, where Kafka's
has its lag. What our source reports as its latest offset has it, so a listener takes it from there.
All queries of the session are watched, those of other sources with rates and times alone.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from slipstream.spark.figures import Progress, Query, StreamLag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Who is told. What one raises is logged; the query and other reporters go on."""

    def started(self, query: Query, timestamp: str) -> None:
        """A query has begun to run."""

    def progressed(self, progress: Progress) -> None:
        """A micro-batch is done, or there was nothing to do."""

    def ended(self, query: Query, error: str) -> None:
        """A query runs no more; `error` says why, if that was not asked for."""

    def close(self) -> None:
        """Nothing more comes."""


class ProgressListener(StreamingQueryListener):
    """Turns Spark's events into calls of reporters. `watch` makes one."""

    def __init__(self, reporters: tuple[Reporter, ...]) -> None:
        self._reporters = reporters
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """A query has begun to run."""
        self._names[str(event.runId)] = event.name or ""
        query = self._query(event)
        self._tell("started", query, event.timestamp)

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """A micro-batch is done."""
        try:
            progress = read_progress(json.loads(event.progress.json))
        except (ValueError, KeyError, TypeError):
            _log.exception("the progress of a query cannot be read")
            return
        self._tell("progressed", progress)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """A trigger has found nothing to do: nothing is to be told, since progress was."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """A query runs no more."""
        query = self._query(event)
        self._names.pop(str(event.runId), None)
        self._tell("ended", query, (event.exception or "").strip().partition("\n")[0])

    def _query(self, event: "QueryStartedEvent | QueryTerminatedEvent") -> Query:
        run_id = str(event.runId)
        return Query(str(event.id), run_id, self._names.get(run_id, ""))

    def _tell(self, what: str, *words: object) -> None:
        for reporter in self._reporters:
            try:
                getattr(reporter, what)(*words)
            except Exception:  # somebody else's collector must not end our listener
                _log.exception("%s was not told that a query has %s", type(reporter).__name__, what)


class Watch:
    """A listener at work; `stop` ends it, or the end of a `with`."""

    def __init__(self, spark: "SparkSession", reporters: tuple[Reporter, ...]) -> None:
        self._spark = spark
        self._reporters = reporters
        self._listener = ProgressListener(reporters)
        spark.streams.addListener(self._listener)

    def stop(self) -> None:
        """Watch no more, and close the reporters."""
        self._spark.streams.removeListener(self._listener)
        for reporter in self._reporters:
            reporter.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def watch(spark: "SparkSession", *reporters: Reporter) -> Watch:
    """Report how the streaming queries of a session get on, those that run already included."""
    return Watch(spark, reporters)


def read_progress(told: Mapping[str, Any]) -> Progress:
    """Spark's progress, from its JSON. Raises KeyError or ValueError if it is something else."""
    durations = {name: int(value) for name, value in (told.get("durationMs") or {}).items()}
    sources = told["sources"]
    lags = [lag for source in sources for lag in _lags(source)]
    return Progress(
        query=Query(told["id"], told["runId"], told.get("name") or ""),
        timestamp=told["timestamp"],
        batch=int(told["batchId"]),
        input_rows=sum(int(source["numInputRows"]) for source in sources),
        input_rows_per_second=_sum(sources, "inputRowsPerSecond"),
        processed_rows_per_second=_sum(sources, "processedRowsPerSecond"),
        duration_ms=int(told.get("batchDuration") or durations.get("triggerExecution", 0)),
        durations_ms=durations,
        streams=tuple(lags),
        output_rows=_rows_of(told.get("sink") or {}),
    )


def _lags(source: Mapping[str, Any]) -> list[StreamLag]:
    """Where a source of ours stands in its streams; nothing for another source."""
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    return [
        StreamLag(
            stream=name,
            next=int(end.get(name, there)["next"]),
            backlog_messages=int(there["backlogMessages"]),
            backlog_bytes=int(there["backlogBytes"]),
            lost_messages=int(there["lostMessages"]),
        )
        for name, there in latest.items()
        if isinstance(there, dict) and "backlogMessages" in there
    ]


def _rows_of(sink: Mapping[str, Any]) -> int | None:
    rows = int(sink.get("numOutputRows", -1))
    return rows if rows >= 0 else None


def _offset(value: object) -> dict[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


def _sum(sources: Iterable[Mapping[str, Any]], name: str) -> float:
    """The sum of a rate that a source may lack, or have as text (NaN, Infinity)."""
    found = [float(source.get(name) or 0.0) for source in sources]
    return sum(value for value in found if math.isfinite(value))
