"""Lines of the log that clients bring about, as often as they like: each is said now and then."""

import time

from slipstream.server.logger import Logger

SECONDS = 10.0  # between two lines, at the least


class Seldom:
    """Lines of one kind."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._silent_until = 0.0  # of the monotonic clock

    def error(self, text: str) -> None:
        """Log an error, unless one was logged a moment ago."""
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + SECONDS
            self._log.error(text)
