"""`slipstream pipeline table`: a stream into an Iceberg, Delta or Parquet table."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from slipstream.cli.output import clock, note, say
from slipstream.cli.pipeline.bodies import PLAIN, WITH_SCHEMA, form_of
from slipstream.cli.progress import count_bar
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration, one_of, size
from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from slipstream.tables import Progress, TableOptions

app = new_app()

Pairs = list[str] | None


def _pairs(option: str, given: Pairs, between: str) -> dict[str, str]:
    """Options of the form name=value. Raises `ConfigError`."""
    found = {}
    for text in given or ():
        name, sign, value = text.rpartition(between) if between == ":" else text.partition(between)
        if not sign or not name or not value:
            raise ConfigError(f"{option} {text}: write it as NAME{between}VALUE")
        found[name] = value
    return found


class _Shown:
    """Says how far the writer has come: a bar on a terminal, a line of JSON for each commit."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._bar = count_bar("Writing", not is_json)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> "_Shown":
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)

    def commit(self, progress: "Progress") -> None:
        """After a commit."""
        if self._is_json:
            typer.echo(msgspec.json.encode(progress).decode())
        self._bar.update(self._task, total=progress.stream_last, completed=progress.sequence)


@command(app, "table")
async def table(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to write")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="WHERE", help="A folder, the URL of a REST catalog or of a store of "
            "Delta tables, or catalog:NAME",
        ),
    ],
    name: Annotated[
        str, typer.Option("--table", metavar="NAME", help="Like sales.orders")
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--format", parser=one_of("iceberg", "delta", "parquet"),
            metavar="iceberg|delta|parquet", help="Of the table",
        ),
    ] = "iceberg",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C")
    ] = False,
    columns: Annotated[
        Pairs,
        typer.Option("--column", metavar="FIELD:TYPE", help="A column that is known: delay:double"),
    ] = None,
    new_fields: Annotated[
        str,
        typer.Option(
            "--new-fields", parser=one_of("add", "reject", "ignore"), metavar="add|reject|ignore",
            help="What becomes of fields that have no column",
        ),
    ] = "add",
    body: Annotated[
        str,
        typer.Option(
            "--body", parser=one_of(*PLAIN, *WITH_SCHEMA), metavar="json|bytes|avro|...",
            help="What bodies are in; bytes keeps them as they are",
        ),
    ] = "json",
    subject: Annotated[
        str, typer.Option("--schema", metavar="NAME", help="The bodies' subject in the registry")
    ] = "",
    schema_file: Annotated[
        Path | None, typer.Option("--schema-file", metavar="FILE", help="Their schema, without one")
    ] = None,
    registry: Annotated[
        str, typer.Option("--registry", metavar="WHERE", help="The registry's URL, or a bucket")
    ] = "schemas",
    headers: Annotated[bool, typer.Option("--headers", help="Keep headers")] = False,
    time: Annotated[
        str, typer.Option("--time", metavar="FIELD", help="Partition by this timestamp in bodies")
    ] = "_time",
    late: Annotated[
        str, typer.Option("--late", metavar="1h", help="Reject rows whose --time is older")
    ] = "",
    partition: Annotated[
        str,
        typer.Option(
            "--partition", parser=one_of("hour", "day", "month", "none"),
            metavar="hour|day|month|none", help="A partition for each",
        ),
    ] = "day",
    subjects: Annotated[
        list[str] | None, typer.Option("--subject", metavar="SUBJECT", help="Only these")
    ] = None,
    every: Annotated[
        str, typer.Option("--commit-every", metavar="1s", help="How long rows are gathered")
    ] = "1s",
    commit_size: Annotated[
        str, typer.Option("--commit-size", metavar="64MB", help="Commit with so many bytes at once")
    ] = "64MB",
    archive: Annotated[
        bool, typer.Option("--archive", help="Remove from the stream what the table has")
    ] = False,
    begin_anew: Annotated[
        bool, typer.Option("--begin-anew", help="The stream was made anew: begin with its first")
    ] = False,
    properties: Annotated[
        Pairs, typer.Option("--property", metavar="NAME=VALUE", help="For catalog or store")
    ] = None,
) -> None:  # fmt: skip
    """Write a stream into a table, each message exactly once.

    Goes on where the table ends, also after a crash. Messages that do not fit go into a table
    NAME_rejected, with the reason. Ends when the stream is written, unless --follow is given.
    """
    from slipstream.tables import TableOptions, TableWriter, stream_table

    given: dict[str, Any] = {
        "format": kind,
        "body": body if body in PLAIN else "json",
        "schema": form_of(body, subject, schema_file, registry),
        "columns": _pairs("--column", columns, ":"),
        "new_fields": new_fields,
        "headers": headers,
        "time": time,
        "late_seconds": duration(late) if late else None,
        "partition": partition,
        "subjects": tuple(subjects or ()),
        "commit_seconds": duration(every),
        "commit_bytes": size(commit_size),
        "archive": archive,
        "begin_anew": begin_anew,
    }
    # A REST catalog deletes old metadata itself, and pyiceberg warns of each file that is gone.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    options = TableOptions(**given)
    pairs = _pairs("--property", properties, "=")
    tables = stream_table(to, name or stream.lower(), stream, options, pairs)
    async with jetstream() as js:
        with _Shown(wants_json()) as shown:
            writer = TableWriter(js, tables, shown.commit)
            if follow:
                note(f"{clock()} Writing stream {stream} into table {tables.name}; Ctrl-C ends it")
                await writer.run()
            else:
                await writer.write_all()
    _report(stream, tables.name, writer.progress, options)


def _report(stream: str, table: str, progress: "Progress", options: "TableOptions") -> None:
    if wants_json():
        typer.echo(msgspec.json.encode(msgspec.to_builtins(progress) | {"table": table}).decode())
        return
    say(
        f"Table {table} has stream {stream} up to sequence {progress.sequence:,}: "
        f"{progress.rows:,} rows added, {progress.rejected:,} messages in {table}_rejected"
    )
    if progress.lost:
        say(f"Up to {progress.lost:,} messages were gone from the stream before they were read")
    if options.archive:
        say(f"{progress.archived:,} messages were removed from the stream: the table has them")
