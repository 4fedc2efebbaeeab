"""`slipstream bench`: how much a server and this client carry.

Each worker is a process of its own with a connection of its own; a line for each, and a summary.
`bench/` in the repository compares servers with a neutral load generator; this is for a quick look.
"""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter, time_ns
from typing import Annotated, Any

import msgspec
import typer

import slipstream.cli.bench.loads as loads
from slipstream.cli.bench.sending import Sending
from slipstream.cli.bench.worker_progress import WorkerProgress, drawn
from slipstream.cli.config_options import header_of, words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say
from slipstream.cli.session import Settings, new_app, settings, use, wants_json
from slipstream.cli.values import duration, one_of, show_size, size
from slipstream.client.kv.config import KeyValueConfig
from slipstream.model.configurations import StreamConfig
from slipstream.model.policies import ACK_POLICIES, STORAGES

app = new_app("Measure a server.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Where to")]
Msgs = Annotated[int, typer.Option("--msgs", help="Messages of all workers", min=1)]
Size = Annotated[str, typer.Option("--size", help="Bytes of a body, like 128 or 16KiB")]
Clients = Annotated[int, typer.Option("--clients", help="Workers", min=1)]
Progress = Annotated[bool, typer.Option("--progress/--no-progress", help="Bars on a terminal")]
StreamOption = Annotated[str, typer.Option("--stream", help="The stream, made if need be")]
Batch = Annotated[int, typer.Option("--batch", help="Messages at a time, or in flight", min=1)]
Storage = Annotated[str, typer.Option("--storage", help="file or memory")]
Purge = Annotated[bool, typer.Option("--purge", help="Begin with nothing stored")]
Replicas = Annotated[int, typer.Option("--replicas", help="Copies", min=1)]
MaxBytes = Annotated[str, typer.Option("--maxbytes", help="Of what is made, like 1GB")]
Csv = Annotated[
    Path | None, typer.Option("--csv", help="Write a line for each worker into this file")
]
Sleep = Annotated[str, typer.Option("--sleep", help="After each message, like 10ms")]
Rate = Annotated[
    float, typer.Option("--throughput", help="Messages in a second, of all workers", min=0)
]
Payload = Annotated[Path | None, typer.Option("--payload", help="A file with the body")]
Header = Annotated[list[str] | None, typer.Option("--header", "-H", help="Name: value")]
Multi = Annotated[
    bool, typer.Option("--multisubject", help="SUBJECT with a number at its end, in turn")
]
MultiMax = Annotated[
    int, typer.Option("--multisubjectmax", help="So many subjects", min=1, max=1_000_000)
]
MultiRandom = Annotated[
    bool, typer.Option("--multisubjectrandomize", help="In any order, not in turn")
]
Filter = Annotated[
    list[str] | None, typer.Option("--filter", help="Only messages on these subjects")
]
CSV_HEAD = "#RunID,ClientID,MsgCount,MsgBytes,MsgsPerSec,BytesPerSec,DurationsSecs"
SUBJECTS_MAX = 100_000
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

    def csv(self, run: str) -> str:
        """As a spreadsheet reads it, in the columns of `CSV_HEAD`."""
        rate = self.messages / self.seconds
        return (
            f"{run},{self.worker + 1},{self.messages},{self.messages * self.bytes},{rate:.0f},"
            f"{rate * self.bytes:f},{self.seconds:f}"
        )

    def whole(self) -> dict[str, Any]:
        """As a program reads it."""
        return {**msgspec.structs.asdict(self), "per_second": self.messages / self.seconds}


class Work(msgspec.Struct):
    """What a worker is told."""

    load: str
    worker: int
    messages: int
    size: int
    given: Settings
    words: dict[str, Any]
    progress_file: str  # "" if nobody looks

    def run(self) -> Result:
        """In the worker's process."""
        progress = WorkerProgress(self.progress_file, self.worker)
        with use(self.given):
            load = getattr(loads, self.load)
            seconds = asyncio.run(load(self.worker, self.messages, progress, **self.words))
        return Result(self.worker, self.messages, self.size, seconds)


