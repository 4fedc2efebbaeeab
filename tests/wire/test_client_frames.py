"""What a server makes of a client's bytes: the same frames and errors however they were cut."""

import re
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.wire.client_frames import ClientFrames
from slipstream.wire.operations import (
    BAD_ARGUMENTS,
    CONNECT,
    ERR,
    ERROR_TEXTS,
    INFO,
    LINE_TOO_LONG,
    MORE,
    OK,
    PAYLOAD_TOO_LARGE,
    PING,
    PONG,
    PUB,
    SUB,
    UNKNOWN_OPERATION,
    UNSUB,
)
from tests.fix_nats_server import NatsServer

Frame = tuple[Any, ...]
LINES = {b"sub": SUB, b"unsub": UNSUB, b"connect": CONNECT, b"info": INFO, b"-err": ERR}
BARE = {b"ping": PING, b"pong": PONG, b"+ok": OK}
NAMES = [b"pub", b"hpub", *LINES, *BARE]
WITH_BLANK = {b"pub", b"hpub", b"sub", b"unsub", b"-err"}


def read(reader: ClientFrames, *reads: bytes) -> tuple[list[Frame], int]:
    """The frames in `reads`, and what the reader said last: `MORE` or an error."""
    frames: list[Frame] = []
    last = MORE
    for data in reads:
        reader.feed(data)
        while (last := reader.next()) > 0:
            if last == PUB:
                header = reader.data[reader.header_start : reader.body_start]
                body = reader.data[reader.body_start : reader.end]
                frames.append((PUB, reader.subject, reader.reply, reader.has_header, header, body))
            else:
                frames.append((last, *(reader.args() if last in (SUB, UNSUB) else ())))
                if last in (CONNECT, INFO, ERR):
                    frames[-1] = (last, reader.argument())
        if last < 0:
            break
    return frames, last


def naive(data: bytes, max_control_line: int, max_payload: int) -> tuple[list[Frame], int]:
    """The same by the letter of the protocol, without care for speed."""
    frames: list[Frame] = []
    while data:
        start = data.lower()
        name = next((name for name in NAMES if start.startswith(name)), None)
        if name is None:
            unclear = any(name.startswith(start) for name in NAMES)
            return frames, MORE if unclear else UNKNOWN_OPERATION
        line, end, after = data[len(name) :].partition(b"\n")
        if name in WITH_BLANK and not line and not end:
            return frames, MORE
        if name in WITH_BLANK and line[:1] not in (b" ", b"\t"):
            return frames, UNKNOWN_OPERATION
        args = line.removesuffix(b"\r").lstrip(b" \t")
        if len(args) > max_control_line and name not in BARE:
            return frames, LINE_TOO_LONG
        if not end:
            return frames, MORE
        words = [word for word in re.split(rb"[ \t]+", args) if word]
        data = after
        if name in BARE:
            frames.append((BARE[name],))
        elif name in (b"sub", b"unsub"):
            frames.append((LINES[name], *(w for w in re.split(rb"[ \t\r]+", args) if w)))
        elif name in LINES:
            frames.append((LINES[name], args.strip(b" \t\r")))
        else:
            message = naive_message(words, name == b"hpub", after, max_payload)
            if isinstance(message, int):
                return frames, message
            frames.append(message[0])
            data = message[1]
    return frames, MORE


def naive_message(
    words: list[bytes], has_header: bool, after: bytes, max_payload: int
) -> tuple[Frame, bytes] | int:
    """A message and the bytes after it, `MORE`, or an error."""
    sizes_at = 2 if has_header else 1
    sizes = words[-sizes_at:]
    if len(words) - sizes_at not in (1, 2):
        return BAD_ARGUMENTS
    if not all(re.fullmatch(rb"[0-9]{1,9}", size) for size in sizes):
        return BAD_ARGUMENTS
    header, total = int(sizes[0]) if has_header else 0, int(sizes[-1])
    if header > total:
        return BAD_ARGUMENTS
    if total > max_payload:
        return PAYLOAD_TOO_LARGE
    end = after[total : total + 2]
    if not b"\r\n".startswith(end):
        return UNKNOWN_OPERATION
    if len(end) < 2:
        return MORE
    reply = words[1] if len(words) - sizes_at == 2 else b""
    frame = (PUB, words[0], reply, has_header, after[:header], after[header:total])
    return frame, after[total + 2 :]


