"""`/metrics`: the server, its streams and its consumers in Prometheus' text format.

What the prometheus-nats-exporter derives from the other endpoints has the same names here
(`gnatsd_varz_...`, `jetstream_...`), so boards made for it work without it. `slipstream_...` are
what it cannot know: how far a consumer is behind, for how long nothing has moved, how long things
take. `metric_list` has them all.

The text is made here, and only read by `prometheus_client` in the tests: that library takes 250 µs
of the event loop for the samples of one consumer, where this takes 20.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from slipstream import __version__, build
from slipstream.engine.api.stream_info import first_seq
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.protocol.options import VERSION
from slipstream.engine.sourcing.inflow import inflow_info
from slipstream.engine.stream.stream import Stream
from slipstream.model.durations import SECOND
from slipstream.server.measures import BOUNDS_NS, Histogram
from slipstream.server.monitoring.endpoints.healthz import OK, HealthzOptions, problems_of
from slipstream.server.monitoring.endpoints.jsz import JszOptions, jsz
from slipstream.server.monitoring.endpoints.subsz import SubszOptions, subsz
from slipstream.server.monitoring.endpoints.varz import varz
from slipstream.server.monitoring.metrics.metric_list import metric_of
from slipstream.server.monitoring.metrics.process_facts import disk_space, process_facts
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import BadRequest, Steps

CONSUMERS_PER_STEP = 50
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TIMES = frozenset({"start", "config_load_time"})
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_EXPORTED = re.compile(r"(?:gnatsd|jetstream)(?=_)")

Labels = Mapping[str, str]


class _Metrics:
    """Samples by name, because each name's samples stand together."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: str) -> None:
        self._samples.setdefault(name, []).append(f"{{{labels}}} {value}")

    def add_histogram(self, name: str, histogram: Histogram, labels: str) -> None:
        samples = self._samples.setdefault(name, [])
        total = 0
        for bound, count in zip((*BOUNDS_NS, 0), histogram.counts, strict=True):
            total += count
            end = f"{bound / SECOND:g}" if bound else "+Inf"
            samples.append(f'_bucket{{{labels},le="{end}"}} {total}')
        samples.append(f"_sum{{{labels}}} {histogram.total / SECOND}")
        samples.append(f"_count{{{labels}}} {total}")

    def texts(self, prefix: str) -> Iterator[bytes]:
        """The text about each metric."""
        for name, samples in self._samples.items():
            metric = metric_of(name)
            shown = _EXPORTED.sub(prefix, name, count=1) if prefix else name
            lines = [f"# HELP {shown} {metric.help}", f"# TYPE {shown} {metric.kind}"]
            lines += [shown + sample for sample in samples]
            yield ("\n".join(lines) + "\n").encode()


