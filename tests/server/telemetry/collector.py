"""A collector: takes OTLP over HTTP, as the opentelemetry project has defined it, and keeps it."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_SECONDS_MAX = 60.0
PARENT = "00f067aa0ba902b7"  # the span of a publisher
SAMPLED = {"traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{PARENT}-01"}


class Collector:
    """Listens on any free port while it is entered; what arrives is there by kind."""

    def __init__(self) -> None:
        self.status = 200  # of each answer
        self.requests: list[tuple[str, dict[str, str]]] = []  # paths and headers
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}  # by name, the latest
        self.resources: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                collector.take(self.path, headers, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        return Handler

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """A request has come."""
        with self._news:
            self.requests.append((path, headers))
            if self.status == 200:
                self._keep(path, body)
            self._news.notify_all()

    def _keep(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(traced.resource))
                self.spans += [span for scope in traced.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(attributes(measured.resource))
                for scope in measured.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    def wait(self, condition: "Callable[[Collector], bool]") -> None:
        """Block until what has arrived is what a test waits for."""
        with self._news:
            assert self._news.wait_for(lambda: condition(self), WAIT_SECONDS_MAX), self.requests

    def named(self, name: str) -> list[Any]:
        """The spans of a name, by their beginning."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def attributes(holder: Any) -> dict[str, Any]:
    """The attributes of a span, a resource or a point."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in holder.attributes}
