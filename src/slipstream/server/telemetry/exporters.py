"""OTLP over HTTP, as the opentelemetry project's exporters speak it.

They run on threads, try again for some seconds, and then give up what they were to send. Here they
are made to be quiet: of a collector that does not answer the log says so once, and once more when
it answers again.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from slipstream.server.options import TelemetryOptions

Say = Callable[[str, bool], None]  # a line for the log, and whether it is a warning

QUIET_SECONDS = 60.0  # after a collector was said to be away, before that is said again
REASON_SIZE_MAX = 512  # characters of one
_THEIR_LOGGERS = (OTLPSpanExporter.__module__, OTLPMetricExporter.__module__)


class Report:
    """What is said of sending `what`; `say` may be called on any thread."""

    def __init__(self, what: str, say: Say) -> None:
        self._what = what
        self._say = say
        self._reason = ""  # what the exporter has said first of its latest attempt
        self._is_away = False  # and the log has said so
        self._said_at = -QUIET_SECONDS
        self._lost = 0

    def attempt(self, count: int, export: Callable[[], bool]) -> bool:
        """Export something that consists of `count` pieces; whether it has arrived."""
        self._reason = ""
        _current.report = self
        try:
            has_arrived = export()
        except Exception as error:  # earlier versions of the exporters let the connection's pass
            has_arrived = False
            self.heard(str(error))
        finally:
            _current.report = None
        if has_arrived:
            self._has_arrived()
        else:
            self.lose(count, self._reason or "no answer")
        return has_arrived

    def heard(self, text: str) -> None:
        """The exporter would have logged this, of which a part may be the collector's own words."""
        self._reason = self._reason or _printable(text)

    def lose(self, count: int, why: str) -> None:
        """So many pieces are not sent any more."""
        self._lost += count
        now = time.monotonic()
        if not self._is_away and now - self._said_at >= QUIET_SECONDS:
            self._is_away = True
            self._said_at = now
            self._say(
                f"OpenTelemetry: {self._what} cannot be sent and are dropped until the collector "
                f"takes them again: {why}",
                True,
            )

    def _has_arrived(self) -> None:
        if self._is_away:
            self._is_away = False
            self._say(
                f"OpenTelemetry: {self._what} are sent again; {self._lost} were dropped", False
            )
            self._lost = 0


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:REASON_SIZE_MAX])


class _Current(threading.local):
    """The report of what this thread exports at the moment."""

    report: Report | None = None


class _Hush(logging.Filter):
    """Takes from the exporters' loggers what they say while we export; what they say on behalf of
    anybody else in the process goes on."""

    def filter(self, record: logging.LogRecord) -> bool:
        report = _current.report
        if report is None:
            return True
        report.heard(_reason(record))
        return False


def _reason(record: logging.LogRecord) -> str:
    """What is wrong, without what the exporter does about it, where that can be told apart."""
    errors = record.args if isinstance(record.args, tuple) else ()
    return next((str(e) for e in errors if isinstance(e, Exception)), record.getMessage())


_current = _Current()
_hush = _Hush()
for _name in _THEIR_LOGGERS:
    logging.getLogger(_name).addFilter(_hush)


class SpanSender(SpanExporter):
    """Sends spans; for the SDK's batch processor, on whose thread it runs."""

    def __init__(self, options: TelemetryOptions, say: Say) -> None:
        self.taken = 0  # spans that the processor has given to it so far
        self.report = Report("spans", say)
        self._ended = False
        self._inner: SpanExporter = OTLPSpanExporter(
            endpoint=_endpoint(options, "traces"), headers=options.headers or None
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        if self._ended:
            return SpanExportResult.FAILURE
        has_arrived = self.report.attempt(
            len(spans), lambda: self._inner.export(spans) is SpanExportResult.SUCCESS
        )
        return SpanExportResult.SUCCESS if has_arrived else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Send no more, and give up what is under way."""
        if not self._ended:
            self._ended = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class MetricsSender:
    """Sends metrics; blocks."""

    def __init__(self, options: TelemetryOptions, say: Say) -> None:
        self._report = Report("metrics", say)
        self._ended = False
        self._inner = OTLPMetricExporter(
            endpoint=_endpoint(options, "metrics"), headers=options.headers or None
        )

    def send(self, data: MetricsData) -> None:
        """Send what was measured; all that is wrong with it is reported."""
        if not self._ended:
            self._report.attempt(1, lambda: self._inner.export(data) is MetricExportResult.SUCCESS)

    def end(self) -> None:
        """Send no more, and give up what is under way."""
        if not self._ended:
            self._ended = True
            self._inner.shutdown()


def _endpoint(options: TelemetryOptions, signal: str) -> str | None:
    """Where a signal goes; None: where the environment's OTEL_EXPORTER_OTLP_... say."""
    return f"{options.endpoint.rstrip('/')}/v1/{signal}" if options.endpoint else None
