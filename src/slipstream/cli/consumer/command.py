"""`slipstream consumer`: make, change, look at and remove consumers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.choose import choose_consumer, choose_stream
from slipstream.cli.config_options import level_of, read_config, with_config_options
from slipstream.cli.consumer.dead_letters import app as dead_letters_app
from slipstream.cli.consumer.options import (
    CONSUMER_OPTIONS,
    ask_consumer,
    config_fields,
    new_config,
)
from slipstream.cli.consumer.tables import (
    list_consumers,
    report_consumers,
    show_consumer,
    show_consumer_state,
)
from slipstream.cli.editor import edited, write_config
from slipstream.cli.output import done, print_json, say
from slipstream.cli.prompts import Force, confirm, may_ask, require
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration, later, show_duration, show_time
from slipstream.client.jetstream import ConsumerConfig, ConsumerInfo, JetStream
from slipstream.client.jetstream.why import told_by_server
from slipstream.errors import ConfigError

app = new_app("Manage consumers and read from them.")
app.add_typer(dead_letters_app, name="dead-letters")

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="Not durable")]
NoSelect = Annotated[bool, typer.Option("--no-select", help="Do not ask which")]


@command(app, "add")
@with_config_options(CONSUMER_OPTIONS)
async def add(
    *,
    stream: StreamName = "",
    name: Name = "",
    config: Annotated[Path | None, typer.Option("--config", help="JSON file")] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing")] = False,
    ephemeral: Ephemeral = False,
    validate: Annotated[bool, typer.Option("--validate", help="Only show it")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Save the configuration here, make nothing")
    ] = None,
    given: dict[str, Any],
) -> None:
    """Create a consumer."""
    stream = require("Stream", stream, "STREAM")
    if config is not None:
        made = read_config(config, ConsumerConfig).replace(**config_fields(given))
    else:
        name = require("Consumer name", name, "CONSUMER")
        if not defaults:
            given = ask_consumer(given)
        made = new_config(name, config_fields(given))
    if ephemeral:
        made = made.replace(durable_name="", name=name)
    if validate:
        print_json(made)
        return
    if output is not None:
        write_config(made, output)
        return
    async with jetstream() as js:
        if made.deliver_subject:
            info = (await js.create_push_consumer(stream, made)).cached_info
        else:
            info = (await js.create_consumer(stream, made)).cached_info
    _show(info, "")


def _show(info: ConsumerInfo, title: str) -> None:
    if wants_json():
        print_json(info)
    else:
        show_consumer(info, title)


@command(app, "edit")
@with_config_options(CONSUMER_OPTIONS)
async def edit(
    *,
    stream: StreamName = "",
    name: Name = "",
    config: Annotated[Path | None, typer.Option("--config", help="JSON file")] = None,
    force: Force = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Change it in $EDITOR, as JSON")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; exit 1 if anything")
    ] = False,
    given: dict[str, Any],
) -> None:
    """Change a consumer."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        before = (await js.consumer_info(stream, name)).config
        after = read_config(config, ConsumerConfig) if config is not None else before
        names = {"name": before.name, "durable_name": before.durable_name}
        after = after.replace(**_filtered(config_fields(given)), **names)
        if interactive:
            after = edited(after, ConsumerConfig).replace(**names)
        old, new = before.to_wire(), after.to_wire()
        changed = sorted(field for field in {*old, *new} if old.get(field) != new.get(field))
        if not changed:
            done("No difference in configuration", success=True)
            return
        if not wants_json():
            say("Differences (-old +new):")
            for field in changed:
                say(f"  - {field}: {old.get(field)}\n  + {field}: {new.get(field)}")
        if dry_run:
            raise typer.Exit(1)
        confirm(f"Really edit Consumer {stream} > {name}?", force)
        if after.deliver_subject:
            info = (await js.update_push_consumer(stream, after)).cached_info
        else:
            info = (await js.update_consumer(stream, after)).cached_info
    _show(info, "")


