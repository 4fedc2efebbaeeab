"""`slipstream stream backup|restore`: a stream and its consumers in a directory, and back.

The directory is what the `nats` tool writes, so that either tool restores what the other one has
backed up, to either server. With `--incremental`, or at the URL of an object store, it is a place
of `slipstream.backups` (see `incremental`).
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.backups import Point, open_place
from slipstream.backups.stores import is_url
from slipstream.cli.backup.incremental import Pruning, make_again, run, show_checked
from slipstream.cli.config_options import read_config, words_of
from slipstream.cli.output import note, print_json
from slipstream.cli.progress import bytes_bar
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration, moment, show_size
from slipstream.client.jetstream import BackupInfo, JetStream, StreamConfig, StreamInfo
from slipstream.client.jetstream.backup import read_meta
from slipstream.errors import ConfigError
from slipstream.model.configurations import Placement

app = new_app()

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Consumers = Annotated[
    bool, typer.Option("--consumers/--no-consumers", help="Back the consumers up, too")
]
Check = Annotated[bool, typer.Option("--check", help="Have every message checked first")]
Incremental = Annotated[
    bool, typer.Option("--incremental", help="Add what is new since the last run")
]
Keep = Annotated[
    int,
    typer.Option("--keep", help="Incremental: keep the last so many runs, drop the others", min=0),
]
Expire = Annotated[
    str, typer.Option("--expire", help="Incremental: drop runs that are older, like 30d")
]
Bar = Annotated[bool, typer.Option("--progress/--no-progress", help="Draw how far it is")]


@command(app, "backup")
async def backup(
    name: Name,
    target: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="A directory; incremental: or s3://, gs://, az://"),
    ],
    consumers: Consumers = True,
    check: Check = False,
    incremental: Incremental = False,
    keep: Keep = 0,
    expire: Expire = "",
    progress: Bar = True,
) -> None:
    """Write a stream with its consumers to a directory, or add what is new to a place."""
    wanted = Pruning.read(keep, expire)
    if incremental or is_url(target):
        await run(name, open_place(target), consumers, check, wanted, progress)
        return
    wanted.refuse()
    directory = Path(target)
    if await open_place(target).is_backup():
        raise ConfigError(f"{target} holds incremental backups: add --incremental")
    async with jetstream() as js:
        found = await back_up(js, name, directory, consumers, check, progress)
    if wants_json():
        print_json(shown(found))
    else:
        note(said(found, directory))


async def back_up(
    js: JetStream, name: str, target: Path, consumers: bool, check: bool, wanted: bool
) -> BackupInfo:
    """Back one stream up, with a progress bar."""
    with bytes_bar(f"Backing up {name}", wanted) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, total=total or None, completed=done)

        return await js.backup_stream(
            name, target, consumers=consumers, check=check, progress=progress
        )


def said(found: BackupInfo, target: Path) -> str:
    """What a backup has come to, in a line."""
    state = found.state
    return (
        f"Wrote {state.messages:,} messages ({show_size(state.bytes)}) of stream "
        f"{found.config.name} to {target}, {show_size(found.bytes)}"
    )


def shown(found: BackupInfo) -> dict[str, Any]:
    """A backup as JSON."""
    return {
        "config": found.config.to_wire(),
        "state": found.state.to_wire(),
        "bytes": found.bytes,
    }


@command(app, "restore")
async def restore(
    source: Annotated[str, typer.Argument(metavar="PLACE", help="A backup: a directory or URL")],
    name: Annotated[str, typer.Option("--name", help="Not its old name, but this")] = "",
    subjects: Annotated[
        list[str] | None, typer.Option("--subjects", help="Not its old subjects, but these")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", help="How many copies", min=0)] = 0,
    max_age: Annotated[
        str, typer.Option("--max-age", help="Not its old bound of age, but this; 0: none")
    ] = "",
    to_sequence: Annotated[
        int, typer.Option("--to-sequence", help="Incremental: up to this message", min=0)
    ] = 0,
    to_time: Annotated[
        str, typer.Option("--to-time", help="Incremental: as it was then, like 2026-01-31T14:05")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Incremental: only read and check it; needs no server")
    ] = False,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="JSON file with its configuration from now on")
    ] = None,
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster to live in")] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only on servers with this tag")
    ] = None,
    progress: Bar = True,
) -> None:
    """Make a stream again from a backup."""

    def change(config: StreamConfig) -> None:
        if config_file is not None:
            replace_config(config, read_config(config_file, StreamConfig))
        place_config(config, cluster, tags or [])
        config.name = name or config.name
        if subjects:
            config.subjects = [one for words in subjects for one in words.split(",")]
        config.num_replicas = replicas or config.num_replicas
        if max_age:
            config.max_age = duration(max_age)

    place = open_place(source)
    point = Point(sequence=to_sequence, time=moment(to_time) if to_time else None)
    if is_url(source) or await place.is_backup():
        if check:
            await show_checked(place, progress)
        else:
            await make_again(place, point, change, progress)
        return
    if check or point != Point():
        raise ConfigError(f"{source} is no incremental backup, which --to-time and others need")
    directory = Path(source)
    config = StreamConfig.from_wire(read_meta(directory)["config"])
    change(config)
    async with jetstream() as js:
        found = await bring_back(js, directory, config, progress)
    if wants_json():
        print_json(found)
    else:
        note(brought_back(found))


def replace_config(config: StreamConfig, other: StreamConfig) -> None:
    """Let a configuration be like another, but for a name that the other does not have."""
    for field in config.__struct_fields__:
        if field != "name" or other.name:
            setattr(config, field, getattr(other, field))


def place_config(config: StreamConfig, cluster: str, tags: list[str]) -> None:
    """Say where a stream is to live, if the line does."""
    if cluster or tags:
        config.placement = Placement(cluster=cluster, tags=words_of(tags))


async def bring_back(
    js: JetStream, source: Path, config: StreamConfig | None, wanted: bool
) -> StreamInfo:
    """Restore one stream, with a progress bar."""
    with bytes_bar(f"Restoring {source.name}", wanted) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, total=total or None, completed=done)

        return await js.restore_stream(source, config=config, progress=progress)


def brought_back(found: StreamInfo) -> str:
    """What a restore has come to, in a line."""
    state = found.state
    return (
        f"Restored stream {found.config.name}: {state.messages:,} messages "
        f"({show_size(state.bytes)}), {state.consumer_count} consumers"
    )
