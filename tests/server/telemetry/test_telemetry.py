"""A server's spans and metrics, as a collector receives them."""

import asyncio
import logging
import os
import subprocess
import sys

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client.parser import text_string_to_metric_families

import slipstream
from slipstream import Server, __version__
from slipstream.client.jetstream.errors import ApiError
from slipstream.model.durations import MINUTE, SECOND
from slipstream.server.options import TelemetryOptions
from slipstream.server.telemetry.exporters import REASON_SIZE_MAX, Report
from slipstream.server.telemetry.spans import WAITING_MAX
from tests.server.monitoring.http_client import get
from tests.server.telemetry.collector import PARENT, SAMPLED, Collector, attributes


def sending(collector: Collector, **options: object) -> TelemetryOptions:
    """Telemetry for a collector; metrics come when the server stops, unless `interval` says so."""
    chosen = {"enabled": True, "endpoint": collector.url, "interval": 60 * MINUTE, **options}
    return TelemetryOptions(**chosen)  # type: ignore[arg-type]


# -- traces ------------------------------------------------------------------------------------


async def test_publisher_server_and_consumer_are_one_trace(collector: Collector) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    published = []
    async with (
        Server(telemetry=sending(collector), server_name="here") as server,
        slipstream.connect(server.url, tracer_provider=provider) as nc,
    ):
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        consumer = await stream.create_consumer(durable_name="workers")
        with provider.get_tracer("test").start_as_current_span("checkout") as span:
            published.append(span.get_span_context())
            await js.publish("orders.new", b"hello", message_id="7")
        [message] = await consumer.fetch(1)
        parent = message.headers["traceparent"].split("-")[2]
        await message.ack_sync()
    [store] = collector.named("ORDERS store")
    [delivery] = collector.named("ORDERS workers deliver")
    trace = published[0].trace_id.to_bytes(16, "big")
    assert store.trace_id == delivery.trace_id == trace
    assert store.parent_span_id.hex() == delivery.parent_span_id.hex() == parent
    assert store.kind == Span.SPAN_KIND_CONSUMER
    assert delivery.kind == Span.SPAN_KIND_PRODUCER
    assert store.status.code == delivery.status.code == Status.STATUS_CODE_UNSET
    assert store.start_time_unix_nano <= store.end_time_unix_nano
    assert store.start_time_unix_nano <= delivery.start_time_unix_nano
    assert delivery.start_time_unix_nano < delivery.end_time_unix_nano
    common = {
        "messaging.system": "nats",
        "messaging.destination.name": "orders.new",
        "messaging.message.body.size": 5,
        "messaging.nats.account": "$G",
        "messaging.nats.stream.name": "ORDERS",
        "messaging.nats.stream.sequence": 1,
    }
    assert attributes(store) == common | {
        "messaging.operation.name": "store",
        "messaging.operation.type": "receive",
        "messaging.message.id": "7",
    }
    found = attributes(delivery)
    assert 0 <= found.pop("messaging.nats.message.age") < 60
    assert found == common | {
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "send",
        "messaging.consumer.group.name": "workers",
        "messaging.nats.consumer.name": "workers",
        "messaging.nats.delivery.number": 1,
        "messaging.nats.delivery.outcome": "ack",
    }


async def test_refused_and_repeated_publishes_say_so(collector: Collector) -> None:
    async with Server(telemetry=sending(collector)) as server, slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x", headers=SAMPLED, message_id="7")
        await js.publish("s", b"x", headers=SAMPLED, message_id="7")
        with pytest.raises(ApiError):
            await js.publish("s", b"x", headers=SAMPLED, expected_last_sequence=9)
    stored, repeated, refused = collector.named("S store")
    assert "messaging.nats.duplicate" not in attributes(stored)
    assert attributes(repeated)["messaging.nats.duplicate"] is True
    assert attributes(repeated)["messaging.nats.stream.sequence"] == 1
    assert refused.status.code == Status.STATUS_CODE_ERROR
    assert refused.status.message == "wrong last sequence: 1"
    assert attributes(refused)["messaging.nats.error.code"] == 10071
    assert attributes(refused)["error.type"] == "10071"
    assert "messaging.nats.stream.sequence" not in attributes(refused)
    assert {span.parent_span_id.hex() for span in (stored, repeated, refused)} == {PARENT}


