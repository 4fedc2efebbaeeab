"""The loads that show what the commit log is for: many streams, many consumers, readers beside a
publisher, changes through the API, a restart."""

import subprocess
import time
from collections.abc import Callable
from functools import cache

from bench.driver import Driver
from bench.loads import RECORD, Beside, Load, publish, pull, run_loadgen
from bench.programs import LOADGEN
from bench.servers import (
    NATS_SERVER,
    NATS_SERVER_ALWAYS,
    SLIPSTREAM,
    SLIPSTREAM_WITHOUT_BUSY_POLL,
    Running,
)

STREAMS = 100
CONSUMERS = 100  # of each
ACKED = 30  # messages by each of these
READERS = 10
RATE_SECONDS = 4
CHANGES = 10_000
DELETES_IN_FLIGHT = 32
LOADED_SECONDS = 3.0


def many_consumers(server: Running) -> float:
    """Acknowledgements a second of 10,000 consumers of 100 streams, each of which has a few."""
    with Driver(server) as driver:
        for i in range(STREAMS):
            driver.ask(
                f"$JS.API.STREAM.CREATE.MANY{i}", {"name": f"MANY{i}", "subjects": [f"many.{i}"]}
            )
        driver.publish((b"many.%d" % i for i in range(STREAMS) for _ in range(ACKED)), b"x" * 128)
        driver.request_all(
            (
                f"$JS.API.CONSUMER.CREATE.MANY{i}.c{n}",
                {
                    "stream_name": f"MANY{i}",
                    "config": {"durable_name": f"c{n}", "ack_policy": "explicit"},
                },
            )
            for n in range(CONSUMERS)
            for i in range(STREAMS)
        )
    options = {"streams": STREAMS, "consumers": CONSUMERS, "batch": ACKED}
    return run_loadgen(server.address, "pullmany", **options)["per_sec"]


def workers(server: Running) -> float:
    """Twenty workers that each take one message and wait until it is settled."""
    n = 5_000 if server.contender is NATS_SERVER_ALWAYS else 40_000
    server.request("$JS.API.STREAM.DELETE.BENCH")
    server.create_stream(name="BENCH", subjects=["bench.>"], retention="workqueue")
    server.create_consumer("BENCH", "c")
    run_loadgen(server.address, "jspub", n=n, window=1000)
    return run_loadgen(server.address, "work", n=n, conns=20)["per_sec"]


def _with_readers(server: Running, **options: object) -> dict[str, float]:
    server.create_stream(name="BENCH", subjects=["bench.>"])
    for i in range(READERS):
        server.create_consumer("BENCH", f"r{i}")
    return run_loadgen(server.address, "jsrate", readers=READERS, **options)


@cache
def peak_with_readers() -> float:
    """The rate that both servers reach with the readers: that of the slower one."""
    peaks = []
    for contender in (SLIPSTREAM, NATS_SERVER):
        with Running(contender) as server:
            peaks.append(_with_readers(server, n=100_000, window=1000)["per_sec"])
    return min(peaks)


def latency_at(share: float, figure: str) -> Callable[[Running], float]:
    """How long acknowledgements take, in µs, at a share of the peak."""

    def measure(server: Running) -> float:
        rate = int(peak_with_readers() * share)
        return _with_readers(server, n=rate * RATE_SECONDS, rate=rate)[figure]

    return measure


def create_consumers(server: Running) -> float:
    """Consumers created a second, durable ones of one stream."""
    with Driver(server) as driver:
        config = {"name": "BENCH", "subjects": ["bench.>"], "max_consumers": CHANGES}
        driver.ask("$JS.API.STREAM.CREATE.BENCH", config)
        requests = [
            (
                f"$JS.API.CONSUMER.CREATE.BENCH.c{n}",
                {
                    "stream_name": "BENCH",
                    "config": {"durable_name": f"c{n}", "ack_policy": "explicit"},
                },
            )
            for n in range(CHANGES)
        ]
        begin = time.perf_counter()
        answers = driver.request_all(requests)
        seconds = time.perf_counter() - begin
    _check(answers)
    return CHANGES / seconds


def delete_messages(server: Running) -> float:
    """Messages deleted a second, one by one."""
    with Driver(server) as driver:
        driver.ask("$JS.API.STREAM.CREATE.BENCH", {"name": "BENCH", "subjects": ["bench.>"]})
        run_loadgen(server.address, "jspub", n=CHANGES, window=1000)
        requests = [("$JS.API.STREAM.MSG.DELETE.BENCH", {"seq": n + 1}) for n in range(CHANGES)]
        begin = time.perf_counter()
        answers = driver.request_all(requests, window=DELETES_IN_FLIGHT)
        seconds = time.perf_counter() - begin
    _check(answers)
    return CHANGES / seconds


def _check(answers: list[bytes]) -> None:
    for answer in answers:
        if b'"error"' in answer:
            raise RuntimeError(answer.decode())


def ready_after_kill(streams: int) -> Callable[[Running], float]:
    """Seconds until a server is ready again that was killed while so many streams were written to
    in turn, so that its commit log has much to apply."""

    def measure(server: Running) -> float:
        with Driver(server) as driver:
            driver.request_all(
                (f"$JS.API.STREAM.CREATE.MANY{i}", {"name": f"MANY{i}", "subjects": [f"many.{i}"]})
                for i in range(streams)
            )
        words = ["n=100000000", "window=1000", "subject=many", f"subjects={streams}"]
        load = subprocess.Popen(
            [str(LOADGEN), server.address, "jspub", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(LOADED_SECONDS)
            server.stop(kill=True)
        finally:
            load.kill()
            load.wait()
        return server.start().seconds_to_ready

    return measure


def _latency(name: str, share: float, figure: str) -> Load:
    title = f"publish, 10 pull consumers, {share:.0%} of the peak ({name} µs)"
    return Load(title, latency_at(share, figure), 1.0, lower_is_better=True)


def _ready(streams: int) -> Load:
    title = f"ready after kill -9 with a full log, {streams:,} streams (s)"
    return Load(title, ready_after_kill(streams), None, lower_is_better=True, bound=0.6)


COMMIT_LOADS = [
    Load("20 workers settle one message at a time", workers, None, goal_always=2.0),
    Load(
        "10,000 consumers acknowledge on 100 streams",
        many_consumers,
        None,
        beside=Beside("one consumer", pull("file"), 0.7),
    ),
    _latency("p99", 0.5, "p99_us"),
    _latency("p99.9", 0.5, "p999_us"),
    _latency("p99", 0.9, "p99_us"),
    _latency("p99.9", 0.9, "p999_us"),
    Load("create 10,000 consumers", create_consumers, 2.0),
    Load("delete 10,000 messages one by one, 32 in flight", delete_messages, 2.0),
    _ready(100),
    _ready(1000),
    Load(
        "jspub, file, window 1, without busy_poll (p50 µs)",
        publish("file", 20_000, window=1),
        None,
        lower_is_better=True,
        disk_bytes=RECORD,
        bound_over_commit=40.0,
        ours=SLIPSTREAM_WITHOUT_BUSY_POLL,
    ),
]
