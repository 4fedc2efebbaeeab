"""`slipstream server cluster step-down|peer-remove`: the leader of a whole cluster, and its servers
(system account)."""

import asyncio
from typing import Annotated

import typer

from slipstream.cli.cluster.actions import (
    LOOK_SECONDS,
    LOOKS_MAX,
    PEER_REMOVE,
    STEP_DOWN,
    Action,
    Preferred,
    action_of,
    hand_over,
    placement,
    servers_of,
)
from slipstream.cli.config_options import words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.server.system import SYSTEM_HELP, ask_servers
from slipstream.cli.session import command, connection, new_app
from slipstream.client import Connection
from slipstream.errors import ConfigError, Error
from slipstream.model.infos import ClusterInfo

app = new_app()


@command(app, "cluster")
async def cluster(
    action: Action,
    peer: Annotated[
        str, typer.Argument(metavar="SERVER", help=f"{PEER_REMOVE}: who has gone for good")
    ] = "",
    preferred: Preferred = "",
    in_cluster: Annotated[
        str, typer.Option("--cluster", help="Only a server of this cluster should lead")
    ] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tags", "--tag", help="Only a server with this tag")
    ] = None,
    force: Force = False,
) -> None:
    """Have the leader of JetStream hand over, or forget a server that does not come back."""
    chosen = action_of(action, STEP_DOWN, PEER_REMOVE)
    async with connection() as nc:
        found = await _look(nc)
        if chosen == PEER_REMOVE:
            there = servers_of(found)
            if peer not in there:
                raise UsageError(f'the cluster has no server "{peer}": it has {", ".join(there)}')
            confirm(f"Really forget {peer}? It cannot come back with what it has.", force)
            await nc.jetstream().api.request("SERVER.REMOVE", {"peer": peer})
            await _until_gone(nc, peer)
            return

        wanted = placement(preferred, in_cluster, words_of(tags or []))

        async def ask() -> None:
            await nc.jetstream().api.request("META.LEADER.STEPDOWN", wanted)

        async def look() -> ClusterInfo:
            return await _look(nc)

        await hand_over("the cluster", found.leader, ask, look)


async def _until_gone(nc: Connection, peer: str) -> None:
    """Say it once a server is none of the cluster's any more."""
    for _ in range(LOOKS_MAX):
        try:
            there = servers_of(await _look(nc))
        except Error:  # nobody leads at the moment
            there = [peer]
        if peer not in there:
            done(f"{peer} is no server of the cluster any more", success=True)
            return
        await asyncio.sleep(LOOK_SECONDS)
    done(f"{peer} is still a server of the cluster", success=False)
    raise typer.Exit(1)


async def _look(nc: Connection) -> ClusterInfo:
    """Who leads JetStream of the whole cluster. Raises `ConfigError` where nobody says."""
    answers = await ask_servers(nc, "$SYS.REQ.SERVER.PING.JSZ")
    for answer in answers:
        meta = answer.get("data", {}).get("meta_cluster")
        if meta and meta.get("leader"):
            return ClusterInfo.from_wire(meta)
    if answers:
        raise ConfigError("server cluster: these servers have no cluster")
    raise ConfigError(f"server cluster: nobody answered; {SYSTEM_HELP}")
