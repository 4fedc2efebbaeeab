"""`slipstream bench`: how much a server and this client carry.

Each worker is a process of its own with a connection of its own; a line for each, and a summary.
`bench/` in the repository compares servers with a neutral load generator; this is for a quick look.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter, time_ns
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli import bench_loads
from slipstream.cli.output import print_json, say
from slipstream.cli.session import Settings, new_app, settings, use, wants_json
from slipstream.cli.values import show_size, size

app = new_app("Measure a server.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Where to")]
Msgs = Annotated[int, typer.Option("--msgs", help="Messages of all workers", min=1)]
Size = Annotated[str, typer.Option("--size", help="Bytes of a body")]
Clients = Annotated[int, typer.Option("--clients", help="Workers", min=1)]
StreamOption = Annotated[str, typer.Option("--stream", help="The stream, made if need be")]
Batch = Annotated[int, typer.Option("--batch", help="Messages at a time, or in flight", min=1)]
Storage = Annotated[str, typer.Option("--storage", help="file or memory")]

Load = Callable[..., Coroutine[Any, Any, None]]


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


def _work(load: str, worker: int, given: Settings, n: int, words: dict[str, Any]) -> Result:
    """In a process of its own."""
    with use(given):
        seconds = asyncio.run(getattr(bench_loads, load)(worker, n, **words))
    return Result(worker, n, int(words.get("size", 0)), seconds)


def _run(load: str, title: str, msgs: int, clients: int, **words: Any) -> None:
    """Share the messages among workers, and tell how it went."""
    given = settings()
    shares = [msgs // clients + (worker < msgs % clients) for worker in range(clients)]
    began = perf_counter()
    if clients == 1:
        results = [_work(load, 0, given, msgs, words)]
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(clients, mp_context=context) as pool:
            jobs = [
                pool.submit(_work, load, worker, given, share, words)
                for worker, share in enumerate(shares)
            ]
            results = [job.result() for job in jobs]
    elapsed = max(result.seconds for result in results)
    total = Result(-1, msgs, int(words.get("size", 0)), elapsed)
    if wants_json():
        print_json({"load": title, "total": _json(total), "workers": [*map(_json, results)]})
        return
    say(f"{title}: {msgs:,} messages, {clients} workers, {perf_counter() - began:.2f} s in all\n")
    if clients > 1:
        for result in results:
            say("  " + result.line(f"worker {result.worker}"))
    say(total.line(title))


def _run_name() -> str:
    """Names what workers of one run share."""
    return f"{time_ns():x}"


def _json(result: Result) -> dict[str, Any]:
    return {**msgspec.structs.asdict(result), "per_second": result.messages / result.seconds}


@app.command("pub")
def pub(
    subject: str = "bench", msgs: Msgs = 1_000_000, size_: Size = "128", clients: Clients = 1
) -> None:
    """Publish without a stream."""
    _run("publish", "pub", msgs, clients, subject=subject, size=size(size_))


@app.command("sub")
def sub(
    subject: str = "bench", msgs: Msgs = 1_000_000, size_: Size = "128", clients: Clients = 1
) -> None:
    """Receive so many messages that somebody else publishes (each worker all of them)."""
    _run("subscribe", "sub", msgs * clients, clients, subject=subject, size=size(size_))


@app.command("core")
def core(
    subject: str = "bench", msgs: Msgs = 1_000_000, size_: Size = "128", clients: Clients = 1
) -> None:
    """Publish on one connection and receive on another, for each worker."""
    _run("through", "pub/sub", msgs, clients, subject=subject, size=size(size_))


@app.command("js")
def js(
    subject: Subject = "bench.js",
    msgs: Msgs = 200_000,
    size_: Size = "128",
    clients: Clients = 1,
    stream: StreamOption = "benchstream",
    storage: Storage = "file",
    batch: Batch = 1000,
) -> None:
    """Publish into a stream, with --batch acknowledgements in flight."""
    _run("publish_stream", "js pub", msgs, clients, subject=subject, size=size(size_),
         stream=stream, storage=storage, batch=batch)  # fmt: skip


@app.command("fetch")
def fetch(
    msgs: Msgs = 200_000,
    clients: Clients = 1,
    stream: StreamOption = "benchstream",
    batch: Batch = 500,
    size_: Size = "128",
    storage: Storage = "file",
) -> None:
    """Fetch --batch at a time from a durable consumer that the workers share, and ack each."""
    _run("fetch", "js fetch", msgs, clients, stream=stream, batch=batch, size=size(size_),
         storage=storage, total=msgs, run=_run_name())  # fmt: skip


@app.command("consume")
def consume(
    msgs: Msgs = 200_000,
    clients: Clients = 1,
    stream: StreamOption = "benchstream",
    batch: Batch = 500,
    size_: Size = "128",
    storage: Storage = "file",
) -> None:
    """Consume continuously from a durable consumer that the workers share, and ack each."""
    _run("consume", "js consume", msgs, clients, stream=stream, batch=batch, size=size(size_),
         storage=storage, total=msgs, run=_run_name())  # fmt: skip


@app.command("kv")
def kv(
    msgs: Msgs = 50_000,
    size_: Size = "128",
    clients: Clients = 1,
    bucket: str = "benchbucket",
    get: Annotated[bool, typer.Option("--get", help="Get, not put")] = False,
) -> None:
    """Put values into a bucket, one after the other, or get them."""
    load = "kv_get" if get else "kv_put"
    _run(load, "kv get" if get else "kv put", msgs, clients, bucket=bucket, size=size(size_))


@app.command("object")
def object_(
    msgs: Annotated[int, typer.Option("--msgs", help="Objects", min=1)] = 10,
    size_: Size = "16MiB",
    clients: Clients = 1,
    bucket: str = "benchobjects",
    get: Annotated[bool, typer.Option("--get", help="Get, not put")] = False,
) -> None:
    """Put objects into a store, or get them."""
    load = "object_get" if get else "object_put"
    _run(load, "object get" if get else "object put", msgs, clients, bucket=bucket,
         size=size(size_))  # fmt: skip
