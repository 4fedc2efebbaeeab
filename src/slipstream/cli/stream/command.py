"""`slipstream stream`: make, change, copy, empty and remove streams."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.choose import choose_stream
from slipstream.cli.config_options import read_config, with_config_options
from slipstream.cli.editor import edited, write_config
from slipstream.cli.output import done, note, print_json, say
from slipstream.cli.progress import spinner
from slipstream.cli.prompts import Force, confirm, require
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.stream.copy import copy_messages
from slipstream.cli.stream.options import (
    EDIT_OPTIONS,
    STREAM_OPTIONS,
    ask_stream,
    config_fields,
    defaults_of,
)
from slipstream.cli.stream.tables import show_config, show_stream
from slipstream.client.jetstream import StreamConfig
from slipstream.errors import ConfigError

app = new_app("Manage streams.")

OptionalName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="JSON file with the configuration")
]


@command(app, "add")
@with_config_options(STREAM_OPTIONS)
async def add(
    *,
    name: OptionalName = "",
    config: ConfigFile = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="Only show it")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Save the configuration here, make nothing")
    ] = None,
    given: dict[str, Any],
) -> None:
    """Create a stream."""
    if config is not None:
        made = read_config(config, StreamConfig).replace(**config_fields(given))
        if name:
            made = made.replace(name=name)
    else:
        name = require("Stream Name", name, "STREAM")
        if not defaults:
            given = ask_stream(given)
        made = defaults_of(name, config_fields(given))
    if validate:
        show_config(made, f"Configuration of Stream {made.name}")
        return
    if output is not None:
        write_config(made, output)
        return
    async with jetstream() as js:
        stream = await js.create_stream(made)
        if wants_json():
            print_json(stream.cached_info)
        else:
            say(f"Stream {made.name} was created\n")
            show_stream(stream.cached_info)


@command(app, "edit")
@with_config_options(EDIT_OPTIONS)
async def edit(
    *,
    name: OptionalName = "",
    config: ConfigFile = None,
    force: Force = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Change it in $EDITOR, as JSON")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; exit 1 if anything")
    ] = False,
    given: dict[str, Any],
) -> None:
    """Change a stream."""
    async with jetstream() as js:
        stream = await js.stream(await choose_stream(js, name))
        name = stream.name
        before = stream.config
        after = read_config(config, StreamConfig) if config else before
        after = after.replace(name=name, **config_fields(given))
        if interactive:
            after = edited(after, StreamConfig).replace(name=name)
        changes = _differences(before, after)
        if not changes:
            done("No difference in configuration", success=True)
            return
        if not wants_json():
            say("Differences (-old +new):\n" + "\n".join(changes) + "\n")
        if dry_run:
            raise typer.Exit(1)
        confirm(f"Really edit Stream {name}?", force)
        info = await stream.update(after)
        if wants_json():
            print_json(info)
        else:
            show_stream(info, f"Stream {name} was updated")


def _differences(before: StreamConfig, after: StreamConfig) -> list[str]:
    old, new = before.to_wire(), after.to_wire()
    lines = []
    for field in sorted({*old, *new}):
        if old.get(field) != new.get(field):
            lines.append(f"  - {field}: {msgspec.json.encode(old.get(field)).decode()}")
            lines.append(f"  + {field}: {msgspec.json.encode(new.get(field)).decode()}")
    return lines


@command(app, "copy")
@with_config_options(STREAM_OPTIONS)
async def copy(
    *,
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    messages: Annotated[bool, typer.Option("--messages", help="With its messages")] = False,
    given: dict[str, Any],
) -> None:
    """Create a stream with another one's configuration, with --messages also its messages."""
    async with jetstream() as js:
        stream = await js.stream(source)
        made = stream.config.replace(name=target, **config_fields(given))
        if messages:
            await copy_messages(js, stream, made.replace(subjects=given.get("subjects", [])))
            info = await js.stream_info(target)
            if wants_json():
                print_json(info)
            else:
                show_stream(info, f"Stream {target} was created")
            return
        if "subjects" not in given and made.subjects:
            raise ConfigError(
                f"stream copy: both would store {', '.join(made.subjects)}; give --subjects"
            )
        copied = await js.create_stream(made)
        if wants_json():
            print_json(copied.cached_info)
        else:
            show_stream(copied.cached_info, f"Stream {target} was created")


@command(app, "rm")
async def rm(name: OptionalName = "", force: Force = False) -> None:
    """Remove a stream with everything in it."""
    async with jetstream() as js:
        name = await choose_stream(js, name)
        if not force:
            await js.stream_info(name)
            confirm(f"Really delete Stream {name}?", force)
        with spinner(f"Removing {name}"):
            await js.delete_stream(name)
    done("", success=True)


@command(app, "seal")
async def seal(name: OptionalName = "", force: Force = False) -> None:
    """Let nothing change in a stream any more. There is no way back."""
    async with jetstream() as js:
        name = await choose_stream(js, name)
        stream = await js.stream(name)
        confirm(f"Really seal Stream {name}? Sealed streams cannot be modified again.", force)
        info = await stream.update(stream.config.replace(sealed=True))
    if wants_json():
        print_json(info)
    else:
        show_stream(info, f"Stream {name} was sealed")


@command(app, "purge")
async def purge(
    name: OptionalName = "",
    subject: Annotated[str, typer.Option("--subject", help="Only this subject")] = "",
    seq: Annotated[int, typer.Option("--seq", help="Only what is below this sequence")] = 0,
    keep: Annotated[int, typer.Option("--keep", help="Keep so many of the newest")] = 0,
    force: Force = False,
) -> None:
    """Remove messages."""
    async with jetstream() as js:
        stream = await js.stream(await choose_stream(js, name))
        confirm(f"Really purge Stream {stream.name}?", force)
        with spinner(f"Purging {stream.name}"):
            gone = await stream.purge(filter=subject, sequence=seq, keep=keep)
        info = await stream.info()
        if wants_json():
            print_json(info)
        else:
            note(f"{gone:,} messages were removed")
            show_stream(info)
