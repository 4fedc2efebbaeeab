"""`slipstream pipeline`: Spark's declarative pipelines over streams (docs/spark-pipelines.md).

A thin wrapper of `spark-pipelines`: what it adds is the interpreter, the server, a catalog that
outlives a run, fewer words on the screen, and a look at where flows and streams stand.
"""

import asyncio
import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, ParamSpec

import msgspec
import typer
from rich.console import Console
from rich.status import Status

import slipstream.cli.pipeline.output as pipeline_output
import slipstream.cli.pipeline.spark as pipeline_spark
import slipstream.cli.pipeline.status as pipeline_status
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import note, print_json, say
from slipstream.cli.pipeline.project import Project, find_project
from slipstream.cli.pipeline.server import server_of
from slipstream.cli.pipeline.template import write_project
from slipstream.cli.session import INTERRUPTED, new_app, wants_json
from slipstream.errors import Error
from slipstream.spark.checkpoints import flows

app = new_app("Spark's declarative pipelines, with streams as sources and sinks.")

P = ParamSpec("P")
PASSING = {"allow_extra_args": True, "ignore_unknown_options": True}
Spec = Annotated[
    Path | None, typer.Option("--spec", metavar="FILE", help="Not the one in this folder or above")
]
Where = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077"),
]
Remote = Annotated[
    str, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:15002")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show all that Spark says")]


def interruptible(function: Callable[P, None]) -> Callable[P, None]:
    """Ctrl-C ends a command with its exit code, wherever it is."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return call


@app.command("init")
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to make")],
) -> None:
    """Make a project that runs as it is written."""
    folder = Path(name)
    for path in write_project(folder):
        note(f"Wrote {path.relative_to(folder.absolute().parent)}")
    say(f"To run it: cd {name} && slipstream pipeline run")


@app.command("dry-run", context_settings=PASSING)
@interruptible
def dry_run(
    context: typer.Context,
    spec: Spec = None,
    master: Where = "",
    remote: Remote = "",
    verbose: Verbose = False,
) -> None:
    """Check a pipeline: its code, its tables and columns. Nothing is read or written."""
    project = find_project(spec)
    with server_of(project) as options:
        _spark(project, "dry-run", _remote(master, remote), options, context.args, verbose)
    say(f"Pipeline {project.name} is right")


@app.command("run", context_settings=PASSING)
@interruptible
def run(
    context: typer.Context,
    spec: Spec = None,
    master: Where = "",
    remote: Remote = "",
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLES", help="Empty these and read all again"),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty all, and read all again")
    ] = False,
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", metavar="TABLES", help="Only these")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline: read what the streams have, write what comes of it, and end.

    Without --server or a context a server is started, with its store in the project. Other options
    go to Spark as they are: --conf spark.x=y, --packages, --py-files ...
    """
    project = find_project(spec)
    words = ["--full-refresh-all"] if full_refresh_all else []
    for name, tables in (("--full-refresh", full_refresh), ("--refresh", refresh)):
        for table in tables or ():
            words += [name, table]
    with server_of(project) as options:
        words += context.args
        _spark(project, "run", _remote(master, remote), options, words, verbose)
        found = asyncio.run(pipeline_status.status_of(project, options))
    if wants_json():
        print_json(msgspec.to_builtins(found))
    else:
        pipeline_status.print_status(found)


@app.command("status")
@interruptible
def status(spec: Spec = None) -> None:
    """Show what the flows have read, and where the streams stand."""
    project = find_project(spec)
    with server_of(project) as options:
        found = asyncio.run(pipeline_status.status_of(project, options))
    if wants_json():
        print_json(msgspec.to_builtins(found))
    else:
        pipeline_status.print_status(found)


def _remote(master: str, remote: str) -> str:
    """Where Spark runs, as `spark-pipelines` wants it: it takes a master as a remote too."""
    if master and remote:
        raise UsageError("give --master or --remote, not both")
    return remote or master or pipeline_spark.LOCAL


def _spark(
    project: Project,
    verb: str,
    remote: str,
    options: dict[str, str],
    words: Sequence[str],
    verbose: bool,
) -> None:
    """Run `spark-pipelines` and show how it gets on. Raises `Error` that says why it failed."""
    pipeline_spark.check(remote, options["servers"])
    config, rest = pipeline_spark.split_config(words)
    if remote.startswith("sc://"):
        rest = list(words)
    line = pipeline_spark.command(project, verb, remote, rest)
    env = pipeline_spark.environment(project, options, remote, config)
    note(f"Streams at {options['servers'].rpartition('@')[2]}, Spark at {remote}")
    project.state.mkdir(parents=True, exist_ok=True)
    log = project.state / "last-run.log"
    with (
        pipeline_spark.termination_interrupts(),
        log.open("w") as file,
        _spinner() as spinner,
    ):
        spinner.update("Starting Spark")
        spark = pipeline_spark.Run(line, env, project.folder)
        try:
            for text in spark.lines(lambda: spinner.update(_where(project))):
                file.write(text)
                shown = text.rstrip() if verbose else pipeline_output.progress(text.rstrip())
                if shown:
                    note(shown)
            status = spark.wait()
        except KeyboardInterrupt:
            spinner.update("Stopping")
            with suppress(KeyboardInterrupt):  # a second one: it is killed
                spark.stop()
            note("Stopped; the next run goes on where this one was")
            raise typer.Exit(INTERRUPTED) from None
    if status:
        why = pipeline_output.explain(log.read_text(), project.folder)
        raise Error(f"pipeline {verb}: {why} (all that Spark said: {log})")


def _spinner() -> Status:
    """Says what is going on, on a terminal only."""
    return Console(stderr=True, quiet=not sys.stderr.isatty()).status("")


def _where(project: Project) -> str:
    """How far the flows have read; the storage of a cluster is left alone."""
    headline = ""
    if project.storage.startswith("file:"):
        with suppress(Error):  # a checkpoint may be read while it is written
            headline = pipeline_status.headline(flows(project.storage))
    return headline or "Spark runs"