def metrics(monitor: Monitor, prefix: str = "") -> Steps:
    """Everything, in steps of about a millisecond, between which clients have their turn; `prefix`
    stands for `gnatsd` and `jetstream`, as with the exporter's option of that name.

    Raises `BadRequest`.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise BadRequest("prefix must be letters, digits and underscores, such as nats")
    return _steps(monitor, prefix)


def _steps(monitor: Monitor, prefix: str) -> Steps:
    found = _Metrics()
    server = _labels({"server_id": monitor.engine.server_id})
    _add_server(monitor, found, server)
    _add_disk(monitor, found, server)
    _add_group(monitor, found, server)
    yield from _add_jetstream(monitor, found)
    for name, number in process_facts():
        found.add(name, number, server)
    for endpoint, answer in (("varz", varz(monitor)), ("subsz", subsz(monitor, SubszOptions()))):
        for name, number in _numbers(answer, f"gnatsd_{endpoint}"):
            found.add(name, number, server)
    parts = []
    for part in found.texts(prefix):
        parts.append(part)
        yield
    return b"".join(parts)


def _numbers(answer: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Every number of an answer, by the path to it."""
    for key, value in answer.items():
        name = f"{prefix}_{_NOT_IN_NAMES.sub('_', key)}"
        if isinstance(value, dict):
            yield from _numbers(value, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
        elif key in _TIMES:
            yield name, datetime.fromisoformat(value).timestamp()


# -- the server --------------------------------------------------------------------------------


def _add_server(monitor: Monitor, found: _Metrics, labels: str) -> None:
    engine, total = monitor.engine, monitor.total_traffic()
    status, problems = problems_of(monitor, HealthzOptions())
    versions = {"version": __version__, "nats_version": VERSION, "build": build.describe()}
    found.add("slipstream_build_info", 1, f"{labels},{_labels(versions)}")
    numbers = {
        "healthy": int(status == OK),
        "problems": len(problems),
        "connections": len(engine.sessions),
        "subscriptions": monitor.subscription_count(),
        "accepted_connections_total": engine.total_sessions,
        "received_messages_total": total.in_msgs,
        "received_bytes_total": total.in_bytes,
        "sent_messages_total": total.out_msgs,
        "sent_bytes_total": total.out_bytes,
        "slow_consumers_total": engine.slow_consumers,
        "stale_connections_total": engine.stale_connections,
        "stalled_publishers_total": monitor.stalls(),
    }
    for name, number in numbers.items():
        found.add(f"slipstream_{name}", number, labels)
    found.add_histogram("slipstream_turn_seconds", monitor.measures.turn, labels)
    found.add_histogram("slipstream_api_request_seconds", monitor.measures.request, labels)


def _add_disk(monitor: Monitor, found: _Metrics, labels: str) -> None:
    jetstream = monitor.options.jetstream
    space = disk_space(jetstream.store_dir) if jetstream.enabled else None
    if space is not None:
        found.add("slipstream_store_free_bytes", space[0], labels)
        found.add("slipstream_store_size_bytes", space[1], labels)
    scrub = monitor.engine.scrub
    if scrub is not None:
        found.add("slipstream_scrub_read_bytes_total", scrub.read_bytes, labels)
        found.add("slipstream_scrub_pass_ratio", round(scrub.progress, 3), labels)
        last = scrub.last_pass / SECOND
        found.add("slipstream_scrub_last_pass_timestamp_seconds", last, labels)
        found.add("slipstream_scrub_damaged_segments", len(scrub.damaged), labels)
    found.add_histogram("slipstream_sync_seconds", monitor.measures.sync, labels)
    found.add_histogram("slipstream_publish_ack_seconds", monitor.measures.publish, labels)


def _add_group(monitor: Monitor, found: _Metrics, labels: str) -> None:
    """What the leader of a group knows of it."""
    group = monitor.engine.group
    if group is None:
        return
    named = f"{labels},{_labels({'cluster': group.name})}"
    followers = list(group.followers)
    numbers = {
        "members": 1 + len(followers),
        "online_members": 1 + sum(not one.is_offline for one in followers),
        "current_members": 1 + sum(one.is_current and not one.is_offline for one in followers),
        "is_leader": 1,
    }
    for name, number in numbers.items():
        found.add(f"slipstream_group_{name}", number, named)
    for one in followers:
        text = f"{named},{_labels({'member': one.name})}"
        found.add("slipstream_group_member_lag_entries", one.lag, text)
        found.add("slipstream_group_member_idle_seconds", round(one.active / SECOND, 3), text)


# -- JetStream ---------------------------------------------------------------------------------


def _add_jetstream(monitor: Monitor, found: _Metrics) -> Iterator[None]:
    engine = monitor.engine
    base = {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "cluster": engine.group.name if engine.group is not None else "",
        "domain": engine.options.domain,
        "meta_leader": engine.group.server_name if engine.group is not None else "",
        "is_meta_leader": "true",
    }
    server = _labels(base)
    state = jsz(monitor, JszOptions())
    found.add("jetstream_server_jetstream_disabled", int("disabled" in state), server)
    for name, key in (("streams", "streams"), ("consumers", "consumers")):
        found.add(f"jetstream_server_total_{name}", state[key], server)
    found.add("jetstream_server_total_messages", state["messages"], server)
    found.add("jetstream_server_total_message_bytes", state["bytes"], server)
    for name in ("max_memory", "max_storage"):
        found.add(f"jetstream_server_{name}", state["config"][name], server)
    now = monitor.now
    for account in list(engine.accounts.values()):
        if account.jetstream is not None:
            yield from _add_account(found, account.jetstream, server, now)


# Labels are text from here on: what all samples of an account or stream share is made once.


def _add_account(found: _Metrics, js: JetStream, labels: str, now: int) -> Iterator[None]:
    name = js.account.name
    text = f"{labels},{_labels({'account': name, 'account_name': name, 'account_id': name})}"
    found.add("jetstream_account_max_memory", js.limits.max_memory, text)
    found.add("jetstream_account_max_storage", js.limits.max_storage, text)
    found.add("jetstream_account_memory_used", js.used("memory"), text)
    found.add("jetstream_account_storage_used", js.used("file"), text)
    found.add("slipstream_api_requests_total", js.api_total, text)
    found.add("slipstream_api_errors_total", js.api_errors, text)
    leader = js.engine.server_name
    for stream in list(js.streams.values()):
        if stream.closed:  # between two steps
            continue
        own = {
            "stream_name": stream.name,
            "stream_leader": leader,
            "is_stream_leader": "true",
            "stream_raft_group": "",
        }
        yield from _add_stream(found, stream, f"{text},{_labels(own)}", now)
        yield


def _add_stream(found: _Metrics, stream: Stream, text: str, now: int) -> Iterator[None]:
    log, config = stream.log, stream.config
    numbers = {
        "total_messages": log.messages,
        "total_bytes": log.bytes,
        "first_seq": first_seq(stream),
        "last_seq": log.last_seq,
        "consumer_count": len(stream.consumers),
        "subject_count": log.subjects.live,
        "limit_bytes": config.max_bytes,
        "limit_messages": config.max_msgs,
    }
    for name, number in numbers.items():
        found.add(f"jetstream_stream_{name}", number, text)
    idle = max(now - (log.last_ts or stream.created), 0) / SECOND
    found.add("slipstream_stream_idle_seconds", round(idle, 3), text)
    found.add("slipstream_stream_lost_messages", len(log.lost.sequences), text)
    found.add("slipstream_stream_failed", int(bool(stream.failed)), text)
    if stream.inflow is not None:
        _add_inflow(found, stream, text)
    leader = _labels(
        {"consumer_leader": stream.js.engine.server_name, "is_consumer_leader": "true"}
    )
    for number, consumer in enumerate(list(stream.consumers.values()), 1):
        if consumer.stopped or stream.closed:
            continue
        own = _labels(
            {"consumer_name": consumer.name, "consumer_desc": consumer.config.description}
        )
        _add_consumer(found, consumer, f"{text},{leader},{own}", now)
        if number % CONSUMERS_PER_STEP == 0:
            yield


def _add_inflow(found: _Metrics, stream: Stream, text: str) -> None:
    """How far a mirror, or a stream with sources, is behind."""
    info = inflow_info(stream)
    if "mirror" in info:
        own = _labels({"mirror_name": info["mirror"]["name"]})
        found.add("jetstream_stream_mirror_lag", info["mirror"]["lag"], f"{text},{own}")
    for number, source in enumerate(info.get("sources", ())):
        # Two sources may have the same name: the number keeps their samples apart.
        own = _labels({"source_name": source["name"], "source_number": str(number)})
        found.add("jetstream_stream_source_lag", source["lag"], f"{text},{own}")


def _add_consumer(found: _Metrics, consumer: Consumer, labels: str, now: int) -> None:
    consumer.catch_up()
    delivery = consumer.delivery
    waiting = len(delivery.waiting) if isinstance(delivery, PullDelivery) else 0
    once = consumer.config.max_deliver == 1
    numbers = {
        "delivered_consumer_seq": consumer.delivered_seq,
        "delivered_stream_seq": consumer.delivered_stream_seq,
        "ack_floor_consumer_seq": consumer.floor_seq,
        "ack_floor_stream_seq": consumer.floor_stream_seq,
        "num_ack_pending": len(consumer.pending),
        "num_redelivered": 0 if once else len(consumer.redelivered),
        "num_waiting": waiting,
        "num_pending": consumer.num_pending,
    }
    for name, number in numbers.items():
        found.add(f"jetstream_consumer_{name}", number, labels)
    lag = consumer.num_pending + len(consumer.pending)
    found.add("slipstream_consumer_lag_messages", lag, labels)
    moved = max(consumer.delivered_at, consumer.acked_at, consumer.created)
    idle = max(now - moved, 0) / SECOND
    found.add("slipstream_consumer_idle_seconds", round(idle, 3), labels)
    if consumer.letters is not None:
        waiting = len(consumer.letters.unstored())
        found.add("slipstream_consumer_dead_letters_waiting", waiting, labels)


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
