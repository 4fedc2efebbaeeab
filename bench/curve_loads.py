"""The curves: what grows, and what is measured at each size.

`begin` prepares a fresh server and returns a function that grows it to a size and gives the cost of
each operation there, by label. Sizes ascend.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.driver import Driver, ProcessorTime
from bench.loads import run_loadgen
from bench.servers import Running

Costs = dict[str, float]
BODY = b"x" * 128
PUBLISHES = 30_000  # in each measurement
READS = 2000
CREATES = 30
EXPLICIT = {"ack_policy": "explicit", "max_ack_pending": -1}


@dataclass(slots=True, frozen=True)
class Curve:
    """One plot: a line for each label of what `begin(server)(size)` returns."""

    name: str
    title: str
    x_label: str
    y_label: str
    sizes: tuple[int, ...]
    begin: Callable[[Running], Callable[[int], Costs]]


def publish_us(server: Running, subject: str, n: int = PUBLISHES, **options: object) -> float:
    """Processor time of a durable publish, in µs."""
    clock = ProcessorTime(server)
    run_loadgen(server.address, "jspub", n=n, subject=subject, **{"window": 1000, **options})
    return clock.us_each(n)


def read_us(server: Running, driver: Driver, stream: str, messages: int) -> float:
    """Processor time of reading one message by its sequence, all over the stream, in µs."""
    step = max(messages // READS, 1)
    wanted = ({"seq": 1 + (i * step * 7919) % messages} for i in range(READS))
    clock = ProcessorTime(server)
    driver.request_all((f"$JS.API.DIRECT.GET.{stream}", body) for body in wanted)
    return clock.us_each(READS)


def create_us(
    server: Running, driver: Driver, stream: str, filters: Iterator[str], n: int = CREATES
) -> float:
    """Processor time of creating a consumer with a filter and of deleting it again, in µs."""
    configs = [{"filter_subject": next(filters), "mem_storage": True} for _ in range(n)]
    clock = ProcessorTime(server)
    for config in configs:
        create_consumer(driver, stream, "made", **config)
        driver.ask(f"$JS.API.CONSUMER.DELETE.{stream}.made")
    return clock.us_each(n)


def create_consumer(driver: Driver, stream: str, name: str, **config: object) -> None:
    """A durable pull consumer."""
    body = {"stream_name": stream, "config": {"durable_name": name, **EXPLICIT, **config}}
    driver.ask(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body)


def consumers_of(stream: str, start: int, end: int, filter_of: str = "") -> Iterator[object]:
    """Requests for many consumers; `filter_of` is a format that makes a filter of a number."""
    for i in range(start, end):
        config = {"durable_name": f"c{i}", **EXPLICIT}
        if filter_of:
            config["filter_subject"] = filter_of.format(i)
        yield (f"$JS.API.CONSUMER.CREATE.{stream}.c{i}", {"stream_name": stream, "config": config})


def messages(server: Running) -> Callable[[int], Costs]:
    """A stream that fills, on 1,000 subjects."""
    driver = Driver(server)
    server.create_stream(name="S", subjects=["s.>"], allow_direct=True)
    state = {"stored": 0}

    def at(size: int) -> Costs:
        missing = size - state["stored"]
        run_loadgen(server.address, "jspub", n=missing, subject="s", subjects=1000, window=1000)
        publish = publish_us(server, "s", n=200_000, subjects=1000)
        state["stored"] = size + 200_000
        return {
            "publish": publish,
            "get by sequence": read_us(server, driver, "S", size),
            "create a filtered consumer": create_us(
                server, driver, "S", (f"s.{i}" for i in itertools.count())
            ),
        }

    return at


def subjects(server: Running) -> Callable[[int], Costs]:
    """A stream with more and more subjects, one message on each."""
    driver = Driver(server)
    server.create_stream(name="S", subjects=["s.>"], allow_direct=True, max_msgs_per_subject=1)

    def at(size: int) -> Costs:
        run_loadgen(server.address, "jspub", n=size, subject="s", subjects=size, window=1000)
        clock = ProcessorTime(server)
        driver.request_all(
            (f"$JS.API.DIRECT.GET.S.s.{i * 7919 % size}", None) for i in range(READS)
        )
        get = clock.us_each(READS)
        return {
            "replace a message": publish_us(server, "s", subjects=size),
            "get the last of a subject": get,
            "create a filtered consumer": create_us(
                server, driver, "S", (f"s.{i}" for i in itertools.count())
            ),
        }

    return at


def wildcards(server: Running) -> Callable[[int], Costs]:
    """Subjects of four tokens; 100 of them match `*.*.x.>`, all of them another filter."""
    driver = Driver(server)
    server.create_stream(name="S", subjects=["a.>", "b.>"], allow_direct=True)
    driver.publish((f"b.{i}.x.{i}".encode() for i in range(100)), BODY)
    state = {"stored": 0}

    def at(size: int) -> Costs:
        fresh = (f"a.{i // 100}.y.{i}".encode() for i in range(state["stored"], size))
        driver.publish(fresh, BODY)
        state["stored"] = size
        time.sleep(1)  # what was stored has work behind it
        clock = ProcessorTime(server)
        for _ in range(CREATES):
            driver.ask("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "*.*.x.>"})
        return {
            "last message of *.*.x.>": clock.us_each(CREATES),
            "create with *.*.x.>": create_us(server, driver, "S", itertools.repeat("*.*.x.>")),
            "create with b.*.x.>": create_us(server, driver, "S", itertools.repeat("b.*.x.>")),
        }

    return at


def streams(server: Running) -> Callable[[int], Costs]:
    """More and more streams; publishes go to one of them, then to all in turn (1,000 at most)."""
    driver = Driver(server)
    state = {"made": 0}

    def at(size: int) -> Costs:
        driver.request_all(
            (f"$JS.API.STREAM.CREATE.S{i}", {"name": f"S{i}", "subjects": [f"s.{i}"]})
            for i in range(state["made"], size)
        )
        state["made"] = size
        one = publish_us(server, "s.0")
        several = min(size, 1000)
        return {
            "publish to one": one,
            "publish to all in turn": publish_us(server, "s", subjects=several),
        }

    return at


def idle_consumers(filter_of: str) -> Callable[[Running], Callable[[int], Costs]]:
    """Consumers that nobody pulls from, on one stream."""

    def begin(server: Running) -> Callable[[int], Costs]:
        driver = Driver(server)
        server.create_stream(name="S", subjects=["s.>"], storage="memory")
        state = {"made": 0}

        def at(size: int) -> Costs:
            driver.request_all(consumers_of("S", state["made"], size, filter_of))
            state["made"] = size
            return {
                "publish, 1,000 on their way": publish_us(server, "s.x.0", subjects=1000),
                "publish, one at a time": publish_us(server, "s.x", n=5000, window=1),
            }

        return at

    return begin


def consumers_in_all(server: Running) -> Callable[[int], Costs]:
    """Idle consumers on a hundred streams, and what one takes in memory."""
    driver = Driver(server)
    for i in range(100):
        server.create_stream(name=f"S{i}", subjects=[f"s.{i}"], storage="memory")
    state = {"made": 0}

    def at(size: int) -> Costs:
        for i in range(100):
            driver.request_all(consumers_of(f"S{i}", state["made"] // 100, size // 100))
        state["made"] = size
        return {
            "publish to one stream": publish_us(server, "s.0"),
            "publish to all in turn": publish_us(server, "s", subjects=100),
        }

    return at


def connections(server: Running) -> Callable[[int], Costs]:
    """The same number of publishes over more and more connections, each with one on its way."""
    server.create_stream(name="S", subjects=["s.>"])

    def at(size: int) -> Costs:
        n = min(20_000, 2000 * size)
        return {
            "publish, file": publish_us(server, "s.x", n=n, conns=size, window=1),
        }

    return at


def message_size(server: Running) -> Callable[[int], Costs]:
    """Publish and pull bodies of a size; the cost of a message."""

    def at(size: int) -> Costs:
        n = max(min(20_000, (192 << 20) // max(size, 1)), 150)
        server.create_stream(name="S", subjects=["s.>"])
        server.create_consumer("S", "c")
        window = max(min(1000, (8 << 20) // max(size, 1)), 2)
        publish = publish_us(server, "s.x", n=n, size=size, window=window)
        clock = ProcessorTime(server)
        run_loadgen(server.address, "pull", n=n, batch=min(window, 500), stream="S")
        pull = clock.us_each(n)
        server.request("$JS.API.STREAM.DELETE.S")
        return {"publish": publish, "pull and acknowledge": pull}

    return at


def work_queue_holes(server: Running) -> Callable[[int], Costs]:
    """A work queue of which one in a hundred is left, the others were done before."""

    def at(size: int) -> Costs:
        server.create_stream(name="S", subjects=["s.>"], retention="workqueue")
        with Driver(server) as driver:
            create_consumer(driver, "S", "most", filter_subjects=[f"s.{i}" for i in range(1, 100)])
            run_loadgen(server.address, "jspub", n=size, subject="s", subjects=100, window=1000)
            run_loadgen(
                server.address, "pull", n=size * 99 // 100, batch=500, stream="S", consumer="most"
            )
            clock = ProcessorTime(server)
            create_consumer(driver, "S", "rest", filter_subject="s.0")
            create = clock.us_each(1)
            publish = publish_us(server, "s", subjects=100)
            clock = ProcessorTime(server)
            run_loadgen(
                server.address, "pull", n=size // 100, batch=100, stream="S", consumer="rest"
            )
            pull = clock.us_each(size // 100)
        server.request("$JS.API.STREAM.DELETE.S")
        return {"pull across the holes": pull, "publish": publish, "create a consumer": create}

    return at


def slow_consumers(server: Running) -> Callable[[int], Costs]:
    """A fast consumer's messages beside consumers whose clients ask and then do not read."""
    server.create_stream(name="S", subjects=["s.>"])
    deaf: list[Driver] = []
    rounds = itertools.count()

    def at(size: int) -> Costs:
        with Driver(server) as driver:
            while len(deaf) < size:
                name = f"slow{len(deaf)}"
                create_consumer(driver, "S", name)
                slow = Driver(server)
                body = b'{"batch":1000000,"expires":600000000000}'
                head = f"PUB $JS.API.CONSUMER.MSG.NEXT.S.{name} {slow.inbox}.0 {len(body)}\r\n"
                slow.send(head.encode() + body + b"\r\n")
                deaf.append(slow)
            # Those who do not read are served what they have room for, and are then left alone.
            run_loadgen(server.address, "jspub", n=150_000, subject="s.x", window=1000)
            name = f"fast{next(rounds)}"
            create_consumer(driver, "S", name, deliver_policy="new")
        publish = publish_us(server, "s.x")
        clock = ProcessorTime(server)
        run_loadgen(server.address, "pull", n=PUBLISHES, batch=500, stream="S", consumer=name)
        return {"publish": publish, "pull and acknowledge": clock.us_each(PUBLISHES)}

    return at


