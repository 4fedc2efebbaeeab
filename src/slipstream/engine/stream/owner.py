"""What a stream needs of the JetStream that owns it, and of the consumers that read it.

Both are above the stream, so it knows them by these descriptions alone.
"""

from collections.abc import Callable
from typing import Any, Protocol

from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.account import Account
from slipstream.engine.session.host import Host
from slipstream.engine.session.message import Inbound
from slipstream.log.durability import Done
from slipstream.log.stream_store import ConfigurationFile


class Owner(Protocol):
    """JetStream of one account, as its streams and their consumers see it."""

    account: Account
    engine: Host
    limits: Any  # what the account may use, as `AccountLimits`
    has_storage_limits: bool
    advisories: Any
    streams: dict[str, Any]  # as `Stream`, by name
    direct_groups: dict[str, Any]  # who answers direct gets, as `DirectGroup`, by stream
    doubts: Any

    @property
    def state(self) -> StateCommit:
        """Keeps configurations and positions; for what is stored in files."""

    @property
    def domain(self) -> str:
        """The JetStream domain; "" when there is none."""

    def ack_head(self, stream: str) -> bytes:
        """The beginning of each publish acknowledgement, up to the sequence."""

    def refusal(self, stream: str, error: ApiError) -> bytes:
        """The answer to a publish that was not stored."""

    def refused_level(self, message: Inbound) -> bool:
        """Whether the message asks for a higher API level than this server has."""

    def stream_of(self, subject: str) -> Any:
        """The stream that stores a literal subject; None if there is none."""

    def find_consumer(self, stream: str, name: str) -> Any:
        """A consumer by name; None if there is none."""

    def check_storage(self, storage: str, size: int) -> None:
        """Whether `size` more bytes may be stored. Raises `ApiError`."""

    def count_bytes(self, storage: str, change: int) -> None:
        """A stream stores so many bytes more, or fewer."""

    def problem(self, text: str) -> None:
        """Report what an operator has to know, once."""

    def resolve(self, text: str) -> None:
        """A problem that was reported is over."""

    def report_damage(self, text: str) -> None:
        """Something that was durable is not there any more, or may be an older one."""

    def check_copies(self, configuration: ConfigurationFile, owner: str) -> None:
        """Report a damaged second copy of a configuration, and have it written anew."""

    def when_kept(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` once all configurations and positions are durable, or cannot be."""

    def unless_stuck(self, wait: Callable[[Done], None]) -> Callable[[Done], None]:
        """`wait`, for who has changed nothing: its callback is also called once `is_stuck`."""

    @property
    def is_stuck(self) -> bool:
        """Whether the disk takes nothing more for now: what there is, is shown all the same."""

    @property
    def is_kept(self) -> bool:
        """Whether that is so of all that was changed at once."""


class Reader(Protocol):
    """A consumer, as the stream that it reads sees it."""

    name: str
    config: Any  # a `ConsumerConfig`
    filters: tuple[bytes, ...]  # empty: every message
    matching: Any  # the log's filter for these
    store: Any  # its files; None in memory
    next_seq: int  # where it goes on
    retains: bool  # an acknowledgement may remove the message

    def stored(self, seq: int) -> None:
        """A message that matches has become visible."""

    def come(self) -> None:
        """The next message of the stream, which it expected, is visible."""

    def removed(self, seq: int) -> None:
        """A message that matches was removed."""

    def lost(self, seq: int) -> bool:
        """A message was removed that was delivered by earlier filters; whether more are out."""

    def front_moved(self) -> bool:
        """The first messages of the stream were removed; whether any are out still."""

    def purged(self, pattern: bytes) -> None:
        """Messages that match `pattern` (b"": all) were purged."""

    def needs(self, seq: int) -> bool:
        """Whether an interest stream must keep a message that matches for it."""

    def wake(self) -> None:
        """Look for something to deliver at the end of the turn."""

    def stop(self, reason: str, delete: bool) -> None:
        """Deliver no more; with `delete` the consumer and its files go."""
