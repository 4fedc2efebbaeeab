"""What `backup --incremental` and `restore` do with places of incremental backups.

A run that has come to nothing ends with status 1, and has changed nothing: cron runs it again.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from slipstream.backups import Done, Place, Point, Restored
from slipstream.cli.output import note, print_json, table
from slipstream.cli.progress import count_bar
from slipstream.cli.session import jetstream, wants_json
from slipstream.cli.values import duration, show_size, show_time
from slipstream.client.jetstream import JetStream, StreamConfig
from slipstream.errors import ConfigError
from slipstream.model.times import Timestamp


class Pruning(msgspec.Struct, frozen=True):
    """Which runs go: all but the last `keep`, and those before `before`."""

    keep: int = 0
    before: datetime | None = None

    @classmethod
    def read(cls, keep: int, expire: str) -> "Pruning":
        """From what was given. Raises `typer.BadParameter`."""
        age = duration(expire) if expire else 0.0
        return cls(keep, datetime.now(UTC) - timedelta(seconds=age) if age else None)

    def refuse(self) -> None:
        """Raise `ConfigError` if anything was asked for."""
        if self != Pruning():
            raise ConfigError("backup: --keep and --expire are for --incremental")


async def run(
    name: str, place: Place, consumers: bool, check: bool, pruning: Pruning, bar: bool
) -> None:
    """One run, with what was asked for after it."""
    async with jetstream() as js:
        done = await run_one(js, name, place, consumers, bar)
    await finish_one(place, check, pruning, bar)
    if wants_json():
        print_json(shown(done))
    else:
        note(said(done, name, place))


async def run_one(js: JetStream, name: str, place: Place, consumers: bool, bar: bool) -> Done:
    """Add what is new, with a progress bar."""
    with count_bar(f"Backing up {name}", bar) as drawn:
        task = drawn.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            drawn.update(task, total=total, completed=done)

        return await place.back_up(js, name, consumers=consumers, progress=progress)


async def finish_one(place: Place, check: bool, pruning: Pruning, bar: bool) -> None:
    """Drop what is not to be kept, and read all that is left."""
    if pruning != Pruning():
        await place.prune(keep=pruning.keep, before=pruning.before)
    if check:
        await _check(place, bar)


def said(done: Done, name: str, place: Place) -> str:
    """What a run has come to, in a line or two."""
    run = done.run
    text = (
        f"Added {run.added:,} messages of stream {name} to {place.store}, "
        f"{show_size(done.written_bytes)}: {run.messages:,} messages up to sequence "
        f"{run.last_seq:,} are there"
    )
    if done.is_new_generation:
        text += (
            f"\nStream {name} is another one than at the last run: it was made anew, or set back. "
            "Both are kept; --to-time chooses"
        )
    if not run.knows_gaps:
        text += "\nToo many messages are removed to ask for each: a restore brings these back"
    return text


def shown(done: Done) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "run": msgspec.to_builtins(done.run),
        "written_bytes": done.written_bytes,
        "is_new_generation": done.is_new_generation,
    }


async def _check(place: Place, bar: bool) -> Any:
    with count_bar("Checking", bar) as drawn:
        task = drawn.add_task("", total=None)
        return await place.check(lambda done, all: drawn.update(task, total=all, completed=done))


async def show_checked(place: Place, bar: bool) -> None:
    """Read all that a place holds, and say what that is."""
    manifest = await _check(place, bar)
    if wants_json():
        print_json(msgspec.to_builtins(manifest))
        return
    rows = [
        [show_time(_time(run.time)), f"{run.messages:,}", f"{run.added:,}", f"{run.last_seq:,}"]
        for generation in manifest.generations
        for run in generation.runs
    ]
    title = f"Runs of stream {manifest.stream}"
    table(title, ["Run", "Messages", "Added", "Last sequence"], rows)
    note(f"{place.store} is whole: {len(rows)} runs of stream {manifest.stream}")


async def make_again(
    place: Place, point: Point, change: Callable[[StreamConfig], None], bar: bool
) -> None:
    """Restore a stream, with a progress bar."""
    async with jetstream() as js:
        found = await restore_one(js, place, point, change, bar)
    if wants_json():
        print_json(found.info)
    else:
        note(made_again(found))


async def restore_one(
    js: JetStream,
    place: Place,
    point: Point,
    change: Callable[[StreamConfig], None] | None,
    bar: bool,
) -> Restored:
    """Restore a stream."""
    with count_bar("Restoring", bar) as drawn:
        task = drawn.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            drawn.update(task, total=total, completed=done)

        return await place.restore(js, point, change=change, progress=progress)


def made_again(found: Restored) -> str:
    """What a restore has come to, in a line or two."""
    state = found.info.state
    text = (
        f"Restored stream {found.info.config.name}: {state.messages:,} messages "
        f"({show_size(state.bytes)}) up to sequence {state.last_seq:,}, {state.consumer_count} "
        f"consumers, configured as at the run of {show_time(_time(found.run.time))}"
    )
    if not found.has_consumers:
        text += (
            "\nNo run is as old: what consumers had done by then is not known, so there are none"
        )
    return text


def _time(ns: int) -> datetime:
    return Timestamp.from_ns(ns)
