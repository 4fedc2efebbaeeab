"""The telemetry of one server: what it sends, to where, from its start to its end."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from slipstream import __version__
from slipstream.engine.engine import Engine
from slipstream.model.durations import SECOND
from slipstream.server.logger import Logger
from slipstream.server.monitoring.metrics.samples import collect
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.options import TelemetryOptions
from slipstream.server.telemetry.exporters import MetricsSender, SpanSender
from slipstream.server.telemetry.metrics import Reading
from slipstream.server.telemetry.spans import WAITING_MAX, MessageSpans

SCOPE = "slipstream.server"
BATCH_SPANS = 512  # of one request to the collector
END_SECONDS_MAX = 2.0  # for what is left to send when the server stops
GIVE_UP_SECONDS_MAX = 0.5  # after that, for an exporter to stop trying


class Telemetry:
    """What a server on the running loop sends by itself. Raises ValueError if a variable of
    OpenTelemetry in the environment cannot be what it is."""

    def __init__(self, engine: Engine, options: TelemetryOptions, log: Logger) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._engine = engine
        self._interval = options.interval / SECOND
        self._resource = _resource(engine)
        self.spans: MessageSpans | None = None  # to be told of messages; None: nobody asks for it
        self._provider: TracerProvider | None = None
        self._span_sender: SpanSender | None = None
        self._metrics: MetricsSender | None = None
        self._monitor: Monitor | None = None
        self._task: asyncio.Task[None] | None = None
        self._last: asyncio.Future[None] | None = None  # the last reading, on its way
        if options.metrics:
            self._metrics = MetricsSender(options, self._say)
        if options.traces:
            self._open_spans(options)

    def _open_spans(self, options: TelemetryOptions) -> None:
        sender = self._span_sender = SpanSender(options, self._say)
        # Beside the spans that wait there may be a batch on its way to the exporter.
        processor = BatchSpanProcessor(
            sender, max_queue_size=WAITING_MAX + BATCH_SPANS, max_export_batch_size=BATCH_SPANS
        )
        sampler = ParentBased(
            root=ALWAYS_OFF, remote_parent_sampled=TraceIdRatioBased(options.sample)
        )
        provider = self._provider = TracerProvider(
            sampler=sampler, resource=self._resource, shutdown_on_exit=False
        )
        provider.add_span_processor(processor)
        self.spans = MessageSpans(provider.get_tracer(SCOPE, __version__), sender)

    def _say(self, text: str, is_warning: bool) -> None:
        """Log a line, from any thread."""
        put = self._log.warn if is_warning else self._log.info
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(put, text)

    # -- metrics -------------------------------------------------------------------------------

    def begin(self, monitor: Monitor) -> None:
        """Send the metrics of `monitor` from now on."""
        if self._metrics is not None:
            self._monitor = monitor
            self._task = self._loop.create_task(self._send_metrics(), name="telemetry")

    async def _send_metrics(self) -> None:
        """Send them at each interval; a collector that is slow gets fewer of them."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._send(await self._read())
            except Exception as error:  # a fault of the server; the next reading may do
                self._log.fault("sending metrics", error)

    async def _read(self) -> Reading:
        assert self._monitor is not None
        reading = Reading(self._monitor.now, self._engine.started)
        for _ in collect(self._monitor, reading):
            await asyncio.sleep(0)
        return reading

    def _send(self, reading: Reading) -> "asyncio.Future[None]":
        """Encode and send a reading aside."""
        sender, scope = self._metrics, InstrumentationScope(SCOPE, __version__)
        assert sender is not None
        return self._aside(lambda: sender.send(reading.data(self._resource, scope)))

    # -- the end -------------------------------------------------------------------------------

    async def read_last(self) -> None:
        """The server is about to stop: have its metrics sent once more, without waiting."""
        if self._task is not None:
            await self._stop_reading()
            self._last = self._send(await self._read())

    async def end(self) -> None:
        """Send what there is, for a moment, and stop."""
        await self._stop_reading()
        ending = self._begin_to_end()
        if ending:
            await asyncio.wait(ending, timeout=END_SECONDS_MAX)
        self._give_up()
        if ending:
            done, _ = await asyncio.wait(ending, timeout=GIVE_UP_SECONDS_MAX)
            for one in done:
                if (error := one.exception()) is not None:
                    self._log.fault("ending telemetry", error)

    def abandon(self) -> None:
        """Stop, and wait for nothing."""
        if self._task is not None:
            self._task.cancel()
        self._begin_to_end()
        self._loop.call_later(END_SECONDS_MAX, self._give_up)

    async def _stop_reading(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _begin_to_end(self) -> "list[asyncio.Future[None]]":
        """What is to be waited for, for a moment."""
        ending = [] if self._last is None else [self._last]
        if self._provider is not None:
            ending.append(self._aside(self._provider.shutdown))
        return ending

    def _give_up(self) -> None:
        """Send no more, and try nothing again."""
        if self._span_sender is not None:
            self._span_sender.shutdown()
        if self._metrics is not None:
            self._metrics.end()

    def _aside(self, work: Callable[[], None]) -> "asyncio.Future[None]":
        """Have `work` done on a thread for which the end of the process does not wait."""
        future = self._loop.create_future()

        def settle(error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def run() -> None:
            found: Exception | None = None
            try:
                work()
            except Exception as error:
                found = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=run, name="slipstream-telemetry", daemon=True).start()
        return future


def _resource(engine: Engine) -> Resource:
    """What all that is sent is about; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME count more."""
    own = {
        "service.name": "slipstream",
        "service.version": __version__,
        "service.instance.id": engine.server_name,
        "messaging.nats.server.id": engine.server_id,
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())
