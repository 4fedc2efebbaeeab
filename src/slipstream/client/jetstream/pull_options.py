"""How much to pull at a time, and how the requests say so (spec consumers.md section 6).

The defaults are nats.go's: at most 500 messages held, asked for again when half of them are gone,
requests that live for 30 s with a heartbeat each 15 s.
"""

from datetime import timedelta
from math import ceil
from typing import TypedDict

import msgspec

from slipstream.client.jetstream.document import to_nanoseconds, to_seconds

# What stands for "no bound" on messages where the bound is on bytes.
BATCH_UNBOUNDED = 1_000_000
MAX_MESSAGES = 500
EXPIRES = 30.0
HEARTBEAT_MAX = 30.0
HEARTBEAT_OF_FETCH = 5.0
EXPIRES_WITH_HEARTBEAT = 10.0  # a fetch shorter than this has no heartbeat


class GroupOptions(TypedDict, total=False):
    """Keywords for a consumer with priority groups (consumers.md section 6.2).

    group: the priority group; required with them.
    min_pending, min_ack_pending: "overflow" serves the request only from this many on.
    priority: 0 (first) to 9, with "prioritized".
    """

    group: str
    min_pending: int
    min_ack_pending: int
    priority: int


class Pin:
    """What a consumer's handle knows of the pin of its priority group; `id` is "" without one.

    The server tells the id with each message, and serves only requests that give it back. So all
    that pulls through one handle shares it.
    """

    def __init__(self) -> None:
        self.id = ""

    def lose(self, id: str) -> None:
        """A request with `id` was refused: the pin has gone to another client."""
        if self.id == id:
            self.id = ""


class PullOptions(TypedDict, total=False):
    """Keywords of `messages` and `consume`.

    max_messages: how many are asked for and held at most (500; with max_bytes 1,000,000).
    max_bytes: how many bytes are asked for and held at most (0: no bound).
    expires: seconds that a request lives (30).
    heartbeat: seconds between heartbeats (half of `expires`, at most 30; 0 for none).
    threshold_messages, threshold_bytes: ask again when less is held and asked for (half).
    stop_after: end after this many messages.
    max_consecutive_503: end with `NoConsumerResponseError` when nobody answers so many times in a
        row, though the consumer was not deleted (0: go on for ever).
    group, min_pending, min_ack_pending, priority: see `GroupOptions`.
    """

    max_messages: int
    max_bytes: int
    expires: float | timedelta
    heartbeat: float | timedelta
    threshold_messages: int
    threshold_bytes: int
    stop_after: int
    max_consecutive_503: int
    group: str
    min_pending: int
    min_ack_pending: int
    priority: int


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """`PullOptions` with every default filled in, and checked."""

    max_messages: int
    max_bytes: int
    expires: float
    heartbeat: float
    threshold_messages: int
    threshold_bytes: int
    stop_after: int
    group: GroupOptions
    max_consecutive_503: int = 0

    @classmethod
    def of(cls, options: PullOptions, heartbeat_default: float | None = None) -> "Pull":
        """Fill in and check; raises ValueError for what cannot be, TypeError for what is not."""
        known = set(PullOptions.__annotations__)
        unknown = set(options) - known
        if unknown:
            raise TypeError(f"pulling has no option {', '.join(sorted(unknown))}")
        max_bytes = options.get("max_bytes", 0)
        max_messages = options.get("max_messages", BATCH_UNBOUNDED if max_bytes else MAX_MESSAGES)
        expires = to_seconds(options.get("expires", EXPIRES))
        heartbeat = options.get("heartbeat", heartbeat_default)
        beat = min(expires / 2, HEARTBEAT_MAX) if heartbeat is None else to_seconds(heartbeat)
        if max_messages < 1 or max_bytes < 0:
            raise ValueError("max_messages is 1 or more, max_bytes 0 or more")
        if expires < 1:
            raise ValueError(f"expires is 1 second or more, not {expires}")
        if beat < 0 or beat > expires / 2:
            raise ValueError(f"heartbeat is at most half of expires ({expires} s), not {beat} s")
        counts = "max_messages" in options or not max_bytes
        low = options.get("threshold_messages", ceil(max_messages / 2) if counts else 0)
        low_bytes = options.get("threshold_bytes", ceil(max_bytes / 2))
        if low > max_messages or low_bytes > max_bytes:
            raise ValueError("a threshold is not above its maximum")
        return cls(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=beat,
            threshold_messages=low,
            threshold_bytes=low_bytes,
            stop_after=options.get("stop_after", 0),
            group=group_of(options),
            max_consecutive_503=options.get("max_consecutive_503", 0),
        )

    @classmethod
    def once(
        cls, count: int, *, expires: float, heartbeat: float, max_bytes: int, group: GroupOptions
    ) -> "Pull":
        """One request for `count` messages; raises ValueError for what cannot be."""
        if count < 1 or expires <= 0:
            raise ValueError(f"a batch of {count} messages in {expires} s: both are to be positive")
        if heartbeat < 0 or heartbeat > expires / 2:
            raise ValueError(f"heartbeat is at most half of expires ({expires} s)")
        return cls(
            max_messages=count,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=0,
            threshold_bytes=0,
            stop_after=count,
            group=group_of(group),
        )


def group_of(options: "PullOptions | GroupOptions") -> GroupOptions:
    """What `options` say about priority groups; raises ValueError for a priority that is none."""
    group: GroupOptions = {}
    if options.get("group"):
        group["group"] = options["group"]
    if options.get("min_pending"):
        group["min_pending"] = options["min_pending"]
    if options.get("min_ack_pending"):
        group["min_ack_pending"] = options["min_ack_pending"]
    priority = options.get("priority", 0)
    if not 0 <= priority <= 9:
        raise ValueError(f"priority is 0 to 9, not {priority}")
    if priority:
        group["priority"] = priority
    return group


def request_body(
    batch: int,
    *,
    expires: float = 0.0,
    max_bytes: int = 0,
    heartbeat: float = 0.0,
    no_wait: bool = False,
    group: GroupOptions | None = None,
    pin_id: str = "",
) -> bytes:
    """The JSON of a pull request; times in seconds, 0 for none."""
    fields = [b'{"batch":%d' % batch]
    if expires:
        fields.append(b'"expires":%d' % to_nanoseconds(expires))
    if max_bytes:
        fields.append(b'"max_bytes":%d' % max_bytes)
    if heartbeat:
        fields.append(b'"idle_heartbeat":%d' % to_nanoseconds(heartbeat))
    if no_wait:
        fields.append(b'"no_wait":true')
    if group:
        fields.append(msgspec.json.encode(group)[1:-1])
    if pin_id:
        fields.append(b'"id":"%b"' % pin_id.encode())
    return b",".join(fields) + b"}"