def _run(
    load: str,
    title: str,
    msgs: int,
    clients: int,
    progress: bool,
    csv: Path | None,
    *,
    bytes_: int,
    **words: Any,
) -> None:
    """Share the messages, of `bytes_` each, among workers, and tell how it went."""
    given = settings()
    shares = [msgs // clients + (worker < msgs % clients) for worker in range(clients)]
    began = perf_counter()
    with drawn(title, shares, progress) as progress_file:
        works = [
            Work(load, n, share, bytes_, given, words, progress_file)
            for n, share in enumerate(shares)
        ]
        results = _do(works)
    total = Result(-1, msgs, bytes_, max(result.seconds for result in results))
    if csv is not None:
        csv.write_text("\n".join([CSV_HEAD, *(result.csv(title) for result in results), ""]))
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


def _sending(
    subject: str,
    size_: str,
    payload: Path | None = None,
    header: list[str] | None = None,
    *,
    sleep: str = "",
    rate: float = 0,
    clients: int = 1,
    ids: str = "",
    multi: bool = False,
    multi_max: int = SUBJECTS_MAX,
    multi_random: bool = False,
) -> Sending:
    """What the workers send. Raises `UsageError` for options that do not go together."""
    if not multi and (multi_random or multi_max != SUBJECTS_MAX):
        raise UsageError("bench: --multisubjectmax and -randomize go with --multisubject")
    if payload is not None and not payload.is_file():
        raise UsageError(f"bench: there is no file {payload} for --payload")
    return Sending(
        subject=subject, body=payload.read_bytes() if payload else b"x" * size(size_),
        headers=dict(header_of(one) for one in header or []), pause=duration(sleep),
        rate=rate / clients, subjects=multi_max if multi else 0, is_random=multi_random, ids=ids,
    )  # fmt: skip


@app.command("pub")
def pub(
    subject: Subject = "bench",
    msgs: Msgs = 1_000_000,
    size_: Size = "128",
    clients: Clients = 1,
    progress: Progress = True,
    csv: Csv = None,
    sleep: Sleep = "",
    rate: Rate = 0,
    payload: Payload = None,
    header: Header = None,
    multi: Multi = False,
    multi_max: MultiMax = SUBJECTS_MAX,
    multi_random: MultiRandom = False,
) -> None:
    """Publish without a stream."""
    sending = _sending(subject, size_, payload, header, sleep=sleep, rate=rate, clients=clients,
                       multi=multi, multi_max=multi_max, multi_random=multi_random)  # fmt: skip
    _run("publish", "pub", msgs, clients, progress, csv, bytes_=len(sending.body), sending=sending)


@app.command("request")
def request(
    subject: Subject = "bench",
    msgs: Msgs = 10_000,
    size_: Size = "128",
    clients: Clients = 1,
    progress: Progress = True,
    csv: Csv = None,
    sleep: Sleep = "",
    rate: Rate = 0,
    payload: Payload = None,
    header: Header = None,
) -> None:
    """Ask whoever answers, such as `bench serve`, each worker one request after the other."""
    sending = _sending(subject, size_, payload, header, sleep=sleep, rate=rate, clients=clients)
    _run("request", "request", msgs, clients, progress, csv, bytes_=len(sending.body),
         sending=sending)  # fmt: skip


@app.command("serve")
def serve(
    subject: Subject = "bench",
    size_: Size = "128",
    clients: Clients = 1,
    sleep: Sleep = "",
) -> None:
    """Answer `bench request` with --clients instances of a service, until Ctrl-C."""
    pause = duration(sleep)
    asyncio.run(loads.serve(subject, b"x" * size(size_), clients, pause))


@app.command("sub")
def sub(
    subject: Subject = "bench",
    msgs: Msgs = 1_000_000,
    size_: Size = "128",
    clients: Clients = 1,
    progress: Progress = True,
    csv: Csv = None,
    multi: Multi = False,
) -> None:
    """Receive what somebody else publishes, each worker all of it."""
    _run("subscribe", "sub", msgs * clients, clients, progress, csv, bytes_=size(size_),
         subject=f"{subject}.*" if multi else subject)  # fmt: skip


@app.command("core")
def core(
    subject: Subject = "bench",
    msgs: Msgs = 1_000_000,
    size_: Size = "128",
    clients: Clients = 1,
    progress: Progress = True,
    csv: Csv = None,
) -> None:
    """Publish on one connection and receive on another, for each worker."""
    bytes_ = size(size_)
    _run("through", "core", msgs, clients, progress, csv, bytes_=bytes_, subject=subject,
         size=bytes_)  # fmt: skip


@app.command("js")
def js(
    subject: Subject = "bench.js",
    msgs: Msgs = 200_000,
    size_: Size = "128",
    clients: Clients = 1,
    stream: StreamOption = "benchstream",
    storage: Storage = "file",
    batch: Batch = 1000,
    create: Annotated[
        bool, typer.Option("--create", help="Update the stream, too, if it is there")
    ] = False,
    purge: Purge = False,
    progress: Progress = True,
    csv: Csv = None,
    mode: Annotated[str, typer.Option("--mode", help="async, or batches: atomic, fast")] = "async",
    replicas: Replicas = 1,
    maxbytes: MaxBytes = "",
    dedup: Annotated[bool, typer.Option("--dedup", help="Give each message an id")] = False,
    dedupwindow: Annotated[
        str, typer.Option("--dedupwindow", help="How long the stream knows an id")
    ] = "",
    persistasync: Annotated[
        bool, typer.Option("--persistasync", help="Acknowledged before it is on disk")
    ] = False,
    sleep: Sleep = "",
    rate: Rate = 0,
    payload: Payload = None,
    header: Header = None,
    multi: Multi = False,
    multi_max: MultiMax = SUBJECTS_MAX,
    multi_random: MultiRandom = False,
) -> None:
    """Publish into a stream, with --batch acknowledgements in flight."""
    mode = one_of("async", "atomic", "fast")(mode)
    sending = _sending(subject, size_, payload, header, sleep=sleep, rate=rate, clients=clients,
                       multi=multi, multi_max=multi_max, multi_random=multi_random,
                       ids=f"{time_ns():x}" if dedup else "")  # fmt: skip
    config = StreamConfig(
        name=stream, subjects=[f"{subject}.*" if multi else subject],
        storage=one_of(*STORAGES)(storage), num_replicas=replicas,
        max_bytes=size(maxbytes) if maxbytes else -1, duplicate_window=duration(dedupwindow),
        persist_mode="async" if persistasync else "default",
        allow_direct=True, allow_atomic=mode == "atomic", allow_batched=mode == "fast",
    )  # fmt: skip
    wants_more = bool(replicas > 1 or maxbytes or dedupwindow or persistasync or mode != "async")
    asyncio.run(loads.make_stream(config, create or wants_more, purge))
    words: dict[str, Any] = {"sending": sending, "batch": batch}
    if mode == "async":
        _run("publish_stream", "js", msgs, clients, progress, csv, bytes_=len(sending.body),
             **words)  # fmt: skip
    else:
        _run("publish_batches", f"js {mode}", msgs, clients, progress, csv,
             bytes_=len(sending.body), atomic=mode == "atomic", **words)  # fmt: skip


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
        csv: Csv = None,
        sleep: Sleep = "",
        consumer: Annotated[
            str, typer.Option("--consumer", help="The durable, made if need be; without: a new one")
        ] = "",
        acks: Annotated[str, typer.Option("--acks", help="explicit, all or none")] = "explicit",
        doubleack: Annotated[
            bool, typer.Option("--doubleack/--no-doubleack", help="Await the server's word on acks")
        ] = False,
        filter_: Filter = None,
        purge: Purge = False,
    ) -> None:
        source = loads.Source(
            stream=stream, storage=storage, size=size(size_), messages=msgs + clients * batch,
            consumer=consumer or f"bench-{time_ns():x}", is_double=doubleack,
            acks=one_of(*ACK_POLICIES[:3])(acks), filters=words_of(filter_ or []),
            pause=duration(sleep),
        )  # fmt: skip
        asyncio.run(source.prepare(purge))
        _run(name, name, msgs, clients, progress, csv, bytes_=source.size, source=source,
             batch=batch)  # fmt: skip


