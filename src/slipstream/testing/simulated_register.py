"""A store for a register outside of the group, under a seed: slow, away, stale, unsure, or shut.

It has one object, whose versions it keeps, so that a read may show an old one. A put that comes
twice, as clients of stores repeat what was not answered, is carried out twice, each time on its
condition. Before it is carried out it may be lost, or hang for long, and afterwards its answer may.
It may refuse: with an error (`denies`), as of credentials that have run out, or as if the version
were another one (`refused`), as stores do that are asked by two at once.
"""

from collections.abc import Callable
from random import Random

from slipstream.group.outside_register import (
    Answer,
    Changed,
    Failed,
    Found,
    Get,
    Put,
    Request,
    Stored,
)
from slipstream.model.durations import MILLISECOND, SECOND

REQUEST_MAX = SECOND  # after which a driver takes a store that has not answered for away
At = Callable[[int, Callable[[], None]], None]  # have something happen in so many ns


class SimulatedStore:
    """See the module's text; who simulates a group brings it the requests, in real time."""

    def __init__(self, random: Random) -> None:
        self.versions: list[bytes] = [b""]  # the last one is what there is
        self.random = random
        self.is_away = False
        self.calm()

    def calm(self) -> None:
        """Quick, there and sure; reads are not stale."""
        self.is_away = False
        self.denies: tuple[type[Request], ...] = ()
        self.lost = self.unsure = self.doubled = self.stale = 0.0  # shares of the requests
        self.refused = 0.0  # ... of the puts
        self.delay_max = 20 * MILLISECOND

    def worsen(self) -> None:
        """Something is wrong with it from now on."""
        random = self.random
        self.is_away = random.random() < 0.3
        self.lost = random.choice((0.0, 0.1, 0.5))
        self.unsure = random.choice((0.0, 0.2, 0.6))
        self.doubled = random.choice((0.0, 0.3))
        self.stale = random.choice((0.0, 0.3, 0.8))
        self.delay_max = random.choice((5, 50, 500)) * MILLISECOND

    def shut(self) -> None:
        """It refuses from now on: all, what would change it, or now and then."""
        self.denies = self.random.choice(((Get, Put), (Put,), ()))
        self.refused = self.random.choice((0.0, 0.5))

    def delays(self) -> list[int]:
        """After how many ns a request is carried out, once for each time that it is."""
        random = self.random
        if self.is_away or random.random() < self.lost:
            return []
        delay = random.randrange(1, self.delay_max)
        if random.random() < self.unsure / 4:  # it hangs somewhere on the way
            delay += random.randrange(3 * SECOND)
        again = random.randrange(2 * SECOND)
        return [delay, delay + again] if random.random() < self.doubled else [delay]

    def answer_delay(self) -> int | None:
        """After how many ns the answer comes; None if it does not."""
        if self.random.random() < self.unsure:
            return None
        return self.random.randrange(1, self.delay_max)

    def visit(self, request: Request, at: At, answered: Callable[[Answer], None]) -> None:
        """Have a request come, be carried out and answered, `at` some times from now."""

        def carry_out() -> None:
            answer = self.carry_out(request)
            delay = self.answer_delay()
            if delay is not None:
                at(delay, lambda: answered(answer))

        for delay in self.delays():
            at(delay, carry_out)
        at(REQUEST_MAX, lambda: answered(Failed("no answer has come")))

    def carry_out(self, request: Request) -> Answer:
        """What the store does, at once."""
        latest = len(self.versions) - 1
        if isinstance(request, self.denies):
            return Failed("access is denied")
        if isinstance(request, Get):
            is_stale = self.random.random() < self.stale
            seen = self.random.randrange(len(self.versions)) if is_stale else latest
            return Found(self.versions[seen], str(seen))
        is_refused = self.refused > 0 and self.random.random() < self.refused
        if is_refused or request.version != str(latest):
            return Changed()
        self.versions.append(request.data)
        return Stored()
