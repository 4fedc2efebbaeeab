"""`slipstream context`: named connections, in the files that the `nats` tool uses."""

from typing import Annotated, Any

import typer

from slipstream.cli import context_files
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, say, table
from slipstream.cli.prompts import confirm
from slipstream.cli.session import given_settings, new_app, wants_json

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
        if value:
            fields[field] = value
    if description or not exists:
        fields["description"] = description
    context_files.save(name, fields)
    if select:
        context_files.select(name)
    show(name)


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


@app.command("select")
def select(name: Name) -> None:
    """Use a context from now on."""
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
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask")] = False,
) -> None:
    """Forget a context."""
    context_files.load(name)
    confirm(f'Really delete context "{name}"?', force)
    context_files.remove(name)
    done("", name=name)
