"""The frame parser of the server: whole or in pieces, plain or compiled, it finds the same."""

from functools import partial
from typing import Any

from fuzz.builds import Build
from fuzz.frames import compare
from fuzz.target import Choices, OneInput

LIMITS = ((4096, 1024 * 1024), (20, 64), (300, -1))
DICTIONARY = [
    b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT {", b"PING\r\n", b"PONG\r\n", b"INFO ",
    b"+OK\r\n", b"-ERR ", b"\r\n", b" 0\r\n\r\n", b" 1\r\nx\r\n", b"NATS/1.0\r\n\r\n", b"\t",
    b" 18 19\r\n", b" 999999999\r\n", b"0000000001",
]  # fmt: skip
_STREAMS = [
    b'CONNECT {"verbose":false}\r\nSUB a 1\r\nSUB b q 2\r\nUNSUB 1 5\r\nPING\r\n',
    b"PUB a 1\r\nx\r\nPUB a.b r.s 5\r\nhello\r\nPUB c 0\r\n\r\n",
    b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\nHPUB a r 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n",
    b"pub\ta\t1\nx\r\nPONG\r\n+OK\r\n-ERR 'x'\r\nINFO {}\r\n",
    b"SUB " + b"x" * 30 + b" 1\r\n",
    b"PUB a 0 \r\n\r\nSUB a  1 \r\nPINGxx\r\n",
]


def seeds() -> list[bytes]:
    """Streams of frames: whole, and cut after some bytes."""
    return [head + stream for stream in _STREAMS for head in (b"\0\0", b"\1\3\1\5\11", b"\2\1\50")]


def make(plain: Build, compiled: Build) -> OneInput:
    """Read the stream with each build, whole and in pieces."""
    kinds = [build("slipstream.wire.client_frames").ClientFrames for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        limits = choices.pick(LIMITS)
        cut = Choices(choices.some(choices.below(9)))
        parsers = [partial(kind, *limits) for kind in kinds]
        compare(parsers, choices.rest(), cut, _describe)

    return one_input


def _describe(frames: Any, op: int) -> tuple[object, ...]:
    if op == 1:
        header = frames.data[frames.header_start : frames.body_start]
        body = frames.data[frames.body_start : frames.end]
        return op, frames.has_header, frames.subject, frames.reply, header, body
    if op in (5, 6, 8):
        return (op,)  # they have no arguments
    return op, frames.args(), frames.argument()
