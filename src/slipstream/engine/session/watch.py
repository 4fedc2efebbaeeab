"""Messages that are traced: what a driver of the engine may be told of them.

A publisher that takes part in a trace says so in the message's `traceparent` (W3C Trace Context).
Where `Engine.message_watch` is set, it is told of each such message whose trace is sampled: that a
stream has stored or refused it, and of each of its deliveries. The engine knows nothing of spans,
and the message's headers stay as they are.
"""

import re
from typing import Protocol

import msgspec

from slipstream.model.header_fields import TRACEPARENT, TRACEPARENT_IN_GO, TRACESTATE
from slipstream.wire.headers import find

OPEN_MAX = 10_000  # deliveries, of all consumers, whose end is waited for
_SIZE_MIN = 55  # 00-<32 digits>-<16 digits>-<2 digits>
_LAST_DIGIT = _SIZE_MIN - 1  # of the flags, whose lowest bit says that the trace is sampled
_ODD_DIGITS = b"13579bdf"
# The place of a version that is known, or of a later one, which may have more behind it.
_PARENT = re.compile(
    rb"(?:00|(?!00|ff)([0-9a-f]{2}))-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    rb"(?(1)(?:-.*)?)"
)
_STATE_SIZE_MAX = 512  # bytes that have to be taken, and no more are kept
_STATE_ENTRIES_MAX = 32
_STATE_ENTRY = (
    rb"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_STATE = re.compile(rb"%b(?:[ \t]*,[ \t]*%b)*" % (_STATE_ENTRY, _STATE_ENTRY))

# How a delivery may end.
ACKED = "ack"
NAKED = "nak"
TERMED = "term"
TIMED_OUT = "timeout"  # nothing was heard within the time that the consumer has for that
REPEATED = "redelivered"  # it went out again before that time was over
REMOVED = "removed"  # the message has gone from the stream meanwhile
RESET = "reset"  # the consumer begins elsewhere, or has ended
DELIVERED = "delivered"  # nobody acknowledges it, or too many others are waited for


class TraceContext(msgspec.Struct, frozen=True):
    """A publisher's place in a trace, as its message carries it."""

    parent: str
    state: str = ""


class Publication(msgspec.Struct, kw_only=True):
    """A message that has come to a stream. Times are in ns since the epoch."""

    trace: TraceContext
    account: str
    stream: str
    subject: str
    body_size: int
    message_id: str = ""
    began: int  # when it came
    sequence: int = 0  # under which it is stored; 0: it is not
    is_duplicate: bool = False  # `sequence` is that of the message that it repeats
    error_code: int = 0  # of the API, if it was refused
    error: str = ""


class HandedOut(msgspec.Struct, kw_only=True):
    """One delivery of a stored message. Times are in ns since the epoch."""

    trace: TraceContext
    account: str
    stream: str
    consumer: str
    subject: str
    body_size: int
    sequence: int  # in the stream
    number: int  # how often the message was delivered, this time included
    stored_at: int
    began: int  # when it went out


class MessageWatch(Protocol):
    """What is told of messages that are traced."""

    open: int  # deliveries whose end is waited for; the engine counts them

    def now(self) -> int:
        """ns since the epoch, which may be later than when the turn began."""

    def published(self, publication: Publication) -> None:
        """A message is stored durably, or is not going to be."""

    def delivered(self, delivery: HandedOut, outcome: str, reason: str) -> None:
        """A delivery is over; `reason` is what the client has said of it."""


def sampled_trace(data: bytes, start: int, end: int) -> TraceContext | None:
    """The trace that the header block ``data[start:end]`` names, if it is sampled. Of what is not
    as W3C has it there is nothing: whoever may publish may send anything."""
    parent = find(data, start, end, TRACEPARENT) or find(data, start, end, TRACEPARENT_IN_GO)
    if not parent or len(parent) < _SIZE_MIN or parent[_LAST_DIGIT] not in _ODD_DIGITS:
        return None
    if not _PARENT.fullmatch(parent):
        return None
    place = parent[:_SIZE_MIN].decode("ascii")
    return TraceContext(place, _state(find(data, start, end, TRACESTATE) or b""))


def _state(state: bytes) -> str:
    is_small = len(state) <= _STATE_SIZE_MAX and state.count(b",") < _STATE_ENTRIES_MAX
    return state.decode("ascii") if is_small and _STATE.fullmatch(state) else ""
