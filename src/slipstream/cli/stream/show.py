"""`slipstream stream ls|info|report|find|state|subjects|gaps`: look at streams."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.choose import choose_stream
from slipstream.cli.cluster.actions import servers_of
from slipstream.cli.config_options import level_of
from slipstream.cli.output import print_json, properties, say, table
from slipstream.cli.prompts import may_ask
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.stream.replication import write_graph
from slipstream.cli.stream.tables import list_streams, report_streams, show_config, show_stream
from slipstream.cli.values import duration, one_of, show_size, show_time
from slipstream.client.jetstream import StreamInfo
from slipstream.model.infos import ClusterInfo

app = new_app()

SORTS = ("name", "messages")
Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
NoSelect = Annotated[bool, typer.Option("--no-select", help="Do not ask which")]
Subject = Annotated[str, typer.Option("--subject", help="Only streams that store this subject")]


@command(app, "ls")
async def ls(
    subject: Subject = "",
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
    all_streams: Annotated[bool, typer.Option("--all", "-a", help="Also KV and objects")] = False,
) -> None:
    """List streams; as JSON their names, as the nats tool does (`report` has the rest)."""
    async with jetstream() as js:
        infos = [info async for info in js.streams(subject)]
    if not all_streams:
        infos = [info for info in infos if not info.name.startswith(("KV_", "OBJ_"))]
    infos.sort(key=lambda info: info.name)
    if wants_json():
        print_json([info.name for info in infos])
    elif names:
        for info in infos:
            say(info.name)
    elif infos:
        list_streams(infos)
    else:
        say("No Streams defined")


@command(app, "info")
async def info(
    name: Name = "",
    no_select: NoSelect = False,
    config_only: Annotated[bool, typer.Option("--config", help="Only its configuration")] = False,
    state_only: Annotated[bool, typer.Option("--state", help="Only what it holds")] = False,
) -> None:
    """Show a stream's configuration and state."""
    async with jetstream() as js:
        name = await choose_stream(js, name, may_ask() and not no_select)
        found = await js.stream_info(name)
    if state_only:
        _show_state(found)
    elif config_only:
        if wants_json():
            print_json(found.config)
        else:
            show_config(found.config, f"Configuration for Stream {name}")
    elif wants_json():
        print_json(found)
    else:
        show_stream(found)


@command(app, "state")
async def state(name: Name = "", no_select: NoSelect = False) -> None:
    """Show what a stream holds."""
    async with jetstream() as js:
        name = await choose_stream(js, name, may_ask() and not no_select)
        found = await js.stream_info(name)
    _show_state(found)


def _show_state(found: StreamInfo) -> None:
    if wants_json():
        print_json(found)  # all of it, as the `nats` tool has it
        return
    now = found.state
    properties(
        f"State for Stream {found.name}",
        [
            (
                "",
                [
                    ("Messages", f"{now.messages:,}"),
                    ("Bytes", show_size(now.bytes)),
                    ("First Sequence", f"{now.first_seq:,} @ {show_time(now.first_ts)}"),
                    ("Last Sequence", f"{now.last_seq:,} @ {show_time(now.last_ts)}"),
                    ("Deleted Messages", f"{now.num_deleted:,}"),
                    ("Active Consumers", str(now.consumer_count)),
                    ("Number of Subjects", f"{now.num_subjects:,}"),
                ],
            )
        ],
    )


@command(app, "report")
async def report(
    subject: Subject = "",
    by_consumers: Annotated[bool, typer.Option("--consumers", "-o", help="Most first")] = False,
    by_messages: Annotated[bool, typer.Option("--messages", "-m", help="Most first")] = False,
    by_name: Annotated[bool, typer.Option("--name", "-n", help="In order of names")] = False,
    by_storage: Annotated[bool, typer.Option("--storage", "-t", help="By storage")] = False,
    raw: Annotated[bool, typer.Option("--raw", "-r", help="Sizes in bytes")] = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only streams of this cluster")] = "",
    dot: Annotated[
        Path | None, typer.Option("--dot", help="Save mirrors and sources here, for GraphViz")
    ] = None,
) -> None:
    """Compare streams, those with most bytes first."""
    async with jetstream() as js:
        infos = [info async for info in js.streams(subject)]
    if cluster:
        infos = [info for info in infos if info.cluster and info.cluster.name == cluster]
    if dot is not None:
        write_graph(infos, dot)
    infos.sort(key=lambda info: info.state.bytes, reverse=True)
    if by_consumers:
        infos.sort(key=lambda info: info.state.consumer_count, reverse=True)
    if by_messages:
        infos.sort(key=lambda info: info.state.messages, reverse=True)
    if by_storage:
        infos.sort(key=lambda info: info.config.storage)
    if by_name:
        infos.sort(key=lambda info: info.name)
    if wants_json():
        print_json(infos)
    elif infos:
        report_streams(infos, raw)
    else:
        say("No Streams defined")


