"""Whom a server asks for a checkpoint, and when."""

from typing import cast

from slipstream.group import Member, Message
from slipstream.group.messages import AskCheckpoint
from slipstream.server.group.transfers import Transfers
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions
from tests.server.group.hosts import Lines
from tests.server.group.owner import Owner


class Lacking:
    """A member that needs a checkpoint of n2."""

    def checkpoint_source(self) -> str:
        return "n2"


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
