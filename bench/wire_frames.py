"""How fast the wire's parts are by themselves: ``python -m bench.wire_frames``, in million/s.

Each figure is the median of several rounds.
What calls the parts here is Python; the server calls them from compiled code, which costs less.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from random import Random

from slipstream import build
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.client_frames import ClientFrames
from slipstream.wire.headers import find
from slipstream.wire.nuid import Nuid
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.prefix_cache import PrefixCache
from slipstream.wire.server_frames import ServerFrames
from slipstream.wire.subjects import is_pattern, matches

BODY = b"x" * 128
INBOX = b"_INBOX.AbCdEfGhIjKlMnOpQrStUv.12345"
ACK = b"$JS.ACK.ORDERS.worker.1.12345.12345.1700000000000000000.0"
READ_BYTES = 64 * 1024
ROUNDS = 5


def rate(run: Callable[[], int]) -> float:
    """Million things per second, as `run` counts them."""
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = run()
        rates.append(done / (time.perf_counter() - start) / 1e6)
    return statistics.median(rates)


def reading(reader: ClientFrames | ServerFrames, frame: bytes) -> Callable[[], int]:
    """Frames in reads of 64 KiB, which end within frames as a socket's do."""
    stream = frame * (READ_BYTES * 32 // len(frame))
    reads = [stream[i : i + READ_BYTES] for i in range(0, len(stream), READ_BYTES)]

    def run() -> int:
        following = reader.next
        for data in reads:
            reader.feed(data)
            while following():
                pass
        return len(stream) // len(frame)

    return run


def calling(function: Callable[[bytes], object], arguments: Iterable[bytes]) -> Callable[[], int]:
    """One call for each argument."""
    each = list(arguments)

    def run() -> int:
        for argument in each:
            function(argument)
        return len(each)

    return run


def writing() -> int:
    """MSG frames, taken by the 64 KiB."""
    out = OutBuffer()
    put = out.put_message
    for _ in range(400):
        for _ in range(400):
            put(b"bench.subject", b"12", b"", BODY, 0, 0, 128)
        out.take()
    return 160_000


def busy_trie() -> PatternTrie:
    """A trie as of a server with a hundred streams, their consumers and clients."""
    trie = PatternTrie()
    patterns = [b"$JS.API.>", b"bench.*", INBOX[:-5] + b"*", b"$JS.ACK.ORDERS.worker.>"]
    for i in range(100):
        patterns += [b"stream%d.>" % i, b"$JS.API.CONSUMER.MSG.NEXT.S%d.C" % i]
        patterns += [b"$JS.ACK.S%d.C.>" % i, b"_INBOX.%022d.*" % i]
    for pattern in patterns:
        trie.insert(pattern, pattern)
    return trie


def cached(trie: PatternTrie) -> Callable[[bytes], object]:
    """A lookup as an account makes it."""
    cache = PrefixCache()

    def look_up(subject: bytes) -> None:
        if cache.get(subject) is None:
            cache.put(subject, trie.match(subject), trie)

    for subject in (b"bench.subject", INBOX, ACK):
        look_up(subject)
    return cache.get


def main() -> None:
    trie = busy_trie()
    look_up = cached(trie)
    n = 200_000
    block = b"NATS/1.0\r\nNats-Expected-Stream: S\r\nNats-Msg-Id: 0123456789\r\n\r\n"
    nuid = Nuid(Random(1))
    rows = {
        "read PUB": reading(ClientFrames(), b"PUB bench.subject 128\r\n%b\r\n" % BODY),
        "read PUB with reply": reading(
            ClientFrames(), b"PUB bench.subject %b 128\r\n%b\r\n" % (INBOX, BODY)
        ),
        "read HPUB with reply": reading(
            ClientFrames(), b"HPUB bench.subject %b 28 128\r\n%b\r\n" % (INBOX, BODY)
        ),
        "read MSG": reading(ServerFrames(), b"MSG bench.subject 12 128\r\n%b\r\n" % BODY),
        "read MSG with ack subject": reading(
            ServerFrames(), b"MSG bench.subject 12 %b 128\r\n%b\r\n" % (ACK, BODY)
        ),
        "write MSG": writing,
        "match in a trie": calling(trie.match, [b"bench.subject"] * n),
        "route, subject seen before": calling(look_up, [b"bench.subject"] * n),
        "route, new last token": calling(look_up, (INBOX[:-5] + b"%d" % i for i in range(n))),
        "route, new acknowledgement": calling(
            look_up, (b"$JS.ACK.ORDERS.worker.1.%d.%d.1700000.0" % (i, i) for i in range(n))
        ),
        "match a pattern": lambda: sum(1 for _ in range(n) if matches(b"a.*.c.>", b"a.b.c.d.e")),
        "check a pattern": calling(is_pattern, [b"orders.*.new.>"] * n),
        "find a header": lambda: sum(1 for _ in range(n) if find(block, 0, 61, b"Nats-Msg-Id")),
        "make a NUID": lambda: sum(1 for _ in range(n // 10) if nuid.next()),
    }
    compiled = build.is_compiled("slipstream.wire.client_frames")
    print(f"{'compiled' if compiled else 'plain'} build, million/s")
    for name, run in rows.items():
        print(f"{name:28} {rate(run):8.2f}")


if __name__ == "__main__":
    main()
