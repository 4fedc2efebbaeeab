"""Metrics for Prometheus: what `/metrics` says, and the list of all metrics and alerts."""

from slipstream.server.monitoring.metrics.process_facts import disk_space
from slipstream.server.monitoring.metrics.prometheus import CONTENT_TYPE, metrics

__all__ = ["CONTENT_TYPE", "disk_space", "metrics"]
