"""NUIDs: 22-character names that do not repeat, as NATS's clients and servers make them."""

from random import Random

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE = len(DIGITS)
_PREFIX_SIZE = 12
_COUNTER_SIZE = 10
_COUNTER_MAX = _BASE**_COUNTER_SIZE
_STEP_MIN = 33
_STEP_MAX = 333


class Nuid:
    """A generator: a random prefix and a counter that climbs in random steps."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._renew()

    def _renew(self) -> None:
        self._prefix = "".join(self._random.choices(DIGITS, k=_PREFIX_SIZE))
        self._counter = self._random.randrange(_COUNTER_MAX)
        self._step = self._random.randrange(_STEP_MIN, _STEP_MAX)

    def next(self) -> str:
        """A new name."""
        self._counter += self._step
        if self._counter >= _COUNTER_MAX:
            self._renew()
        rest = self._counter
        digits = []
        for _ in range(_COUNTER_SIZE):
            rest, digit = divmod(rest, _BASE)
            digits.append(DIGITS[digit])
        return self._prefix + "".join(reversed(digits))
