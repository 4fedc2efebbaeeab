"""The frame parser of the client: what a server may send, whole or in pieces, in both builds."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, OneInput, agree, pieces

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

# In pieces it may come later: the end of a payload is looked at when all of it is there.
WRONG = -1


def seeds() -> list[bytes]:
    """Streams of frames: whole, and cut after some bytes."""
    return [head + stream for stream in _STREAMS for head in (b"\0", b"\3\1\5\11", b"\1\50")]


def make(plain: Build, compiled: Build) -> OneInput:
    """Read the stream with each build, whole and in pieces."""
    kinds = [build("slipstream.wire.server_frames").ServerFrames for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        cut = Choices(choices.some(choices.below(9)))
        stream = choices.rest()
        parts = pieces(stream, cut)
        whole = [read(kind(), [stream]) for kind in kinds]
        agree("a stream that is fed whole", whole[0], whole[1])
        for kind in kinds:
            found = read(kind(), parts)
            if found != whole[0][:-1] or whole[0][-1:] != [WRONG]:
                agree("a stream that is fed in pieces", whole[0], found)

    return one_input


def read(frames: Any, parts: list[bytes]) -> list[object]:
    """Every frame in `parts`, up to an error."""
    found: list[object] = []
    for part in parts:
        frames.feed(part)
        while (op := frames.next()) > 0:
            found.append(_describe(frames, op))
        if op < 0:
            found.append(op)
            break
    return found


def _describe(frames: Any, op: int) -> tuple[object, ...]:
    if op != 1:
        return op, frames.argument()
    header = frames.data[frames.header_start : frames.body_start]
    body = frames.data[frames.body_start : frames.end]
    return op, frames.sid, frames.subject, frames.reply, header, body
