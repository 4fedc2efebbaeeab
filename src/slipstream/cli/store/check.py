"""`slipstream check`: what is in a store directory, and what is damaged, while no server runs."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from slipstream.cli.output import note, print_json, say, table
from slipstream.cli.session import new_app, wants_json
from slipstream.cli.values import show_size
from slipstream.errors import StorageError
from slipstream.server.process import raise_file_limit
from slipstream.server.store_check import Report, check_store, repair_store
from slipstream.server.store_check.check import StreamFound, StreamReport

app = new_app(group=False)

WHOLE, DAMAGED, IMPOSSIBLE = 0, 1, 2  # exit codes
RANGES_MAX = 20  # of lost sequences, shown for a stream; --json has all
PROBLEMS_MAX = 50


@app.command("check")
def check(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The server's -sd or store_dir")],
    repair: Annotated[
        str, typer.Option("--repair", metavar="NEW_STORE", help="Write what is whole to here")
    ] = "",
) -> None:
    """Read a whole store while no server uses it, and change nothing in it.

    Exit codes: 0 everything is whole, 1 something is damaged or lost, 2 it cannot be looked at.
    """
    raise_file_limit()
    try:
        with check_store(str(store)) as checked:
            if repair:
                repair_store(checked, repair)
            report = checked.report
    except (StorageError, OSError) as error:
        note(f"slipstream: check: {error}")
        raise typer.Exit(IMPOSSIBLE) from error
    if wants_json():
        print_json(msgspec.to_builtins(report))
    else:
        _show(report, repair)
    raise typer.Exit(WHOLE if report.is_whole else DAMAGED)


STREAM_COLUMNS = ("Account", "Stream", "Messages", "Size", "First", "Last", "Consumers")


def stream_row(stream: StreamFound, consumers: int) -> list[str]:
    """What a table says of a stream in a store directory, by `STREAM_COLUMNS`."""
    return [
        stream.account,
        stream.name,
        f"{stream.messages:,}",
        show_size(stream.bytes),
        f"{stream.first_seq:,}",
        f"{stream.last_seq:,}",
        f"{consumers:,}",
    ]


def _show(report: Report, repaired: str) -> None:
    rows = [
        [*stream_row(stream, len(stream.consumers)), f"{stream.lost_messages:,}"]
        for stream in report.streams
    ]
    if rows:
        table("Streams", (*STREAM_COLUMNS, "Lost"), rows)
    for stream in report.streams:
        _show_damage(stream)
    for text in report.problems[:PROBLEMS_MAX]:
        say(f"- {text}")
    if len(report.problems) > PROBLEMS_MAX:
        say(f"- and {len(report.problems) - PROBLEMS_MAX:,} more: --json has all")
    say(_verdict(report, repaired))


def _show_damage(stream: StreamReport) -> None:
    name = f"{stream.account} > {stream.name}"
    if stream.lost:
        ranges = ", ".join(
            f"{first}" if first == last else f"{first}-{last}"
            for first, last in stream.lost[:RANGES_MAX]
        )
        more = len(stream.lost) - RANGES_MAX
        say(f"{name} has lost {ranges}{f' and {more:,} more ranges' if more > 0 else ''}")
    for damage in stream.damage[:RANGES_MAX]:
        when = "found before" if damage.is_known else "found now"
        what = f"{damage.bytes:,} damaged bytes" if damage.bytes else "missing"
        say(f"{name}: {damage.file} at byte {damage.offset:,}: {what}, {when}")


def _verdict(report: Report, repaired: str) -> str:
    if report.is_whole:
        verdict = f"{report.store} is whole."
    else:
        verdict = f"{report.store} is damaged; docs/storage.md says what a server does about it."
    if not repaired:
        return verdict
    lost = [f"{one.account} > {one.name}" for one in report.streams if one.is_unreadable]
    missing = f" Not in it: {', '.join(lost)}, which cannot be read." if lost else ""
    return f"{verdict} What is whole was written to {repaired}.{missing}"
