"""The quick look at expectations says yes only where the thorough one would."""

import pytest

from slipstream.engine.stream.expectations import HOLD, HOLD_WITH_ID, LOOK_CLOSER, all_hold
from slipstream.log.memory_log import MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    """Sequence 1 on `fence`, 2 on `own`."""
    made = MemoryLog()
    for subject in (b"fence", b"own"):
        made.append(subject, b"x", 0, 0, 1, 1)
    return made


def look(log: MemoryLog, *lines: str) -> int:
    """What comes of these header lines, on a message to `own` of the stream S."""
    block = "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, "")).encode()
    data = b"ab" + block + b"Nats-Body: 1\r\n"
    return all_hold(b"S", log, b"own", data, 2, 2 + len(block))


SEQUENCE = "Nats-Expected-Last-Subject-Sequence"


def test_what_holds_needs_no_closer_look(log: MemoryLog) -> None:
    assert look(log, "Kind: x", "Nats-Expected-Stream: S", "Other: Nats-TTL") == HOLD
    assert look(log, f"{SEQUENCE}: 2") == HOLD
    assert look(log, f"{SEQUENCE}:1", f"{SEQUENCE}-Subject:\t fence", "a: b") == HOLD
    assert (
        look(log, f"{SEQUENCE}-Subject: fence", f"{SEQUENCE}: 1", "Nats-Msg-Id: i") == HOLD_WITH_ID
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("Nats-Expected-Stream: T",),
        ("Nats-Expected-Stream:",),
        (f"{SEQUENCE}: 1",),
        (f"{SEQUENCE}: 02x",),
        (f"{SEQUENCE}: 1", f"{SEQUENCE}: 2"),
        (f"{SEQUENCE}: 99999999999999999999",),
        (f"{SEQUENCE}-Subject: fence",),
        (f"{SEQUENCE}: 1", f"{SEQUENCE}-Subject: nobody"),
        (f"{SEQUENCE}: 2", f"{SEQUENCE}-Subject: >"),
        (f"{SEQUENCE}: 0",),
        ("Nats-Expected-Stream: S", "Nats-TTL: 5"),
        ("Nats-Msg-Id",),
        ("nats-x: 1", "Nats-Rollup: sub"),
    ],
)
def test_whatever_is_odd_or_does_not_hold_is_looked_at_closely(
    log: MemoryLog, lines: tuple[str, ...]
) -> None:
    assert look(log, *lines) == LOOK_CLOSER
