"""What a client makes of a server's bytes: the same frames however they were cut."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.buffer import OutBuffer
from slipstream.wire.operations import (
    ERR,
    INFO,
    MALFORMED,
    MORE,
    MSG,
    OK,
    PING,
    PONG,
)
from slipstream.wire.server_frames import LINE_MAX_BYTES, ServerFrames

Frame = tuple[Any, ...]
LINES = {b"ping": PING, b"pong": PONG, b"+ok": OK, b"-err": ERR, b"info": INFO}


def read(reader: ServerFrames, *reads: bytes) -> tuple[list[Frame], int]:
    """The frames in `reads`, and what the reader said last: `MORE` or `MALFORMED`."""
    frames: list[Frame] = []
    last = MORE
    for data in reads:
        reader.feed(data)
        while (last := reader.next()) > 0:
            if last == MSG:
                header = reader.data[reader.header_start : reader.body_start]
                body = reader.data[reader.body_start : reader.end]
                frames.append((MSG, reader.subject, reader.sid, reader.reply, header, body))
            else:
                frames.append((last, reader.argument() if last in (INFO, ERR) else b""))
        if last < 0:
            break
    return frames, last


@st.composite
def frames_and_bytes(draw: st.DrawFn) -> tuple[Frame, bytes]:
    """A frame and how a server may write it."""
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n"]))
    if draw(st.booleans()):
        name = draw(st.sampled_from(list(LINES)))
        text = draw(st.sampled_from([b'{"a":1}', b"'Stale Connection'", b"{}"]))
        text = text if name in (b"info", b"-err") else b""
        line = name.upper() + (b" " + text if text else b"") + draw(st.sampled_from([b"", b" "]))
        return (LINES[name], text), line + end
    subject = draw(st.sampled_from([b"a", b"orders.new", b"_INBOX.x.1", b"\xc3\xa9"]))
    reply = draw(st.sampled_from([b"", b"", b"r", b"$JS.ACK.S.C.1.2.3.4.5"]))
    sid = draw(st.integers(0, 10**18 - 1))
    header, body = draw(st.sampled_from([b"", b"NATS/1.0\r\n\r\n"])), draw(st.binary(max_size=40))
    # A server may write an empty reply as nothing between two blanks.
    around = b" " + reply + b" " if reply else draw(st.sampled_from([b" ", b"  ", b" \t"]))
    sizes = b"%d %d" % (len(header), len(header + body)) if header else b"%d" % len(body)
    name = b"HMSG " if header else b"MSG "
    data = name + subject + b" %d" % sid + around + sizes + end + header + body + b"\r\n"
    return (MSG, subject, sid, reply, header, body), data


@given(st.lists(frames_and_bytes(), max_size=6), st.lists(st.integers(0, 600), max_size=10))
def test_frames_are_found_however_the_bytes_are_cut(
    written: list[tuple[Frame, bytes]], cuts: list[int]
) -> None:
    data = b"".join(piece for _, piece in written)
    expected = [frame for frame, _ in written]
    at = sorted(min(i, len(data)) for i in cuts)
    reads = [data[i:j] for i, j in zip([0, *at], [*at, len(data)], strict=True)]
    assert read(ServerFrames(), data) == (expected, MORE)
    assert read(ServerFrames(), *reads) == (expected, MORE)
    assert read(ServerFrames(), *(data[i : i + 1] for i in range(len(data)))) == (expected, MORE)


@given(st.lists(st.one_of(st.binary(max_size=30), frames_and_bytes().map(lambda f: f[1][:-1]))))
def test_arbitrary_bytes_give_only_documented_answers(reads: list[bytes]) -> None:
    assert read(ServerFrames(), *reads)[1] in (MORE, MALFORMED)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"MSG a 1\r\n",
        b"MSG a x 1\r\n",
        b"MSG a 1 r q 1\r\n",
        b"MSGa 1 1\r\n",
        b"MSG a 1 0000000001\r\n",
        b"MSG a 1 1\r\nab",
        b"MSG a 1 1\r\na\rb",
        b"HMSG a 1 3 2\r\n",
        b"HMSG a 1 2\r\n",
        b"PUB a 1\r\n",
        b"PINK\r\n",
        b"+OX",
        b"-ERX",
        b"INFX",
    ],
)
def test_what_no_server_sends_is_malformed(data: bytes) -> None:
    assert read(ServerFrames(), data)[1] == MALFORMED


def test_a_line_without_an_end_is_not_gathered_for_ever() -> None:
    reads = [b"INFO "] + [b"x" * 65536] * (LINE_MAX_BYTES // 65536 + 1)
    assert read(ServerFrames(), *reads)[1] == MALFORMED


def test_an_idle_reader_holds_no_bytes() -> None:
    reader = ServerFrames()
    assert read(reader, b"MSG a 1 65536\r\n", b"x" * 65536, b"\r\n")[1] == MORE
    assert reader.data == b""


@given(st.binary(min_size=1, max_size=300), st.binary(max_size=30), st.integers(0, 10**9))
def test_what_a_server_writes_a_client_reads(body: bytes, header: bytes, sid: int) -> None:
    out = OutBuffer()
    data = header + body
    out.put_message(b"a.b", b"%d" % sid, b"r", data, 0, len(header), len(data))
    written = out.take()
    assert re.match(rb"HMSG" if header else rb"MSG", written)
    assert read(ServerFrames(), written) == ([(MSG, b"a.b", sid, b"r", header, body)], MORE)
