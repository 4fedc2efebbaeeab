"""Templates, and how numbers, times and names are written in them.

Everything that a template shows is escaped; what is markup by itself is made here, from numbers and
from text that is escaped first.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from slipstream import __version__
from slipstream.cli.values import show_duration, show_limit, show_since, show_size, show_time
from slipstream.console.options import ConsoleOptions
from slipstream.console.sessions import Session
from slipstream.console.standing import standing

NAVIGATION = (
    ("/", "Overview"),
    ("/streams", "Streams"),
    ("/consumers", "Consumers"),
    ("/kv", "Key-value"),
    ("/objects", "Objects"),
    ("/queries", "Queries"),
    ("/connections", "Connections"),
)
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
SPARK_POINTS = 48
_CODE = re.compile(r"`([^`]+)`")


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def query(**values: Any) -> str:
    """A query with what is given of `values`, "?" included; "" for nothing."""
    given = {name: value for name, value in values.items() if value not in ("", None, 0, False)}
    return f"?{urlencode(given)}" if given else ""


def show_count(count: float) -> str:
    """A whole number with its thousands apart."""
    return f"{count:,.0f}"


def show_rate(rate: float) -> str:
    """Messages a second, with a decimal where there are few."""
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def compact(count: float) -> str:
    """A number in four letters or so: 950, 12.3k, 4.5M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(count) >= size:
            scaled = count / (1e3 if unit == "k" else size)
            return f"{scaled:.3g}{unit}"
    return f"{count:,.0f}"


def show_precise(when: datetime | None) -> str:
    """Local time to the millisecond."""
    if when is None:
        return "never"
    local = when.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def show_ago(when: datetime | None) -> str:
    """How long ago, in one unit: 4 s ago, 3 min ago, 2 d ago."""
    if when is None or when.year < 1970:
        return "never"
    seconds = max((datetime.now(UTC) - when).total_seconds(), 0.0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago" if seconds >= 1 else "now"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 error, 2 errors."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def coded(text: str) -> Markup:
    """Text in which what stands between backticks is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def spark(values: Sequence[float | None]) -> Markup:
    """A line of the last values, as an image without words; "" where two are not known."""
    known = [value for value in values[-SPARK_POINTS:] if value is not None]
    if len(known) < 2:
        return Markup("")
    top = max(known) or 1.0
    step = SPARK_WIDTH / (len(known) - 1)
    points = " ".join(
        f"{at * step:.1f},{(SPARK_HEIGHT - 2) - value / top * (SPARK_HEIGHT - 4):.1f}"
        for at, value in enumerate(known)
    )
    return Markup(
        f'<svg class="spark" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" aria-hidden="true">'
        f'<polyline points="{points}"/></svg>'
    )


class Renderer:
    """The templates of the console."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("slipstream.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            ago=show_ago,
            code=coded,
            compact=compact,
            count=show_count,
            duration=show_duration,
            limit=show_limit,
            plural=plural,
            precise=show_precise,
            rate=show_rate,
            segment=segment,
            since=show_since,
            size=show_size,
            spark=spark,
            standing=standing,
            time=show_time,
        )
        self._templates.globals.update(
            base=options.base,
            navigation=NAVIGATION,
            query=query,
            read_only=options.read_only,
            version=__version__,
        )

    def text(self, template: str, names: Mapping[str, Any]) -> str:
        """A fragment of a page: `template` with `names` filled in."""
        return self._templates.get_template(template).render(names)

    def page(
        self, request: Request, template: str, status: int = 200, **names: Any
    ) -> HTMLResponse:
        """A whole page for the session of a request."""
        session: Session | None = request.state.session
        path = request.url.path
        known: dict[str, Any] = {
            "session": session,
            "notices": session.take_notices() if session else [],
            "section": max(
                (at for at, _ in NAVIGATION if at == "/" or f"{path}/".startswith(f"{at}/")),
                key=len,
            )
            if path == "/" or not path.startswith("/login")
            else "",
            "server": session.workspace.nc.server_info if session else None,
            "server_url": session.workspace.nc.server_url if session else "",
            "is_connected": session.workspace.nc.is_connected if session else False,
        }
        return HTMLResponse(self.text(template, known | names), status)
