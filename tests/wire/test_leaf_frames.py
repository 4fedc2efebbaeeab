"""Frames of leaf node connections, however they are cut into reads."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.leaf_frames import LINE_MAX_BYTES, LeafFrames
from slipstream.wire.operations import (
    BAD_ARGUMENTS,
    LINE_TOO_LONG,
    PAYLOAD_TOO_LARGE,
    PUB,
    SUB,
    UNKNOWN_OPERATION,
    UNSUB,
)

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"
STREAM = (
    b'INFO {"a":1}\r\nLS+ foo.*\r\nLS+ bar crew 3\r\nLMSG foo 2\r\nhi\r\nLMSG foo r 0\r\n\r\n'
    b"LMSG foo + r a b 2\r\nhi\r\nLMSG foo | a 2\r\nhi\r\nHMSG foo 18 20\r\n"
    + BLOCK
    + b"hi\r\nHMSG foo + r a b 18 18\r\n"
    + BLOCK
    + b"\r\nLS- foo.*\r\nLS- bar crew\r\nPING\r\nPONG\r\n-ERR 'x'\r\n"
)


def found_in(frames: LeafFrames, pieces: list[bytes]) -> list[object]:
    """Every frame, in words."""
    found: list[object] = []
    for piece in pieces:
        frames.feed(piece)
        while op := frames.next():
            if op == PUB:
                whole = frames.data[frames.header_start : frames.end]
                found.append((frames.subject, frames.reply, frames.queues, whole))
            elif op > 0:
                found.append((op, frames.args() if op in (SUB, UNSUB) else []))
            else:
                return [*found, op]
    return found


def test_each_form_of_a_message_is_understood() -> None:
    found = found_in(LeafFrames(100), [STREAM])
    assert found[1:3] == [(SUB, [b"foo.*"]), (SUB, [b"bar", b"crew", b"3"])]
    assert found[3:9] == [
        (b"foo", b"", None, b"hi"),
        (b"foo", b"r", None, b""),
        (b"foo", b"r", [b"a", b"b"], b"hi"),
        (b"foo", b"", [b"a"], b"hi"),
        (b"foo", b"", None, BLOCK + b"hi"),
        (b"foo", b"r", [b"a", b"b"], BLOCK),
    ]
    assert found[9:11] == [(UNSUB, [b"foo.*"]), (UNSUB, [b"bar", b"crew"])]
    assert len(found) == 14


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_how_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    ends = sorted({0, len(STREAM), *cuts})
    pieces = [STREAM[a:b] for a, b in pairwise(ends)]
    assert found_in(LeafFrames(100), pieces) == found_in(LeafFrames(100), [STREAM])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"LMSG foo 101\r\n", PAYLOAD_TOO_LARGE),
        (b"LMSG foo + r q 101\r\n", PAYLOAD_TOO_LARGE),
        (b"LMSG foo\r\n", BAD_ARGUMENTS),
        (b"LMSG foo x\r\n", BAD_ARGUMENTS),
        (b"LMSG foo - r q 2\r\n", BAD_ARGUMENTS),
        (b"LMSG foo + r q -2\r\n", BAD_ARGUMENTS),
        (b"LMSG foo + r q 99999999999\r\n", BAD_ARGUMENTS),
        (b"HMSG foo 2\r\n", BAD_ARGUMENTS),
        (b"HMSG foo 3 2\r\n", BAD_ARGUMENTS),
        (b"HMSG foo | q 3 2\r\n", BAD_ARGUMENTS),
        (b"LMSG foo 2\r\nhixx", UNKNOWN_OPERATION),
        (b"SUB foo 1\r\n", UNKNOWN_OPERATION),
        (b"PUB foo 1\r\n", UNKNOWN_OPERATION),
        (b"UNSUB 1\r\n", UNKNOWN_OPERATION),
        (b"RMSG foo 1\r\n", UNKNOWN_OPERATION),
        (b"LS+ " + b"x" * (LINE_MAX_BYTES + 1), LINE_TOO_LONG),
        (b"LMSG foo +" + b" q" * LINE_MAX_BYTES, LINE_TOO_LONG),
    ],
)
def test_what_is_wrong_is_named(data: bytes, error: int) -> None:
    assert found_in(LeafFrames(100), [data]) == [error]
    pieces = [data[i : i + 1] for i in range(min(len(data), 64))] + [data[64:]]
    assert found_in(LeafFrames(100), pieces) == [error]


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"LMSG a ", b"LS+ ", b"\r\n", b" 2"])))
def test_garbage_raises_nothing(pieces: list[bytes]) -> None:
    found_in(LeafFrames(100), pieces)
