"""What can be done in a cluster: the words for it, and waiting until it has happened."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, note
from slipstream.cli.session import wants_json
from slipstream.errors import Error
from slipstream.model.infos import ClusterInfo

STEP_DOWN, PEER_REMOVE = "step-down", "peer-remove"
_OTHER_WORDS = {  # as the `nats` tool has them
    "stepdown": STEP_DOWN,
    "sd": STEP_DOWN,
    "elect": STEP_DOWN,
    "down": STEP_DOWN,
    "d": STEP_DOWN,
    "pr": PEER_REMOVE,
    "rm": PEER_REMOVE,
}
LOOKS_MAX = 40  # for a new leader ...
LOOK_SECONDS = 0.25  # ... one after the other

Action = Annotated[str, typer.Argument(metavar="ACTION", help=f"{STEP_DOWN} or {PEER_REMOVE}")]
Preferred = Annotated[
    str, typer.Option("--preferred", metavar="SERVER", help="Who should lead afterwards")
]

Leaderless = Annotated[bool, typer.Option("--force", "-f", help="Also if nobody leads")]


def action_of(word: str, *there: str) -> str:
    """The action that a word means; `there` are those that the command has. Raises `UsageError`."""
    action = _OTHER_WORDS.get(word, word)
    if action not in there:
        raise UsageError(f'cluster: there is no action "{word}": {" or ".join(there)}')
    return action


def placement(
    preferred: str, cluster: str = "", tags: Sequence[str] = ()
) -> "dict[str, dict[str, object]] | None":
    """The body of a request to step down."""
    wanted: dict[str, object] = {"preferred": preferred, "cluster": cluster, "tags": list(tags)}
    found = {name: value for name, value in wanted.items() if value}
    return {"placement": found} if found else None


def shared(cluster: ClusterInfo | None, what: str) -> ClusterInfo:
    """The cluster of what has several copies. Raises `UsageError` where there is one."""
    if cluster is None or not cluster.replicas:
        raise UsageError(f"{what} has one copy: there is nobody to hand over to")
    return cluster


def check_leader(found: ClusterInfo, what: str, force: bool) -> None:
    """Raises `UsageError` where nobody leads who could hand over, unless `force` was given."""
    if not found.leader and not force:
        raise UsageError(f"{what} has no leader at the moment; --force asks anyway")


def servers_of(cluster: ClusterInfo) -> list[str]:
    """The names of the leader and of those that follow it, sorted."""
    return sorted([cluster.leader, *(one.name for one in cluster.replicas)])


async def hand_over(
    what: str,
    before: str,
    ask: Callable[[], Awaitable[object]],
    look: Callable[[], Awaitable[ClusterInfo | None]],
) -> None:
    """Have the leader `before` of `what` step down, and say who follows."""
    if not wants_json():
        note(f"{before or 'The leader'} is asked to hand over {what}")
    await ask()
    for _ in range(LOOKS_MAX):
        await asyncio.sleep(LOOK_SECONDS)
        try:
            found = await look()
        except Error:  # nobody leads at the moment
            continue
        if found is not None and found.leader not in ("", before):
            done(f"{found.leader} leads {what}", success=True, leader=found.leader)
            return
    done(f"{before} still leads {what}", success=False, leader=before)
    raise typer.Exit(1)
