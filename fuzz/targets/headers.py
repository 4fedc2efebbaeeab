"""The header parser: both builds find the same, and what is read can be written and read again."""

from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, agree, outcome

DICTIONARY = [
    b"NATS/1.0\r\n", b"NATS/1.0 404 No Messages\r\n", b"\r\n\r\n", b": ", b"Nats-Msg-Id:",
    b"Nats-Expected-", b"Nats-TTL: 1s\r\n", b"\n", b"\xff", b"Nats-Rollup: all\r\n",
]  # fmt: skip
_NAMES = (b"A", b"Nats-Msg-Id", b"Nats-TTL", b"Nats-", b"", b"Nats-Expected-Last-Sequence")
_BLOCKS = [
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\nNats-Msg-Id:1\r\nA:  c \r\n\r\n",
    b"NATS/1.0 404 No Messages\r\nNats-TTL: 5s\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Sequence: 17\r\nempty:\r\n\xff: \xfe\r\n\r\n",
]


def seeds() -> list[bytes]:
    """Blocks, looked at as a whole and in part."""
    return [
        head + block for block in _BLOCKS for head in (b"\0\0\0", b"\1\0\0", b"\2\3\2", b"\3\0\0")
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Look for fields, change them, and parse."""
    modules = [build("slipstream.wire.headers") for build in (plain, compiled)]
    refused = [build("slipstream.errors").ProtocolError for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        choices = Choices(data)
        name = choices.pick(_NAMES)
        before, behind = choices.below(16), choices.below(16)
        block = choices.rest()
        start = min(before, len(block))
        end = max(start, len(block) - behind)
        looked, parsed = [], []
        for module, error in zip(modules, refused, strict=True):
            looked.append(_look(module, block, start, end, name))
            parsed.append(outcome(error, _parse, module, block))
        agree("functions of a header block", looked[0], looked[1])
        agree("a parsed header block", parsed[0], parsed[1])

    return one_input


def _look(module: Any, block: bytes, start: int, end: int, name: bytes) -> list[object]:
    return [
        module.find(block, start, end, name),
        module.count_prefix(block, start, end, name),
        module.without_status(block),
        module.without(block, name, b"A"),
        module.with_fields(block, [(b"X", name)]),
        module.status(block),
    ]


def _parse(module: Any, block: bytes) -> object:
    headers = module.Headers.parse(block)
    again = module.Headers.parse(headers.encode())
    if again != headers:
        raise Finding(f"{headers!r} was written and read as {again!r}")
    return headers.status, headers.description, list(headers.items())
