"""What one peer can do to a server: `python -m bench.hostile`, or some of its parts.

Each part does the same to Slipstream and to nats-server, in one run, over the loopback alone, and
prints the tables of docs/limits.md; `--write` puts them there. Counts and times are bounded, and
`--scale 0.1` does a tenth of it.

* `deaf`: thousands of connections subscribe and never read, while somebody publishes.
* `subscriptions`: a million of them, on one connection and spread over a thousand.
* `sessions`: tens of thousands of connections send sessions with bytes changed, and go.
* `errors`: each bound of the configuration is crossed, and what the peer is sent is read.

Meanwhile a neighbour, a process of its own, sends a PING every 20 ms; the longest wait for its PONG
says what the others notice.
"""

import argparse
import contextlib
import multiprocessing
import multiprocessing.connection
import random
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.targets import sessions

from bench.driver import ProcessorTime
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running, check_installed

DEAF = 5_000
DEAF_MESSAGES = 256
DEAF_BODY = 4096  # bytes: 1 MiB for each in all, far below max_pending
DEAF_SECONDS = 10.0  # that publishing is spread over
DEAF_AFTER_SECONDS = 14.0  # until the write deadline of 10 s has passed for everybody
PAGE = Path(__file__).parent.parent / "docs" / "limits.md"
SUBSCRIPTIONS = 1_000_000
PUBLISHES = 20_000
SESSIONS = 50_000
AT_A_TIME = 50  # sessions
SESSIONS_SECONDS_MAX = 5.0  # that their answers are waited for
RESIDENT_MB_MAX = 5_000  # a server that takes more is stopped
PART_SECONDS_MAX = 240.0
FLOOD_SECONDS = 3.0  # that a peer reads nothing after it was sent too much
TIMEOUT = 60.0
QUIET = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
CHUNK = 1 << 16


class Neighbour:
    """A process that sends PING and notes how long the PONG takes; a context manager."""

    def __init__(self, port: int) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_ping, args=(port, theirs), daemon=True)
        self._process.start()

    def __enter__(self) -> "Neighbour":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def longest_ms(self) -> float:
        """The longest wait since the last call."""
        self._ours.send("")
        if not self._ours.poll(TIMEOUT):
            return TIMEOUT * 1000
        found: float = self._ours.recv()
        return found * 1000


def _ping(port: int, asked: multiprocessing.connection.Connection) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
        peer.sendall(QUIET)
        longest = 0.0
        while True:
            begin = time.perf_counter()
            try:
                if b"PING\r\n" in _settle(peer):
                    peer.sendall(b"PONG\r\n")
            except OSError:
                longest = TIMEOUT
            longest = max(longest, time.perf_counter() - begin)
            if asked.poll(0.02):
                asked.recv()
                asked.send(longest)
                longest = 0.0


def _settle(peer: socket.socket) -> bytes:
    """PING, and everything up to its PONG. Raises OSError if the connection ends."""
    peer.sendall(b"PING\r\n")
    data = b""
    while b"PONG\r\n" not in data[-CHUNK:]:
        found = peer.recv(CHUNK)
        if not found:
            raise ConnectionError(f"the server closed the connection: {data[-200:]!r}")
        data += found
    return data


def _connect(port: int, receive_bytes: int = 0) -> socket.socket:
    peer = socket.socket()
    if receive_bytes:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    peer.settimeout(TIMEOUT)
    peer.connect(("127.0.0.1", port))
    return peer


# -- those who never read --------------------------------------------------------------------------


