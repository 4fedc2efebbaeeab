"""How queries get on, as dashboards read it: lag, rates and ends, for three collectors."""

import json
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpConfig, HttpTransport
from pyspark.errors import StreamingQueryException

import slipstream.sync
from slipstream.spark.figures import Progress, Query, StreamLag
from slipstream.spark.progress import read_progress, watch
from slipstream.spark.reporters import BucketReporter, OpenLineageReporter, PrometheusReporter
from tests.spark.streams import WAIT_SECONDS
from tests.spark.test_sink import stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = {"next": 5, "created": "2026-01-02T03:04:05Z"}
TOLD: dict[str, Any] = {
    "id": "i",
    "runId": "r",
    "name": None,
    "timestamp": "2026-01-02T03:04:05.006Z",
    "batchId": 7,
    "durationMs": {"triggerExecution": 20, "addBatch": 12},
    "sources": [
        {
            "endOffset": {"A": OFFSETS, "B": {**OFFSETS, "next": 9}},
            "latestOffset": json.dumps(
                {
                    name: {**OFFSETS, "next": 11, "backlogMessages": n, "backlogBytes": 10 * n}
                    | {"lostMessages": 1}
                    for name, n in (("A", 6), ("B", 2))
                }
            ),
            "numInputRows": 4,
            "inputRowsPerSecond": "NaN",
            "processedRowsPerSecond": 8.0,
        },
        {"description": "rate", "endOffset": 3, "latestOffset": 3, "numInputRows": 1},
    ],
    "sink": {"description": "x", "numOutputRows": -1},
}


class Collector:
    """Takes the events of OpenLineage."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.url = ""


@pytest.fixture
def collector() -> Iterator[Collector]:
    taken = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.events.append({**json.loads(body), "path": self.path})
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    taken.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield taken
    server.shutdown()
    thread.join()
    server.server_close()


def lineage(collector: Collector, servers: str, **outputs: str) -> OpenLineageReporter:
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=collector.url)))
    return OpenLineageReporter(servers, outputs=outputs, client=client)


class Waiting:
    """A reporter by which a test waits for the end of a query."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.seen: list[Progress] = []

    def started(self, query: Query, timestamp: str) -> None:
        """Nothing."""

    def progressed(self, progress: Progress) -> None:
        self.seen.append(progress)

    def ended(self, query: Query, error: str) -> None:
        self.is_over.set()

    def close(self) -> None:
        """Nothing."""


def test_the_lag_has_the_names_and_the_form_of_kafkas() -> None:
    progress = read_progress(TOLD)
    assert progress.streams == (StreamLag("A", 5, 6, 60, 1), StreamLag("B", 9, 2, 20, 1))
    assert progress.kafka_metrics() == {
        "minOffsetsBehindLatest": "2",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": "4.0",
        "estimatedTotalBytesBehindLatest": "80",
    }
    assert (progress.input_rows, progress.duration_ms, progress.output_rows) == (5, 20, None)
    assert (progress.input_rows_per_second, progress.processed_rows_per_second) == (0.0, 8.0)
    others = read_progress({**TOLD, "sources": TOLD["sources"][1:]})
    assert others.kafka_metrics() == {}


def test_an_error_of_a_query_is_in_its_last_event_and_secrets_are_not(collector: Collector) -> None:
    reporter = lineage(collector, "nats://me:secret@host:4222,nats://other")
    query = Query("i", str(uuid.uuid4()))
    reporter.ended(query, "it broke")
    reporter.close()
    (event,) = collector.events
    assert event["eventType"] == "FAIL"
    assert event["run"]["facets"]["errorMessage"]["message"] == "it broke"
    assert event["job"] == {**event["job"], "namespace": "spark", "name": "i"}
    assert reporter._servers == "nats://host:4222"


def test_a_query_is_seen_by_prometheus_openlineage_and_in_a_bucket(
    spark: "SparkSession", jetstream_url: str, collector: Collector, tmp_path: Path
) -> None:
    source, target = stream_of(jetstream_url), stream_of(jetstream_url)
    bucket = "B" + uuid.uuid4().hex
    with slipstream.sync.connect(jetstream_url) as nc:
        for number in range(10):
            nc.jetstream().publish(f"{source}.a", str(number).encode())
    prometheus = PrometheusReporter(port=0)
    waiting = Waiting()
    reporters = (
        prometheus,
        lineage(collector, jetstream_url, shop=target),
        BucketReporter(bucket, servers=jetstream_url),
        waiting,
    )
    options = {"servers": jetstream_url, "stream": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("jetstream").options(**options, maxMessagesPerTrigger=4).load()
    with watch(spark, *reporters):
        writer = rows.selectExpr(f"'{target}.x' AS subject", "data").writeStream.queryName("shop")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).format("jetstream")
        writer = writer.options(servers=jetstream_url, stream=target).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(WAIT_SECONDS)
        assert waiting.is_over.wait(WAIT_SECONDS)
        with urllib.request.urlopen(f"http://127.0.0.1:{prometheus.port}/metrics") as answer:
            metrics = answer.read().decode().splitlines()
    assert [p.streams[0].backlog_messages for p in waiting.seen if p.input_rows] == [6, 2, 0]
    label = f'{{query="shop",stream="{source}"}}'
    for line in (
        'slipstream_spark_rows_total{query="shop"} 10.0',
        'slipstream_spark_running{query="shop"} 0.0',
        f"slipstream_spark_backlog_messages{label} 0.0",
        f"slipstream_spark_next_sequence{label} 11.0",
    ):
        assert line in metrics
    events = [event for event in collector.events if event["job"]["name"] == "shop"]
    assert [event["eventType"] for event in events] == ["START", *["RUNNING"] * 3, "COMPLETE"]
    assert {event["run"]["runId"] for event in events} == {str(query.runId)}
    (read,), (written,) = events[1]["inputs"], events[1]["outputs"]
    assert (read["namespace"], read["name"]) == (jetstream_url, source)
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert written["name"] == target
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 4
    with slipstream.sync.connect(jetstream_url) as nc:
        found = json.loads(nc.jetstream().key_value(bucket).get("shop").data)
    assert (found["state"], found["error"]) == ("ended", "")
    assert found["progress"]["streams"][0]["next"] == 11


def test_a_collector_that_is_away_ends_no_query(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    source = stream_of(jetstream_url)
    with slipstream.sync.connect(jetstream_url) as nc:
        nc.jetstream().publish(f"{source}.a", b"1")
    away = BucketReporter("none", servers="nats://127.0.0.1:1", retryTimeout=1)
    waiting = Waiting()
    options = {"servers": jetstream_url, "stream": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("jetstream").options(**options).load()
    with watch(spark, away, waiting):

        def fail(batch: Any, _: int) -> None:
            raise ValueError("as it was asked for")

        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.foreachBatch(fail).trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException, match="as it was asked for"):
            query.awaitTermination(WAIT_SECONDS)
        assert waiting.is_over.wait(WAIT_SECONDS)
