"""The time, as the engine's driver says it is."""


class Clock:
    """`now` is in ns since the epoch. The server sets it at each turn, a simulator by hand."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
