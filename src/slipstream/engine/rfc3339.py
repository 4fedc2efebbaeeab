"""Times as JetStream writes them, in ns since the epoch here and as RFC 3339 text outside."""

from datetime import UTC, datetime, timedelta

EARLIEST = -(2**63)
LATEST = 2**63 - 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(ns: int) -> str:
    """RFC 3339 in UTC with as many of nine digits as it takes; "0001-01-01T00:00:00Z" for 0."""
    if not ns:
        return "0001-01-01T00:00:00Z"
    seconds, rest = divmod(ns, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"


def text_ns(text: str) -> int:
    """Nanoseconds since the epoch of RFC 3339 text, all nine digits kept; raises ValueError.

    A `datetime` ends at microseconds, and one that is rounded up passes over messages.
    """
    whole, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if "T" not in whole:
        raise ValueError(f"{text!r} is not a time as RFC 3339 has it")
    moment = datetime.fromisoformat(whole + rest[len(digits) :])
    return min(time_ns(moment) + int(digits[:9].ljust(9, "0")), LATEST)


def time_ns(moment: datetime) -> int:
    """Nanoseconds since the epoch; what 64 bits do not hold, as close as they come to it."""
    whole = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = (whole.replace(microsecond=0) - _EPOCH) // timedelta(seconds=1)
    ns = seconds * 1_000_000_000 + whole.microsecond * 1000
    return min(max(ns, EARLIEST), LATEST)
