"""How bugs are planted into the simulation, and looked for."""

from collections.abc import Callable
from typing import Any

from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulation import Simulation

STEPS = 200
SEEDS_UNTIL_FOUND = 60


def found(simulate: Callable[[int], Simulation]) -> str:
    """The first violation that a few seeds come upon."""
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            simulate(seed).run(STEPS)
        except ViolationError as error:
            return str(error)
    return "nothing"


class LazyFile:
    """Planted: a file that is not synced; for the rest it is what it is."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        """Do nothing."""
