"""`slipstream store`: store directories, while no server runs."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from slipstream.cli.output import note, print_json, say, table
from slipstream.cli.session import new_app, wants_json
from slipstream.cli.store.check import STREAM_COLUMNS, stream_row
from slipstream.errors import StorageError
from slipstream.server.process import raise_file_limit
from slipstream.server.store_import import ImportedStream, ImportReport, import_store

app = new_app("Take over the streams of nats-server.")

WHOLE, INCOMPLETE, IMPOSSIBLE = 0, 1, 2  # exit codes


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="The -sd or store_dir of nats-server")
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The one of Slipstream")],
) -> None:
    """Take over the streams of nats-server's store directory: messages, buckets and consumers.

    Neither server may run meanwhile. SOURCE is only read; STORE is made if it is not there.

    Exit codes: 0 all streams were taken over, 1 some or all were not, 2 the import did not begin.
    """
    raise_file_limit()
    try:
        report = import_store(str(source), str(store), _tell)
    except (StorageError, OSError) as error:
        note(f"slipstream: store import: {error}")
        raise typer.Exit(IMPOSSIBLE) from error
    if wants_json():
        print_json(msgspec.to_builtins(report))
    else:
        _show(report)
    raise typer.Exit(WHOLE if report.is_whole else INCOMPLETE)


def _tell(stream: ImportedStream) -> None:
    if stream.problem:
        note(f"{stream.account} > {stream.name} was not taken over: {stream.problem}")
    elif wants_json():
        return
    elif stream.is_there_already:
        note(f"{stream.account} > {stream.name} is there already")
    else:
        unit = "message" if stream.messages == 1 else "messages"
        note(f"{stream.account} > {stream.name}: {stream.messages:,} {unit}")


def _show(report: ImportReport) -> None:
    taken = [stream for stream in report.streams if not stream.problem]
    rows = [stream_row(stream, stream.consumers) for stream in taken if not stream.is_there_already]
    if rows:
        table("Streams", STREAM_COLUMNS, rows)
    missing = len(report.streams) - len(taken)
    say(
        f"{len(taken)} of {len(report.streams)} streams are in {report.store}."
        + (
            f" {missing} could not be taken over; {report.source} has them still."
            if missing
            else ""
        )
    )
