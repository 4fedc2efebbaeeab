"""`slipstream account backup|restore`: every stream of the account, each in a directory of its own
below the one that is named, and back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.backup import (
    Bar,
    Check,
    Consumers,
    back_up,
    bring_back,
    brought_back,
    said,
    shown,
)
from slipstream.cli.output import note, print_json
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.client.jetstream.backup import META
from slipstream.errors import ConfigError, Error

app = new_app()


@command(app, "backup")
async def backup(
    target: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to; made if need be")],
    consumers: Consumers = True,
    check: Check = False,
    progress: Bar = True,
) -> None:
    """Write all streams with their consumers to a directory."""
    failed: list[str] = []
    done: list[dict[str, Any]] = []
    async with jetstream() as js:
        for name in sorted([name async for name in js.stream_names()]):
            try:
                found = await back_up(js, name, target / name, consumers, check, progress)
            except (Error, OSError) as error:
                failed.append(f"{name}: {error}")
                continue
            done.append(shown(found))
            if not wants_json():
                note(said(found, target / name))
    _finish("account backup", done, failed)


@command(app, "restore")
async def restore(
    source: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A backup of an account")],
    progress: Bar = True,
) -> None:
    """Make the streams of an account again from a backup; one that is there already is left."""
    found = sorted(path.parent for path in source.glob(f"*/{META}"))
    if not found:
        raise ConfigError(f"account restore: {source} holds no backup of a stream")
    failed: list[str] = []
    done: list[Any] = []
    async with jetstream() as js:
        for directory in found:
            try:
                info = await bring_back(js, directory, None, progress)
            except (Error, OSError) as error:
                failed.append(f"{directory.name}: {error}")
                continue
            done.append(info)
            if not wants_json():
                note(brought_back(info))
    _finish("account restore", done, failed)


def _finish(what: str, done: list[Any], failed: list[str]) -> None:
    """One stream that fails does not keep the others from being done, and is not forgotten."""
    if wants_json():
        print_json(done)
    if failed:
        raise ConfigError(f"{what}: {len(failed)} streams failed:\n  " + "\n  ".join(failed))
