"""`slipstream stream backup|restore`: a stream and its consumers in a directory, and back.

The directory is what the `nats` tool writes, so that either tool restores what the other one has
backed up, to either server.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.output import note, print_json
from slipstream.cli.progress import bytes_bar
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import show_size
from slipstream.client.jetstream import BackupInfo, JetStream, StreamConfig, StreamInfo
from slipstream.client.jetstream.backup import read_meta

app = new_app()

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Consumers = Annotated[
    bool, typer.Option("--consumers/--no-consumers", help="Back the consumers up, too")
]
Check = Annotated[bool, typer.Option("--check", help="Have every message checked first")]
Bar = Annotated[bool, typer.Option("--progress/--no-progress", help="Draw how far it is")]


@command(app, "backup")
async def backup(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to; made if need be")],
    consumers: Consumers = True,
    check: Check = False,
    progress: Bar = True,
) -> None:
    """Write a stream with its consumers to a directory."""
    async with jetstream() as js:
        found = await back_up(js, name, target, consumers, check, progress)
    if wants_json():
        print_json(shown(found))
    else:
        note(said(found, target))


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
    """The same as JSON."""
    return {
        "config": found.config.to_wire(),
        "state": found.state.to_wire(),
        "bytes": found.bytes,
    }


@command(app, "restore")
async def restore(
    source: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A backup")],
    name: Annotated[str, typer.Option("--name", help="Not its old name, but this")] = "",
    subjects: Annotated[
        list[str] | None, typer.Option("--subjects", help="Not its old subjects, but these")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", help="How many copies", min=0)] = 0,
    progress: Bar = True,
) -> None:
    """Make a stream again from a backup."""
    config = StreamConfig.from_wire(read_meta(source)["config"])
    config.name = name or config.name
    if subjects:
        config.subjects = [one for words in subjects for one in words.split(",")]
    config.num_replicas = replicas or config.num_replicas
    async with jetstream() as js:
        found = await bring_back(js, source, config, progress)
    if wants_json():
        print_json(found)
    else:
        note(brought_back(found))


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
