"""`slipstream stream cluster step-down|peer-remove`: a stream's leader and its copies."""

from typing import Annotated

import typer

from slipstream.cli.choose import choose_stream
from slipstream.cli.cluster.actions import (
    PEER_REMOVE,
    STEP_DOWN,
    Action,
    Preferred,
    action_of,
    check_leader,
    hand_over,
    placement,
    servers_of,
    shared,
)
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.session import command, jetstream, new_app
from slipstream.client.jetstream import JetStream
from slipstream.model.infos import ClusterInfo

app = new_app()


@command(app, "cluster")
async def cluster(
    action: Action,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    peer: Annotated[
        str, typer.Argument(metavar="SERVER", help=f"{PEER_REMOVE}: who is to have no copy")
    ] = "",
    preferred: Preferred = "",
    force: Force = False,
) -> None:
    """Have a stream's leader hand over, or a server give up its copy."""
    chosen = action_of(action, STEP_DOWN, PEER_REMOVE)
    async with jetstream() as js:
        name = await choose_stream(js, name)
        found = shared((await js.stream_info(name)).cluster, f"stream {name}")
        if chosen == PEER_REMOVE:
            await _remove(js, name, found, peer, force)
            return
        check_leader(found, f"stream {name}", force)

        async def ask() -> None:
            await js.api.request(f"STREAM.LEADER.STEPDOWN.{name}", placement(preferred))

        async def look() -> ClusterInfo | None:
            return (await js.stream_info(name)).cluster

        await hand_over(f"stream {name}", found.leader, ask, look)


async def _remove(js: JetStream, name: str, found: ClusterInfo, peer: str, force: bool) -> None:
    there = servers_of(found)
    if peer not in there:
        raise UsageError(f'stream {name} has no copy on "{peer}": it is on {", ".join(there)}')
    confirm(f"Really have {peer} give up its copy of stream {name}?", force)
    await js.api.request(f"STREAM.PEER.REMOVE.{name}", {"peer": peer})
    done(f"{peer} gives up its copy of stream {name}; another server gets one", success=True)
