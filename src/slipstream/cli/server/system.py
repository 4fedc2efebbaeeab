"""What servers say of themselves under `$SYS.REQ`
(docs/protocol/monitoring.md#requests-to-the-system-account)."""

from typing import Any

import msgspec

from slipstream.client.connection import Connection
from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError

SYSTEM_HELP = "only a user of the system account may ask that; connect as one"
STALL_SECONDS = 0.3  # after so long a silence every server has answered


async def ask_servers(
    nc: Connection,
    subject: str,
    stall: float = STALL_SECONDS,
    body: dict[str, Any] | None = None,
) -> list[Any]:
    """Every server's answer; none where this user may not ask."""
    request = msgspec.json.encode(body) if body else b""
    try:
        found = [
            msgspec.json.decode(message.data)
            async for message in nc.request_many(subject, request, stall=stall)
        ]
    except (NoRespondersError, PermissionsError, TimeoutError):
        found = []
    return found


async def ask_connections(nc: Connection) -> list[dict[str, Any]]:
    """The account's connections, as `connz` has them; any user may ask for those."""
    answers = await ask_servers(nc, "$SYS.REQ.ACCOUNT.PING.CONNZ", stall=0.1)
    return [one for answer in answers for one in answer.get("data", {}).get("connections") or []]