_read("fetch", "Fetch --batch at a time from a durable that the workers share, and ack each.")
_read("consume", "Consume continuously from a durable that the workers share, and ack each.")


def _look(name: str, summary: str) -> None:
    """A command that reads without a durable consumer."""

    @app.command(name, help=summary)
    def run(
        msgs: Msgs = 200_000,
        clients: Clients = 1,
        stream: StreamOption = "benchstream",
        batch: Batch = 500,
        size_: Size = "128",
        storage: Storage = "file",
        progress: Progress = True,
        csv: Csv = None,
        sleep: Sleep = "",
        filter_: Filter = None,
        purge: Purge = False,
    ) -> None:
        filters = words_of(filter_ or [])
        if name == "get" and filters and (batch == 1 or len(filters) > 1):
            raise UsageError("bench get: --filter is one subject and goes with a --batch above 1")
        source = loads.Source(
            stream=stream, storage=storage, size=size(size_), messages=msgs + clients * batch,
            filters=filters, pause=duration(sleep),
        )  # fmt: skip
        asyncio.run(source.prepare(purge))
        _run(name, name, msgs, clients, progress, csv, bytes_=source.size, source=source,
             batch=batch)  # fmt: skip


_look("ordered", "Read --batch at a time by an ordered consumer of each worker, without acks.")
_look("get", "Get stored messages, --batch with a request (1: one after the other).")


