"""Points in time: nanoseconds since the epoch, `datetime`, and RFC 3339 text as JetStream has it.

Two readers, because two things are read. `read_time` takes what a client has sent, and follows Go's
`time.Parse`, which nats-server uses: an hour may have one digit, a comma may stand before the
fraction, and a fraction may have any number of digits, of which nine count; its errors are Go's.
`Timestamp.parse` and `stored_ns` take what a server has written, often once for each message, and
are quick.
"""

import re
from calendar import monthrange, timegm
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slipstream.model.durations import SECOND

EARLIEST = -(2**63)
LATEST = 2**63 - 2
ZERO = -62_135_596_800_000_000_000  # Go's zero time, the beginning of the year 1: no time at all
ZERO_TEXT = "0001-01-01T00:00:00Z"
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


class Timestamp(datetime):
    """A `datetime` in UTC that also keeps the nanoseconds a server wrote (0 to 999)."""

    nanosecond: int = 0

    @classmethod
    def from_ns(cls, ns: int) -> "Timestamp":
        """The time `ns` nanoseconds after the epoch."""
        seconds, rest = divmod(ns, SECOND)
        made = cls.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
        made.nanosecond = rest % 1000
        return made

    @classmethod
    def parse(cls, text: str) -> "Timestamp | None":
        """Read RFC 3339 as Go writes it, to nine decimals; None for Go's zero time."""
        if text.startswith("0001-01-01T00:00:00"):
            return None
        whole, point, rest = text.partition(".")
        digits = ""
        if point:
            digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            text = whole + rest[len(digits) :]
        nanoseconds = int(digits[:9].ljust(9, "0")) if digits else 0
        parsed = cls.fromisoformat(text).astimezone(UTC)
        made = parsed.replace(microsecond=nanoseconds // 1000)
        made.nanosecond = nanoseconds % 1000
        return made

    @property
    def ns(self) -> int:
        """Nanoseconds since the epoch."""
        return datetime_ns(self)


def datetime_ns(moment: datetime) -> int:
    """Nanoseconds since the epoch; a `datetime` without a zone is local time, as in Python."""
    whole = int(moment.replace(microsecond=0).timestamp())
    nanosecond: int = getattr(moment, "nanosecond", 0)
    return whole * SECOND + moment.microsecond * 1000 + nanosecond


def datetime_text(moment: datetime) -> str:
    """RFC 3339 in UTC; a `datetime` without a zone is local time, as in Python."""
    at = moment.astimezone(UTC)
    text = at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return text + _fraction(at.microsecond * 1000 + getattr(moment, "nanosecond", 0)) + "Z"


def stored_ns(text: bytes) -> int:
    """Nanoseconds since the epoch of a message's time as a server writes it, in UTC; 0 for Go's
    zero time. Raises ValueError, IndexError."""
    if not text.endswith(b"Z"):
        found = Timestamp.parse(text.decode())
        return 0 if found is None else found.ns
    numbers = text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19]
    seconds = timegm(tuple(map(int, numbers)))
    return seconds * SECOND + int(text[20:-1].ljust(9, b"0") or b"0")


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
