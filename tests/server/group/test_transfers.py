"""Whom a server asks for a checkpoint, and when; how fast one is sent."""

from typing import cast

from slipstream.group import Member, Message
from slipstream.group.messages import AskCheckpoint, CheckpointOver
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.server.group.transfers import AT_REST, RATE, RETRY, Transfers, _Pace
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions
from tests.server.group.hosts import Lines
from tests.server.group.owner import Owner


class Lacking:
    """A member that needs a checkpoint of n2, or of n3."""

    failed = ""

    def checkpoint_sources(self) -> tuple[str, ...]:
        return ("n2", "n3")


async def test_a_server_is_asked_once_there_is_a_link_to_it() -> None:
    """A question without a link is lost, and its answer would be waited for in vain."""
    sent: list[tuple[str, Message]] = []
    linked: set[str] = set()
    transfers = Transfers(
        cast(Member, Lacking()),
        Owner(),
        lambda receiver, message: sent.append((receiver, message)),
        linked.__contains__,
        lambda: None,
        lambda: 0,
        Logger(Lines(), LoggingOptions()),
    )
    transfers.tick(0)
    assert not sent
    linked.add("n2")
    transfers.tick(1)
    ((receiver, message),) = sent
    assert receiver == "n2"
    assert isinstance(message, AskCheckpoint)
    linked.add("n3")
    transfers.received("n2", CheckpointOver(message.transfer))  # it has none
    transfers.tick(2 * RETRY)
    assert sent[-1][0] == "n3"
    assert isinstance(sent[-1][1], AskCheckpoint)
    assert sent[-1][1].after == 0
    transfers.unlinked("n3")
    transfers.tick(4 * RETRY)
    assert sent[-1][0] == "n2"


def rate_of(pace: _Pace, clock: list[int], end: list[int], entries: int, count: int = 200) -> float:
    """Bytes a second of pieces of 512 KiB that take 1 ms each, while the log gets `entries` with
    each of them."""
    begin, size = clock[0], 512 * 1024
    for _ in range(count):
        clock[0] += MILLISECOND
        end[0] += entries
        clock[0] += int(pace.after(size) * SECOND)
    return count * size * SECOND / (clock[0] - begin)


def test_a_source_with_entries_to_see_to_takes_its_time() -> None:
    clock, end = [0], [7]
    pace = _Pace(RATE, lambda: end[0], lambda: clock[0])
    at_rest = rate_of(pace, clock, end, 0)
    assert at_rest > 4 * RATE
    assert 0.9 * RATE < rate_of(pace, clock, end, 1) < 1.05 * RATE
    clock[0] += AT_REST
    assert rate_of(pace, clock, end, 0) == at_rest


def test_a_piece_that_was_held_up_is_not_made_up_for() -> None:
    clock, end = [0], [7]
    pace = _Pace(RATE, lambda: end[0], lambda: clock[0])
    rate_of(pace, clock, end, 1)
    clock[0] += 10 * SECOND
    assert rate_of(pace, clock, end, 1) < 1.05 * RATE
