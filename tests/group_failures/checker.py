"""What was answered, compared with what is there. Knows nothing of servers and faults."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests import broken_promises
from tests.group_failures.load import Attempt, Read

Contents = Mapping[int, bytes]  # by sequence


@dataclass
class Verdict(broken_promises.Verdict):
    """The same, and how much was acknowledged."""

    acknowledged: int = 0


def judge(
    attempts: Sequence[Attempt], reads: Sequence[Read], found: Mapping[str, Contents]
) -> Verdict:
    """`found` is what the stream held when each server led, by the server's name. The promises:

    lost      what was acknowledged is there, at its sequence, whoever leads
    twice     what was published once, or with an id, is there at most once
    same      no two messages were acknowledged with one sequence: two leaders would do so
    order     what was sent after an acknowledgement has a later sequence
    stale     who asks for the last sequence after an acknowledgement is told no earlier one
    foreign   nothing is there that nobody has published
    history   all servers have the same
    """
    done = [one for one in attempts if one.sequence]
    verdict = Verdict(acknowledged=len(done))
    bodies = {one.body for one in attempts}
    verdict.add("lost", list(_lost(done, found)))
    verdict.add("twice", list(_twice(found)))
    for name, contents in found.items():
        strange = [body for body in contents.values() if body not in bodies]
        verdict.add("foreign", [f"{name} has {body!r}" for body in strange])
    verdict.add("same", list(_same(done)))
    verdict.add("order", list(_out_of_order(done)))
    verdict.add("stale", list(_stale(done, reads)))
    verdict.add("history", list(_different(found)))
    return verdict


def _said(one: Attempt) -> str:
    return f"{one.body.decode()} was acknowledged as {one.sequence} at {one.ended:.3f}"


def _lost(done: Sequence[Attempt], found: Mapping[str, Contents]) -> Iterator[str]:
    """Each message once, however many servers lack it."""
    for one in done:
        lacking = [name for name, has in found.items() if has.get(one.sequence) != one.body]
        if lacking:
            yield f"{_said(one)}, not in {', '.join(lacking)}"


def _twice(found: Mapping[str, Contents]) -> Iterator[str]:
    """Each message once, however many servers have it so."""
    known: set[bytes] = set()
    for name, contents in found.items():
        first: dict[bytes, int] = {}
        for sequence, body in contents.items():
            if body in first and body not in known:
                known.add(body)
                yield f"{name} has {body.decode()} at {first[body]} and {sequence}"
            first.setdefault(body, sequence)


def _same(done: Sequence[Attempt]) -> Iterator[str]:
    first: dict[int, Attempt] = {}
    for one in done:
        if one.sequence in first:
            yield f"{_said(first[one.sequence])}, and {_said(one)}"
        first.setdefault(one.sequence, one)


def _latest_by_time(done: Sequence[Attempt]) -> tuple[list[float], list[int]]:
    """Times of acknowledgements, and the highest sequence that was acknowledged until each."""
    times, highest, high = [], [], 0
    for one in sorted(done, key=lambda one: one.ended):
        high = max(high, one.sequence)
        times.append(one.ended)
        highest.append(high)
    return times, highest


def _out_of_order(done: Sequence[Attempt]) -> Iterator[str]:
    times, highest = _latest_by_time(done)
    for one in done:
        before = bisect_left(times, one.began)
        if before and highest[before - 1] >= one.sequence:
            yield f"{_said(one)}, sent at {one.began:.3f} after {highest[before - 1]}"


def _stale(done: Sequence[Attempt], reads: Sequence[Read]) -> Iterator[str]:
    times, highest = _latest_by_time(done)
    for read in reads:
        before = bisect_left(times, read.began)
        if before and highest[before - 1] > read.last:
            yield (
                f"at {read.began:.3f} {read.server} said {read.last}, "
                f"after {highest[before - 1]} was acknowledged"
            )


def _different(found: Mapping[str, Contents]) -> Iterator[str]:
    names = list(found)
    for name in names[1:]:
        one, other = found[names[0]], found[name]
        sequences = sorted(
            number for number in one.keys() | other.keys() if one.get(number) != other.get(number)
        )
        if sequences:
            yield (
                f"{names[0]} and {name} differ in {len(sequences)} sequences from {sequences[0]}: "
                f"{one.get(sequences[0])!r} and {other.get(sequences[0])!r}"
            )
