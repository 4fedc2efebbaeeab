"""What sessions, streams and consumers need of the engine that they belong to.

`Engine` is above all of them, so they know it by this description alone.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from slipstream.engine.commit.commit import Commit
from slipstream.engine.commit.not_yet import NotYetError
from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.loop.clock import Clock
from slipstream.engine.loop.meter import Meter
from slipstream.engine.loop.timers import Delay, Timers
from slipstream.engine.loop.turn import Turn
from slipstream.engine.protocol.group import Group
from slipstream.engine.protocol.options import EngineOptions
from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Route, Subscription
from slipstream.engine.session.watch import MessageWatch
from slipstream.log.cold import ColdError


class OpenBatches:
    """What batches that are not committed take on the whole server."""

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0  # of memory, about
        self.fast = 0  # fast batches


class Host(Protocol):
    """The engine, as those see it that it hosts."""

    clock: Clock
    timers: Timers
    saves: Delay
    turn: Turn
    meter: Meter
    random: Random
    options: EngineOptions
    commit: Commit
    state: StateCommit | None  # keeps configurations and positions, where there is a store
    group: Group | None  # the servers that follow this one; None: it is by itself
    started: int
    server_name: str
    server_id: str
    leaves: Any  # the links to other servers (`engine.leaf`)
    accounts: dict[str, Account]
    default_account: Account
    system_account: Account
    stored: dict[str, int]  # bytes in streams of accounts that are limited, by storage
    staged: OpenBatches
    message_watch: MessageWatch | None  # is told of messages that are traced
    on_problem: Callable[[str], None]  # takes what an operator has to know

    @property
    def is_crowded(self) -> bool:
        """Whether clients have more than half of what they may have pending."""

    def new_id(self) -> str:
        """A 22-character id that does not repeat."""

    def describe(self) -> dict[str, Any]:
        """Which server this is, as events show it."""

    def problem(self, text: str) -> None:
        """Report what an operator has to know about the store of all accounts, once."""

    def resolve(self, text: str) -> None:
        """A problem that was reported is over."""

    # What only the API asks for.

    def must_wait(self) -> bool:
        """Whether API requests have had their share of this round."""

    def queue_request(self, api: Any, message: Inbound, began: int) -> None:
        """Have `api.answer(message, began)` called in a later round."""

    def fetch(self, cold: ColdError, session: Any, done: Callable[[], None]) -> None:
        """Have read from the disk what a request of `session` (None: nobody's) needs; `done` asks
        again. While too many wait, those who ask are not read from."""

    def wait(self, early: NotYetError, session: Any, done: Callable[[], None]) -> None:
        """The same for a request that waits for another job."""

    # What only sessions and their output ask for; a session is a `ClientSession`.

    def admit_without_connect(self, session: Any) -> bool:
        """Whether a client that has not sent CONNECT may go on."""

    def authenticate(self, session: Any) -> None:
        """CONNECT was received: find out who the client is."""

    def send_info(self, session: Any, connected: bool = False) -> None:
        """Send INFO; with `connected`, what is known of the client's account is in it."""

    def max_subscriptions(self, session: Any) -> int:
        """The bound on a session's subscriptions; 0 is none."""

    def trace(self, session: Any, published: bytes, message: Inbound, route: Route) -> int:
        """Dispatch a message with `Nats-Trace-Dest`; -1 if it is to be dispatched like others."""

    def max_payload(self, session: Any) -> int:
        """The bound on a session's messages, in bytes."""

    def flush(self, session: Any) -> None:
        """Write what a session has to send."""

    def session_closed(self, session: Any) -> None:
        """A session is over."""

    def drop_later(self, account: Account, subscriptions: list[Subscription]) -> None:
        """Take closed subscriptions out of their account, bit by bit."""

    def all_sessions(self) -> list[Any]:
        """The clients and the links to other servers."""

    def cut_off(self, session: Any, reason: str) -> None:
        """Be rid of a client that does not keep up, at once: nobody else waits for it."""
