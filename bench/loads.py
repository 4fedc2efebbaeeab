"""The loads of the table: how each is prepared, run and what it has to reach."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from bench.programs import LOADGEN
from bench.servers import NATS_SERVER_ALWAYS, SLIPSTREAM, Contender, Running


@dataclass(slots=True, frozen=True)
class Beside:
    """Another load of the same server in the same rounds, and the share of its rate to reach."""

    name: str
    measure: Callable[[Running], float]
    goal: float


@dataclass(slots=True, frozen=True)
class Load:
    """One row: `measure` gives messages per second, or another figure, which `name` says, where
    `lower_is_better`."""

    name: str
    measure: Callable[[Running], float]
    goal: float | None  # ratio ours / nats-server to reach (at most, where lower is better)
    lower_is_better: bool = False
    goal_always: float | None = None  # the same against nats-server with sync_interval: always
    disk_bytes: int = 0  # that a message takes on disk, where it has to be there first
    bound: float | None = None  # what our figure may be at most
    bound_over_commit: float | None = None  # the same, µs more than a write and flush of this disk
    beside: Beside | None = None
    states_bandwidth: bool = False  # say which share of the disk's is used
    ours: Contender = SLIPSTREAM


def run_loadgen(address: str, mode: str, **options: object) -> dict[str, float]:
    """One run of the load generator against the server at `address`; its JSON line."""
    words = [f"{key}={value}" for key, value in options.items()]
    done = subprocess.run(
        [str(LOADGEN), address, mode, *words], capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        raise RuntimeError(f"loadgen {mode} {words}: {done.stdout} {done.stderr}")
    line: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return line


def publish(
    storage: str, n: int, config: dict[str, object] | None = None, **options: object
) -> Callable[[Running], float]:
    """JetStream publish into a fresh stream; an eighth of it where each message is synced alone."""

    def measure(server: Running) -> float:
        stream = {"name": "BENCH", "subjects": ["bench.>"], "storage": storage, **(config or {})}
        server.request("$JS.API.STREAM.DELETE.BENCH")
        server.create_stream(**stream)
        few = server.contender is NATS_SERVER_ALWAYS and options.get("window") != 1
        line = run_loadgen(server.address, "jspub", n=n // 8 if few else n, **options)
        return line["p50_us"] if options.get("window") == 1 else line["per_sec"]

    return measure


def pull(storage: str, retention: str = "limits", n: int = 300_000) -> Callable[[Running], float]:
    """Pull 500 at a time and acknowledge each message."""

    def measure(server: Running) -> float:
        server.request("$JS.API.STREAM.DELETE.BENCH")
        server.create_stream(
            name="BENCH", subjects=["bench.>"], storage=storage, retention=retention
        )
        server.create_consumer("BENCH", "c")
        run_loadgen(server.address, "jspub", n=n, window=1000)
        return run_loadgen(server.address, "pull", n=n, batch=500)["per_sec"]

    return measure


def many_streams(server: Running) -> float:
    """JetStream publish to 1,000 streams in turn, each of which has had messages before."""
    server.request("$JS.API.STREAM.DELETE.BENCH")
    names = [f"MANY{i}" for i in range(1000)]
    for i, name in enumerate(names):
        server.create_stream(name=name, subjects=[f"many.{i}"])
    options = {"subject": "many", "subjects": len(names), "window": 1000}
    run_loadgen(server.address, "jspub", n=4_000, **options)
    few = server.contender is NATS_SERVER_ALWAYS
    line = run_loadgen(server.address, "jspub", n=10_000 if few else 200_000, **options)
    for name in names:
        server.request(f"$JS.API.STREAM.DELETE.{name}")
    return line["per_sec"]


def direct_get(server: Running) -> float:
    """Batched direct get from sequence 1."""
    server.request("$JS.API.STREAM.DELETE.BENCH")
    server.create_stream(name="BENCH", subjects=["bench.>"], allow_direct=True)
    run_loadgen(server.address, "jspub", n=500_000, window=1000)
    return run_loadgen(server.address, "get", n=500_000, batch=1000)["per_sec"]


def single_gets(server: Running) -> float:
    """Twenty clients that each ask for a subject's last message and wait for it, as of a bucket."""
    server.request("$JS.API.STREAM.DELETE.BENCH")
    server.create_stream(name="BENCH", subjects=["bench.>"], allow_direct=True)
    run_loadgen(server.address, "jspub", n=100_000, window=1000, subjects=1000)
    subject = "$JS.API.DIRECT.GET.BENCH.bench.x.{}"
    options = {"conns": 20, "subject": subject, "subjects": 1000}
    return run_loadgen(server.address, "ask", n=100_000, **options)["per_sec"]


