"""`slipstream consumer cluster step-down`: a consumer's leader."""

from typing import Annotated

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.cluster.actions import (
    STEP_DOWN,
    Leaderless,
    Preferred,
    action_of,
    check_leader,
    hand_over,
    placement,
    shared,
)
from slipstream.cli.session import command, jetstream, new_app
from slipstream.model.infos import ClusterInfo

app = new_app()


@command(app, "cluster")
async def cluster(
    action: Annotated[str, typer.Argument(metavar="ACTION", help=STEP_DOWN)],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")] = "",
    preferred: Preferred = "",
    force: Leaderless = False,
) -> None:
    """Have a consumer's leader hand over."""
    action_of(action, STEP_DOWN)
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        what = f"consumer {stream} > {name}"
        found = shared((await js.consumer_info(stream, name)).cluster, what)
        check_leader(found, what, force)

        async def ask() -> None:
            await js.api.request(f"CONSUMER.LEADER.STEPDOWN.{stream}.{name}", placement(preferred))

        async def look() -> ClusterInfo | None:
            return (await js.consumer_info(stream, name)).cluster

        await hand_over(what, found.leader, ask, look)
