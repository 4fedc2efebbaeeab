"""Writes the Grafana board, Prometheus' alert rules and docs/metrics.md from the list of metrics;
takes no arguments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipstream.server.monitoring.metrics.metric_list import (
    ALERTS,
    SECTIONS,
    Alert,
    Metric,
    Section,
)

ROOT = Path(__file__).parent.parent
BOARD = ROOT / "deploy" / "grafana" / "slipstream.json"
RULES = ROOT / "deploy" / "prometheus" / "slipstream.rules.yml"
PAGE = ROOT / "docs" / "metrics.md"

COLUMNS, WIDTH, HEIGHT = 3, 8, 7  # of a board that is 24 wide
SERIES_MAX = 20  # in a panel: a server may have many thousands of consumers
UNITS = {"bytes": "bytes", "seconds": "s", "yes or no": "bool", "date": "dateTimeFromNow"}
PER_SECOND = {"bytes": "Bps", "seconds": "percentunit"}  # seconds of processor time
QUANTILES = (0.5, 0.99)
VARIABLES = {
    "instance": ("up", ""),
    "account": ("jetstream_account_storage_used", 'instance=~"$instance"'),
    "stream_name": (
        "jetstream_stream_total_messages",
        'instance=~"$instance", account=~"$account"',
    ),
    "consumer_name": (
        "jetstream_consumer_num_pending",
        'instance=~"$instance", account=~"$account", stream_name=~"$stream_name"',
    ),
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def files() -> dict[Path, str]:
    """Everything that is generated."""
    return {
        BOARD: json.dumps(board(), indent=1) + "\n",
        RULES: "\n".join(rules()) + "\n",
        PAGE: "\n".join(page()) + "\n",
    }


# -- Grafana -----------------------------------------------------------------------------------


def board() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    return {
        "uid": "slipstream",
        "title": "Slipstream",
        "tags": ["slipstream", "nats", "jetstream"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    for name, (metric, chosen) in VARIABLES.items():
        selector = 'job="slipstream"' if metric == "up" else chosen
        yield {
            "name": name,
            "label": name.removesuffix("_name").capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": f"label_values({metric}{{{selector}}}, {name})",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for section in SECTIONS:
        number += 1
        place = {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": section.title, "gridPos": place}
        y += 1
        shown = [metric for metric in section.metrics if metric.on_board]
        for at, metric in enumerate(shown):
            number += 1
            x, below = at % COLUMNS * WIDTH, at // COLUMNS * HEIGHT
            place = {"x": x, "y": y + below, "w": WIDTH, "h": HEIGHT}
            yield _panel(number, section, metric, place)
        y += -(-len(shown) // COLUMNS) * HEIGHT


def _panel(number: int, section: Section, metric: Metric, place: dict[str, int]) -> dict[str, Any]:
    units = PER_SECOND if metric.kind == "counter" else UNITS
    unit = units.get(metric.unit, "ops" if metric.kind == "counter" else "short")
    return {
        "id": number,
        "type": "timeseries",
        "title": _title(metric.name),
        "description": metric.help,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(_queries(section, metric))
        ],
    }


def _title(name: str) -> str:
    words = name.split("_")[1:]
    if words[-1] == "total":
        words = [*words[:-1], "per second"]
    return " ".join(words).capitalize()


def _queries(section: Section, metric: Metric) -> Iterator[tuple[str, str]]:
    """Queries of a panel with their legends."""
    names = _labels(section)
    selector = ", ".join(f'{name}=~"${name}"' for name in names)
    own = [section.label] if section.label and section.label not in names else []
    legend = " ".join(f"{{{{{name}}}}}" for name in [*names, *own][-2:])
    if metric.kind == "histogram":
        rate = f"rate({metric.name}_bucket{{{selector}}}[$__rate_interval])"
        for quantile in QUANTILES:
            query = f"histogram_quantile({quantile:g}, sum by (instance, le) ({rate}))"
            yield query, f"{legend} {quantile * 100:g} %"
        return
    query = f"{metric.name}{{{selector}}}"
    if metric.kind == "counter":
        query = f"rate({query}[$__rate_interval])"
    yield (f"topk({SERIES_MAX}, {query})" if section.label else query), legend


def _labels(section: Section) -> list[str]:
    """The variables that choose among the samples of a section."""
    names = list(VARIABLES)
    return names[: names.index(section.label) + 1] if section.label in names else names[:1]


# -- Prometheus --------------------------------------------------------------------------------


def rules() -> Iterator[str]:
    """The alert rules, as YAML."""
    yield "# Made by tools/generate_dashboards.py. The scrape job is called slipstream."
    yield "groups:"
    yield "  - name: slipstream"
    yield "    rules:"
    for alert in ALERTS:
        yield from _rule(alert)


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expression)}"
    yield f"        for: {alert.lasts}"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.action)}"


# -- documentation -----------------------------------------------------------------------------


def page() -> Iterator[str]:
    """docs/metrics.md."""
    yield "# Metrics and alerts"
    yield ""
    yield "<!-- made by tools/generate_dashboards.py -->"
    yield ""
    yield "What `/metrics` has ([monitoring](monitoring.md#prometheus-and-grafana)). Beside these,"
    yield "each number of `/varz` and `/subsz` is `gnatsd_varz_...` or `gnatsd_subsz_...`."
    for section in SECTIONS:
        about = f", one sample for each `{section.label}`" if section.label else ""
        yield from ("", f"## {section.title}", "", f"| metric | kind | meaning{about} |")
        yield "|---|---|---|"
        for metric in section.metrics:
            yield f"| `{metric.name}` | {metric.kind} | {metric.help} |"
    yield from (
        "",
        "## Alerts",
        "",
        "| alert | severity | when | what to do |",
        "|---|---|---|---|",
    )
    for alert in ALERTS:
        yield f"| `{alert.name}` | {alert.severity} | {alert.summary} | {alert.action} |"


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
