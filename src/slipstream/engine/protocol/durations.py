"""Durations as Go writes them: ``1h2m3.5s``, ``100ms``."""

import re

import msgspec

from slipstream.engine.protocol.json_body import Int64, read_lenient

LONGEST_NS = 100 * 365 * 86_400 * 1_000_000_000  # a wait that ends; now and this fit 64 bits

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+")


class NakOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What a negative acknowledgement may say in JSON, read by `read_lenient`."""

    delay: Int64 = 0


def nak_delay(text: bytes) -> int:
    """The delay of a negative acknowledgement in ns; 0 for none or what cannot be read."""
    if text.startswith(b"{"):
        try:
            return min(read_lenient(text, NakOptions).delay, LONGEST_NS)
        except msgspec.MsgspecError:
            return 0
    return min(parse_duration(text.decode("utf-8", "replace")) or 0, LONGEST_NS)


def parse_duration(text: str) -> int | None:
    """Nanoseconds, or None if the text is not a duration."""
    if text in ("0", "+0", "-0"):
        return 0
    if not _WHOLE.fullmatch(text):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if total >= 2**63:  # Go has no number for it
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
    hours, rest = divmod(ns, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    text = f"{_number(rest, _UNITS['s'])}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _number(ns: int, size: int) -> str:
    whole, rest = divmod(ns, size)
    if not rest:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
