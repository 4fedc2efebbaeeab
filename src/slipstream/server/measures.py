"""How long things take in a running server, as histograms for `/metrics`.

Each is counted once for a turn, a batch or an API request, never for a single message: a count is a
bisection and two additions.
"""

from time import perf_counter_ns

from slipstream.engine.loop.meter import Meter
from slipstream.server.histogram import Histogram


class Measures(Meter):
    """All that a server measures."""

    def __init__(self) -> None:
        self.sync = Histogram()  # of a batch: written and synced
        self.publish = Histogram()  # of a message: from its turn to its acknowledgement
        self.request = Histogram()  # of an API request: until it is answered
        self.turn = Histogram()

    def begin(self) -> int:
        return perf_counter_ns()

    def answered(self, began: int) -> None:
        self.request.add(perf_counter_ns() - began)
