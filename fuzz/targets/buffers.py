"""The buffers on raw memory: what is put is taken, and nothing outside of a slice is touched."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, OneInput, agree, outcome

STEPS_MAX = 40
DICTIONARY = [b"\xc8\0", b"\xc9\0", b"\xf0", b"\xff\xff"]
_LARGE = (0, 1, 20, 500, 5_000, 70_000, 600_000)  # sizes around those where memory is got anew


def seeds() -> list[bytes]:
    """A few steps of each kind."""
    return [bytes([kind, *range(step, step + 30)]) * 3 for kind in range(3) for step in (0, 30, 90)]


def make(plain: Build, compiled: Build) -> OneInput:
    """Do the same with a buffer of each build."""
    out = [build("slipstream.wire.buffer").OutBuffer for build in (plain, compiled)]
    read_buffer = [build("slipstream.wire.read_buffer").ReadBuffer for build in (plain, compiled)]
    whole = [
        build("slipstream.client.object_store.object_bytes").ObjectBytes
        for build in (plain, compiled)
    ]

    def one_input(data: bytes) -> None:
        kind = data[0] % 3 if data else 0
        if kind == 0:
            found = [_out(one(), Choices(data[1:])) for one in out]
        elif kind == 1:
            found = [_read_buffer(one(), Choices(data[1:])) for one in read_buffer]
        else:
            found = [_whole(one, Choices(data[1:])) for one in whole]
        agree(("OutBuffer", "ReadBuffer", "ObjectBytes")[kind], found[0], found[1])

    return one_input


def _bytes(choices: Choices) -> bytes:
    return choices.text(20) + b"x" * choices.pick(_LARGE)


def _out(buffer: Any, choices: Choices) -> list[object]:
    found: list[object] = []
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        step = choices.below(10)
        if step == 0:
            found.append(buffer.put(_bytes(choices)))
        elif step == 1:
            data, start, end = _bytes(choices), choices.signed(), choices.signed()
            found.append(outcome(IndexError, buffer.put_slice, data, start, end))
        elif step == 2:
            found.append(buffer.put_byte(choices.byte()))
        elif step == 3:
            found.append(buffer.put_int(choices.signed()))
        elif step == 4:
            texts = [choices.text(30) for _ in range(3)]
            data = _bytes(choices)
            edges = [choices.signed() for _ in range(3)]
            found.append(outcome(IndexError, buffer.put_message, *texts, data, *edges))
        elif step == 5:
            texts = [choices.text(30) for _ in range(3)]
            found.append(buffer.put_publish(*texts, _bytes(choices)))
        elif step == 6:
            texts = [choices.text(30) for _ in range(3)]
            found.append(buffer.put_publish_start(*texts, choices.below(2**31)))
        elif step == 7:
            found.append(buffer.clear())
        else:
            found.append(buffer.take())
        found.append(buffer.size)
    found.append(buffer.take())
    return found


def _read_buffer(read_buffer: Any, choices: Choices) -> list[object]:
    found: list[object] = []
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        if choices.below(4) == 0:
            start, size = choices.text(40), choices.below(300_000)
            found.append(outcome(ValueError, read_buffer.expect, start, size))
        room = read_buffer.room()
        found.append(len(room))
        count = choices.pick((len(room), 0, 1, len(room) // 2, len(room) + 1, -1))
        fill = choices.byte()
        if count > 0:
            usable = min(count, len(room))
            room[:usable] = bytes([fill]) * usable
        found.append(outcome(IndexError, read_buffer.take, count))
    return found


def _whole(kind: Any, choices: Choices) -> list[object]:
    found: list[object] = []
    whole = kind(choices.pick((0, 1, 100, 70_000)))
    for _ in range(STEPS_MAX):
        if not choices.left():
            break
        chunk = _bytes(choices)
        place = outcome(ValueError, whole.put, memoryview(chunk))
        found.append(bytes(place) if isinstance(place, memoryview) else place)
        found.append(outcome(ValueError, whole.take))
    return found
