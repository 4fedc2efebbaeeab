"""Telemetry of whole processes: what turns it on, and who sends in a group."""

import asyncio
import signal
from pathlib import Path

import pytest

import slipstream
from slipstream.errors import ConfigError
from slipstream.model.durations import MINUTE, SECOND
from slipstream.server.config import load_text, plan_reload
from slipstream.server.flags import parse
from slipstream.server.options import ServerOptions, TelemetryOptions
from tests.fix_server_process import StartProcess
from tests.server.replica.serving import ServedGroup
from tests.server.telemetry.collector import SAMPLED, Collector


def test_a_configuration_says_what_is_sent_where() -> None:
    text = """
    telemetry {
      endpoint: "http://collector:4318"
      headers { Authorization: "Bearer secret" }
      interval: "30s", traces: no, sample: 0.25
    }
    """
    assert load_text(text).options.telemetry == TelemetryOptions(
        enabled=True,
        endpoint="http://collector:4318",
        headers={"Authorization": "Bearer secret"},
        interval=30 * SECOND,
        traces=False,
        sample=0.25,
    )
    assert load_text("telemetry: true").options.telemetry == TelemetryOptions(enabled=True)
    assert load_text("port: 1").options.telemetry == TelemetryOptions(interval=MINUTE)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("endpoint: 'collector:4317'", 'endpoint "collector:4317" is not a URL of OTLP over HTTP'),
        ("interval: '10ms'", "interval must be a second at least"),
        ("sample: 2", "expected a number from 0 to 1, found the number 2"),
        ("traces: false, metrics: false", "traces and metrics are both off"),
        ("endpiont: x", "endpoint"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"telemetry {{ {text} }}").options.validate()
    assert wrong in str(caught.value)


def test_flags_turn_it_on() -> None:
    for words in (["--telemetry"], ["--otlp_endpoint", "http://collector:4318"]):
        options = ServerOptions()
        parse(words).apply(options)
        assert options.telemetry.enabled
        assert options.telemetry.endpoint == (words[1] if len(words) > 1 else "")


def test_a_reload_does_not_change_it_and_shows_no_secret() -> None:
    old = load_text("telemetry { headers { Authorization: secret } }").options
    with pytest.raises(ConfigError, match="not supported for Telemetry") as caught:
        plan_reload(old, load_text("telemetry: false").options)
    assert "secret" not in str(caught.value)


async def test_a_server_that_is_told_to_stop_sends_what_is_left(
    collector: Collector, start_server: StartProcess, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(
        start_server, "-js", "-sd", str(tmp_path / "data"), "--otlp_endpoint", collector.url
    )
    async with slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"x", headers=SAMPLED)
    server.send(signal.SIGTERM)
    assert await asyncio.to_thread(server.wait_for_end) == 0
    assert len(collector.named("S store")) == 1
    assert "jetstream_stream_total_messages" in collector.metrics


async def test_in_a_group_the_server_that_leads_sends(collector: Collector, tmp_path: Path) -> None:
    async with ServedGroup(tmp_path, 3, "--otlp_endpoint", collector.url) as group:
        leader = await group.leader()
        async with group.client() as nc:
            js = nc.jetstream()
            await js.create_stream(name="S", subjects=["s"])
            await js.publish("s", b"x", headers=SAMPLED)
        await leader.end(signal.SIGTERM)
        await asyncio.to_thread(collector.wait, lambda c: bool(c.named("S store")))
    names = {resource["service.instance.id"] for resource in collector.resources}
    assert leader.name in names