PER_MESSAGE = "µs of processor time"
CURVES = [
    Curve("messages", "Messages in a stream", "messages", PER_MESSAGE,
          (10_000, 300_000, 1_000_000, 3_000_000), messages),
    Curve("subjects", "Subjects in a stream", "subjects", PER_MESSAGE,
          (1000, 10_000, 100_000, 1_000_000), subjects),
    Curve("wildcards", "Wildcards over a wide subject space", "subjects that do not match",
          PER_MESSAGE, (1000, 10_000, 100_000, 500_000), wildcards),
    Curve("streams", "Streams", "streams", PER_MESSAGE, (10, 100, 1000, 10_000), streams),
    Curve("consumers", "Idle consumers without a filter, one stream", "consumers", PER_MESSAGE,
          (1, 10, 100, 1000), idle_consumers("")),
    Curve("filtered", "Idle consumers with filters, one stream", "consumers", PER_MESSAGE,
          (1, 10, 100, 1000), idle_consumers("s.y.{}")),
    Curve("idle", "Idle consumers on 100 streams", "consumers", PER_MESSAGE,
          (100, 1000, 10_000, 50_000), consumers_in_all),
    Curve("connections", "Connections that each do little", "connections", PER_MESSAGE,
          (1, 10, 100, 1000), connections),
    Curve("size", "Size of a message", "bytes", PER_MESSAGE,
          (16, 256, 4096, 65_536, 1_048_576 - 512), message_size),
    Curve("holes", "Work queue of which 1 in 100 is left", "messages that were", PER_MESSAGE,
          (10_000, 100_000, 1_000_000), work_queue_holes),
    Curve("slow", "Clients that do not read, beside one that does", "slow clients", PER_MESSAGE,
          (0, 4, 16, 64), slow_consumers),
]  # fmt: skip
