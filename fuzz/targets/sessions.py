"""Whole sessions: whatever a client sends, both builds answer alike and no neighbour notices."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, on_both, pieces

SECOND = 1_000_000_000
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
DICTIONARY = [
    b"2147483648", b"4294967296", b"9223372036854775808", b'"protocol":',
    b"PUB ", b"HPUB ", b"SUB ", b"UNSUB 1 1\r\n", CONNECT, b"PING\r\n", b"\r\n", b" 0\r\n\r\n",
    b"NATS/1.0\r\n", b"$JS.API.STREAM.INFO.S", b"$JS.API.CONSUMER.MSG.NEXT.S.C", b" in ",
    b"$JS.API.STREAM.CREATE.T", b"$JS.API.CONSUMER.CREATE.S", b"$JS.API.DIRECT.GET.S", b"s.a",
    b"$JS.ACK.S.C.1.1.1.1.0", b"Nats-Msg-Id: 1\r\n", b"Nats-Rollup: all\r\n", b"Nats-TTL: 1s\r\n",
    b"Nats-Expected-Last-Sequence: 1\r\n", b"-NAK", b"+ACK", b"+WPI", b"+NXT", b"+TERM",
    b'{"name":"T","subjects":["t.>"]}', b'{"batch":2,"expires":1000000000}', b"$SYS.", b"_INBOX.",
    b'{"delay":1}', b"$JS.API.STREAM.PURGE.S", b"$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1}',
]  # fmt: skip


def _put(subject: bytes, body: bytes = b"", reply: bytes = b"in", header: bytes = b"") -> bytes:
    if not header:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body)
    block = b"NATS/1.0\r\n" + header + b"\r\n"
    total = len(block) + len(body)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), total, block, body)


def seeds() -> list[bytes]:
    """What clients do, one thing in each."""
    start = b"\0" + CONNECT + b"SUB in 1\r\n"
    api = b"$JS.API."
    durable = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
    push = b'{"stream_name":"S","config":{"deliver_subject":"in","ack_policy":"none"}}'
    return [
        start + b"SUB a.* 2\r\nSUB a.b q 3\r\nPUB a.b 1\r\nx\r\nUNSUB 2 1\r\n"
        b"PUB a.b 1\r\ny\r\nPING\r\n",
        b"\0SUB x 1\r\nPUB x 1\r\nx\r\nPING\r\n",
        b'\0CONNECT {"verbose":true,"pedantic":true,"echo":false,"protocol":1}\r\n'
        b"PUB a..b 0\r\n\r\n",
        start + _put(b"s.a", b"1") + _put(b"s.b", b"2", header=b"Nats-Msg-Id: 1\r\n"),
        start + _put(b"s.a", b"1", header=b"Nats-Expected-Last-Sequence: 1\r\nNats-TTL: 1s\r\n"),
        start + _put(b"s.a", b"1", header=b"Nats-Rollup: sub\r\n"),
        start + _put(api + b"STREAM.INFO.S") + _put(api + b"STREAM.NAMES", b'{"offset":0}'),
        start + _put(api + b"STREAM.CREATE.T", b'{"name":"T","subjects":["t.*"],"max_msgs":1}')
        + _put(b"t.1") + _put(b"t.2") + _put(api + b"STREAM.DELETE.T"),
        start + _put(api + b"CONSUMER.DURABLE.CREATE.S.C", durable)
        + _put(api + b"CONSUMER.MSG.NEXT.S.C", b'{"batch":2,"expires":1000000000}')
        + _put(b"$JS.ACK.S.C.1.1.1.1700000000000000000.0", b"-NAK"),
        start + _put(api + b"CONSUMER.CREATE.S", push) + _put(b"s.c"),
        start + _put(api + b"DIRECT.GET.S", b'{"last_by_subj":"s.a"}')
        + _put(api + b"STREAM.MSG.GET.S", b'{"seq":1}')
        + _put(api + b"STREAM.PURGE.S", b'{"keep":1}'),
    ]  # fmt: skip


def make(plain: Build, compiled: Build) -> OneInput:
    """Play the session to an engine of each build."""
    return on_both(plain, compiled, "slipstream.testing.driver", "what a client is sent", play)


def play(module: Any, data: bytes) -> list[bytes]:
    """What the client and its neighbour are sent, time going by at the end."""
    driver = module.Driver().start()
    neighbour = driver.client()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    config |= {"allow_direct": True, "allow_rollup_hdrs": True, "allow_msg_ttl": True}
    neighbour.api("STREAM.CREATE.S", config)
    neighbour.store("s.a")
    transport = module.RecordingTransport()
    session = driver.engine.open_session(transport, ip="127.0.0.1", port=2)
    choices = Choices(data)
    cut = Choices(choices.some(choices.below(9)))
    for part in pieces(choices.rest(), cut):
        session.receive(part)
        driver.finish()
    driver.advance(3 * SECOND)
    neighbour.transport.written.clear()
    neighbour.send(b"PING\r\n")
    if neighbour.transport.closed or b"PONG\r\n" not in neighbour.transport.written:
        raise Finding("a neighbour's PING is not answered")
    neighbour.take()
    names = neighbour.api("STREAM.NAMES")
    if names.get("total", 0) < 0:
        raise Finding(f"the API is out of order: {names}")
    return [bytes(transport.written), b"%d" % transport.closed, session.close_reason.encode()]
