"""How a consumer stands, in a word: it delivers, or what keeps it from delivering.

A pull consumer is often asked with pauses in between: only when nothing was delivered for a while
does nobody ask. `slipstream.model.why` says more, and asks the server for it; this needs an info.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from slipstream.client.jetstream import ConsumerInfo

IDLE_SECONDS = 10.0
PAUSED = "paused"
ACKS = "waits for acks"
NO_LISTENER = "nobody listens"
NO_REQUEST = "nobody asks"
DELIVERS = "delivers"


class Standing(NamedTuple):
    """A word, and how much it matters: "bad", "warn", "good", or "" for not at all."""

    word: str
    level: str


def standing(info: ConsumerInfo) -> Standing:
    """How a consumer stands."""
    config = info.config
    if info.paused:
        return Standing(PAUSED, "warn")
    if 0 < config.max_ack_pending <= info.num_ack_pending:
        return Standing(ACKS, "bad")
    if config.deliver_subject and not info.push_bound:
        return Standing(NO_LISTENER, "bad" if info.num_pending else "")
    if not config.deliver_subject and not info.num_waiting and _is_idle(info):
        return Standing(NO_REQUEST, "warn" if info.num_pending else "")
    return Standing(DELIVERS, "good")


def _is_idle(info: ConsumerInfo) -> bool:
    last = info.delivered.last_active
    now = info.ts or datetime.now(UTC)  # the server's clock, where it says what it shows
    return last is None or (now - last).total_seconds() > IDLE_SECONDS
