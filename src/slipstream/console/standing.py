"""How a consumer stands, in a word: it delivers, or what keeps it from delivering.

What keeps it is found by `slipstream.model.why`, here from the info of a consumer alone. A pull
consumer is often asked with pauses in between: only when nothing was delivered for a while does it
say that nobody asks.
"""

from typing import NamedTuple

from slipstream.client.jetstream import ConsumerInfo
from slipstream.client.jetstream.why import facts_of
from slipstream.model.durations import SECOND
from slipstream.model.why import ReasonCode, reasons

IDLE_NS = 10 * SECOND
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
    facts = facts_of(info)
    blocking = {reason.code for reason in reasons(facts) if reason.blocks}
    if ReasonCode.PAUSED in blocking:
        return Standing(PAUSED, "warn")
    if ReasonCode.MAX_ACK_PENDING in blocking:
        return Standing(ACKS, "bad")
    if ReasonCode.NO_INTEREST in blocking:
        return Standing(NO_LISTENER, "bad" if facts.num_pending else "")
    if ReasonCode.NOBODY_ASKS in blocking and facts.now - facts.delivered_at > IDLE_NS:
        return Standing(NO_REQUEST, "warn" if facts.num_pending else "")
    return Standing(DELIVERS, "good")
