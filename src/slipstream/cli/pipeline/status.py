"""What a pipeline's flows have read, and where the streams stand.

The checkpoints say how far each flow has read, the server how far its streams go, and the markers
of exactly-once writing which streams a flow writes to (docs/spark-sink.md).
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.cli.output import say, table
from slipstream.cli.pipeline.output import short_name
from slipstream.cli.pipeline.project import Project
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.spark import earlier_markers, markers
from slipstream.spark.checkpoints import Flow, Reading, flows
from slipstream.spark.connections import connect, jetstream
from slipstream.spark.environment import from_environment, to_environment
from slipstream.spark.options import ServerOptions, parse
from slipstream.spark.planning import StreamView

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

OK, MISSING, MADE_ANEW, LOST = "ok", "missing", "made anew", "lost"
REMEDIES = {
    MISSING: "the stream is not there: make it again, or name the server that has it",
    MADE_ANEW: "the stream was deleted and made again: `slipstream pipeline run --full-refresh "
    "DATASET` reads it from its beginning",
    LOST: "messages were removed before they were read: set failOnDataLoss=False to go on without",
}


class Read(msgspec.Struct):
    """Of a flow and a stream: sequences, and messages that wait."""

    stream: str
    next: int
    backlog: int
    state: str


class FlowStatus(msgspec.Struct):
    """One flow; `writes` are the streams that it writes to exactly once."""

    flow: str
    dataset: str
    batches: int
    unfinished: bool
    query_id: str
    reads: list[Read]
    writes: list[str]


class StreamStatus(msgspec.Struct):
    """One stream of the pipeline as it stands."""

    name: str
    messages: int
    bytes: int
    first_seq: int
    next_seq: int


class Status(msgspec.Struct):
    """All of it, as `--json` prints it."""

    pipeline: str
    storage: str
    server: str
    flows: list[FlowStatus]
    streams: list[StreamStatus]


async def status_of(project: Project, given: dict[str, str]) -> Status:
    """Look at the storage and the server. Raises `ConfigError`, and what connecting raises."""
    found = flows(project.storage)
    options = parse(ServerOptions, from_environment(to_environment(given)))
    async with await connect(options, "slipstream pipeline status") as nc:
        js = jetstream(nc, options)
        written = await _written(js, found)
        names = {read.stream for flow in found for read in flow.readings}
        names |= {name for names_of in written.values() for name in names_of}
        views = {name: view for name in sorted(names) if (view := await _view(js, name))}
        others = {name: _markers_in(js, view) for name, view in views.items()}
        lines = [
            FlowStatus(
                flow=short_name(flow.name),
                dataset=short_name(flow.dataset),
                batches=flow.batches,
                unfinished=flow.is_unfinished,
                query_id=flow.query_id,
                reads=[
                    await _read(read, views.get(read.stream), others.get(read.stream))
                    for read in flow.readings
                ],
                writes=written[flow.query_id],
            )
            for flow in found
        ]
        streams = [await _stream(view, others[name]) for name, view in views.items()]
    servers = ",".join(options.server_list)
    return Status(project.name, project.storage, servers, lines, streams)


async def _view(js: "JetStream", name: str) -> StreamView | None:
    try:
        return StreamView(js, await js.stream_info(name), [])
    except StreamNotFoundError:
        return None


def _markers_in(js: "JetStream", view: StreamView) -> StreamView | None:
    """The markers that an earlier version has put among the messages; None if there are none."""
    if not earlier_markers.may_have(view.info):
        return None
    return StreamView(js, view.info, [f"{earlier_markers.prefix_of(view.name)}.>"])


async def _count(view: StreamView, others: StreamView | None, start: int) -> int:
    """Messages from a sequence on, without markers among them."""
    count = await view.count_from(start)
    return count if others is None else count - await others.count_from(start)


async def _stream(view: StreamView, others: StreamView | None) -> StreamStatus:
    count = await _count(view, others, 1)
    return StreamStatus(view.name, count, view.info.state.bytes, max(view.first, 1), view.next)


async def _written(js: "JetStream", found: list[Flow]) -> dict[str, list[str]]:
    """The streams in which a flow's query has progress, now or with an earlier version."""
    written: dict[str, set[str]] = {flow.query_id: set() for flow in found}
    for name, writers in (await markers.writers(js)).items():
        for writer in writers & set(written):
            written[writer].add(name)
    async for name in js.stream_names(f"{earlier_markers.prefix_of('*')}.>"):
        prefix = earlier_markers.prefix_of(name)
        info = await js.stream_info(name, subjects_filter=f"{prefix}.>")
        writers = {
            subject.removeprefix(f"{prefix}.").split(".")[0] for subject in info.state.subjects
        }
        for writer in writers & set(written):
            written[writer].add(name)
    return {query: sorted(names) for query, names in written.items()}


async def _read(read: Reading, view: StreamView | None, others: StreamView | None) -> Read:
    if view is None:
        return Read(read.stream, read.next, 0, MISSING)
    if read.created and read.created != view.created:
        return Read(read.stream, read.next, await _count(view, others, 1), MADE_ANEW)
    state = LOST if read.next < view.first and view.info.config.retention == "limits" else OK
    return Read(read.stream, read.next, await _count(view, others, read.next), state)


def print_status(status: Status) -> None:
    """Print the status as tables."""
    if not status.flows:
        say(f"Pipeline {status.pipeline}: nothing has run yet; `slipstream pipeline run` runs it")
        return
    rows = []
    for flow in status.flows:
        done = f"{flow.batches:,}" + (" and a part" if flow.unfinished else "")
        into = f"stream {', '.join(flow.writes)}, exactly once" if flow.writes else flow.dataset
        rows += [
            (flow.flow, f"stream {read.stream}", into, done, f"{read.next:,}", f"{read.backlog:,}")
            for read in flow.reads
        ] or [(flow.flow, "tables", into, done, "", "")]
    columns = ("Flow", "Reads", "Writes", "Batches", "Next Sequence", "Backlog")
    table(f"Pipeline {status.pipeline}", columns, rows)
    if status.streams:
        table(
            "Streams",
            ("Stream", "Messages", "First Sequence", "Next Sequence"),
            [
                (s.name, f"{s.messages:,}", f"{s.first_seq:,}", f"{s.next_seq:,}")
                for s in status.streams
            ],
        )
    for flow in status.flows:
        for read in flow.reads:
            if read.state != OK:
                say(f"{flow.flow}, stream {read.stream}: {REMEDIES[read.state]}")


def headline(found: list[Flow]) -> str:
    """Where the flows are, on one line, while they run."""
    reads: list[Any] = [
        f"{short_name(flow.name)} has read {read.stream} up to {read.next - 1:,}"
        for flow in found
        for read in flow.readings
    ]
    return "; ".join(reads)
