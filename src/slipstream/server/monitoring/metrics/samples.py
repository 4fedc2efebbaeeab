"""What the metrics say now: the samples of a server, its streams and its consumers, by name.

What the prometheus-nats-exporter derives from the other endpoints has the same names here
(`gnatsd_varz_...`, `jetstream_...`), so boards made for it work without it. `slipstream_...` are
what it cannot know: how far a consumer is behind, for how long nothing has moved, how long things
take. `metric_list` has them all.

`collect` hands them to who makes something of them: the text of `/metrics` (`prometheus`) or what
is sent to an OpenTelemetry collector (`slipstream.server.telemetry`).
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from slipstream import __version__, build
from slipstream.engine.api.stream_info import first_seq
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.protocol.options import VERSION
from slipstream.engine.sourcing.inflow import inflow_info
from slipstream.engine.stream.stream import Stream
from slipstream.model.durations import SECOND
from slipstream.server.histogram import Histogram
from slipstream.server.monitoring.endpoints.healthz import OK, HealthzOptions, problems_of
from slipstream.server.monitoring.endpoints.jsz import JszOptions, jsz
from slipstream.server.monitoring.endpoints.subsz import SubszOptions, subsz
from slipstream.server.monitoring.endpoints.varz import varz
from slipstream.server.monitoring.metrics.process_facts import disk_space, process_facts
from slipstream.server.monitoring.monitor import Monitor

CONSUMERS_PER_STEP = 50
_TIMES = frozenset({"start", "config_load_time"})
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


class Labels:
    """The labels of samples. Those that all samples of an account or stream share stand in one
    object, and in one text: it is what a scrape of many consumers takes its time for."""

    __slots__ = ("_own", "_shared", "text")

    def __init__(self, own: Mapping[str, str], shared: "Labels | None" = None) -> None:
        self._own = own
        self._shared = shared
        text = ",".join(f'{name}="{_escaped(value)}"' for name, value in own.items())
        self.text: str = text if shared is None else f"{shared.text},{text}"

    def also(self, own: Mapping[str, str]) -> "Labels":
        """These and others."""
        return Labels(own, self)

    def values(self) -> dict[str, str]:
        """Every label by its name."""
        shared = {} if self._shared is None else self._shared.values()
        return {**shared, **self._own}


class Samples(Protocol):
    """What takes the samples."""

    def add(self, name: str, value: float, labels: Labels) -> None:
        """A number."""

    def add_histogram(self, name: str, histogram: Histogram, labels: Labels) -> None:
        """How many durations lie in which range."""


def collect(monitor: Monitor, found: Samples) -> Iterator[None]:
    """Put everything into `found`, in steps of about a millisecond, between which clients have
    their turn."""
    server = Labels({"server_id": monitor.engine.server_id})
    _add_server(monitor, found, server)
    _add_disk(monitor, found, server)
    _add_group(monitor, found, server)
    yield from _add_jetstream(monitor, found)
    add_process(found, server)
    for endpoint, answer in (("varz", varz(monitor)), ("subsz", subsz(monitor, SubszOptions()))):
        for name, number in numbers_of(answer, f"gnatsd_{endpoint}"):
            found.add(name, number, server)


def add_process(found: Samples, labels: Labels) -> None:
    """What the system says of the process."""
    for name, number in process_facts():
        found.add(name, number, labels)


def numbers_of(answer: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Every number of an answer, by the path to it."""
    for key, value in answer.items():
        name = f"{prefix}_{_NOT_IN_NAMES.sub('_', key)}"
        if isinstance(value, dict):
            yield from numbers_of(value, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
        elif key in _TIMES:
            yield name, datetime.fromisoformat(value).timestamp()


# -- the server --------------------------------------------------------------------------------


def _add_server(monitor: Monitor, found: Samples, labels: Labels) -> None:
    engine, total = monitor.engine, monitor.total_traffic()
    status, problems = problems_of(monitor, HealthzOptions())
    add_health(found, status == OK, len(problems), labels)
    numbers = {
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


def add_health(found: Samples, is_healthy: bool, problems: int, labels: Labels) -> None:
    """Which server runs, and whether all is well."""
    versions = {"version": __version__, "nats_version": VERSION, "build": build.describe()}
    found.add("slipstream_build_info", 1, labels.also(versions))
    found.add("slipstream_healthy", int(is_healthy), labels)
    found.add("slipstream_problems", problems, labels)


def _add_disk(monitor: Monitor, found: Samples, labels: Labels) -> None:
    jetstream = monitor.options.jetstream
    if jetstream.enabled:
        add_space(found, jetstream.store_dir, labels)
    scrub = monitor.engine.scrub
    if scrub is not None:
        found.add("slipstream_scrub_read_bytes_total", scrub.read_bytes, labels)
        found.add("slipstream_scrub_pass_ratio", round(scrub.progress, 3), labels)
        last = scrub.last_pass / SECOND
        found.add("slipstream_scrub_last_pass_timestamp_seconds", last, labels)
        found.add("slipstream_scrub_damaged_segments", len(scrub.damaged), labels)
    found.add_histogram("slipstream_sync_seconds", monitor.measures.sync, labels)
    found.add_histogram("slipstream_publish_ack_seconds", monitor.measures.publish, labels)


def add_space(found: Samples, store_dir: str, labels: Labels) -> None:
    """How full the file system of the store is."""
    space = disk_space(store_dir)
    if space is not None:
        found.add("slipstream_store_free_bytes", space[0], labels)
        found.add("slipstream_store_size_bytes", space[1], labels)


def _add_group(monitor: Monitor, found: Samples, labels: Labels) -> None:
    """What the leader of a group knows of it."""
    group = monitor.engine.group
    if group is None:
        return
    named = labels.also({"cluster": group.name})
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
        text = named.also({"member": one.name})
        found.add("slipstream_group_member_lag_entries", one.lag, text)
        found.add("slipstream_group_member_idle_seconds", round(one.active / SECOND, 3), text)


# -- JetStream ---------------------------------------------------------------------------------


def _add_jetstream(monitor: Monitor, found: Samples) -> Iterator[None]:
    engine = monitor.engine
    base = {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "cluster": engine.group.name if engine.group is not None else "",
        "domain": engine.options.domain,
        "meta_leader": engine.group.server_name if engine.group is not None else "",
        "is_meta_leader": "true",
    }
    server = Labels(base)
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


def _add_account(found: Samples, js: JetStream, labels: Labels, now: int) -> Iterator[None]:
    name = js.account.name
    text = labels.also({"account": name, "account_name": name, "account_id": name})
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
        yield from _add_stream(found, stream, text.also(own), now)
        yield


def _add_stream(found: Samples, stream: Stream, text: Labels, now: int) -> Iterator[None]:
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
    leader = text.also(
        {"consumer_leader": stream.js.engine.server_name, "is_consumer_leader": "true"}
    )
    for number, consumer in enumerate(list(stream.consumers.values()), 1):
        if consumer.stopped or stream.closed:
            continue
        own = {"consumer_name": consumer.name, "consumer_desc": consumer.config.description}
        _add_consumer(found, consumer, leader.also(own), now)
        if number % CONSUMERS_PER_STEP == 0:
            yield


def _add_inflow(found: Samples, stream: Stream, text: Labels) -> None:
    """How far a mirror, or a stream with sources, is behind."""
    info = inflow_info(stream)
    if "mirror" in info:
        own = text.also({"mirror_name": info["mirror"]["name"]})
        found.add("jetstream_stream_mirror_lag", info["mirror"]["lag"], own)
    for number, source in enumerate(info.get("sources", ())):
        # Two sources may have the same name: the number keeps their samples apart.
        own = text.also({"source_name": source["name"], "source_number": str(number)})
        found.add("jetstream_stream_source_lag", source["lag"], own)


def _add_consumer(found: Samples, consumer: Consumer, labels: Labels, now: int) -> None:
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


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
