"""`/metrics`: the server, its streams and its consumers in Prometheus' text format.

What the prometheus-nats-exporter derives from the other endpoints has the same names here
(`gnatsd_varz_...`, `jetstream_...`), so boards made for it work without it. `slipstream_...` are
what it can not know: how far a consumer is behind, and for how long nothing has moved.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from slipstream.engine.api.stream_info import first_seq
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.stream.stream import Stream
from slipstream.server.monitoring.healthz import OK, HealthzOptions, healthz
from slipstream.server.monitoring.jsz import JszOptions, jsz
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.varz import varz

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECOND = 1_000_000_000
_TIMES = frozenset({"start", "config_load_time"})

Labels = Mapping[str, str]

_HELP = {
    "slipstream_healthy": "1 if /healthz finds nothing wrong.",
    "slipstream_stream_idle_seconds": "Since the last message was stored.",
    "slipstream_stream_lost_messages": "Stored messages that turned out to be damaged.",
    "slipstream_consumer_lag_messages": "Messages that are not acknowledged yet, sent or not.",
    "slipstream_consumer_idle_seconds": "Since the last delivery or acknowledgement.",
    "jetstream_consumer_num_pending": "Messages that were not delivered yet.",
    "jetstream_consumer_num_ack_pending": "Messages that were delivered and not acknowledged yet.",
    "jetstream_consumer_num_redelivered": "Messages that were delivered more than once.",
    "jetstream_consumer_num_waiting": "Pull requests that wait for messages.",
    "jetstream_stream_total_messages": "Messages that are stored.",
    "jetstream_stream_total_bytes": "Bytes that are stored.",
}


class _Metrics:
    """Samples by name, because each name's samples stand together."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: str) -> None:
        self._samples.setdefault(name, []).append(f"{name}{{{labels}}} {value}")

    def text(self) -> str:
        lines: list[str] = []
        for name, samples in self._samples.items():
            if name in _HELP:
                lines.append(f"# HELP {name} {_HELP[name]}")
            lines += [f"# TYPE {name} gauge", *samples]
        return "\n".join(lines) + "\n"


def metrics(monitor: Monitor) -> bytes:
    """Everything at once."""
    found = _Metrics()
    server = _labels({"server_id": monitor.engine.server_id})
    for name, number in _numbers(varz(monitor), "gnatsd_varz"):
        found.add(name, number, server)
    status, _ = healthz(monitor, HealthzOptions())
    found.add("slipstream_healthy", int(status == OK), server)
    _add_jetstream(monitor, found)
    return found.text().encode()


def _numbers(answer: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Every number of an answer, by the path to it."""
    for key, value in answer.items():
        name = f"{prefix}_{key}".replace("/", "_").replace(".", "_").replace("-", "_")
        if isinstance(value, dict):
            yield from _numbers(value, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
        elif key in _TIMES:
            yield name, datetime.fromisoformat(value).timestamp()


# -- JetStream ---------------------------------------------------------------------------------


def _add_jetstream(monitor: Monitor, found: _Metrics) -> None:
    engine = monitor.engine
    base = {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "cluster": "",
        "domain": engine.options.domain,
        "meta_leader": "",
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
    for account in engine.accounts.values():
        if account.jetstream is not None:
            _add_account(found, account.jetstream, server, now)


# Labels are text from here on: what all samples of an account or stream share is made once.


def _add_account(found: _Metrics, js: JetStream, labels: str, now: int) -> None:
    name = js.account.name
    text = f"{labels},{_labels({'account': name, 'account_name': name, 'account_id': name})}"
    found.add("jetstream_account_max_memory", js.limits.max_memory, text)
    found.add("jetstream_account_max_storage", js.limits.max_storage, text)
    found.add("jetstream_account_memory_used", js.used("memory"), text)
    found.add("jetstream_account_storage_used", js.used("file"), text)
    leader = js.engine.server_name
    for stream in js.streams.values():
        own = {
            "stream_name": stream.name,
            "stream_leader": leader,
            "is_stream_leader": "true",
            "stream_raft_group": "",
        }
        _add_stream(found, stream, f"{text},{_labels(own)}", now)


def _add_stream(found: _Metrics, stream: Stream, text: str, now: int) -> None:
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
    idle = max(now - (log.last_ts or stream.created), 0) / _SECOND
    found.add("slipstream_stream_idle_seconds", round(idle, 3), text)
    found.add("slipstream_stream_lost_messages", len(log.lost.sequences), text)
    leader = _labels(
        {"consumer_leader": stream.js.engine.server_name, "is_consumer_leader": "true"}
    )
    for consumer in stream.consumers.values():
        own = _labels(
            {"consumer_name": consumer.name, "consumer_desc": consumer.config.description}
        )
        _add_consumer(found, consumer, f"{text},{leader},{own}", now)


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
    idle = max(now - moved, 0) / _SECOND
    found.add("slipstream_consumer_idle_seconds", round(idle, 3), labels)


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