@app.command("kv")
def kv(
    msgs: Annotated[int, typer.Option("--msgs", help="How many", min=1)] = 50_000,
    size_: Size = "128",
    clients: Clients = 1,
    bucket: Annotated[str, typer.Option("--bucket", help="Made if need be")] = "benchbucket",
    get: Get = False,
    progress: Progress = True,
    csv: Csv = None,
    sleep: Sleep = "",
    rate: Rate = 0,
    storage: Storage = "file",
    replicas: Replicas = 1,
    maxbytes: MaxBytes = "",
    history: Annotated[int, typer.Option("--history", help="Values of a key", min=1)] = 1,
    purge: Purge = False,
    randomize: Annotated[
        int, typer.Option("--randomize", help="So many keys, in any order", min=0)
    ] = 0,
) -> None:
    """Put values into a bucket, one after the other, or get them."""
    config = KeyValueConfig(
        bucket=bucket, history=history, storage=one_of(*STORAGES)(storage),
        num_replicas=replicas, max_bytes=size(maxbytes) if maxbytes else -1,
    )  # fmt: skip
    found = loads.Bucket(config=config, size=size(size_), keys=randomize, pause=duration(sleep),
                         rate=rate / clients)  # fmt: skip
    asyncio.run(found.prepare(get, purge))
    what = "get" if get else "put"
    _run(f"kv_{what}", f"kv {what}", msgs, clients, progress, csv, bytes_=found.size, bucket=found)


@app.command("object")
def object_(
    msgs: Annotated[int, typer.Option("--msgs", help="How many", min=1)] = 10,
    size_: Size = "16MiB",
    clients: Clients = 1,
    bucket: Annotated[str, typer.Option("--bucket", help="Made if need be")] = "benchobjects",
    get: Get = False,
    progress: Progress = True,
    csv: Csv = None,
) -> None:
    """Put objects into a store, or get them."""
    what = "get" if get else "put"
    bytes_ = size(size_)
    _run(f"object_{what}", f"object {what}", msgs, clients, progress, csv, bytes_=bytes_,
         bucket=bucket, size=bytes_)  # fmt: skip
