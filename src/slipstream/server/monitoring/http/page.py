"""The page at `/`: how the server is, and where there is more to look at."""

from collections.abc import Iterable, Iterator
from html import escape

from slipstream import __version__
from slipstream.engine.protocol.options import VERSION
from slipstream.server.monitoring.endpoints.healthz import (
    HealthzOptions,
    Problem,
    problems_of,
    without_paths,
)
from slipstream.server.monitoring.metrics import disk_space
from slipstream.server.monitoring.monitor import Monitor, uptime_text

_LINKS = (
    ("varz", "General"),
    ("jsz", "JetStream"),
    ("connz", "Connections"),
    ("accountz", "Accounts"),
    ("accstatz", "Account statistics"),
    ("subsz", "Subscriptions"),
    ("routez", "Routes"),
    ("leafz", "Leaf nodes"),
    ("gatewayz", "Gateways"),
    ("healthz", "Health"),
    ("metrics", "Metrics for Prometheus"),
)
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.6 system-ui,sans-serif;margin:3em auto;max-width:40em;padding:0 1em}"
    "a{color:light-dark(#0b57d0,#8ab4f8);text-decoration:none}a:hover{text-decoration:underline}"
    "code,th,footer{color:light-dark(#595959,#aaa)}li{list-style:none}ul{padding:0}"
    "th{text-align:left;font-weight:400;padding-right:2em;vertical-align:top}"
    "td{overflow-wrap:anywhere}.well{color:light-dark(#146c2e,#6dd58c)}.bad{color:light-dark(#b3261e,#f2b8b5)}"
)
_PROBLEMS_MAX = 20  # that the page shows; /healthz?details=true has all
_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def index_page(monitor: Monitor) -> bytes:
    """HTML with the server's state and a link to each endpoint."""
    return page_of(monitor, problems_of(monitor, HealthzOptions())[1], _rows(monitor))


def page_of(monitor: Monitor, problems: list[Problem], rows: Iterable[tuple[str, str]]) -> bytes:
    """HTML with these `problems`, with what there is to say in a line each as HTML, and a link to
    each endpoint."""
    name = escape(monitor.engine.server_name)
    base = escape(monitor.options.monitoring.http_base_path)
    shown = "\n".join(f"<tr><th>{what}</th><td>{is_now}</td></tr>" for what, is_now in rows)
    links = "\n".join(
        f'<li><a href="{base}/{path}">{title}</a> <code>/{path}</code></li>'
        for path, title in _LINKS
    )
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f'<link rel="icon" href="data:,">\n<title>Slipstream {name}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Slipstream</h1>\n{_health(monitor, problems)}\n<table>\n{shown}\n</table>\n"
        f"{_console(monitor)}<h2>More</h2>\n<ul>\n{links}\n</ul>\n</body>\n</html>\n"
    )
    return text.encode()


def _console(monitor: Monitor) -> str:
    if not monitor.options.console.enabled:
        return ""
    base = escape(monitor.options.monitoring.http_base_path)
    return f'<p><a href="{base}/console/">Console</a>: streams, consumers and messages</p>\n'


def _health(monitor: Monitor, problems: list[Problem]) -> str:
    if not problems:
        return '<p class="well">Healthy</p>'
    store_dir = monitor.options.jetstream.store_dir
    shown = "\n".join(
        f"<li>{escape(without_paths(problem.error, store_dir))}</li>"
        for problem in problems[:_PROBLEMS_MAX]
    )
    more = len(problems) - _PROBLEMS_MAX
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return f'<p class="bad">Not healthy</p>\n<ul class="bad">\n{shown}\n</ul>{rest}'


def _rows(monitor: Monitor) -> Iterator[tuple[str, str]]:
    """What there is to say in a line each, as HTML."""
    engine = monitor.engine
    yield "Server", escape(engine.server_name)
    yield "Version", f"Slipstream {__version__}, NATS {VERSION}"
    yield "Up for", uptime_text(monitor.now - monitor.started)
    slow = f", {engine.slow_consumers:,} were too slow" if engine.slow_consumers else ""
    yield "Connections", f"{len(engine.sessions):,} of {engine.total_sessions:,} so far{slow}"
    yield "Subscriptions", f"{monitor.subscription_count():,}"
    yield "Memory", shown_size(monitor.memory_bytes())
    if not monitor.options.jetstream.enabled:
        yield "JetStream", "off"
        return
    found = [account.jetstream for account in engine.accounts.values()]
    streams = [stream for js in found if js is not None for stream in js.streams.values()]
    messages = sum(stream.log.messages for stream in streams)
    size = sum(stream.log.bytes for stream in streams)
    yield "Streams", f"{len(streams):,} with {messages:,} messages, {shown_size(size)}"
    yield "Consumers", f"{sum(len(stream.consumers) for stream in streams):,}"
    space = disk_space(monitor.options.jetstream.store_dir)
    if space is not None:
        yield "Disk", f"{shown_size(space[0])} of {shown_size(space[1])} free"


def shown_size(size: float) -> str:
    """Bytes as people read them."""
    for prefix in _PREFIXES:
        if size < 1024 or prefix == _PREFIXES[-1]:
            break
        size /= 1024
    return f"{size:,.0f} {prefix}B" if size >= 10 or not prefix else f"{size:.1f} {prefix}B"
