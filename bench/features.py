"""What JetStream's younger features cost, on both servers in one run: `python -m bench.features`,
or some of its parts: `python -m bench.features mirror counters --rounds 3`.

* `mirror`: a mirror catches up with a full stream; messages a second.
* `ttl`: messages with TTLs are gone, how long after their time, while others are published.
* `schedules`: what waiting ones cost, and how late those are that are due within one second.
* `batches`: atomic batches of 1,000 messages.
* `fast`: one fast-ingest batch.
* `counters`: increments.

Rates are given by the clock and by the server's own processor time, which other programs on the
machine do not lengthen. Figures are medians of rounds that alternate between the servers.
"""

import argparse
import os
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from bench.driver import Driver, ProcessorTime
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running, check_installed

BODY = b"x" * 128
CHUNK = 1 << 18
TIMEOUT = 120.0
MESSAGES = 1_000_000
SCHEDULES = 10_000
BATCH = 1_000
WINDOW = 4_000  # messages on their way
FLOW = 500  # messages for each acknowledgement of a fast batch
TTL_SECONDS = 30  # from the first message on to the time when all are to go
IDLE_SECONDS = 3.0
DUE_AFTER_SECONDS = 20.0  # within which all schedules have to be stored
GONE_WITHIN = 120.0

Figures = dict[str, float]


