"""`/metrics` is well-formed, and tells how far consumers are behind and how long things take."""

import asyncio
import json
import runpy
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamSource
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from slipstream import Server
from slipstream.server.histogram import BOUNDS_NS, Histogram
from slipstream.server.monitoring.http.connection import Response
from slipstream.server.monitoring.metrics.metric_list import ALERTS, METRICS, SECTIONS, names_in
from slipstream.server.monitoring.metrics.prometheus import metrics
from slipstream.server.monitoring.metrics.samples import CONSUMERS_PER_STEP
from tests.fix_group import FakeGroup
from tests.lasting_ports import lasting_port
from tests.server.monitoring.http_client import get

ROOT = Path(__file__).parent.parent.parent.parent
# Those that tests/server/replica/test_followers.py looks for, on servers that follow in a group.
OF_FOLLOWERS = {
    metric.name
    for section in SECTIONS
    if section.title == "Followers"
    for metric in section.metrics
}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian: apt-get install prometheus)",
)


def families(text: str) -> dict[str, Metric]:
    """Metrics by their names, as a client library of Prometheus reads them."""
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found), "a metric is there twice"
    return {family.name: family for family in found}


def read(server: Server, query: str = "") -> str:
    found = get(server.monitoring_url, f"/metrics{query}")
    assert found.status == 200
    assert found.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return found.body.decode()


