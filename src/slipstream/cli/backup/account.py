"""`slipstream account backup|restore`: every stream of the account, each in a directory of its own
below the one that is named, and back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.backups import Place, Point, open_store, stream_places
from slipstream.backups.stores import is_url
from slipstream.cli.backup.incremental import (
    Pruning,
    finish_one,
    made_again,
    restore_one,
    run_one,
)
from slipstream.cli.backup.incremental import said as ran_to
from slipstream.cli.backup.incremental import shown as shown_run
from slipstream.cli.backup.stream import (
    Bar,
    Check,
    Consumers,
    Expire,
    Incremental,
    Keep,
    back_up,
    bring_back,
    brought_back,
    place_config,
    said,
    shown,
)
from slipstream.cli.output import note, print_json
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import moment
from slipstream.client.jetstream import StreamConfig
from slipstream.client.jetstream.backup import META, read_meta
from slipstream.errors import ConfigError, Error

app = new_app()


@command(app, "backup")
async def backup(
    target: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="A directory; incremental: or s3://, gs://, az://"),
    ],
    consumers: Consumers = True,
    check: Check = False,
    incremental: Incremental = False,
    keep: Keep = 0,
    expire: Expire = "",
    force: Annotated[bool, typer.Option("--force", "-f", help="Nothing is asked anyway")] = False,
    critical_warnings: Annotated[
        bool, typer.Option("--critical-warnings", "-w", help="Each stream left out is one anyway")
    ] = False,
    progress: Bar = True,
) -> None:
    """Write all streams with their consumers to a directory, or add what is new to places."""
    wanted = Pruning.read(keep, expire)
    store = open_store(target) if incremental or is_url(target) else None
    if store is None:
        wanted.refuse()
    failed: list[str] = []
    done: list[dict[str, Any]] = []
    async with jetstream() as js:
        for name in sorted([name async for name in js.stream_names()]):
            try:
                if store is not None:
                    place = Place(store.below(name))
                    ran = await run_one(js, name, place, consumers, progress)
                    await finish_one(place, check, wanted, progress)
                    text, fields = ran_to(ran, name, place), shown_run(ran)
                else:
                    directory = Path(target) / name
                    found = await back_up(js, name, directory, consumers, check, progress)
                    text, fields = said(found, directory), shown(found)
            except (Error, OSError) as error:
                failed.append(f"{name}: {error}")
                continue
            done.append(fields)
            if not wants_json():
                note(text)
    _finish("account backup", done, failed)


@command(app, "restore")
async def restore(
    source: Annotated[
        str, typer.Argument(metavar="PLACE", help="A backup of an account: a directory or URL")
    ],
    to_time: Annotated[
        str, typer.Option("--to-time", help="Incremental: as it was then, like 2026-01-31T14:05")
    ] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster to live in")] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Only on servers with this tag")
    ] = None,
    progress: Bar = True,
) -> None:
    """Make the streams of an account again from a backup; one that is there already is left."""
    store = open_store(source)
    places = await stream_places(store)
    point = Point(time=moment(to_time) if to_time else None)
    found = {}
    if not is_url(source) and point == Point():
        found = {path.parent.name: path.parent for path in sorted(Path(source).glob(f"*/{META}"))}
    if not found and not places:
        raise ConfigError(f"account restore: {source} holds no backup of a stream")
    failed: list[str] = []
    done: list[Any] = []
    async with jetstream() as js:
        for name in [*places, *found]:
            try:
                if name in found:
                    placed = _placed(found[name], cluster, tags or [])
                    info = await bring_back(js, found[name], placed, progress)
                    text = brought_back(info)
                else:
                    made = await restore_one(
                        js,
                        Place(store.below(name)),
                        point,
                        lambda config: place_config(config, cluster, tags or []),
                        progress,
                    )
                    info, text = made.info, made_again(made)
            except (Error, OSError) as error:
                failed.append(f"{name}: {error}")
                continue
            done.append(info)
            if not wants_json():
                note(text)
    _finish("account restore", done, failed)


def _placed(source: Path, cluster: str, tags: list[str]) -> StreamConfig:
    """The configuration in a backup, and where the line wants the stream."""
    config = StreamConfig.from_wire(read_meta(source)["config"])
    place_config(config, cluster, tags)
    return config


def _finish(what: str, done: list[Any], failed: list[str]) -> None:
    """One stream that fails does not keep the others from being done, and is not forgotten."""
    if wants_json():
        print_json(done)
    if failed:
        raise ConfigError(f"{what}: {len(failed)} streams failed:\n  " + "\n  ".join(failed))