@command(app, "info")
async def info(stream: StreamName = "", name: Name = "", no_select: NoSelect = False) -> None:
    """Show a consumer's configuration and state."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name, may_ask() and not no_select)
        found = await js.consumer_info(stream, name)
    _show(found, "")


@command(app, "ls")
async def ls(
    stream: StreamName = "",
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names")] = False,
    no_select: NoSelect = False,
) -> None:
    """List a stream's consumers; with --json their names, as the nats tool does."""
    async with jetstream() as js:
        stream = await choose_stream(js, stream, may_ask() and not no_select)
        infos = sorted([c async for c in js.consumers(stream)], key=lambda c: c.name)
    if wants_json():
        print_json([one.name for one in infos])
    elif names:
        for one in infos:
            say(one.name)
    elif infos:
        list_consumers(stream, infos)
    else:
        say("No Consumers defined")


@command(app, "report")
async def report(
    stream: StreamName = "",
    raw: Annotated[bool, typer.Option("--raw", "-r", help="Numbers without commas")] = False,
) -> None:
    """Compare a stream's consumers."""
    async with jetstream() as js:
        stream = await choose_stream(js, stream)
        found = await js.stream_info(stream)
        infos = sorted([c async for c in js.consumers(stream)], key=lambda c: c.name)
        letters = {one.name: await _letters(js, one) for one in infos if one.config.dead_letter}
    if wants_json():
        print_json(infos)
    elif infos:
        report_consumers(found, infos, letters, raw)
    else:
        say("No Consumers defined")


async def _letters(js: JetStream, info: ConsumerInfo) -> str:
    """How many dead letters are where those of a consumer go, and how many wait for it."""
    told = await told_by_server(js, info)
    found = told.facts.dead_letters if told is not None else None
    if found is None:
        return "0"
    return f"{found.stored:,}" + (f", {found.waiting:,} wait" if found.waiting else "")


@command(app, "find")
async def find(
    stream: StreamName = "",
    pull: Annotated[bool, typer.Option("--pull", help="Pull consumers")] = False,
    push: Annotated[bool, typer.Option("--push", help="Push consumers")] = False,
    bound: Annotated[bool, typer.Option("--bound", help="Somebody listens or waits")] = False,
    waiting: Annotated[int, typer.Option("--waiting", help="Fewer pull requests wait")] = 0,
    ack_pending: Annotated[int, typer.Option("--ack-pending", help="Fewer are out for ack")] = 0,
    pending: Annotated[int, typer.Option("--pending", help="Fewer are unprocessed")] = 0,
    idle: Annotated[str, typer.Option("--idle", help="Nothing delivered for so long")] = "",
    created: Annotated[str, typer.Option("--created", help="Older than this")] = "",
    replicas: Annotated[int, typer.Option("--replicas", help="With so many copies or fewer")] = 0,
    leader: Annotated[str, typer.Option("--leader", help="Led by this server")] = "",
    pinned: Annotated[bool, typer.Option("--pinned", help="Each group is pinned")] = False,
    api_level: Annotated[
        int, typer.Option("--api-level", help="That need this level of the API or more")
    ] = 0,
    invert: Annotated[bool, typer.Option("--invert", help="Those that do not match")] = False,
) -> None:
    """Find consumers by their state; bounds are those of the nats tool: fewer than."""
    idle_s, created_s = duration(idle), duration(created)

    def is_wanted(one: ConsumerInfo) -> bool:
        last = one.delivered.last_active or one.created
        groups = one.priority_groups
        is_push = bool(one.config.deliver_subject)
        checks = [
            not pull or not is_push,
            not push or is_push,
            not bound or one.push_bound or one.num_waiting > 0,
            not waiting or one.num_waiting < waiting,
            not ack_pending or one.num_ack_pending < ack_pending,
            not pending or one.num_pending < pending,
            not idle or _age(last) > idle_s,
            not created or _age(one.created) > created_s,
            not replicas or max(one.config.num_replicas, 1) <= replicas,
            not leader or (one.cluster is not None and one.cluster.leader == leader),
            not pinned or (bool(groups) and all(group.pinned_client_id for group in groups)),
            level_of(one.config.metadata) >= api_level,
        ]
        return all(checks)

    async with jetstream() as js:
        stream = await choose_stream(js, stream)
        found = [one async for one in js.consumers(stream) if is_wanted(one) != invert]
    found.sort(key=lambda one: one.name)
    if wants_json():
        print_json([one.name for one in found])
    else:
        say("\n".join(one.name for one in found) or "No Consumers found")


def _age(when: datetime | None) -> float:
    return (datetime.now(UTC) - when).total_seconds() if when else float("inf")


