"""What servers say of themselves under `$SYS.REQ`
(docs/protocol/monitoring.md#requests-to-the-system-account)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from slipstream.client.connection import Connection
from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError
from slipstream.errors import ConfigError

SYSTEM_HELP = "only a user of the system account may ask that; connect as one"
STALL_SECONDS = 0.3  # after so long a silence every server has answered

Answer = dict[str, Any]


async def ask_servers(
    nc: Connection,
    subject: str,
    stall: float = STALL_SECONDS,
    body: Answer | None = None,
    expect: int = 0,
) -> list[Any]:
    """Every server's answer, or the first `expect`; none where this user may not ask."""
    request = msgspec.json.encode(body) if body else b""
    try:
        found = [
            msgspec.json.decode(message.data)
            async for message in nc.request_many(
                subject, request, stall=None if expect else stall, max_messages=expect or None
            )
        ]
    except (NoRespondersError, PermissionsError, TimeoutError):
        found = []
    return found


async def ask_all(
    nc: Connection,
    endpoint: str,
    body: Answer | None = None,
    what: str = "",
    expect: int = 0,
) -> list[Answer]:
    """Every server's answer, by their names. Raises `ConfigError` about `what` where none comes, or
    fewer than `expect`."""
    found = await ask_servers(nc, f"$SYS.REQ.SERVER.PING.{endpoint}", body=body, expect=expect)
    what = what or f"server {endpoint.lower()}"
    if not found:
        raise ConfigError(f"{what}: nobody answered; {SYSTEM_HELP}")
    if len(found) < expect:
        raise ConfigError(f"{what}: {len(found)} servers answered, not {expect}")
    return sorted(found, key=server_of)


def server_of(answer: Answer) -> str:
    """The name of the server that answered."""
    return str(answer.get("server", {}).get("name", ""))


def shortened(names: Sequence[str]) -> list[str]:
    """Names of several servers without the domain that all of them have."""
    domains = {name.partition(".")[2] for name in names}
    if len(names) < 2 or len(domains) > 1:
        return list(names)
    return [name.partition(".")[0] for name in names]


def server_filter(
    name: str = "", host: str = "", cluster: str = "", tags: Sequence[str] = ()
) -> Answer:
    """The part of a request that says which servers are meant."""
    filters = {"server_name": name, "host": host, "cluster": cluster, "tags": list(tags)}
    return {key: value for key, value in filters.items() if value}


async def ask_connections(nc: Connection) -> list[Answer]:
    """The account's connections, as `connz` has them; any user may ask for those."""
    answers = await ask_servers(nc, "$SYS.REQ.ACCOUNT.PING.CONNZ", stall=0.1)
    return [one for answer in answers for one in answer.get("data", {}).get("connections") or []]
