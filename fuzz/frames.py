"""What the targets of both frame parsers share: a stream is read, and what is found compared."""

from collections.abc import Callable
from typing import Any

import slipstream.wire.operations as operations
from fuzz.target import Choices, agree, pieces

# In pieces it may come later: the end of a payload is looked at when all of it is there.
_MAY_COME_LATER = ([operations.UNKNOWN_OPERATION], [operations.MALFORMED])

Describe = Callable[[Any, int], tuple[object, ...]]  # of a frame: what it holds, by its operation


def compare(parsers: list[Callable[[], Any]], stream: bytes, cut: Choices, say: Describe) -> None:
    """Read `stream` with a new parser of each build, whole and cut in pieces. Raises `Finding`."""
    parts = pieces(stream, cut)
    whole = [read(parser(), [stream], say) for parser in parsers]
    agree("a stream that is fed whole", whole[0], whole[1])
    for parser in parsers:
        found = read(parser(), parts, say)
        if found != whole[0][:-1] or whole[0][-1:] not in _MAY_COME_LATER:
            agree("a stream that is fed in pieces", whole[0], found)


def read(frames: Any, parts: list[bytes], say: Describe) -> list[object]:
    """Every frame in `parts`, up to an error."""
    found: list[object] = []
    for part in parts:
        frames.feed(part)
        while (op := frames.next()) > 0:
            found.append(say(frames, op))
        if op < 0:
            found.append(op)
            break
    return found