def deaf(server: Running, scale: float) -> list[str]:
    """Subscribers that never read, while messages are published for all of them."""
    count = int(DEAF * scale)
    before = server.resident_mb()
    with contextlib.ExitStack() as stack:
        neighbour = stack.enter_context(Neighbour(server.port))
        peers = []
        for _ in range(count):
            peer = stack.enter_context(_connect(server.port, 4096))
            peer.sendall(QUIET + b"SUB deaf 1\r\n")
            peers.append(peer)
        publisher = stack.enter_context(_connect(server.port))
        publisher.sendall(QUIET)
        _settle(publisher)
        connected = server.resident_mb()
        joined = neighbour.longest_ms()
        highest = connected
        begin = time.perf_counter()
        for number in range(DEAF_MESSAGES):
            publisher.sendall(b"PUB deaf %d\r\n%b\r\n" % (DEAF_BODY, bytes(DEAF_BODY)))
            _settle(publisher)
            highest = max(highest, server.resident_mb())
            late = begin + DEAF_SECONDS * (number + 1) / DEAF_MESSAGES - time.perf_counter()
            time.sleep(max(late, 0))
            if highest > RESIDENT_MB_MAX or time.perf_counter() - begin > PART_SECONDS_MAX:
                break
        took = time.perf_counter() - begin
        published = number + 1
        during = neighbour.longest_ms()
        end = time.perf_counter() + DEAF_AFTER_SECONDS
        while time.perf_counter() < end:
            time.sleep(0.25)
            highest = max(highest, server.resident_mb())
        after = neighbour.longest_ms()
        left = server.resident_mb()
        endings = Counter(_ending(peer) for peer in peers)
    return [
        f"{count:,} connections subscribe and never read | {connected - before:.0f} MB more; "
        f"neighbour's PING at most {joined:.0f} ms",
        f"{published} messages of 4 KiB for each of them | in {took:.0f} s, "
        f"at most {highest:.0f} MB, neighbour's PING at most {during:.0f} ms",
        f"{DEAF_AFTER_SECONDS:.0f} s later | {left:.0f} MB, neighbour's PING at most "
        f"{after:.0f} ms; {_shares(endings)}",
    ]


def _ending(peer: socket.socket) -> str:
    """What a connection that was never read from has at its end."""
    peer.setblocking(False)
    data = b""
    try:
        while found := peer.recv(CHUNK):
            data = data[-200:] + found
    except BlockingIOError:
        return "still connected"
    except OSError:
        return _error_in(data) or "reset"
    return _error_in(data) or "closed"


def _error_in(data: bytes) -> str:
    at = data.rfind(b"-ERR ")
    return data[at:].split(b"\r\n")[0].decode("ascii", "replace") if at >= 0 else ""


def _shares(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.most_common(6))


# -- a million subscriptions -----------------------------------------------------------------------


def subscriptions(server: Running, scale: float) -> list[str]:
    """As many subscriptions as one connection may have, then spread over a thousand."""
    total = int(SUBSCRIPTIONS * scale)
    return [row for peers in (1, 1000) for row in _subscribed(server, total, peers)]


def _subscribed(server: Running, total: int, connections: int) -> Iterator[str]:
    before = server.resident_mb()
    each = total // connections
    with contextlib.ExitStack() as stack:
        neighbour = stack.enter_context(Neighbour(server.port))
        begin = time.perf_counter()
        work = ProcessorTime(server)
        for number in range(connections):
            peer = stack.enter_context(_connect(server.port))
            peer.sendall(QUIET)
            for start in range(0, each, 1000):
                lines = (
                    b"SUB m.%d.%d %d\r\n" % (number, n, n)
                    for n in range(start, min(start + 1000, each))
                )
                peer.sendall(b"".join(lines))
            _settle(peer)
            if time.perf_counter() - begin > PART_SECONDS_MAX:
                break
        made = (number + 1) * each
        seconds = time.perf_counter() - begin
        us = work.us_each(made)
        grown = server.resident_mb() - before
        waited = neighbour.longest_ms()
        cost, literal = _matching(server, connections, each)
        neighbour.longest_ms()
        begin = time.perf_counter()
        stack.pop_all().close()
    with _connect(server.port) as peer:
        peer.sendall(QUIET)
        _settle(peer)
    gone = time.perf_counter() - begin
    where = "one connection" if connections == 1 else f"{connections:,} connections"
    yield (
        f"{made:,} subscriptions on {where} | {seconds:.1f} s, {us:.1f} µs of processor time and "
        f"{grown * 1e6 / made:.0f} bytes each; neighbour's PING at most {waited:.0f} ms"
    )
    yield (
        f"a publish among them | {cost:.1f} µs of processor time to a new subject, {literal:.1f} "
        f"to the same one; when they go the next PING takes {gone * 1000:.0f} ms"
    )