class Wire:
    """A connection that sends bytes made before, and counts answers."""

    def __init__(self, server: Running) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tail = b""
        self.send(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.> 1\r\n')

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def read(self, pattern: "re.Pattern[bytes]") -> list[bytes]:
        """What matches in what has come since; waits for something to come. Matches end with a
        character that is not theirs."""
        chunk = self._socket.recv(CHUNK)
        if not chunk:
            raise RuntimeError("the server closed the connection")
        if b'"error"' in chunk or b"-ERR" in chunk:
            raise RuntimeError(chunk[:400].decode())
        if b"PING\r\n" in chunk:
            self.send(b"PONG\r\n")
        data = self._tail + chunk
        found = list(pattern.finditer(data))
        self._tail = data[found[-1].end() :][-200:] if found else data[-200:]
        return [one[1] for one in found]

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


_SEQUENCE = re.compile(rb'"seq": ?(\d+)\D')


def message(subject: str, headers: dict[str, str], reply: str = "", body: bytes = BODY) -> bytes:
    """A publish as bytes."""
    if not headers:
        return f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    head = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".encode()
    return head + block + body + b"\r\n"


def acknowledged(wire: Wire, chunks: Iterator[bytes], each: int, answers_each: int) -> float:
    """Send chunks of `each` messages, `WINDOW` on their way; seconds until all are answered."""
    begun = time.perf_counter()
    sent = answered = 0
    for chunk in chunks:
        wire.send(chunk)
        sent += answers_each
        while (sent - answered) * each > WINDOW * answers_each:
            answered += len(wire.read(_SEQUENCE))
    while answered < sent:
        answered += len(wire.read(_SEQUENCE))
    return time.perf_counter() - begun


def rates(n: int, seconds: float, used: ProcessorTime) -> Figures:
    """Messages a second, by the clock and by the server's processor time."""
    return {"k/s": n / seconds / 1e3, "k/s of processor time": 1e3 / used.us_each(n)}


def mirror(server: Running, driver: Driver, wire: Wire) -> Figures:
    """A mirror of a full stream."""
    driver.ask("$JS.API.STREAM.CREATE.UP", {"name": "UP", "subjects": ["up"]})
    acknowledged(wire, iter([message("up", {}, "in.u") * 250] * (MESSAGES // 250)), 250, 250)
    used, begun = ProcessorTime(server), time.perf_counter()
    driver.ask("$JS.API.STREAM.CREATE.DOWN", {"name": "DOWN", "mirror": {"name": "UP"}})
    _until(driver, "DOWN", lambda state: state["messages"] == MESSAGES)
    return rates(MESSAGES, time.perf_counter() - begun, used)


def _until(driver: Driver, stream: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    limit = time.perf_counter() + GONE_WITHIN
    while not holds(driver.ask(f"$JS.API.STREAM.INFO.{stream}")["state"]):
        if time.perf_counter() > limit:
            raise RuntimeError(f"stream {stream} has not come so far in {GONE_WITHIN} s")
        time.sleep(0.02)


def ttl(server: Running, driver: Driver, wire: Wire) -> Figures:
    """Messages that go at one time, while others are published."""
    driver.ask("$JS.API.STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})
    driver.ask(
        "$JS.API.STREAM.CREATE.TTL", {"name": "TTL", "subjects": ["ttl.*"], "allow_msg_ttl": True}
    )
    other = message("other", {}, "in.o") * 250
    alone = 200_000 / acknowledged(wire, iter([other] * 800), 250, 250)
    at = time.time() + TTL_SECONDS

    def chunks() -> Iterator[bytes]:
        for i in range(MESSAGES // 250):
            left = max(round(at - time.time()), 1)
            yield message(f"ttl.{i % 100}", {"Nats-TTL": f"{left}s"}, "in.t") * 250

    acknowledged(wire, chunks(), 250, 250)
    while time.time() < at - 1:
        time.sleep(0.1)
    used, begun, published, looked = ProcessorTime(server), time.perf_counter(), 0, 0.0
    while True:
        acknowledged(wire, iter([other] * 8), 250, 250)
        published += 2000
        if time.perf_counter() - looked > 0.1:
            looked = time.perf_counter()
            if not driver.ask("$JS.API.STREAM.INFO.TTL")["state"]["messages"]:
                break
            if looked - begun > GONE_WITHIN:
                raise RuntimeError("messages with TTLs are still there")
    passed = time.perf_counter() - begun
    return {
        "s until all were gone": max(time.time() - at - 0.5, 0.0),  # TTLs are whole seconds
        "cores used": used.us_each(1) / 1e6 / passed,
        "publishing beside, part of alone": published / passed / alone,
    }


def schedules(server: Running, driver: Driver, wire: Wire) -> Figures:
    """Schedules that wait, and some that are due within one second."""
    config = {"name": "S", "subjects": ["sch.>", "out.>"], "allow_msg_schedules": True}
    driver.ask("$JS.API.STREAM.CREATE.S", config)

    def idle() -> float:
        used = ProcessorTime(server)
        time.sleep(IDLE_SECONDS)
        return used.us_each(1) / 1e6 / IDLE_SECONDS

    def scheduled(kind: str, when: Callable[[int], float]) -> Iterator[bytes]:
        for i in range(SCHEDULES):
            at = datetime.fromtimestamp(when(i), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": f"out.{kind}.{i}"}
            yield message(f"sch.{kind}.{i}", headers, "in.s")

    before = idle()
    hour = time.time() + 3600
    acknowledged(wire, scheduled("later", lambda i: hour + i), 1, 1)
    time.sleep(1.0)
    waiting = idle()
    begin = time.time() + DUE_AFTER_SECONDS
    acknowledged(wire, scheduled("due", lambda i: begin + i / SCHEDULES), 1, 1)
    if time.time() > begin - 1:
        raise RuntimeError("the machine is too busy: schedules were due before all were stored")
    wire.send(b"SUB delivered 2\r\n")
    consumer = {"name": "c", "deliver_subject": "delivered", "filter_subject": "out.due.*"}
    asked = {"stream_name": "S", "config": consumer | {"ack_policy": "none"}}
    driver.ask("$JS.API.CONSUMER.CREATE.S.c", asked)
    late: list[float] = []
    came = re.compile(rb"HMSG out\.due\.(\d+) ")
    while len(late) < SCHEDULES:
        if time.time() > begin + GONE_WITHIN:
            raise RuntimeError(f"only {len(late):,} of {SCHEDULES:,} schedules were published")
        found = wire.read(came)
        now = time.time()
        late += [now - begin - int(i) / SCHEDULES for i in found]
    late.sort()
    return {
        "% of a core while idle, before": before * 100,
        f"% of a core with {SCHEDULES:,} waiting": waiting * 100,
        "ms late, median": late[len(late) // 2] * 1e3,
        "ms late, last of 100": late[len(late) * 99 // 100] * 1e3,
        "ms late, most": late[-1] * 1e3,
    }


def batches(server: Running, driver: Driver, wire: Wire) -> Figures:
    """Atomic batches, four on their way."""
    config = {"name": "A", "subjects": ["a"], "allow_atomic": True}
    driver.ask("$JS.API.STREAM.CREATE.A", config)
    n = MESSAGES // 5 // BATCH

    def batch(i: int) -> bytes:
        out = bytearray()
        for seq in range(1, BATCH + 1):
            headers = {"Nats-Batch-Id": f"b{i}", "Nats-Batch-Sequence": str(seq)}
            if seq == BATCH:
                headers["Nats-Batch-Commit"] = "1"
            out += message("a", headers, "in.a" if seq == BATCH else "")
        return bytes(out)

    made = [batch(i) for i in range(n)]
    used = ProcessorTime(server)
    return rates(n * BATCH, acknowledged(wire, iter(made), BATCH, 1), used)


def fast(server: Running, driver: Driver, wire: Wire) -> Figures:
    """One fast batch, as far ahead of its acknowledgements as `WINDOW` says."""
    driver.ask("$JS.API.STREAM.CREATE.F", {"name": "F", "subjects": ["f"], "allow_batched": True})

    def chunk(first: int) -> bytes:
        lines = []
        for seq in range(first, first + FLOW):
            op = 0 if seq == 1 else 2 if seq == MESSAGES else 1
            lines.append(f"PUB f in.id.{FLOW}.ok.{seq}.{op}.$FI {len(BODY)}\r\n".encode() + BODY)
        return b"\r\n".join(lines) + b"\r\n"

    made = [chunk(first) for first in range(1, MESSAGES, FLOW)]
    used, begun, stored = ProcessorTime(server), time.perf_counter(), 0
    for i, one in enumerate(made):
        wire.send(one)
        while (i + 1) * FLOW - stored > WINDOW:
            stored = max([stored, *map(int, wire.read(_SEQUENCE))])
    while stored < MESSAGES:
        stored = max([stored, *map(int, wire.read(_SEQUENCE))])
    return rates(MESSAGES, time.perf_counter() - begun, used)


def counters(server: Running, driver: Driver, wire: Wire) -> Figures:
    """Increments of a thousand counters."""
    config = {"name": "C", "subjects": ["c.*"], "allow_msg_counter": True, "allow_direct": True}
    driver.ask("$JS.API.STREAM.CREATE.C", config)
    n = MESSAGES // 5
    made = [
        b"".join(
            message(f"c.{(i + k) % 1000}", {"Nats-Incr": "+1"}, "in.c", b"") for k in range(250)
        )
        for i in range(0, n, 250)
    ]
    used = ProcessorTime(server)
    return rates(n, acknowledged(wire, iter(made), 250, 250), used)


PARTS = {part.__name__: part for part in (mirror, ttl, schedules, batches, fast, counters)}


def measure(part: str, contender: Contender) -> Figures:
    """One part on a server of its own."""
    with Running(contender) as server, Driver(server) as driver:
        wire = Wire(server)
        try:
            return PARTS[part](server, driver, wire)
        finally:
            wire.close()


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(prog="python -m bench.features", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    check_installed()
    for part in options.parts or PARTS:
        found: dict[str, list[Figures]] = {}
        for _ in range(options.rounds):
            for contender in (SLIPSTREAM, NATS_SERVER):
                found.setdefault(contender.name, []).append(measure(part, contender))
        print(f"{part} (median of {options.rounds}, load {os.getloadavg()[0]:.1f})")
        for name in found[SLIPSTREAM.name][0]:
            ours, theirs = (
                statistics.median(one[name] for one in found[contender.name])
                for contender in (SLIPSTREAM, NATS_SERVER)
            )
            ratio = f"{ours / theirs:8.2f}x" if theirs else ""
            print(f"  {name:36} {ours:10.2f} {theirs:10.2f} {ratio}", flush=True)


if __name__ == "__main__":
    main()