def samples(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and by the stream and consumer that they are about."""
    found = {}
    for family in families(text).values():
        for sample in family.samples:
            labels = sample.labels
            parts = [labels[n] for n in ("stream_name", "consumer_name") if n in labels]
            found[sample.name, ".".join(parts)] = sample.value
    return found


async def everything(server: Server) -> str:
    """The text after something was done that each metric tells of."""
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"], max_msgs=100)
    await js.add_stream(name="M", mirror=StreamSource(name="S"))
    await js.add_stream(name="A", sources=[StreamSource(name="S"), StreamSource(name="M")])
    subscription = await js.pull_subscribe("s.>", "C", stream="S")
    for i in range(5):
        await js.publish(f"s.{i}", b"hello")
    messages = await subscription.fetch(3)
    await messages[0].ack_sync()
    await give_up(client)
    text = await asyncio.to_thread(read, server)
    await client.close()
    return text


async def give_up(client: nats.NATS) -> None:
    """A consumer D of S terminates a message that the stream of dead letters does not take."""
    js = client.jetstream()
    await js.add_stream(name="DEAD", subjects=["dead"], max_msg_size=1)
    config = {"durable_name": "D", "ack_policy": "explicit", "dead_letter": "dead"}
    request = json.dumps({"stream_name": "S", "config": config}).encode()
    answer = await client.request("$JS.API.CONSUMER.CREATE.S.D", request)
    assert "error" not in json.loads(answer.data)
    subscription = await js.pull_subscribe_bind("D", "S")
    [message] = await subscription.fetch(1)
    await message.term()
    await client.flush()


async def test_metrics_tell_of_the_server_its_streams_and_its_consumers() -> None:
    async with Server(monitoring_port=0) as server:
        found = samples(await everything(server))
    assert found["gnatsd_varz_connections", ""] == 1
    assert found["gnatsd_varz_start", ""] > 1.6e9
    assert found["gnatsd_varz_jetstream_stats_storage", ""] > 0
    assert found["gnatsd_subsz_num_subscriptions", ""] > 0
    assert found["jetstream_server_total_streams", ""] == 4
    assert found["jetstream_server_jetstream_disabled", ""] == 0
    assert found["jetstream_stream_total_messages", "S"] == 5
    assert found["jetstream_stream_last_seq", "S"] == 5
    assert found["jetstream_stream_limit_messages", "S"] == 100
    assert found["jetstream_stream_subject_count", "S"] == 5
    assert ("jetstream_stream_mirror_lag", "M") in found
    assert ("jetstream_stream_source_lag", "A") in found
    assert found["jetstream_consumer_num_pending", "S.C"] == 2
    assert found["jetstream_consumer_num_ack_pending", "S.C"] == 2
    assert found["jetstream_consumer_ack_floor_stream_seq", "S.C"] == 1
    assert found["slipstream_consumer_lag_messages", "S.C"] == 4
    assert found["slipstream_consumer_dead_letters_waiting", "S.D"] == 1
    assert ("slipstream_consumer_dead_letters_waiting", "S.C") not in found
    assert 0 <= found["slipstream_consumer_idle_seconds", "S.C"] < 60
    assert 0 <= found["slipstream_stream_idle_seconds", "S"] < 60
    assert found["slipstream_stream_failed", "S"] == 0
    assert found["slipstream_healthy", ""] == 1
    assert found["slipstream_problems", ""] == 0


async def test_what_only_grows_is_a_counter_and_durations_are_histograms() -> None:
    async with Server(monitoring_port=0) as server:
        text = await everything(server)
        again = await asyncio.to_thread(read, server)
    found, later = samples(text), samples(again)
    kinds = families(text)
    assert found["slipstream_received_messages_total", ""] > 5
    assert found["slipstream_api_requests_total", ""] >= 4
    for name in METRICS.keys() - OF_FOLLOWERS:
        if METRICS[name].kind == "counter":
            assert kinds[name.removesuffix("_total")].type == "counter", name
            assert later[name, ""] >= found[name, ""]
    for name in ("sync", "publish_ack", "api_request", "turn"):
        assert kinds[f"slipstream_{name}_seconds"].type == "histogram"
        assert found[f"slipstream_{name}_seconds_sum", ""] > 0
    assert found["slipstream_publish_ack_seconds_count", ""] >= 5
    assert found["slipstream_api_request_seconds_count", ""] >= 4


async def test_it_tells_of_the_process_and_its_disk() -> None:
    async with Server(monitoring_port=0) as server:
        found = samples(await asyncio.to_thread(read, server))
    assert 0 < found["slipstream_store_free_bytes", ""] <= found["slipstream_store_size_bytes", ""]
    for name in ("read_bytes_total", "last_pass_timestamp_seconds", "damaged_segments"):
        assert found[f"slipstream_scrub_{name}", ""] == 0  # it begins a while after the start
    assert found["process_cpu_seconds_total", ""] > 0
    assert found["process_resident_memory_bytes", ""] > 1e6
    assert 0 < found["process_open_fds", ""] < found["process_max_fds", ""]
    assert found["process_start_time_seconds", ""] > 1.6e9


async def test_every_metric_has_a_help_text_and_the_kind_that_the_list_says() -> None:
    leader = Server(monitoring_port=0)
    leader.group = FakeGroup()
    async with leader as server:
        found = families(await everything(server))
    for family in found.values():
        assert family.documentation, family.name
    for name in METRICS.keys() - OF_FOLLOWERS:
        metric = METRICS[name]
        family = found[name.removesuffix("_total") if metric.kind == "counter" else name]
        assert family.documentation == metric.help
        assert family.type == metric.kind.replace("untyped", "unknown")


async def test_a_description_can_not_break_the_format() -> None:
    text = 'a "quoted" \\ and\nbroken'
    async with Server(monitoring_port=0) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.add_consumer("S", ConsumerConfig(durable_name="C", description=text))
        found = families(await asyncio.to_thread(read, server))
        await client.close()
    [sample] = found["jetstream_consumer_num_pending"].samples
    assert sample.labels["consumer_desc"] == text


async def test_the_names_may_have_the_prefix_that_an_exporter_was_given() -> None:
    async with Server(monitoring_port=0) as server:
        found = samples(await asyncio.to_thread(read, server, "?prefix=nats"))
        refused = await asyncio.to_thread(get, server.monitoring_url, "/metrics?prefix=a%20b")
    assert ("nats_varz_connections", "") in found
    assert ("nats_server_total_streams", "") in found
    assert ("slipstream_healthy", "") in found
    assert not [name for name, _ in found if name.startswith(("gnatsd_", "jetstream_"))]
    assert refused.status == 400


async def test_streams_and_consumers_may_go_while_a_scrape_is_made() -> None:
    async with Server(monitoring_port=0) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        for name in ("S", "T"):
            await js.add_stream(name=name, subjects=[name])
            for i in range(2 * CONSUMERS_PER_STEP):
                await js.add_consumer(name, durable_name=f"c{i}", inactive_threshold=3600)
        assert server.monitoring is not None
        steps = metrics(server.monitoring.monitor)
        next(steps)  # the first consumers of S are in
        await js.delete_consumer("S", f"c{CONSUMERS_PER_STEP}")
        next(steps)
        await js.delete_stream("S")
        await js.delete_stream("T")
        found = samples(Response(200, "", steps).whole_body().decode())
        await client.close()
    assert ("jetstream_consumer_num_pending", "S.c0") in found
    assert ("jetstream_consumer_num_pending", f"S.c{CONSUMERS_PER_STEP}") not in found
    assert ("jetstream_stream_last_seq", "T") not in found


def test_a_histogram_counts_each_duration_once() -> None:
    histogram = Histogram()
    for duration in (-5, 0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        histogram.add(duration)
    histogram.add(BOUNDS_NS[0], 10)
    assert histogram.counts[:2] == [13, 1]
    assert histogram.counts[-1] == 1
    assert sum(histogram.counts) == 15
    assert histogram.total == 12 * BOUNDS_NS[0] + 1 + BOUNDS_NS[-1] + 1
    histogram.add(2**62, 4)  # the system's clock was set by an age
    assert histogram.total > 2**64


@needs_promtool
async def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    async with Server(monitoring_port=0) as server:
        text = await everything(server)
    found = await asyncio.to_thread(
        subprocess.run, ["promtool", "check", "metrics"], input=text.encode(), capture_output=True
    )
    assert (found.returncode, found.stderr) == (0, b"")


# -- the board and the rules -------------------------------------------------------------------


def test_the_board_the_rules_and_the_page_are_those_of_the_list() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_dashboards.py"))
    for path, text in tool["files"]().items():
        assert path.read_text() == text, "run tools/generate_dashboards.py"


def test_alerts_read_metrics_that_exist() -> None:
    for alert in ALERTS:
        assert set(names_in(alert.expression)) <= set(METRICS), alert.name


def test_no_metric_is_listed_twice() -> None:
    assert sum(len(section.metrics) for section in SECTIONS) == len(METRICS)


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    rules = ROOT / "deploy" / "prometheus" / "slipstream.rules.yml"
    subprocess.run(["promtool", "check", "rules", str(rules)], check=True, capture_output=True)


@needs_promtool
def test_prometheus_understands_the_queries_of_the_board(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_dashboards.py"))
    panels = [panel for panel in tool["board"]()["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    lines = ["groups:", "  - name: board", "    rules:"]
    for at, query in enumerate(queries):
        query = query.replace("$__rate_interval", "1m").replace("'", "''")
        lines += [f"      - record: panel:{at}", f"        expr: '{query}'"]
    rules = tmp_path / "board.yml"
    rules.write_text("\n".join(lines))
    subprocess.run(["promtool", "check", "rules", str(rules)], check=True, capture_output=True)


@needs_promtool
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_scrapes_the_server_and_evaluates_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").symlink_to(ROOT / "deploy" / "prometheus" / "slipstream.rules.yml")
    listening = lasting_port()
    with Server(monitoring_port=0) as server:
        target = server.monitoring_url.removeprefix("http://")
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            f'  - {{job_name: slipstream, static_configs: [{{targets: ["{target}"]}}]}}\n'
        )
        words = [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{listening}",
        ]
        with (tmp_path / "log").open("wb") as log:
            prometheus = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            base = f"http://127.0.0.1:{listening}/api/v1"
            healthy = wait_for(base, "/query?query=slipstream_healthy", lambda data: data["result"])
            [group] = wait_for(base, "/rules", rules_that_ran)
        finally:
            prometheus.terminate()
            prometheus.wait(30)
    assert healthy[0]["value"][1] == "1"
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    assert len(group["rules"]) == len(ALERTS)


def rules_that_ran(data: dict[str, Any]) -> Any:
    groups = data["groups"]
    has_run = groups and all(rule["health"] != "unknown" for rule in groups[0]["rules"])
    return groups if has_run else None


def wait_for(base: str, path: str, look: Callable[[dict[str, Any]], Any]) -> Any:
    """What `look` finds in Prometheus' answer, as soon as it finds something."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            found = look(get(base, path).json["data"])
        except (OSError, ValueError):  # it is not there yet
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"Prometheus has nothing to say at {path}")