def core(mode: str, figure: str = "per_sec", **options: object) -> Callable[[Running], float]:
    """Core NATS, no stream."""

    def measure(server: Running) -> float:
        server.request("$JS.API.STREAM.DELETE.BENCH")
        return run_loadgen(server.address, mode, **options)[figure]

    return measure


RECORD = 128 + 24 + 7  # body, record header, subject

LOADS = [
    Load(
        "jspub, file, window 1000",
        publish("file", 400_000, window=1000),
        2.0,
        goal_always=20.0,
        disk_bytes=RECORD,
    ),
    Load("jspub, memory, window 1000", publish("memory", 400_000, window=1000), 2.0),
    Load(
        "jspub, file, window 1 (p50 µs)",
        publish("file", 20_000, window=1),
        None,
        lower_is_better=True,
        goal_always=1.0,
        disk_bytes=RECORD,
        bound_over_commit=40.0,
    ),
    Load(
        "jspub, memory, window 1 (p50 µs)",
        publish("memory", 20_000, window=1),
        1.0,
        lower_is_better=True,
    ),
    Load(
        "jspub, file, 100,000 subjects",
        publish("file", 400_000, window=1000, subjects=100_000),
        2.0,
        disk_bytes=RECORD + 5,
    ),
    Load(
        "jspub, file, with Nats-Msg-Id",
        publish("file", 400_000, window=1000, msgid=1),
        2.0,
        disk_bytes=RECORD + 36,
    ),
    Load(
        "jspub, file, max_msgs_per_subject 1, 1,000 subjects",
        publish("file", 400_000, {"max_msgs_per_subject": 1}, window=1000, subjects=1000),
        2.0,
        disk_bytes=RECORD + 4,
    ),
    Load(
        "jspub, file, 1,000 streams in turn",
        many_streams,
        3.0,
        disk_bytes=2 * RECORD,
        beside=Beside("one stream", publish("file", 400_000, window=1000), 0.5),
    ),
    Load(
        "jspub, file, 10 connections, window 100",
        publish("file", 400_000, window=100, conns=10),
        2.0,
        disk_bytes=RECORD,
    ),
    Load(
        "jspub, file, 50 connections, window 1 (p50 µs)",
        publish("file", 40_000, window=1, conns=50),
        None,
        lower_is_better=True,
        goal_always=0.5,
        disk_bytes=RECORD,
    ),
    Load(
        "jspub, file, 4 KiB bodies",
        publish("file", 100_000, window=1000, size=4096),
        2.5,
        disk_bytes=RECORD - 128 + 4096,
        states_bandwidth=True,
    ),
    Load("pull 500 + ack, file", pull("file"), 2.0),
    Load("pull 500 + ack, memory", pull("memory"), 2.0),
    Load("pull 500 + ack, work queue", pull("file", "workqueue"), 2.0),
    Load("pull 500 + ack, interest", pull("file", "interest"), 2.0),
    Load("batched direct get", direct_get, 1.5),
    Load("direct get of one message, 20 connections", single_gets, 1.0),
    Load("request/reply (p50 µs)", core("req", "p50_us", n=20_000), 1.0, lower_is_better=True),
    Load("core publish, nobody listening", core("pub", n=4_000_000), 0.8),
    Load("core publish to 1 subscriber", core("pubsub", n=2_000_000, subs=1), 1.0),
    Load("core publish to 10 subscribers", core("pubsub", n=300_000, subs=10), 1.0),
]
