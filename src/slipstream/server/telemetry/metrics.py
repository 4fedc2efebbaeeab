"""The samples of `/metrics` as OTLP has metrics: the same names, labels and values.

They are collected on the event loop, in steps between which clients have their turn, and encoded
and sent on a thread. The unit stands only where the name ends in it: collectors that hand metrics
to Prometheus add a unit that is missing to the name.
"""

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from slipstream.model.durations import SECOND
from slipstream.server.histogram import BOUNDS_NS, Histogram
from slipstream.server.monitoring.metrics.metric_list import Metric, metric_of
from slipstream.server.monitoring.metrics.samples import Labels

_BOUNDS = [bound / SECOND for bound in BOUNDS_NS]
_UNITS = {"bytes": "By", "seconds": "s"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class Reading:
    """The samples of one moment, as `samples.collect` hands them over."""

    def __init__(self, now: int, since: int) -> None:
        self._now = now  # ns since the epoch
        self._since = since  # when counting began
        self._numbers: dict[str, list[tuple[Labels, float]]] = {}
        self._histograms: dict[str, list[tuple[Labels, list[int], int]]] = {}

    def add(self, name: str, value: float, labels: Labels) -> None:
        self._numbers.setdefault(name, []).append((labels, value))

    def add_histogram(self, name: str, histogram: Histogram, labels: Labels) -> None:
        copy = (labels, list(histogram.counts), histogram.total)
        self._histograms.setdefault(name, []).append(copy)

    def data(self, resource: Resource, scope: InstrumentationScope) -> MetricsData:
        """All of it, for an exporter; takes a while where there are many consumers."""
        known: dict[Labels, dict[str, str]] = {}
        metrics = [self._number(metric_of(name), known) for name in self._numbers]
        metrics += [self._histogram(metric_of(name)) for name in self._histograms]
        scoped = ScopeMetrics(scope=scope, metrics=metrics, schema_url="")
        return MetricsData([ResourceMetrics(resource, [scoped], schema_url="")])

    def _number(self, metric: Metric, known: dict[Labels, dict[str, str]]) -> MetricData:
        points = []
        for labels, value in self._numbers[metric.name]:
            attributes = known.get(labels)
            if attributes is None:
                attributes = known[labels] = labels.values()
            points.append(NumberDataPoint(attributes, self._since, self._now, value))
        data: Sum | Gauge = Gauge(points)
        if metric.kind == "counter":
            data = Sum(points, _CUMULATIVE, is_monotonic=True)
        return MetricData(metric.name, metric.help, _unit(metric), data)

    def _histogram(self, metric: Metric) -> MetricData:
        points = [
            HistogramDataPoint(
                attributes=labels.values(),
                start_time_unix_nano=self._since,
                time_unix_nano=self._now,
                count=sum(counts),
                sum=total / SECOND,
                bucket_counts=counts,
                explicit_bounds=_BOUNDS,
                min=None,  # type: ignore[arg-type]  # nobody keeps these, and none need be sent
                max=None,  # type: ignore[arg-type]
            )
            for labels, counts, total in self._histograms[metric.name]
        ]
        data = HistogramData(points, _CUMULATIVE)
        return MetricData(metric.name, metric.help, _unit(metric), data)


def _unit(metric: Metric) -> str:
    words = metric.name.split("_")
    return next((unit for word, unit in _UNITS.items() if word in words), "")