def in_any_case(word: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([word, word.upper(), word.title(), word.swapcase()])


BLANKS = st.sampled_from([b" ", b" ", b" ", b"\t", b"  ", b" \t "])
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])
WORDS = st.sampled_from(
    [b"a", b"a.b", b"foo.bar.baz", b"_INBOX.x.1", b"\x00", b"a\rb", b"\xff>", b"\r"]
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A publish that is right."""
    header, body = draw(st.binary(max_size=20)), draw(st.binary(max_size=40))
    words = [draw(WORDS) for _ in range(draw(st.integers(1, 2)))]
    if draw(st.booleans()):
        words = [draw(in_any_case(b"hpub")), *words, b"%d" % len(header)]
    else:
        words, header = [draw(in_any_case(b"pub")), *words], b""
    line = b"".join(word + draw(BLANKS) for word in words) + b"%d" % len(header + body)
    return line + draw(ENDS) + header + body + b"\r\n"


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """An operation that may be right."""
    name = draw(st.sampled_from(NAMES).flatmap(in_any_case))
    words = draw(
        st.lists(st.one_of(WORDS, st.sampled_from([b"1", b"09", b"{}", b"x" * 60])), max_size=4)
    )
    return name + b"".join(draw(BLANKS) + word for word in words) + draw(ENDS)


STREAMS = st.lists(
    st.one_of(messages(), messages(), lines(), lines(), st.binary(max_size=6)), max_size=6
).map(b"".join)


@st.composite
def cut(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream of bytes and the same in pieces."""
    data = draw(STREAMS)
    data = data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return data, [data[i:j] for i, j in zip([0, *at], [*at, len(data)], strict=True)]


@given(cut(), st.sampled_from([12, 40, 4096]), st.sampled_from([30, 1024]))
def test_frames_and_errors_follow_the_protocol_however_the_bytes_are_cut(
    stream: tuple[bytes, list[bytes]], max_control_line: int, max_payload: int
) -> None:
    data, reads = stream
    expected = naive(data, max_control_line, max_payload)
    assert read(ClientFrames(max_control_line, max_payload), data) == expected
    assert read(ClientFrames(max_control_line, max_payload), *reads) == expected
    single = [data[i : i + 1] for i in range(len(data))]
    assert read(ClientFrames(max_control_line, max_payload), *single) == expected


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_arbitrary_bytes_give_only_documented_answers(reads: list[bytes]) -> None:
    last = read(ClientFrames(), *reads)[1]
    assert last == MORE or last in ERROR_TEXTS


# Confirmed against nats-server 2.15.1; `test_nats_server_agrees` does it again.
CASES: list[tuple[bytes, int]] = [
    (b"SUB\r\n", UNKNOWN_OPERATION),
    (b"SUB \r\n", MORE),
    (b"UNSUB\r\n", UNKNOWN_OPERATION),
    (b"PUB\r\n", UNKNOWN_OPERATION),
    (b"PUB \r\n", BAD_ARGUMENTS),
    (b"-ERR\r\n", UNKNOWN_OPERATION),
    (b"-ERRx\r\n", UNKNOWN_OPERATION),
    (b"+OKjunk\r\nPING\r\n", MORE),
    (b"+OX\r\n", UNKNOWN_OPERATION),
    (b"PING" + b"x" * 6000 + b"\r\nPING\r\n", MORE),
    (b"SUB" + b" " * 9000 + b"a 1\r\nPING\r\n", MORE),
    (b"PUB" + b" " * 9000 + b"a 1\r\nx\r\nPING\r\n", MORE),
    (b"PUB a\rb 1\r\nx\r\nPING\r\n", MORE),
    (b"PUB a 1\r\r\nx\r\nPING\r\n", BAD_ARGUMENTS),
    (b"PUX", UNKNOWN_OPERATION),
    (b"PUB a 1\r\nxy", UNKNOWN_OPERATION),
    (b"PUB a 1\r\nx\ry", UNKNOWN_OPERATION),
    (b"PUB a 1\nx\r\nPING\r\n", MORE),
    (b"PUB a 1\nx\n", UNKNOWN_OPERATION),
    (b"PUB a 0000000001\r\nx\r\n", BAD_ARGUMENTS),
    (b"PUB a 000000001\r\nx\r\nPING\r\n", MORE),
    (b"PUB a +1\r\nx\r\n", BAD_ARGUMENTS),
    (b"PUB a -1\r\nx\r\n", BAD_ARGUMENTS),
    (b"PUB a 1 2 3\r\n", BAD_ARGUMENTS),
    (b"PUB a\r\n", BAD_ARGUMENTS),
    (b"HPUB a 4 6\r\nabcdef\r\nPING\r\n", MORE),
    (b"HPUB a 7 6\r\nabcdef\r\nPING\r\n", BAD_ARGUMENTS),
    (b"HPUB a 0 6\r\nabcdef\r\nPING\r\n", MORE),
    (b"HPUB a 6\r\n", BAD_ARGUMENTS),
    (b"HPUB a b c 0 6\r\n", BAD_ARGUMENTS),
    (b"HPUBx", UNKNOWN_OPERATION),
    (b"MSG a 1 1\r\n", UNKNOWN_OPERATION),
    (b"HMSG a 1 0 1\r\n", UNKNOWN_OPERATION),
    (b"PUB\ta\t1 \t \r\nx\r\nPING\r\n", MORE),
    (b"PUB a 1048577\r\n", PAYLOAD_TOO_LARGE),
    (b"HPUB a 5 1048577\r\n", PAYLOAD_TOO_LARGE),
    (b"HPUB a 2000000 1048577\r\n", BAD_ARGUMENTS),
    (b"PUB " + b"a" * 4095 + b" 1\r\nx\r\n", LINE_TOO_LONG),
    (b"PUB " + b"a" * 4094 + b" 1\r\nx\r\nPING\r\n", MORE),
    (b"PUB " + b"a" * 4097, LINE_TOO_LONG),
    (b"SUB " + b"a" * 4096 + b" 1\r\n", LINE_TOO_LONG),
    (b"CONNECT" + b" " * 5000 + b'{"verbose":false}\r\nPING\r\n', MORE),
    (b'CONNECT{"verbose":false}\r\nPING\r\n', MORE),
    (b'CONNECT {"name":"' + b"a" * 4096, LINE_TOO_LONG),
    (b"-ERR " + b"x" * 5000, LINE_TOO_LONG),
    (b"INFO {}\r\nPING\r\n", MORE),
    (b"PIN\r\n", UNKNOWN_OPERATION),
    (b"\r\n", UNKNOWN_OPERATION),
    (b"\nPING\r\n", UNKNOWN_OPERATION),
    (b"pInG\nPING\n", MORE),
    (b"p\xcfng\r\n", UNKNOWN_OPERATION),
    (b"A+ x\r\n", UNKNOWN_OPERATION),
    (b"RS+ x\r\n", UNKNOWN_OPERATION),
    (b"LMSG", UNKNOWN_OPERATION),
    (b"SUB a\rb 7\r\nPING\r\n", MORE),
    (b"SUB a\x0bb 7\r\nPING\r\n", MORE),
]


@pytest.mark.parametrize(("data", "last"), CASES, ids=lambda value: repr(value)[:40])
def test_each_way_to_be_wrong_has_its_own_consequence(data: bytes, last: int) -> None:
    assert read(ClientFrames(), data)[1] == last


def test_nats_server_agrees(shared_nats_server: NatsServer) -> None:
    for data, last in CASES:
        frames = read(ClientFrames(), data)[0]
        if last == MORE and (PING,) not in frames:
            continue  # nothing that one could wait for
        with socket.create_connection(("127.0.0.1", shared_nats_server.port), 10) as client:
            peer = client.makefile("rb")
            assert peer.readline().startswith(b"INFO ")
            client.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
            client.sendall(data)
            answer = peer.readline()
            if last == MORE:
                assert answer == b"PONG\r\n", data
            elif ERROR_TEXTS[last]:
                assert answer == b"-ERR '" + ERROR_TEXTS[last] + b"'\r\n", data
            else:
                assert answer == b"", data


def test_a_flood_on_one_subject_keeps_one_subject_object() -> None:
    reader = ClientFrames()
    reader.feed(b"PUB orders.new 1\r\na\r\nPUB orders.new 1\r\nb\r\nPUB orders.old 1\r\nc\r\n")
    assert reader.next() == PUB
    subject = reader.subject
    assert reader.next() == PUB
    assert reader.subject is subject
    assert reader.next() == PUB
    assert reader.subject == b"orders.old"


def test_a_message_without_reply_does_not_inherit_one() -> None:
    frames, _ = read(ClientFrames(), b"PUB a r 1\r\nx\r\nPUB a 1\r\nx\r\n")
    assert [frame[2] for frame in frames] == [b"r", b""]


def test_an_idle_reader_holds_no_bytes() -> None:
    reader = ClientFrames()
    assert read(reader, b"PUB a 65536\r\n", b"x" * 65536, b"\r\n")[1] == MORE
    assert reader.data == b""


def test_feeding_again_before_all_was_read_loses_nothing() -> None:
    reader = ClientFrames()
    reader.feed(b"PING\r\nPING\r\nPI")
    assert reader.next() == PING
    reader.feed(b"NG\r\nSUB a 1\r\n")
    assert [reader.next() for _ in range(4)] == [PING, PING, SUB, MORE]


def test_a_payload_limit_of_minus_one_is_none() -> None:
    assert read(ClientFrames(max_payload=-1), b"PUB a 999999999\r\n")[1] == MORE
