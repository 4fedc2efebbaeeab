"""Where the progress of streaming queries goes: Prometheus, OpenLineage, a key-value bucket."""

import asyncio
import re
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.kv.errors import BucketNotFoundError
from slipstream.extras import require
from slipstream.spark.connections import connect, jetstream
from slipstream.spark.figures import DEFAULT_BUCKET, Progress, Query, Standing, State
from slipstream.spark.options import ServerOptions, parse

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.facet_v2 import InputDatasetFacet, OutputDatasetFacet, RunFacet
    from prometheus_client.exposition import ThreadingWSGIServer

    from slipstream.client import Connection

_ANSWER_SECONDS = 30.0
_PRODUCER = "https://pypi.org/project/slipstream"
_GAUGES = {
    "running": "1 while the query runs, 0 afterwards",
    "batch": "The number of the last micro-batch",
    "input_rows_per_second": "Rows that came in per second, in the last micro-batch",
    "processed_rows_per_second": "Rows per second of processing, in the last micro-batch",
    "batch_duration_seconds": "How long the last micro-batch took",
}
_LAGS = {
    "backlog_messages": "Messages of the stream that the query has not read",
    "backlog_bytes": "Their bytes, by the average message of the stream",
    "next_sequence": "The first sequence that the query has not read",
    "lost_messages": "Messages that were gone before this run of the query could read them",
}


