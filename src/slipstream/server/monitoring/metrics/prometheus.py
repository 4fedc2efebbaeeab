"""`/metrics`: the server, its streams and its consumers in Prometheus' text format.

The text is made here, and only read by `prometheus_client` in the tests: that library takes 250 µs
of the event loop for the samples of one consumer, where this takes 20.
"""

import re
from collections.abc import Callable, Iterator

from slipstream.model.durations import SECOND
from slipstream.server.histogram import BOUNDS_NS, Histogram
from slipstream.server.monitoring.metrics.metric_list import metric_of
from slipstream.server.monitoring.metrics.samples import Labels, Samples, collect
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import BadRequest, Steps

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_EXPORTED = re.compile(r"(?:gnatsd|jetstream)(?=_)")


class _Texts:
    """Samples as text by name, because each name's samples stand together."""

    def __init__(self) -> None:
        self._samples: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: Labels) -> None:
        self._samples.setdefault(name, []).append(f"{{{labels.text}}} {value}")

    def add_histogram(self, name: str, histogram: Histogram, labels: Labels) -> None:
        samples = self._samples.setdefault(name, [])
        total = 0
        for bound, count in zip((*BOUNDS_NS, 0), histogram.counts, strict=True):
            total += count
            end = f"{bound / SECOND:g}" if bound else "+Inf"
            samples.append(f'_bucket{{{labels.text},le="{end}"}} {total}')
        samples.append(f"_sum{{{labels.text}}} {histogram.total / SECOND}")
        samples.append(f"_count{{{labels.text}}} {total}")

    def all(self, prefix: str) -> Iterator[bytes]:
        """The text about each metric."""
        for name, samples in self._samples.items():
            metric = metric_of(name)
            shown = _EXPORTED.sub(prefix, name, count=1) if prefix else name
            lines = [f"# HELP {shown} {metric.help}", f"# TYPE {shown} {metric.kind}"]
            lines += [shown + sample for sample in samples]
            yield ("\n".join(lines) + "\n").encode()


Collector = Callable[[Monitor, Samples], Iterator[None]]


def metrics(monitor: Monitor, prefix: str = "", collector: Collector = collect) -> Steps:
    """Everything that `collector` finds, in steps of about a millisecond, between which clients
    have their turn; `prefix` stands for `gnatsd` and `jetstream`, as with the exporter's option of
    that name.

    Raises `BadRequest`.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise BadRequest("prefix must be letters, digits and underscores, such as nats")
    return _steps(monitor, prefix, collector)


def _steps(monitor: Monitor, prefix: str, collector: Collector) -> Steps:
    found = _Texts()
    yield from collector(monitor, found)
    parts = []
    for part in found.all(prefix):
        parts.append(part)
        yield
    return b"".join(parts)
