"""`slipstream context`: named connections, in the files that the `nats` tool uses."""

import asyncio
import os
import shlex
import subprocess
from typing import Annotated, Any

import typer

import slipstream.cli.context.files as context_files
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, say, table
from slipstream.cli.prompts import Force, confirm, may_ask, pick
from slipstream.cli.session import (
    Settings,
    connection,
    given_settings,
    new_app,
    use,
    wants_json,
)
from slipstream.errors import ConfigError, Error

app = new_app("Named connections, shared with the nats tool.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context")]


@app.command("add")
@app.command("save", hidden=True)
def add(
    name: Name,
    description: Annotated[str, typer.Option("--description", help="What it is for")] = "",
    select: Annotated[bool, typer.Option("--select", help="Use it from now on")] = False,
) -> None:
    """Save a context from the options of the connection (--server, --user, --creds ...)."""
    given = given_settings()
    exists = name in context_files.names()
    fields: dict[str, Any] = context_files.load(name) if exists else {"url": ""}
    for field, option in context_files.FIELDS.items():
        value = getattr(given, option)
        if value not in (None, ""):
            fields[field] = value
    if description or not exists:
        fields["description"] = description
    context_files.save(name, fields)
    if select:
        context_files.select(name)
    show(name)


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The context to copy")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The new one")],
    description: Annotated[str, typer.Option("--description", help="What it is for")] = "",
    select: Annotated[bool, typer.Option("--select", help="Use it from now on")] = False,
) -> None:
    """Save a context like another, changed by the options of the connection."""
    fields = context_files.load(source)
    if target in context_files.names():
        raise ConfigError(f'context copy: there is a context "{target}" already')
    context_files.save(target, fields)
    add(target, description or str(fields.get("description", "")), select)


@app.command("edit")
def edit(name: Name) -> None:
    """Change the file of a context with $EDITOR; it is kept only if it can be read."""
    before = context_files.path_of(name).read_bytes() if context_files.load(name) else b""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    path = context_files.path_of(name)
    if subprocess.run([*shlex.split(editor), str(path)], check=False).returncode:
        path.write_bytes(before)
        raise ConfigError(f"context edit: {editor} has failed; {name} is as it was")
    try:
        context_files.load(name)
    except ConfigError:
        path.write_bytes(before)
        raise
    show(name)


@app.command("validate")
def validate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Without one: all")] = "",
    connect: Annotated[bool, typer.Option("--connect", help="Try to connect, too")] = False,
) -> None:
    """Check that contexts can be read and that the files they name are there."""
    found = {one: _problems(one, connect) for one in ([name] if name else context_files.names())}
    if wants_json():
        print_json(found)
    else:
        for one, problems in found.items():
            say(f"{one}: {'; '.join(problems) or 'OK'}")
    if any(found.values()):
        raise typer.Exit(1)


def _problems(name: str, connect: bool) -> list[str]:
    try:
        fields = context_files.load(name)
    except ConfigError as error:
        return [str(error)]
    named = [str(fields.get(field) or "") for field in ("creds", "nkey", "cert", "key", "ca")]
    problems = [
        f"there is no file {path}"
        for path in named
        if path and not os.path.exists(os.path.expanduser(path))
    ]
    if connect and not problems:
        try:
            asyncio.run(_connect(fields))
        except Error as error:
            problems.append(str(error))
    return problems


async def _connect(fields: dict[str, Any]) -> None:
    """Connect as the context says, whatever the environment says."""
    found = {
        option: fields[field] for field, option in context_files.FIELDS.items() if fields.get(field)
    }
    with use(Settings(**found)):
        async with connection(reconnect=False) as nc:
            await nc.flush()


@app.command("previous")
def previous() -> None:
    """Use the context that was selected before."""
    name = context_files.previous()
    if not name:
        raise ConfigError("context previous: no other context was selected before")
    select(name)


@app.command("ls")
def ls(
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
) -> None:
    """List the contexts."""
    found, chosen = context_files.names(), context_files.selected()
    loaded = {name: context_files.load(name) for name in found}
    if wants_json():
        print_json([{"name": name, "selected": name == chosen, **loaded[name]} for name in found])
    elif names or not found:
        say("\n".join(found) or "No known contexts; `slipstream context add` saves one")
    else:
        rows = [
            (name + ("*" if name == chosen else ""), str(loaded[name].get("description", "")))
            for name in found
        ]
        table("Known Contexts", ("Name", "Description"), rows)


@app.command("info")
@app.command("show", hidden=True)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The selected, without one")] = "",
    connect: Annotated[bool, typer.Option("--connect", help="Try to connect, too")] = False,
) -> None:
    """Show a context; secrets are left out."""
    name = name or context_files.selected()
    if not name:
        raise UsageError("no context is selected: give a NAME, or select one")
    fields = context_files.load(name)
    shown = {
        field: "*********" if field in ("password", "token") and value else value
        for field, value in fields.items()
    }
    if wants_json():
        print_json({"name": name, **shown})
        return
    say(f'NATS Configuration Context "{name}"\n')
    for field, value in shown.items():
        if value not in ("", None, False, []):
            say(f"{field:>24}: {value}")
    if connect:
        problems = _problems(name, connect)
        say(f"{'connection':>24}: {'; '.join(problems) or 'OK'}")
        if problems:
            raise typer.Exit(1)


@app.command("select")
def select(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context")] = "",
) -> None:
    """Use a context from now on."""
    if not name and not may_ask():
        raise UsageError("NAME is missing: `slipstream context ls` lists the contexts")
    known = context_files.names()
    if not name and not known:
        raise ConfigError("there are no contexts; `slipstream context add` saves one")
    name = name or pick("Select a Context", known)
    context_files.select(name)
    done(f'Selected context "{name}"', name=name)


@app.command("unselect")
def unselect() -> None:
    """Use none."""
    context_files.select("")
    done("", name="")


@app.command("rm")
def rm(
    name: Name,
    force: Force = False,
) -> None:
    """Forget a context."""
    context_files.load(name)
    confirm(f'Really delete context "{name}"?', force)
    context_files.remove(name)
    done("", name=name)
