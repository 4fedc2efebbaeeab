"""Frames that become Arrow columns, and Arrow columns that become frames, in both builds."""

import struct
from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, OneInput, agree, outcome

DICTIONARY = [
    b"NATS/1.0\r\n", b"NATS/1.0 204 EOB\r\n", b"Nats-Stream: S\r\n", b"Nats-Subject: a.b\r\n",
    b"Nats-Sequence: 7\r\n", b"Nats-Time-Stamp: 2026-03-01T12:00:00.5Z\r\n", b"\r\n",
    b"Nats-Num-Pending: 3\r\n", b"Nats-Last-Sequence: 0\r\n", b"$JS.ACK.S.c.1.42.5.17.9",
    b"NATS/1.0\r\nSlipstream-Packed: 2\r\n", struct.pack("<QqIIH", 7, 9, 0, 1, 3),
    b"$JS.ACK._.hash.S.c.1.43.6.17.8.x", b"+01:00", b"-23:59", b"9223372036854775807",
]  # fmt: skip
STEPS_MAX = 12
KEY = bytes(range(16))
_DIRECT = (
    b"NATS/1.0\r\nA: b\r\nNats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2026-03-01T12:00:00.5Z\r\nNats-Num-Pending: 3\r\n"
    b"Nats-Last-Sequence: 0\r\n\r\n"
)
_PACKED = (
    b"NATS/1.0\r\nSlipstream-Packed: 1\r\nNats-Num-Pending: 3\r\nNats-Last-Sequence: 0\r\n\r\n"
)
_PACKED_ROW = struct.pack("<QqIIH", 7, 9, 18, 1, 3) + b"a.bNATS/1.0\r\nA: b\r\n\r\nx"
_REPLY = b"$JS.ACK.S.c.1.42.5.1700000000000000001.9"


def seeds() -> list[bytes]:
    """An answer of a direct get, a delivery, and rows on their way out."""
    size = len(_DIRECT).to_bytes(2, "big")
    return [
        bytes([0, 63, 0, 0]) + size + _DIRECT + b"\4body",
        bytes([0, 63, 0, 0])
        + len(_PACKED).to_bytes(2, "big")
        + _PACKED
        + bytes([len(_PACKED_ROW)])
        + _PACKED_ROW,
        bytes([0, 63, 0, 1, 3]) + b"a.b" + bytes([0, len(_REPLY)]) + _REPLY + b"\0\0\4body",
        bytes([0, 63, 0, 1, 3])
        + b"a.b"
        + bytes([0, len(_REPLY)])
        + _REPLY
        + size
        + _DIRECT
        + b"\0",
        bytes([1, 3, *([1, 97, 2, 98, 99, 1, 100, 0] * 3), 1, 4, 9, 9, 9]),
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Do the same with each build."""
    columns = [build("slipstream.client.arrow.columns") for build in (plain, compiled)]
    blocks = [build("slipstream.client.arrow.row_block") for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        if data[:1] and data[0] % 2:
            found = [_rows(module.RowBlock, Choices(data[1:])) for module in blocks]
            agree("RowBlock", found[0], found[1])
        else:
            found = [_columns(module.MessageColumns, Choices(data[1:])) for module in columns]
            agree("MessageColumns", found[0], found[1])

    return one_input


def _columns(kind: Any, choices: Choices) -> list[object]:
    columns = kind(choices.byte() % 64)
    edges = choices.byte()
    columns.ordered = bool(edges & 1)
    if edges & 2:
        columns.last_wanted = 40
    if edges & 4:
        columns.time_end = 1_700_000_000_000_000_000
    found: list[object] = []
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        found.append(_frame(columns, choices))
        found.append([getattr(columns, name) for name in _TOLD])
        if choices.byte() == 255:
            found.append(columns.take())
    found.append(columns.take())
    return found


_TOLD = ("rows", "size", "sequence", "timestamp", "pending", "expected", "after")


def _frame(columns: Any, choices: Choices) -> object:
    if choices.byte() % 2:
        subject, reply = choices.text(20), choices.text(300)
        block, body = choices.text(1000), choices.text(30)
        data, edges = _cut(block, body, choices)
        return outcome(IndexError, columns.add_delivered, subject, reply, data, *edges)
    block, body = choices.text(1000), choices.text(120)
    data, edges = _cut(block, body, choices)
    return outcome(IndexError, columns.add_direct, data, *edges)


def _cut(block: bytes, body: bytes, choices: Choices) -> tuple[bytes, list[int]]:
    """A frame's bytes with something around them, and where it lies there, mostly."""
    data = b"MSG" + block + body + b"\r\n"
    if choices.byte() == 254:
        return data, [choices.signed() % 2**40 - 2**39 for _ in range(3)]
    return data, [3, 3 + len(block), 3 + len(block) + len(body)]


def _rows(kind: Any, choices: Choices) -> list[object]:
    count = choices.byte() % 6
    cells = [[choices.text(12) for _ in range(count)] for _ in range(4)]
    columns = [_column(values, choices) for values in cells]
    subjects = columns[0] if choices.byte() % 2 else b"orders"
    given = [subjects, columns[1], *(choices.pick((column, None)) for column in columns[2:])]
    try:
        block = kind(count, *given)
    except ValueError:
        return ["refused"]
    found: list[object] = []
    digested = choices.byte() % 2
    if digested:
        block.digest(KEY)
        seen: dict[bytes, int] = {}
        block.number_equals(KEY, seen)
        found.append((block.digests, block.sum_low, block.sum_high, sorted(seen.items())))
    block.first_token = choices.below(2**32)
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        found.append(_row_step(block, choices, bool(digested)))
        found.append([getattr(block, name) for name in _COUNTED])
        found.append(bytes(block.states))
    return found


_COUNTED = ("left", "in_flight", "next_row", "sequence", "payload")


def _column(values: list[bytes], choices: Choices) -> tuple[int, bytes, bytes]:
    """A column of Arrow, sometimes with offsets that cannot be right."""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    before = choices.byte() % 3
    offsets = [0] * before + ends
    if choices.byte() == 255:
        offsets[choices.below(len(offsets))] = choices.signed() % 2**31 - 2**30
    start = before if choices.byte() != 255 else choices.signed() % 2**20 - 2**19
    return start, struct.pack(f"={len(offsets)}i", *offsets), b"".join(values)


def _row_step(block: Any, choices: Choices, digested: bool) -> object:
    step, row = choices.below(8), choices.byte() % 8 - 1
    if step <= 2:
        labels = (b"", b"Row: q.", b"Nats-Msg-Id: ") if digested else (b"",)
        lines = choices.pick((b"", b"A: b\r\n"))
        label, most = choices.pick(labels), choices.byte()
        return block.frames(b"_INBOX.x.", lines, label, most, choices.byte() % 4, most * 3)
    if step == 3:
        state = choices.pick((0, 2, 4))
        return bool(block.settle(row, state, choices.below(2**32)))
    if step == 4:
        return outcome(IndexError, block.leave_out, row)
    if step == 5:
        return outcome(IndexError, block.refuse, row)
    if step == 6:
        return block.send_again()
    return block.rewind()
