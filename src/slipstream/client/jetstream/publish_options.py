"""What a publish may ask of the stream, and the headers that say so (spec streams.md section 6.2).

await js.publish("orders.new", data, message_id="order-17", expected_last_sequence=41)
"""

from datetime import datetime, timedelta
from typing import Literal, TypedDict

import msgspec

from slipstream.client.jetstream.document import time_to_wire, to_nanoseconds
from slipstream.client.payload import HeadersLike, as_headers, header_bytes
from slipstream.wire.headers import Headers

_SECOND = 1_000_000_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When and where the stream publishes a message later, or again and again (streams.md 16).

    One of `at` (a time), `every` (seconds) and `cron` (six fields, seconds first, or ``@daily``
    and the like) says when; `target` says where. `source` is a subject whose last message is sent
    in place of this one, `ttl` the lifetime of what is produced, `time_zone` an IANA name for
    `cron`, `rollup` keeps only the newest on the target.
    """

    target: str
    at: datetime | None = None
    every: float | timedelta | None = None
    cron: str = ""
    source: str = ""
    ttl: float | timedelta | Literal["never"] | None = None
    time_zone: str = ""
    rollup: bool = False

    def fields(self) -> list[tuple[str, str]]:
        """The headers; raises ValueError unless exactly one of `at`, `every`, `cron` is given."""
        if (self.at is not None) + (self.every is not None) + bool(self.cron) != 1:
            raise ValueError("a Schedule needs exactly one of `at`, `every` and `cron`")
        if self.at is not None:
            when = "@at " + time_to_wire(self.at)
        elif self.every is not None:
            when = f"@every {_go_duration(self.every)}"
        else:
            when = self.cron
        made = [("Nats-Schedule", when), ("Nats-Schedule-Target", self.target)]
        if self.source:
            made.append(("Nats-Schedule-Source", self.source))
        if self.ttl is not None:
            made.append(("Nats-Schedule-TTL", _ttl(self.ttl)))
        if self.time_zone:
            made.append(("Nats-Schedule-Time-Zone", self.time_zone))
        if self.rollup:
            made.append(("Nats-Schedule-Rollup", "sub"))
        return made


class PublishOptions(TypedDict, total=False):
    """Keywords of `publish`, `publish_async` and batches.

    message_id: the stream stores a message of an id once within its `duplicate_window`.
    expected_stream: refuse if another stream would store it.
    expected_last_sequence: refuse unless the stream's last sequence is this.
    expected_last_sequence_per_subject: the same of the last message on the subject (0: none).
    expected_last_sequence_subject: the subject (wildcards too) to which the former applies.
    expected_last_message_id: refuse unless the stream's last message has this id.
    ttl: how long the stream keeps the message: seconds (whole, 1 or more), timedelta or "never".
    rollup: "sub" or "all": drop what is older on the subject, or in the stream.
    increment: what to add to a counter (streams.md section 13).
    schedule: publish it later, see `Schedule`.
    """

    message_id: str
    expected_stream: str
    expected_last_sequence: int
    expected_last_sequence_per_subject: int
    expected_last_sequence_subject: str
    expected_last_message_id: str
    ttl: float | timedelta | Literal["never"]
    rollup: Literal["sub", "all"]
    increment: int
    schedule: Schedule


def block_of(headers: HeadersLike | None, options: PublishOptions) -> bytes:
    """The header block for `headers` and `options`; b"" for neither.

    Raises ValueError for what cannot stand in a header, TypeError for an unknown option.
    """
    if not options:
        return b"" if headers is None else header_bytes(headers)
    if headers is None and len(options) == 1 and "message_id" in options:
        # The one that is given for each of many messages.
        one = options["message_id"]
        if isinstance(one, str) and "\r" not in one and "\n" not in one:
            return b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % one.encode()
    made = as_headers(headers)
    for name, value in options.items():
        if value is not None:
            _add(made, name, value)
    return made.encode()


def _add(headers: Headers, name: str, value: object) -> None:
    match name:
        case "message_id":
            headers["Nats-Msg-Id"] = str(value)
        case "expected_stream":
            headers["Nats-Expected-Stream"] = str(value)
        case "expected_last_sequence":
            headers["Nats-Expected-Last-Sequence"] = str(value)
        case "expected_last_sequence_per_subject":
            headers["Nats-Expected-Last-Subject-Sequence"] = str(value)
        case "expected_last_sequence_subject":
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = str(value)
        case "expected_last_message_id":
            headers["Nats-Expected-Last-Msg-Id"] = str(value)
        case "ttl":
            headers["Nats-TTL"] = _ttl(value)  # type: ignore[arg-type]
        case "rollup":
            headers["Nats-Rollup"] = str(value)
        case "increment":
            headers["Nats-Incr"] = f"{value:+d}"
        case "schedule":
            assert isinstance(value, Schedule)
            for field, text in value.fields():
                headers[field] = text
        case _:
            raise TypeError(f"publish has no option {name!r}")


def _ttl(value: float | timedelta | str) -> str:
    """A TTL as the server reads it: whole seconds, or "never"."""
    if isinstance(value, str):
        if value != "never":
            raise ValueError(f"a ttl is seconds, a timedelta or 'never', not {value!r}")
        return value
    nanoseconds = to_nanoseconds(value)
    if nanoseconds < _SECOND or nanoseconds % _SECOND:
        raise ValueError(f"a ttl is a whole number of seconds, 1 or more, not {value!r}")
    return str(nanoseconds // _SECOND)


def _go_duration(value: float | timedelta) -> str:
    """A length of time as Go reads it."""
    nanoseconds = to_nanoseconds(value)
    if nanoseconds % _SECOND == 0:
        return f"{nanoseconds // _SECOND}s"
    return f"{nanoseconds}ns"
