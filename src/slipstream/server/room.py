"""Room for clients: each takes descriptors, and the store, its log and other servers need some.

Who is too many is cut off at once, without a word: whoever reaches the port may come again and
again, and neither a moment to read an error nor a line of the log each may be had for that.
"""

import asyncio
import resource
from typing import cast

from slipstream.server.logger import Logger
from slipstream.server.seldom import Seldom

# Of the descriptors that the process may have, one in so many is not for clients. A server of a
# group keeps files open for its own part, and for those that its leader writes.
RESERVE = 4
RESERVE_IN_GROUP = 2
UNBOUNDED = 2**31  # where the process may open any number


def descriptors_for_clients(reserve: int) -> int:
    """How many of the process' descriptors clients may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - soft // reserve if soft > 0 else UNBOUNDED


class Room:
    """For `most` clients, who are `described` in the log as those that are there already."""

    def __init__(self, most: int, described: str, log: Logger) -> None:
        self.most = most
        self._described = described
        self._log = Seldom(log)

    def refuse(self, transport: asyncio.BaseTransport) -> None:
        """Cut off one for whom there is none."""
        cast(asyncio.Transport, transport).abort()
        self._log.error(
            f"{self.most} clients {self._described}, and there is one more: it is cut off, and "
            "so are others that follow; raise how many files the process may open (LimitNOFILE)"
        )


class Refused(asyncio.Protocol):
    """A connection for which there is no room."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It ends."""
        self._room.refuse(transport)
