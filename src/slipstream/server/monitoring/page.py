"""The page at `/`: what there is to look at."""

from html import escape

from slipstream.engine.protocol.options import VERSION
from slipstream.server.monitoring.monitor import Monitor

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
    "body{font:16px/1.6 system-ui,sans-serif;margin:3em auto;max-width:34em;padding:0 1em}"
    "a{color:#0b57d0;text-decoration:none}a:hover{text-decoration:underline}"
    "code{color:#777}li{list-style:none}ul{padding:0}"
)


def index_page(monitor: Monitor) -> bytes:
    """HTML with a link to each endpoint."""
    name = escape(monitor.engine.server_name)
    base = escape(monitor.options.monitoring.http_base_path)
    items = (
        f'<li><a href="{base}/{path}">{title}</a> <code>/{path}</code></li>'
        for path, title in _LINKS
    )
    links = "\n".join(items)
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>Slipstream {name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Slipstream</h1>\n<p>Server <b>{name}</b>, NATS {VERSION}</p>\n"
        f"<ul>\n{links}\n</ul>\n</body>\n</html>\n"
    )
    return text.encode()
