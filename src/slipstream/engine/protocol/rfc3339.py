"""Times as JetStream writes them, in ns since the epoch here and as RFC 3339 text outside.

What is read follows Go's `time.Parse`, which nats-server uses: an hour may have one digit, a comma
may stand before the fraction, and a fraction may have any number of digits, of which nine count.
"""

import re
from calendar import monthrange
from datetime import datetime, timedelta
from typing import NamedTuple

EARLIEST = -(2**63)
LATEST = 2**63 - 2
ZERO = -62_135_596_800_000_000_000  # Go's zero time, the beginning of the year 1: no time at all
ZERO_TEXT = "0001-01-01T00:00:00Z"
SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)  # in UTC, as all times here
_CYCLE_YEARS = 400  # after which the Gregorian calendar repeats
_CYCLE_SECONDS = 146_097 * 86_400
_NO_YEAR = "year outside of range [0,9999]"
_LAYOUT = "2006-01-02T15:04:05Z07:00"
# The parts of a time in order: what it has to be, its name in the layout, in errors, its highest
# value. Days and the zone are checked apart.
_PARTS = (
    (re.compile(r"[0-9]{4}"), "2006", "", 0),
    (re.compile("-"), "-", "", 0),
    (re.compile(r"[0-9]{2}"), "01", "month", 12),
    (re.compile("-"), "-", "", 0),
    (re.compile(r"[0-9]{2}"), "02", "", 0),
    (re.compile("T"), "T", "", 0),
    (re.compile(r"[0-9]{1,2}"), "15", "hour", 23),
    (re.compile(":"), ":", "", 0),
    (re.compile(r"[0-9]{2}"), "04", "minute", 59),
    (re.compile(":"), ":", "", 0),
    (re.compile(r"[0-9]{2}"), "05", "second", 59),
)
_FRACTION = re.compile(r"[.,]([0-9]+)")
_ZONE = re.compile(r"Z|([+-])([0-9]{2}):([0-9]{2})")


class Time(NamedTuple):
    """A time that was read."""

    ns: int  # since the epoch, of any size
    text: str  # as Go prints it, in the zone that it was given in


def time_text(ns: int) -> str:
    """RFC 3339 in UTC with as many of nine digits as it takes; "0001-01-01T00:00:00Z" for 0."""
    return utc_text(ns) if ns else ZERO_TEXT


def utc_text(ns: int) -> str:
    """As `time_text`, also for the epoch itself; raises ValueError if no year 0 to 9999 has it."""
    seconds, rest = divmod(ns, SECOND)
    cycles = 0 if ns >= ZERO else 1
    try:
        moment = _EPOCH + timedelta(seconds=seconds + cycles * _CYCLE_SECONDS)
    except OverflowError as error:
        raise ValueError(_NO_YEAR) from error
    year = moment.year - cycles * _CYCLE_YEARS
    if year < 0:
        raise ValueError(_NO_YEAR)
    return f"{year:04d}{moment.isoformat()[4:]}{_fraction(rest)}Z"


def text_ns(text: str) -> int:
    """Nanoseconds since the epoch of RFC 3339 text; what 64 bits do not hold, as close as they come
    to it. Raises ValueError."""
    return min(max(read_time(text).ns, EARLIEST), LATEST)


def read_time(text: str) -> Time:
    """The time that RFC 3339 text says. Raises ValueError in Go's words."""
    numbers: list[int] = []
    at = 0
    for pattern, name, label, highest in _PARTS:
        found = pattern.match(text, at)
        if found is None:
            raise _unreadable(text, text[at:], name)
        at = found.end()
        if found[0].isdigit():
            numbers.append(int(found[0]))
            if label and not (label == "month") <= numbers[-1] <= highest:
                raise _wrong(text, f"{label} out of range")
    year, month, day, hour, minute, second = numbers
    fraction = _FRACTION.match(text, at)
    rest = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    at = fraction.end() if fraction else at
    zone = _ZONE.match(text, at)
    if zone is None:
        raise _unreadable(text, text[at:], "Z07:00")
    hours, minutes = int(zone[2] or 0), int(zone[3] or 0)
    if hours > 23:
        raise _wrong(text, "time zone offset hour out of range")
    if minutes > 60:
        raise _wrong(text, "time zone offset minute out of range")
    if zone.end() < len(text):
        raise _wrong(text, f"extra text: {_quoted(text[zone.end() :])}")
    if not 1 <= day <= monthrange(year, month)[1]:
        raise _wrong(text, "day out of range")
    offset = (hours * 60 + minutes) * (-1 if zone[1] == "-" else 1)
    # `datetime` has no year 0: the same moment of the calendar's next cycle stands for it.
    cycles = 0 if year else 1
    moment = datetime(year + cycles * _CYCLE_YEARS, month, day, hour, minute, second)
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - cycles * _CYCLE_SECONDS - offset * 60
    shown = f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    return Time(seconds * SECOND + rest, shown + _fraction(rest) + _zone_text(offset))


def _fraction(ns: int) -> str:
    return f".{ns:09d}".rstrip("0") if ns else ""


def _zone_text(minutes: int) -> str:
    if not minutes:
        return "Z"
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}"


def _unreadable(text: str, value: str, name: str) -> ValueError:
    read = f"cannot parse {_quoted(value)} as {_quoted(name)}"
    return ValueError(f"parsing time {_quoted(text)} as {_quoted(_LAYOUT)}: {read}")


def _wrong(text: str, what: str) -> ValueError:
    return ValueError(f"parsing time {_quoted(text)}: {what}")


def _quoted(text: str) -> str:
    """As Go's `time` package quotes a value: bytes that are not printable ASCII as numbers."""
    shown = ""
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        if char in '"\\':
            shown += "\\" + char
        else:
            shown += char if 32 <= byte < 128 else f"\\x{byte:02x}"
    return f'"{shown}"'