@command(app, "rm")
async def rm(stream: StreamName = "", name: Name = "", force: Force = False) -> None:
    """Remove a consumer."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        if not force:
            await js.consumer_info(stream, name)
            confirm(f"Really delete Consumer {stream} > {name}?", force)
        await js.delete_consumer(stream, name)
    done("", success=True)


@command(app, "copy")
@with_config_options(CONSUMER_OPTIONS)
async def copy(
    *,
    stream: StreamName,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The consumer to copy")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The new consumer")],
    ephemeral: Ephemeral = False,
    given: dict[str, Any],
) -> None:
    """Create a consumer with another one's configuration; it begins at the start of its own."""
    async with jetstream() as js:
        before = (await js.consumer_info(stream, source)).config
        fields = _filtered(config_fields(given))
        if before.deliver_subject and "deliver_subject" not in fields:
            raise ConfigError(
                f"consumer copy: both would deliver to {before.deliver_subject}; give --target"
            )
        name = {
            "name": target,
            "durable_name": target if before.durable_name and not ephemeral else "",
        }
        made = before.replace(**name, **fields)
        if made.deliver_subject:
            info = (await js.create_push_consumer(stream, made)).cached_info
        else:
            info = (await js.create_consumer(stream, made)).cached_info
    _show(info, "")


def _filtered(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` in which one kind of filter takes the place of the other."""
    if "filter_subject" in fields:
        return fields | {"filter_subjects": []}
    if "filter_subjects" in fields:
        return fields | {"filter_subject": ""}
    return fields


@command(app, "state")
async def state(stream: StreamName = "", name: Name = "", no_select: NoSelect = False) -> None:
    """Show how far a consumer is; as JSON all that the server says of it."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name, may_ask() and not no_select)
        found = await js.consumer_info(stream, name)
    if wants_json():
        print_json(found)
    else:
        show_consumer_state(found)


@command(app, "reset")
async def reset(
    stream: StreamName = "",
    name: Name = "",
    sequence: Annotated[
        int,
        typer.Argument(metavar="SEQUENCE", help="Of the stream; 0: after the last ack"),
    ] = 0,
    sequence_option: Annotated[
        int, typer.Option("--sequence", help="The same, as an option", min=0)
    ] = 0,
    force: Force = False,
) -> None:
    """Have a consumer deliver again from a sequence on (nats-server 2.14)."""
    sequence = sequence or sequence_option
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        if not force:
            await js.consumer_info(stream, name)
            where = f"to sequence {sequence}" if sequence else "to its last acknowledged message"
            confirm(f"Really reset Consumer {stream} > {name} {where}?", force)
        found = await js.reset_consumer(stream, name, sequence)
    _show(found, f"Consumer {stream} > {name} was reset")


@command(app, "pause")
async def pause(
    stream: StreamName = "",
    name: Name = "",
    until: Annotated[str, typer.Argument(metavar="UNTIL", help="A time, or how long: 1h")] = "",
    force: Force = False,
) -> None:
    """Deliver nothing for a while."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        when = later(require("Paused until, or for how long", until, "UNTIL"))
        if not force:
            await js.consumer_info(stream, name)
            confirm(f"Really pause Consumer {stream} > {name} until {show_time(when)}?", force)
        answer = await js.pause_consumer(stream, name, when)
    if wants_json():
        print_json(answer)
    else:
        left = show_duration(answer.pause_remaining)
        say(f"Paused {stream} > {name} until {show_time(answer.pause_until)} ({left})")


@command(app, "resume")
async def resume(stream: StreamName = "", name: Name = "", force: Force = False) -> None:
    """Deliver again."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        if not force:
            await js.consumer_info(stream, name)
            confirm(f"Really resume Consumer {stream} > {name}?", force)
        await js.resume_consumer(stream, name)
    done(f"Consumer {stream} > {name} was resumed", success=True)


@command(app, "unpin")
async def unpin(
    stream: StreamName = "",
    name: Name = "",
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group")] = "",
    force: Force = False,
) -> None:
    """Let another client of a group take over."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        group = require("Group", group, "GROUP")
        if not force:
            await js.consumer_info(stream, name)
            confirm(f"Really unpin client from group {stream} > {name} > {group}?", force)
        await js.unpin_consumer(stream, name, group)
    done(f"Group {group} of {stream} > {name} was unpinned", success=True)
