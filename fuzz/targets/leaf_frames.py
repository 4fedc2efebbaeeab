"""The frame parser of leaf node connections: whole or in pieces, plain or compiled, it finds the
same."""

from functools import partial
from typing import Any

from fuzz.builds import Build
from fuzz.frames import compare
from fuzz.target import Choices, OneInput

LIMITS = (1024 * 1024, 64, 0)
DICTIONARY = [
    b"LMSG ", b"HMSG ", b"LS+ ", b"LS- ", b"CONNECT {", b"PING\r\n", b"PONG\r\n", b"INFO ",
    b"-ERR ", b"\r\n", b" 0\r\n\r\n", b" 1\r\nx\r\n", b"NATS/1.0\r\n\r\n", b"\t", b" + ", b" | ",
    b" 18 19\r\n", b" 999999999\r\n", b" q1 q2",
]  # fmt: skip
_STREAMS = [
    b'INFO {"nonce":"x"}\r\nLS+ a\r\nLS+ b q 2\r\nLS- b q\r\nPING\r\n',
    b"LMSG a 1\r\nx\r\nLMSG a.b r.s 5\r\nhello\r\nLMSG c 0\r\n\r\n",
    b"LMSG a + r q1 q2 1\r\nx\r\nLMSG a | q 1\r\nx\r\nHMSG a | q 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    b"HMSG a 12 13\r\nNATS/1.0\r\n\r\nx\r\nHMSG a r 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n",
    b"lmsg\ta\t1\nx\r\nPONG\r\n+OK\r\n-ERR 'x'\r\nCONNECT {}\r\n",
]


def seeds() -> list[bytes]:
    """Streams of frames: whole, and cut after some bytes."""
    return [head + stream for stream in _STREAMS for head in (b"\0\0", b"\1\3\1\5\11", b"\2\1\50")]


def make(plain: Build, compiled: Build) -> OneInput:
    """Read the stream with each build, whole and in pieces."""
    kinds = [build("slipstream.wire.leaf_frames").LeafFrames for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        max_payload = choices.pick(LIMITS)
        cut = Choices(choices.some(choices.below(9)))
        parsers = [partial(kind, max_payload) for kind in kinds]
        compare(parsers, choices.rest(), cut, _describe)

    return one_input


def _describe(frames: Any, op: int) -> tuple[object, ...]:
    if op == 1:
        header = frames.data[frames.header_start : frames.body_start]
        body = frames.data[frames.body_start : frames.end]
        return op, frames.has_header, frames.subject, frames.reply, frames.queues, header, body
    if op in (5, 6, 8):
        return (op,)  # they have no arguments
    return op, frames.args(), frames.argument()