def _matching(server: Running, connections: int, each: int) -> tuple[float, float]:
    """Processor time of a publish that one subscription matches: on new subjects, on the same."""
    order = random.Random(1)
    costs = []
    for fresh in (True, False):
        subjects = [
            b"m.%d.%d" % (order.randrange(connections), order.randrange(each))
            if fresh
            else b"m.0.0"
            for _ in range(PUBLISHES)
        ]
        with _connect(server.port) as publisher:
            publisher.sendall(QUIET)
            _settle(publisher)
            work = ProcessorTime(server)
            for start in range(0, PUBLISHES, 500):
                part = subjects[start : start + 500]
                publisher.sendall(b"".join(b"PUB %b 1\r\nx\r\n" % subject for subject in part))
            _settle(publisher)
            costs.append(work.us_each(PUBLISHES))
    return costs[0], costs[1]


# -- sessions with bytes changed -------------------------------------------------------------------


def mutated(server: Running, scale: float) -> list[str]:
    """Sessions of the fuzz targets with bytes changed, one connection for each."""
    count = int(SESSIONS * scale)
    order = random.Random(7)
    seeds = [seed[1:] for seed in sessions.seeds()]
    words = list(sessions.DICTIONARY)
    log_before = len(_log(server))
    with Neighbour(server.port) as neighbour:
        endings: Counter[str] = Counter()
        sizes = [server.resident_mb()]
        begin = time.perf_counter()
        done = 0
        while done < count and time.perf_counter() - begin < 3 * PART_SECONDS_MAX:
            several = [_mutated(order, seeds, words) for _ in range(AT_A_TIME)]
            try:
                endings += _played(server.port, several)
            except ConnectionRefusedError:
                break
            done += AT_A_TIME
            if done % (count // 4 // AT_A_TIME * AT_A_TIME) == 0:
                sizes.append(server.resident_mb())
        seconds = time.perf_counter() - begin
        longest = neighbour.longest_ms()
    said = [line for line in _log(server)[log_before:] if "rror: " in line or "panic" in line]
    alive = server.process is not None and server.process.poll() is None
    faults = sum("Internal error" in line or "panic" in line for line in said)
    if faults:
        print("\n".join(said), file=sys.stderr)
    grown = " → ".join(f"{size:.0f}" for size in sizes)
    return [
        f"{done:,} sessions with bytes changed | {seconds:.0f} s; the server "
        f"{'runs' if alive else 'HAS ENDED'}, {faults} faults in its log; {grown} MB; "
        f"neighbour's PING at most {longest:.0f} ms",
        f"what they were sent last | {_shares(endings)}",
    ]


def _mutated(order: random.Random, seeds: list[bytes], words: list[bytes]) -> bytes:
    data = bytearray(order.choice(seeds))
    for _ in range(order.choice((0, 1, 1, 2, 3, 8))):
        at = order.randrange(len(data) + 1)
        kind = order.randrange(5)
        if kind == 0:
            data[at : at + 1] = order.randbytes(1)
        elif kind == 1:
            data[at:at] = order.choice(words)
        elif kind == 2:
            del data[at : at + order.randrange(1, 20)]
        elif kind == 3:
            start = order.randrange(len(data) + 1)
            data[at:at] = data[start : start + order.randrange(1, 60)]
        else:
            data[at:at] = b"%d" % order.choice((0, -1, 2**31, 2**63, 10**30))
    return bytes(data)


def _played(port: int, several: list[bytes]) -> Counter[str]:
    """What each of the sessions was sent last."""
    selector = selectors.DefaultSelector()
    heard: dict[socket.socket, bytes] = {}
    for data in several:
        peer = _connect(port)
        # No trace is left in the system of thousands of connections that have ended.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with contextlib.suppress(OSError):
            peer.sendall(data + b"PING\r\n")
            peer.shutdown(socket.SHUT_WR)
        peer.setblocking(False)
        heard[peer] = b""
        selector.register(peer, selectors.EVENT_READ)
    endings: Counter[str] = Counter()
    end = time.perf_counter() + SESSIONS_SECONDS_MAX
    while heard and time.perf_counter() < end:
        for key, _ in selector.select(max(end - time.perf_counter(), 0)):
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            try:
                found = peer.recv(CHUNK)
            except OSError:
                found = b""
            heard[peer] = heard[peer][-CHUNK:] + found
            if not found:
                whole = heard[peer].endswith(b"PONG\r\n")
                endings[_error_in(heard[peer]) or ("PONG" if whole else "nothing")] += 1
                selector.unregister(peer)
                peer.close()
                del heard[peer]
    endings["no end"] += len(heard)
    for peer in heard:
        peer.close()
    selector.close()
    return +endings


def _log(server: Running) -> list[str]:
    return Path(server.directory, "log").read_text(errors="replace").splitlines()


# -- the bound that a peer meets, and the error it gets --------------------------------------------


class Bare(Running):
    """A server that is ready when it greets: with some of these bounds nobody may do more."""

    def _wait_ready(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            with contextlib.suppress(OSError), _connect(self.port) as peer:
                if peer.recv(1):
                    return
            time.sleep(0.01)
        raise RuntimeError(f"{self.contender.name} was not ready in time")


@dataclass
class Bound:
    """A bound of the configuration, and how a peer comes to cross it."""

    name: str
    default: str
    config: str
    sent: bytes = b""  # by each connection, one after the other
    connections: int = 1
    seconds: float = 3.0  # that the last connection is listened to
    steps: list[Callable[[socket.socket], None]] = field(default_factory=list)


def _flood(peer: socket.socket) -> None:
    """Be sent far more than one reads."""
    with _connect(peer.getpeername()[1]) as publisher:
        publisher.sendall(QUIET)
        for _ in range(64):
            publisher.sendall(b"PUB deaf %d\r\n%b\r\n" % (1 << 20, bytes(1 << 20)))
        with contextlib.suppress(OSError):
            _settle(publisher)
    time.sleep(FLOOD_SECONDS)


BOUNDS = [
    Bound(
        "`max_connections`", "65,536", "max_connections: 1", QUIET + b"PING\r\n", connections=2
    ),
    Bound("`max_control_line`", "4 KiB", "", QUIET + b"SUB " + b"x" * 5000 + b" 1\r\n"),
    Bound("`max_payload`", "1 MiB", "max_payload: 100", QUIET + b"PUB a 101\r\n"),
    Bound(
        "`max_subscriptions` (`max_subs`)", "no bound", "max_subscriptions: 1",
        QUIET + b"SUB a 1\r\nSUB b 2\r\nPING\r\n",
    ),
    Bound(
        "`max_subscription_tokens`", "no bound", "max_sub_tokens: 2",
        QUIET + b"SUB a.b.c 1\r\nPING\r\n",
    ),
    Bound(
        "`max_pending`", "64 MiB", "max_pending: 1MB\nwrite_deadline: \"30s\"",
        QUIET + b"SUB deaf 1\r\n", steps=[_flood], seconds=8,
    ),
    Bound(
        "`write_deadline`", "10 s", "write_deadline: \"1s\"", QUIET + b"SUB deaf 1\r\n",
        steps=[_flood], seconds=8,
    ),
    Bound(
        "`ping_interval`, `ping_max`", "2 min, 2", "ping_interval: \"1s\"\nping_max: 1", QUIET,
        seconds=8,
    ),
    Bound(
        "`authorization.timeout`", "2 s", "authorization { user: a, password: b, timeout: 1 }",
        seconds=5,
    ),
    Bound(
        "`authorization`", "everybody", "authorization { user: a, password: b }",
        b'CONNECT {"user":"a","pass":"c"}\r\n', seconds=5,
    ),
    Bound(
        "`accounts.limits.max_connections`", "no bound",
        "accounts { A { users: [{user: a, password: b}], limits { max_connections: 1 } } }",
        b'CONNECT {"user":"a","pass":"b","verbose":false}\r\nPING\r\n', connections=2,
    ),
    Bound(
        "`accounts.limits.max_subscriptions`", "no bound",
        "accounts { A { users: [{user: a, password: b}], limits { max_subs: 1 } } }",
        b'CONNECT {"user":"a","pass":"b","verbose":false}\r\nSUB a 1\r\nSUB b 2\r\nPING\r\n',
    ),
    Bound("an operation that there is not", "", "", QUIET + b"HELLO\r\n"),
    Bound("arguments that are wrong", "", "", QUIET + b"PUB a b c d\r\n"),
]  # fmt: skip


def errors(contenders: list[Contender]) -> list[str]:
    """A row for each bound: its name, its default, and what a peer that crosses it is sent."""
    rows = []
    for bound in BOUNDS:
        found = []
        for contender in contenders:
            made = Contender(contender.name, contender.command, bound.config)
            with Bare(made) as server:
                found.append(_crossed(server, bound))
        rows.append(" | ".join([bound.name, bound.default, *found]))
    return rows


def _crossed(server: Running, bound: Bound) -> str:
    with contextlib.ExitStack() as stack:
        for _ in range(bound.connections):
            peer = stack.enter_context(_connect(server.port, 4096 if bound.steps else 0))
            with contextlib.suppress(OSError):
                peer.sendall(bound.sent)
            time.sleep(0.2)
        for step in bound.steps:
            step(peer)
        peer.settimeout(bound.seconds)
        data = b""
        ended = "the connection stays"
        end = time.perf_counter() + bound.seconds
        try:
            while time.perf_counter() < end:
                found = peer.recv(CHUNK)
                if not found:
                    ended = "closed"
                    break
                data = data[-CHUNK:] + found
        except TimeoutError:
            pass
        except OSError:
            ended = "closed"
        said = _error_in(data)
        return f"`{said}`, {ended}" if said else ended


# -- the command -----------------------------------------------------------------------------------

PARTS = {"deaf": deaf, "subscriptions": subscriptions, "sessions": mutated}


def main() -> None:
    """Run the parts that the command line names, all by default, and print their rows."""
    parser = argparse.ArgumentParser(
        prog="bench.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}, errors; all by default")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/limits.md")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the counts")
    arguments = parser.parse_args()
    parts = arguments.parts or [*PARTS, "errors"]
    for part in parts:
        if part not in (*PARTS, "errors"):
            parser.error(f"there is no part {part!r}, only {', '.join(PARTS)}, errors")
    check_installed()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for part in parts:
        lines = _errors_table() if part == "errors" else _table(part, arguments.scale)
        print("\n".join(lines), flush=True)
        if arguments.write:
            _write(part, lines)


def _table(part: str, scale: float) -> list[str]:
    columns = []
    for contender in (SLIPSTREAM, NATS_SERVER):
        with Running(contender) as server:
            columns.append(PARTS[part](server, scale))
    rows = [
        f"| {ours} | {theirs.split(' | ', 1)[1]} |" for ours, theirs in zip(*columns, strict=True)
    ]
    return ["| what a peer does | Slipstream | nats-server |", "|---|---|---|", *rows]


def _errors_table() -> list[str]:
    rows = [f"| {row} |" for row in errors([SLIPSTREAM, NATS_SERVER])]
    return ["| bound | default | Slipstream | nats-server |", "|---|---|---|---|", *rows]


def _write(part: str, lines: list[str]) -> None:
    """Replace a table in the page: it stands between two comments that name it."""
    text = PAGE.read_text()
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}{chr(10).join(lines)}\n{end}{after}")


if __name__ == "__main__":
    main()