@command(app, "subjects")
async def subjects(
    name: Name = "",
    subject: Annotated[str, typer.Argument(metavar="FILTER", help="Only these")] = ">",
    names: Annotated[bool, typer.Option("--names", "-n", help="Without the counts")] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            help="name or messages",
            parser=one_of(*SORTS, subjects="name", count="messages"),
        ),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="The other way round")] = False,
) -> None:
    """Show the subjects of a stream and how many messages each has."""
    async with jetstream() as js:
        name = await choose_stream(js, name)
        found = (await js.stream_info(name, subjects_filter=subject)).state.subjects
    rows = sorted(found.items())
    if sort == "messages" or not (sort or names):
        rows.sort(key=lambda pair: -pair[1])
    if reverse:
        rows.reverse()
    if wants_json():
        print_json([one for one, _ in rows] if names else found)
    elif names:
        for one, _ in rows:
            say(one)
    elif found:
        title = f"{len(found)} Subjects in stream {name}"
        table(title, ("Subject", "Count"), [(one, f"{count:,}") for one, count in rows])
    else:
        say(f"No subjects found matching {subject}")


@command(app, "gaps")
async def gaps(
    name: Name = "",
    force: Annotated[bool, typer.Option("--force", "-f", help="Nothing is asked anyway")] = False,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="One request: there is no bar")
    ] = True,
) -> None:
    """Show the sequences without a message; as JSON pairs of the first and the last."""
    async with jetstream() as js:
        name = await choose_stream(js, name)
        found = await js.stream_info(name, deleted_details=True)
    runs = _runs(found.state.deleted)
    if wants_json():
        print_json(runs)
    elif runs:
        rows = [(f"{first:,}", f"{last:,}", f"{last - first + 1:,}") for first, last in runs]
        title = f"{found.state.num_deleted:,} messages are gone from stream {name}"
        table(title, ("First", "Last", "Messages"), rows)
    else:
        say(f"No deleted messages in {name}")


def _runs(sequences: list[int]) -> list[tuple[int, int]]:
    """Consecutive sequences as (first, last)."""
    runs: list[tuple[int, int]] = []
    for seq in sequences:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


@command(app, "find")
async def find(
    subject: Subject = "",
    empty: Annotated[bool, typer.Option("--empty", help="Without messages")] = False,
    consumers: Annotated[int, typer.Option("--consumers", help="With fewer consumers")] = -1,
    idle: Annotated[str, typer.Option("--idle", help="Nothing stored for so long")] = "",
    created: Annotated[str, typer.Option("--created", help="Older than this")] = "",
    replicas: Annotated[int, typer.Option("--replicas", help="With so many copies or fewer")] = 0,
    sourced: Annotated[bool, typer.Option("--sourced", help="With sources")] = False,
    mirrored: Annotated[bool, typer.Option("--mirrored", help="That are mirrors")] = False,
    api_level: Annotated[
        int, typer.Option("--api-level", help="That need this level of the API or more")
    ] = 0,
    leader: Annotated[str, typer.Option("--leader", help="Led by this server")] = "",
    server_name: Annotated[
        str, typer.Option("--server-name", help="With a copy on it; a regular expression")
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="In such a cluster; a regular expression")
    ] = "",
    invert: Annotated[bool, typer.Option("--invert", help="Those that do not match")] = False,
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
) -> None:
    """Find streams by what they hold."""
    idle_s, created_s = duration(idle), duration(created)

    def is_wanted(info: StreamInfo) -> bool:
        checks = [
            not empty or info.state.messages == 0,
            consumers < 0 or info.state.consumer_count < consumers,
            not idle or _age(info.state.last_ts) > idle_s,
            not created or _age(info.created) > created_s,
            not replicas or info.config.num_replicas <= replicas,
            not sourced or bool(info.config.sources),
            not mirrored or info.config.mirror is not None,
            level_of(info.config.metadata) >= api_level,
            is_placed(info.cluster, leader, server_name, cluster),
        ]
        return all(checks)

    async with jetstream() as js:
        found = [info async for info in js.streams(subject) if is_wanted(info) != invert]
    found.sort(key=lambda info: info.name)
    if wants_json():
        print_json([info.name for info in found])
    elif names or not found:
        say("\n".join(info.name for info in found) or "No Streams found")
    else:
        list_streams(found)


def is_placed(cluster: ClusterInfo | None, leader: str, server: str, name: str) -> bool:
    """Whether copies are where they are looked for; "" is anywhere."""
    if not (leader or server or name):
        return True
    if cluster is None:
        return False
    try:
        return (
            leader in ("", cluster.leader)
            and any(re.search(server, one) for one in servers_of(cluster))
            and bool(re.search(name, cluster.name))
        )
    except re.error as error:
        raise typer.BadParameter(f"that is no regular expression: {error}") from error


def _age(when: datetime | None) -> float:
    return (datetime.now(UTC) - when).total_seconds() if when else float("inf")
