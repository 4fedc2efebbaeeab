"""The frame parser of the client: what a server may send, whole or in pieces, in both builds."""

from typing import Any

from fuzz.builds import Build
from fuzz.frames import compare
from fuzz.target import Choices, OneInput

DICTIONARY = [
    b"MSG ", b"HMSG ", b"PING\r\n", b"PONG\r\n", b"INFO {}\r\n", b"+OK\r\n", b"-ERR '", b"\r\n",
    b" 0\r\n\r\n", b" 1 1\r\nx\r\n", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n",
    b"999999999999999999", b"  ",
]  # fmt: skip
_STREAMS = [
    b'INFO {"server_id":"x"}\r\nPING\r\nPONG\r\n+OK\r\n-ERR \'Slow Consumer\'\r\n',
    b"MSG a 1 1\r\nx\r\nMSG a.b 22 r.s 5\r\nhello\r\nMSG c 3 0\r\n\r\n",
    b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\nHMSG a 1 r 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n",
    b"msg\ta\t1  0\n\r\nHMSG a 1  16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
]


def seeds() -> list[bytes]:
    """Streams of frames: whole, and cut after some bytes."""
    return [head + stream for stream in _STREAMS for head in (b"\0", b"\3\1\5\11", b"\1\50")]


def make(plain: Build, compiled: Build) -> OneInput:
    """Read the stream with each build, whole and in pieces."""
    kinds = [build("slipstream.wire.server_frames").ServerFrames for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        cut = Choices(choices.some(choices.below(9)))
        compare(kinds, choices.rest(), cut, _describe)

    return one_input


def _describe(frames: Any, op: int) -> tuple[object, ...]:
    if op != 1:
        return op, frames.argument()
    header = frames.data[frames.header_start : frames.body_start]
    body = frames.data[frames.body_start : frames.end]
    return op, frames.sid, frames.subject, frames.reply, header, body