class PrometheusReporter:
    """Metrics `slipstream_spark_*` by query (its name, else its id) and by stream.

    With a `port` they are served over HTTP at `address` (0: any free port, which `port` then is);
    else serve `registry` yourself. Needs `prometheus_client`.
    """

    def __init__(self, port: int | None = None, *, address: str = "127.0.0.1") -> None:
        prometheus = require("prometheus_client")
        self.registry = prometheus.CollectorRegistry()
        prefix = "slipstream_spark_"
        self._rows = prometheus.Counter(
            f"{prefix}rows", "Rows that the query has read", ["query"], registry=self.registry
        )
        self._gauges = {
            name: prometheus.Gauge(prefix + name, text, ["query"], registry=self.registry)
            for name, text in _GAUGES.items()
        }
        self._lags = {
            name: prometheus.Gauge(prefix + name, text, ["query", "stream"], registry=self.registry)
            for name, text in _LAGS.items()
        }
        self.port = 0
        self._server: ThreadingWSGIServer | None = None
        if port is not None:
            self._server, self._thread = prometheus.start_http_server(
                port, address, registry=self.registry
            )
            self.port = int(self._server.server_port)

    def started(self, query: Query, timestamp: str) -> None:
        """The query runs."""
        self._gauges["running"].labels(query.label).set(1)

    def progressed(self, progress: Progress) -> None:
        """Take over its figures."""
        label = progress.query.label
        self._rows.labels(label).inc(progress.input_rows)
        figures = {
            "running": 1,
            "batch": progress.batch,
            "input_rows_per_second": progress.input_rows_per_second,
            "processed_rows_per_second": progress.processed_rows_per_second,
            "batch_duration_seconds": progress.duration_ms / 1000,
        }
        for name, value in figures.items():
            self._gauges[name].labels(label).set(value)
        for lag in progress.streams:
            self._lags["backlog_messages"].labels(label, lag.stream).set(lag.backlog_messages)
            self._lags["backlog_bytes"].labels(label, lag.stream).set(lag.backlog_bytes)
            self._lags["next_sequence"].labels(label, lag.stream).set(lag.next)
            self._lags["lost_messages"].labels(label, lag.stream).set(lag.lost_messages)

    def ended(self, query: Query, error: str) -> None:
        """The query runs no more; its last figures stay."""
        self._gauges["running"].labels(query.label).set(0)

    def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class OpenLineageReporter:
    """Events of OpenLineage: a run of a query starts, runs with each batch of rows, and ends.

    Streams are datasets of the namespace `servers` (``nats://host:4222``), `namespace` is that of
    the jobs. `outputs` names the streams that queries write to, by the query's name: Spark does not
    say to which stream a sink writes. `client` is an `OpenLineageClient`, made from its
    environment and configuration file (`OPENLINEAGE_URL` ...) if none is given. Needs
    `openlineage-python`.
    """

    def __init__(
        self,
        servers: str,
        *,
        namespace: str = "spark",
        outputs: dict[str, str] | None = None,
        client: "OpenLineageClient | None" = None,
    ) -> None:
        require("openlineage.client")
        from openlineage.client import OpenLineageClient, event_v2

        self._events = event_v2
        self._client = client or OpenLineageClient()
        self._servers = _without_user(servers)
        self._namespace = namespace
        self._outputs = outputs or {}
        self._streams: dict[str, set[str]] = {}

    def started(self, query: Query, timestamp: str) -> None:
        """Event START."""
        self._emit("START", query, timestamp)

    def progressed(self, progress: Progress) -> None:
        """Event RUNNING for a batch with rows, with the number of rows read and written."""
        self._streams.setdefault(progress.query.run_id, set()).update(
            lag.stream for lag in progress.streams
        )
        if progress.input_rows:
            self._emit("RUNNING", progress.query, progress.timestamp, progress=progress)

    def ended(self, query: Query, error: str) -> None:
        """Event COMPLETE, or FAIL with the error."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        self._emit("FAIL" if error else "COMPLETE", query, now, error=error)
        self._streams.pop(query.run_id, None)

    def close(self) -> None:
        """Send what waits to be sent."""
        self._client.close(_ANSWER_SECONDS)

    def _emit(
        self,
        kind: str,
        query: Query,
        timestamp: str,
        *,
        progress: Progress | None = None,
        error: str = "",
    ) -> None:
        made = self._events
        streams = sorted(self._streams.get(query.run_id, ()))
        output = self._outputs.get(query.name)
        event = made.RunEvent(
            eventType=made.RunState[kind],
            eventTime=timestamp,
            run=made.Run(query.run_id, _run_facets(error)),
            job=made.Job(self._namespace, query.label),
            inputs=[
                made.InputDataset(self._servers, name, _input_facets(progress, len(streams)))
                for name in streams
            ],
            outputs=[made.OutputDataset(self._servers, output, _output_facets(progress))]
            if output
            else [],
            producer=_PRODUCER,
        )
        self._client.emit(event)


def _run_facets(error: str) -> "dict[str, RunFacet]":
    from openlineage.client.facet_v2 import error_message_run

    if not error:
        return {}
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(error, "Python")}


def _input_facets(progress: Progress | None, streams: int) -> "dict[str, InputDatasetFacet]":
    """How many rows came from the stream, which Spark does not say of one of several."""
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    if progress is None or streams != 1:
        return {}
    counted = statistics.InputStatisticsInputDatasetFacet(rowCount=progress.input_rows)
    return {"inputStatistics": counted}


def _output_facets(progress: Progress | None) -> "dict[str, OutputDatasetFacet]":
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if progress is None or progress.output_rows is None:
        return {}
    counted = statistics.OutputStatisticsOutputDatasetFacet(rowCount=progress.output_rows)
    return {"outputStatistics": counted}


class BucketReporter:
    """The last progress of each query under its name (else its id) in a key-value bucket.

    A value is a `Standing` as JSON, which the console shows. `source` are the options of the
    connection. The bucket is made if it is not there.
    """

    def __init__(self, bucket: str = DEFAULT_BUCKET, **source: object) -> None:
        self._bucket = bucket
        self._options = parse(ServerOptions, {name: str(value) for name, value in source.items()})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: Connection | None = None
        self._last: dict[str, Progress] = {}

    def started(self, query: Query, timestamp: str) -> None:
        """The query runs."""
        self._put(query, "running")

    def progressed(self, progress: Progress) -> None:
        """A query has made progress: its figures are put into the bucket."""
        self._last[progress.query.id] = progress
        self._put(progress.query, "running")

    def ended(self, query: Query, error: str) -> None:
        """How it has ended."""
        self._put(query, "failed" if error else "ended", error)
        self._last.pop(query.id, None)

    def close(self) -> None:
        """Wait for what is on its way, and disconnect."""
        self._call(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _put(self, query: Query, state: State, error: str = "") -> None:
        value = msgspec.json.encode(Standing(query, state, error, self._last.get(query.id)))
        self._call(self._write(_key_of(query.label), value))

    def _call(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)

    async def _write(self, key: str, value: bytes) -> None:
        if self._connection is None:
            self._connection = await connect(self._options, "spark-progress")
        js = jetstream(self._connection, self._options)
        try:
            bucket = await js.key_value(self._bucket)
        except BucketNotFoundError:
            bucket = await js.create_key_value(self._bucket, description="Spark's queries")
        await bucket.put(key, value)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


def _key_of(label: str) -> str:
    """A key for a query's name: what a key cannot have becomes an underscore."""
    return re.sub(r"[^-/_=A-Za-z0-9]", "_", label)


def _without_user(url: str) -> str:
    """A server's URL without user and password; the first of several."""
    first = url.partition(",")[0].strip()
    scheme, separator, rest = first.rpartition("://")
    return f"{scheme or 'nats'}{separator or '://'}{rest.rpartition('@')[2]}"