async def test_a_delivery_that_fails_is_an_error_and_the_next_has_its_number(
    collector: Collector,
) -> None:
    async with Server(telemetry=sending(collector)) as server, slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x", headers=SAMPLED)
        consumer = await stream.create_consumer(durable_name="c")
        [message] = await consumer.fetch(1)
        await message.nak()
        [message] = await consumer.fetch(1)
        await message.term("no such customer")
        await nc.flush()
    first, second = collector.named("S c deliver")
    assert first.status.code == second.status.code == Status.STATUS_CODE_ERROR
    assert second.status.message == "no such customer"
    told = [attributes(span) for span in (first, second)]
    assert [one["messaging.nats.delivery.number"] for one in told] == [1, 2]
    assert [one["messaging.nats.delivery.outcome"] for one in told] == ["nak", "term"]
    assert [one["error.type"] for one in told] == ["nak", "term"]


async def test_traces_that_are_not_sampled_get_no_spans(collector: Collector) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    async with (
        Server(telemetry=sending(collector, metrics=False)) as server,
        slipstream.connect(server.url, tracer_provider=provider) as nc,
    ):
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
    assert collector.requests == []


async def test_nothing_that_a_publisher_sends_is_logged(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Server(telemetry=sending(collector, metrics=False)) as server,
        slipstream.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x", headers={**SAMPLED, "tracestate": "what?" * 1000})
        await js.publish("s", b"x", headers={"traceparent": SAMPLED["traceparent"] + "-" * 1000})
    assert len(collector.named("S store")) == 1
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


async def test_a_share_of_the_sampled_traces_may_be_enough(collector: Collector) -> None:
    low, high = f"{1:032x}", "f" * 32
    async with (
        Server(telemetry=sending(collector, sample=0.5)) as server,
        slipstream.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        for trace in (low, high):
            await js.publish("s", b"x", headers={"traceparent": f"00-{trace}-{PARENT}-01"})
    assert [span.trace_id.hex() for span in collector.named("S store")] == [low]


# -- metrics -----------------------------------------------------------------------------------


async def test_metrics_agree_with_those_of_prometheus(collector: Collector) -> None:
    telemetry = sending(collector, interval=SECOND)
    async with (
        Server(telemetry=telemetry, server_name="here", monitoring_port=0) as server,
        slipstream.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"])
        await stream.create_consumer(durable_name="c")
        for _ in range(3):
            await js.publish("s", b"hello")
        collector.metrics.clear()
        await asyncio.to_thread(
            collector.wait, lambda c: "slipstream_consumer_lag_messages" in c.metrics
        )
        text = await asyncio.to_thread(get, server.monitoring_url, "/metrics")
    families = list(text_string_to_metric_families(text.body.decode()))
    assert families
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = collector.metrics[name]
        kind = metric.WhichOneof("data")
        assert metric.description == family.documentation
        expected = {"counter": "sum", "histogram": "histogram"}.get(family.type, "gauge")
        assert kind == expected, name
        points = getattr(metric, kind).data_points
        there = [attributes(point) for point in points]
        samples = [
            sample
            for sample in family.samples
            if kind != "histogram" or sample.name.endswith("_count")
        ]
        assert there == [dict(sample.labels) for sample in samples], name
        if kind == "sum":
            assert metric.sum.is_monotonic
    [lag] = collector.metrics["slipstream_consumer_lag_messages"].gauge.data_points
    assert (lag.as_int, attributes(lag)["consumer_name"]) == (3, "c")
    [acks] = collector.metrics["slipstream_publish_ack_seconds"].histogram.data_points
    assert acks.count == sum(acks.bucket_counts) == 3
    assert len(acks.bucket_counts) == len(acks.explicit_bounds) + 1
    assert acks.sum > 0
    assert not acks.HasField("min")


async def test_a_unit_stands_where_a_name_ends_in_it(collector: Collector) -> None:
    async with Server(telemetry=sending(collector, traces=False)):
        pass
    units = {name: metric.unit for name, metric in collector.metrics.items()}
    assert units["slipstream_received_bytes_total"] == "By"
    assert units["slipstream_turn_seconds"] == "s"
    assert units["jetstream_server_max_memory"] == ""
    assert units["slipstream_connections"] == ""


async def test_all_that_is_sent_says_which_server_it_is_of(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    telemetry = sending(collector, headers={"Authorization": "Bearer secret"})
    async with Server(telemetry=telemetry, server_name="here") as server:
        server_id = server.runtime.engine.server_id if server.runtime else ""
        async with await slipstream.connect(server.url) as nc:
            await nc.jetstream().create_stream(name="S", subjects=["s"])
            await nc.jetstream().publish("s", b"x", headers=SAMPLED)
    assert {path for path, _ in collector.requests} == {"/v1/traces", "/v1/metrics"}
    assert {headers["authorization"] for _, headers in collector.requests} == {"Bearer secret"}
    for resource in collector.resources:
        assert resource["service.name"] == "slipstream"
        assert resource["service.version"] == __version__
        assert resource["service.instance.id"] == "here"
        assert resource["messaging.nats.server.id"] == server_id
        assert resource["deployment.environment.name"] == "test"


async def test_without_an_endpoint_the_environment_says_where_to_send(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "broker")
    async with Server(telemetry=TelemetryOptions(enabled=True)):
        pass
    assert [headers["x-tenant"] for _, headers in collector.requests] == ["shop"]
    assert collector.resources[0]["service.name"] == "broker"


def test_a_variable_of_the_environment_that_makes_no_sense_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slipstream.server.command", "-p", "-1", "--telemetry"],
        env={**os.environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "telemetry: a variable of OpenTelemetry in the environment is wrong" in done.stderr
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in done.stderr


# -- a collector that does not answer ----------------------------------------------------------


async def test_a_collector_that_is_away_is_said_once_and_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with Collector() as gone:
        pass
    async with (
        Server(telemetry=sending(gone, interval=SECOND)) as server,
        slipstream.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
        futures = [
            await js.publish_async("s", b"x", headers=SAMPLED) for _ in range(WAITING_MAX + 9)
        ]
        await asyncio.gather(*futures)
        assert (await stream.info()).state.messages == WAITING_MAX + 9
    said = [r.getMessage() for r in caplog.records if "OpenTelemetry" in r.getMessage()]
    assert len([line for line in said if line.startswith("OpenTelemetry: spans")]) == 1
    assert len([line for line in said if line.startswith("OpenTelemetry: metrics")]) == 1
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


async def test_a_collector_that_is_there_again_gets_what_comes_from_then_on(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 400
    async with Server(telemetry=sending(collector, interval=SECOND, traces=False)):
        await asyncio.to_thread(collector.wait, lambda c: len(c.requests) > 0)
        collector.status = 200
        await asyncio.to_thread(collector.wait, lambda c: bool(c.metrics))
    said = [r.getMessage() for r in caplog.records if "OpenTelemetry" in r.getMessage()]
    assert len(said) == 2
    assert "metrics cannot be sent" in said[0]
    assert "400" in said[0]
    assert "metrics are sent again; 1 were dropped" in said[1]


def test_what_a_collector_says_is_one_printable_line() -> None:
    said: list[str] = []
    report = Report("spans", lambda text, is_warning: said.append(text))

    def refuse() -> bool:
        report.heard("no\x1b[2J\n[ERR] " + "x" * 10_000)
        return False

    report.attempt(1, refuse)
    assert said[0].endswith(": no?[2J?[ERR] " + "x" * (REASON_SIZE_MAX - 13))


# -- off ---------------------------------------------------------------------------------------


def test_a_server_that_is_not_asked_imports_nothing_of_it() -> None:
    code = (
        "import sys, slipstream\n"
        "from slipstream import sync\n"
        "with slipstream.Server(monitoring_port=0) as server:\n"
        "    with sync.connect(server.url) as nc:\n"
        "        nc.jetstream().create_stream(name='S', subjects=['s'])\n"
        "        nc.jetstream().publish('s', b'x', headers={'traceparent': '"
        + SAMPLED["traceparent"]
        + "'})\n"
        "    assert server.runtime.engine.message_watch is None\n"
        "found = [name for name in sys.modules if 'opentelemetry' in name or 'telemetry' in name]\n"
        "assert found == ['slipstream.client.telemetry'], found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
