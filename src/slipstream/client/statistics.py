"""What a connection has carried."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since `connect`; bytes are payloads with their headers."""

    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    reconnects: int
    pending_bytes: int  # wait to be sent now
    subscriptions: int  # now
    dropped: int = 0  # by subscriptions that were full
