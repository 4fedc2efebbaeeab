"""`slipstream bench`: how much a server and this client carry.

Each worker is a process of its own with a connection of its own; a line for each, and a summary.
`bench/` in the repository compares servers with a neutral load generator; this is for a quick look.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter, time_ns
from typing import Annotated, Any

import msgspec
import typer

import slipstream.cli.bench.loads as loads
from slipstream.cli.bench.worker_progress import WorkerProgress, drawn
from slipstream.cli.output import print_json, say
from slipstream.cli.session import Settings, new_app, settings, use, wants_json
from slipstream.cli.values import show_size, size

app = new_app("Measure a server.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Where to")]
Msgs = Annotated[int, typer.Option("--msgs", help="Messages of all workers", min=1)]
Size = Annotated[str, typer.Option("--size", help="Bytes of a body, like 128 or 16KiB")]
Clients = Annotated[int, typer.Option("--clients", help="Workers", min=1)]
Progress = Annotated[bool, typer.Option("--progress/--no-progress", help="Bars on a terminal")]
StreamOption = Annotated[str, typer.Option("--stream", help="The stream, made if need be")]
Batch = Annotated[int, typer.Option("--batch", help="Messages at a time, or in flight", min=1)]
Storage = Annotated[str, typer.Option("--storage", help="file or memory")]
Create = Annotated[bool, typer.Option("--create", help="Make the stream, as is done anyway")]
Purge = Annotated[bool, typer.Option("--purge", help="Begin with nothing in the stream")]
Get = Annotated[bool, typer.Option("--get", help="Get, not put")]


class Result(msgspec.Struct):
    """What a worker did."""

    worker: int
    messages: int
    bytes: int
    seconds: float

    def line(self, what: str) -> str:
        """As a person reads it."""
        rate = self.messages / self.seconds
        return (
            f"{what:<12} {rate:>12,.0f} msgs/sec ~ {show_size(rate * self.bytes)}/sec "
            f"({self.messages:,} msgs)"
        )

    def whole(self) -> dict[str, Any]:
        """As a program reads it."""
        return {**msgspec.structs.asdict(self), "per_second": self.messages / self.seconds}


class Work(msgspec.Struct):
    """What a worker is told."""

    load: str
    worker: int
    messages: int
    given: Settings
    words: dict[str, Any]
    progress_file: str  # "" if nobody looks

    def run(self) -> Result:
        """In the worker's process."""
        progress = WorkerProgress(self.progress_file, self.worker)
        with use(self.given):
            load = getattr(loads, self.load)
            seconds = asyncio.run(load(self.worker, self.messages, progress, **self.words))
        return Result(self.worker, self.messages, int(self.words["size"]), seconds)


def _run(
    load: str, title: str, msgs: int, clients: int, progress: bool = True, **words: Any
) -> None:
    """Share the messages among workers, and tell how it went."""
    given = settings()
    shares = [msgs // clients + (worker < msgs % clients) for worker in range(clients)]
    began = perf_counter()
    with drawn(title, shares, progress) as progress_file:
        works = [
            Work(load, n, share, given, words, progress_file) for n, share in enumerate(shares)
        ]
        results = _do(works)
    total = Result(-1, msgs, int(words["size"]), max(result.seconds for result in results))
    if wants_json():
        workers = [result.whole() for result in results]
        print_json({"load": title, "total": total.whole(), "workers": workers})
        return
    say(f"{title}: {msgs:,} messages, {clients} workers, {perf_counter() - began:.2f} s in all\n")
    for result in results:
        say("  " + result.line(f"worker {result.worker + 1}"))
    say("\n  " + total.line("all"))


def _do(works: list[Work]) -> list[Result]:
    if len(works) == 1:
        return [works[0].run()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(works), mp_context=context) as pool:
        return list(pool.map(Work.run, works))


def _core(name: str, load: str, summary: str) -> None:
    """A command that needs no stream."""

    @app.command(name, help=summary)
    def run(
        subject: Subject = "bench",
        msgs: Msgs = 1_000_000,
        size_: Size = "128",
        clients: Clients = 1,
        progress: Progress = True,
    ) -> None:
        count = msgs * clients if load == "subscribe" else msgs
        _run(load, name, count, clients, progress, subject=subject, size=size(size_))


_core("pub", "publish", "Publish without a stream.")
_core("sub", "subscribe", "Receive what somebody else publishes, each worker all of it.")
_core("core", "through", "Publish on one connection and receive on another, for each worker.")


@app.command("js")
def js(
    subject: Subject = "bench.js",
    msgs: Msgs = 200_000,
    size_: Size = "128",
    clients: Clients = 1,
    stream: StreamOption = "benchstream",
    storage: Storage = "file",
    batch: Batch = 1000,
    create: Create = True,
    purge: Purge = False,
    progress: Progress = True,
) -> None:
    """Publish into a stream, with --batch acknowledgements in flight."""
    if purge:
        asyncio.run(loads.purge(stream))
    _run("publish_stream", "js", msgs, clients, progress, subject=subject, size=size(size_),
         stream=stream, storage=storage, batch=batch)  # fmt: skip


def _read(name: str, summary: str) -> None:
    """A command that reads from a durable consumer."""

    @app.command(name, help=summary)
    def run(
        msgs: Msgs = 200_000,
        clients: Clients = 1,
        stream: StreamOption = "benchstream",
        batch: Batch = 500,
        size_: Size = "128",
        storage: Storage = "file",
        progress: Progress = True,
    ) -> None:
        source = loads.Source(
            stream=stream, storage=storage, size=size(size_),
            messages=msgs + clients * batch, consumer=f"bench-{time_ns():x}",
        )  # fmt: skip
        _run(name, name, msgs, clients, progress, source=source, batch=batch, size=source.size)


_read("fetch", "Fetch --batch at a time from a durable that the workers share, and ack each.")
_read("consume", "Consume continuously from a durable that the workers share, and ack each.")


_read("ordered", "Read --batch at a time by an ordered consumer of each worker, without acks.")


def _store(name: str, summary: str, count: int, bytes_: str, bucket_: str) -> None:
    """A command that puts values or objects, or gets them."""

    @app.command(name, help=summary)
    def run(
        msgs: Annotated[int, typer.Option("--msgs", help="How many", min=1)] = count,
        size_: Size = bytes_,
        clients: Clients = 1,
        bucket: Annotated[str, typer.Option("--bucket", help="Made if need be")] = bucket_,
        get: Get = False,
        progress: Progress = True,
    ) -> None:
        what = "get" if get else "put"
        _run(f"{name}_{what}", f"{name} {what}", msgs, clients, progress, bucket=bucket,
             size=size(size_))  # fmt: skip


_store("kv", "Put values into a bucket, one after the other, or get them.", 50_000, "128",
       "benchbucket")  # fmt: skip
_store("object", "Put objects into a store, or get them.", 10, "16MiB", "benchobjects")
