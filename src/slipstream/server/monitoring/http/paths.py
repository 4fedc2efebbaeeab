"""Paths, and what answers them."""

import os.path
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from slipstream.server.monitoring.endpoints.absent import (
    expvarz,
    gatewayz,
    ipqueuesz,
    stacks,
)
from slipstream.server.monitoring.endpoints.accounts import (
    accountz,
    accountz_options,
    accstatz,
    accstatz_options,
)
from slipstream.server.monitoring.endpoints.connz import connz, connz_options
from slipstream.server.monitoring.endpoints.healthz import healthz, healthz_options
from slipstream.server.monitoring.endpoints.jsz import JszOptions, jsz, jsz_options
from slipstream.server.monitoring.endpoints.leafz import leafz, leafz_options
from slipstream.server.monitoring.endpoints.routez import routez
from slipstream.server.monitoring.endpoints.subsz import subsz, subsz_options
from slipstream.server.monitoring.endpoints.varz import varz
from slipstream.server.monitoring.http.connection import TEXT, Request, Response
from slipstream.server.monitoring.http.page import index_page
from slipstream.server.monitoring.metrics import CONTENT_TYPE, metrics
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import BadRequest, Query, to_json

JSON = "application/json"
SCRIPT = "application/javascript"
_CALLBACK = re.compile(r"[A-Za-z_$][\w$.]{0,127}")

Endpoint = Callable[[Monitor, Query], Response]
Options = TypeVar("Options")


class Endpoints:
    """The handler of HTTP requests: finds the endpoint, counts, answers. Those in `instead` take
    the place of what is usual for their paths."""

    def __init__(self, monitor: Monitor, instead: "Mapping[str, Endpoint] | None" = None) -> None:
        self._monitor = monitor
        self._base = monitor.options.monitoring.http_base_path
        self._by_path: dict[str, Endpoint] = {
            "/": _index,
            "/varz": plain(_varz),
            "/connz": with_options(connz, connz_options),
            "/subsz": with_options(subsz, subsz_options),
            "/subscriptionsz": with_options(subsz, subsz_options),
            "/accountz": with_options(accountz, accountz_options),
            "/accstatz": with_options(accstatz, accstatz_options),
            "/jsz": with_options(_jsz, jsz_options),
            "/healthz": _healthz,
            "/metrics": _metrics,
            "/routez": plain(routez),
            "/leafz": with_options(leafz, leafz_options),
            "/gatewayz": plain(gatewayz),
            "/ipqueuesz": plain(ipqueuesz),
            "/expvarz": plain(expvarz),
            "/debug/vars": plain(expvarz),
            "/raftz": _raftz,
            "/stacksz": lambda monitor, query: Response(200, TEXT, stacks()),
            **(instead or {}),
        }

    def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = request.path
        if self._base and (path == self._base or path.startswith(self._base + "/")):
            path = path[len(self._base) :] or "/"
        elif self._base:
            return _not_found()
        endpoint = self._by_path.get(path)
        if endpoint is None:
            return _not_found()
        self._monitor.requests[self._base + path] += 1
        try:
            return endpoint(self._monitor, Query(request.query))
        except BadRequest as error:
            return Response(400, TEXT, str(error).encode())


def _varz(monitor: Monitor) -> dict[str, Any]:
    found = varz(monitor)
    hide_directory(found.get("jetstream", {}))
    return found


def _jsz(monitor: Monitor, options: JszOptions) -> dict[str, Any]:
    found = jsz(monitor, options)
    hide_directory(found)
    return found


def hide_directory(found: dict[str, Any]) -> None:
    """Nobody has to log in over HTTP: where the store lies is for the system account."""
    config = found.get("config", {})
    if "store_dir" in config:
        config["store_dir"] = os.path.basename(config["store_dir"])


def plain(function: Callable[[Monitor], Any]) -> Endpoint:
    """An endpoint without options."""
    return lambda monitor, query: answer(query, function(monitor))


def with_options(
    function: Callable[[Monitor, Options], Any], options: Callable[[Query], Options]
) -> Endpoint:
    """An endpoint whose options `options` reads."""
    return lambda monitor, query: answer(query, function(monitor, options(query)))


def answer(query: Query, found: Any, status: int = 200, indent: int = 2) -> Response:
    """JSON, or a call of the function that `callback` names with it."""
    body = to_json(found, indent)
    callback = query.text("callback")
    headers = {"Access-Control-Allow-Origin": "*"}
    if not callback:
        return Response(status, JSON, body, headers)
    if not _CALLBACK.fullmatch(callback):
        raise BadRequest("callback must be the name of a function")
    return Response(status, SCRIPT, callback.encode() + b"(" + body + b")", headers)


def _healthz(monitor: Monitor, query: Query) -> Response:
    status, found = healthz(monitor, healthz_options(query))
    return answer(query, found, status, indent=0)


def _metrics(monitor: Monitor, query: Query) -> Response:
    return Response(200, CONTENT_TYPE, metrics(monitor, query.text("prefix")))


def _index(monitor: Monitor, query: Query) -> Response:
    return Response(200, "text/html; charset=utf-8", index_page(monitor))


def _raftz(monitor: Monitor, query: Query) -> Response:
    return Response(404, TEXT, b"No Raft nodes registered")


def _not_found() -> Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(404, TEXT, b"404 page not found\n", headers)
