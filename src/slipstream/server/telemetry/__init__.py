r"""What a server sends to an OpenTelemetry collector by OTLP (docs/monitoring.md#opentelemetry).

    telemetry            one server's telemetry: resource, beginning and end
      |      \
    spans   metrics      what the engine tells of traced messages; the samples of `/metrics`
      \      /
      exporters          OTLP over HTTP, and what is said of a collector that does not answer

Nothing here is imported, and opentelemetry neither, before a configuration asks for it.
"""

from slipstream.extras import require

for _package in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
    require(_package, extra="otlp")  # before the modules that cannot be imported without

from slipstream.server.telemetry.telemetry import Telemetry  # noqa: E402

__all__ = ["Telemetry"]
