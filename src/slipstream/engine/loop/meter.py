"""What a driver of the engine may measure. The engine itself has no clock but the turn's."""


class Meter:
    """Measures nothing. A driver sets `Engine.meter` to one of its own."""

    def begin(self) -> int:
        """Something begins; what is returned comes back when it ends."""
        return 0

    def answered(self, began: int) -> None:
        """An API request that began then has its answer."""
