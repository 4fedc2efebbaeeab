"""Who is connected to the account, and who does not keep up."""

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from slipstream.cli.server.system import ask_connections
from slipstream.console.visit import Visit

SHOWN_MAX = 200
SLOW_BYTES_PENDING_MIN = 1024 * 1024
SORTS = {
    "cid": ("cid", False),
    "in": ("in_msgs", True),
    "out": ("out_msgs", True),
    "pending": ("pending_bytes", True),
    "subs": ("subscriptions", True),
}


class Peer(NamedTuple):
    """A connection, with what the server leaves out where it is nothing."""

    cid: int
    name: str
    user: str
    address: str
    client: str
    messages_in: int
    messages_out: int
    bytes_pending: int
    subscriptions: int
    rtt: str
    uptime: str

    @property
    def is_slow(self) -> bool:
        """Whether much waits to be sent to it."""
        return self.bytes_pending >= SLOW_BYTES_PENDING_MIN


def peer_of(one: dict[str, Any]) -> Peer:
    """Read an entry of `connz`."""
    return Peer(
        int(one.get("cid", 0)),
        str(one.get("name", "")),
        str(one.get("authorized_user", "")),
        f"{one.get('ip', '')}:{one.get('port', '')}",
        f"{one.get('lang', '')} {one.get('version', '')}".strip(),
        int(one.get("in_msgs", 0)),
        int(one.get("out_msgs", 0)),
        int(one.get("pending_bytes", 0)),
        int(one.get("subscriptions", 0)),
        str(one.get("rtt", "")),
        str(one.get("uptime", "")),
    )


async def connections(request: Request) -> Response:
    """The account's connections; any user may ask for those."""
    visit = Visit(request)
    found = await ask_connections(visit.js.connection)
    wanted = visit.asked("q").lower()
    matching = [one for one in found if wanted in _names_of(one)] if wanted else found
    sort = visit.asked("sort") if visit.asked("sort") in SORTS else "cid"
    field, is_descending = SORTS[sort]
    matching.sort(key=lambda one: int(one.get(field) or 0), reverse=is_descending)
    return visit.page(
        "connections.html",
        connections=[peer_of(one) for one in matching[:SHOWN_MAX]],
        matching=len(matching),
        total=len(found),
        shown_max=SHOWN_MAX,
        sort=sort,
        wanted=visit.asked("q"),
        own=visit.js.connection.server_info.client_id,
    )


def _names_of(one: dict[str, Any]) -> str:
    named = ("cid", "name", "ip", "lang", "authorized_user")
    return " ".join(str(one.get(name, "")) for name in named).lower()


ROUTES = (("GET", "/connections", connections),)
