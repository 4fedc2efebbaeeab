"""Lengths of time: nanoseconds, seconds, `timedelta`, and text as Go has it (1h2m3.5s, 100ms)."""

import re
from collections.abc import Mapping
from datetime import timedelta
from numbers import Real

MILLISECOND = 1_000_000  # ns, as all of these
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
LONGEST_NS = 100 * 365 * 86_400 * SECOND  # a wait that ends; now and this fit 64 bits

GO_UNITS: Mapping[str, int] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": 60 * MINUTE,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]+)")


def parse_duration(text: str, units: Mapping[str, int] = GO_UNITS) -> int | None:
    """Nanoseconds, or None if the text is not a duration; `units` are in ns."""
    if text in ("0", "+0", "-0"):
        return 0
    at = 1 if text[:1] in ("+", "-") else 0
    total = 0.0
    parts = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in units:
            return None
        total += float(part[1]) * units[part[2]]
        at = part.end()
        parts += 1
    if not parts or total >= 2**63:  # Go has no number for it
        return None
    return -int(total) if text.startswith("-") else int(total)


def duration_text(ns: int) -> str:
    """Nanoseconds as Go prints them."""
    if ns == 0:
        return "0s"
    if ns < 0:
        return "-" + duration_text(-ns)
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if ns < size * 1000:
            return f"{_number(ns, size)}{unit}"
    hours, rest = divmod(ns, GO_UNITS["h"])
    minutes, rest = divmod(rest, GO_UNITS["m"])
    text = f"{_number(rest, SECOND)}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _number(ns: int, size: int) -> str:
    whole, rest = divmod(ns, size)
    if not rest:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


def shown_duration(seconds: float) -> str:
    """Seconds as the `nats` tool writes them for people: 1.50s, 2m0s, 1h0m0s, 3d4h0m0s."""
    if seconds < 0:
        return "-" + shown_duration(-seconds)
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms"
    if seconds < 60:
        return f"{seconds:.2f}s"
    left = round(seconds)
    text = ""
    for unit, size in (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60)):
        if left >= size or text:
            count, left = divmod(left, size)
            text += f"{count}{unit}"
    return f"{text}{left}s"


def to_seconds(value: float | timedelta, name: str) -> float:
    """Seconds; raises TypeError, with the option's `name`, if `value` is not a length of time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    given: object = value  # whatever its type says
    if not isinstance(given, Real):
        raise _not_a_duration(given, name)
    return float(value)


def to_nanoseconds(value: float | timedelta, name: str) -> int:
    """As `to_seconds`, in ns, which is how JetStream's JSON has it."""
    if isinstance(value, timedelta):
        return (value.days * 86_400_000_000 + value.seconds * 1_000_000 + value.microseconds) * 1000
    given: object = value  # whatever its type says
    if not isinstance(given, Real):
        raise _not_a_duration(given, name)
    return round(value * SECOND)


def _not_a_duration(value: object, name: str) -> TypeError:
    return TypeError(f"{name} is seconds or a timedelta, not {value!r}")
