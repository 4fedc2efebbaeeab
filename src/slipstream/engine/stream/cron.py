"""When a schedule is due: once, every so often, or at times of a calendar (ADR-51).

A calendar has six fields: second, minute, hour, day of the month, month, day of the week. A field
is ``*`` or ``?``, or a list of numbers, ranges ``a-b`` and steps ``a-b/n``, ``*/n``, ``a/n`` (to
the end). What stands after ``*-`` means nothing, as in nats-server. If both days are restricted,
either one will do. Times that a change to summer time leaves out do not come that day; those that
come twice are due twice.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from slipstream.model.durations import SECOND, parse_duration
from slipstream.model.times import text_ns

YEARS_AHEAD = 5  # what does not come within this time never does
PATTERN_LENGTH_MAX = 256  # characters; each is read when its schedule is due
PATTERNS_KEPT = 1_024  # as read
_PREDEFINED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_RANGES: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}), (0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 6, _DAYS),
)  # fmt: skip
_PART = re.compile(
    r"(?:([*?])(?:-[^/]*)?|(\+?[0-9]+|[a-z]+)(?:-(\+?[0-9]+|[a-z]+))?)(?:/(\+?[0-9]+))?", re.ASCII
)
_DIGITS_MAX = 9  # of a number
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9990  # of what is looked for; `datetime` ends soon after


@dataclass(slots=True, frozen=True)
class Once:
    """At one time (ns)."""

    at: int

    def next_after(self, ts: int) -> int:
        """When it is due, whatever `ts` is."""
        return self.at


@dataclass(slots=True, frozen=True)
class Every:
    """Every `interval` ns."""

    interval: int

    def next_after(self, ts: int) -> int:
        """The time that follows upon `ts`, which is rounded to a second (both ns)."""
        return (ts + SECOND // 2) // SECOND * SECOND + self.interval


@dataclass(slots=True, frozen=True)
class Calendar:
    """At times of a calendar in a time zone; a set of numbers for each field."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool  # the day of the month or that of the week; else both
    zone: tzinfo

    def next_after(self, ts: int) -> int:
        """The first time after `ts` (both ns); 0 if none comes within five years."""
        moment = _EPOCH + timedelta(seconds=ts // SECOND + 1)
        last = min(moment.astimezone(self.zone).year + YEARS_AHEAD, _LAST_YEAR)
        while True:
            local = moment.astimezone(self.zone)
            if local.year > last:
                return 0
            if local.month not in self.months:
                years, month = divmod(local.month, 12)
                moment = self._midnight(local.year + years, month + 1, 1)
            elif not self._is_day(local):
                following = local.date() + timedelta(days=1)
                moment = self._midnight(following.year, following.month, following.day)
            elif local.hour not in self.hours:
                moment += timedelta(seconds=3600 - 60 * local.minute - local.second)
            elif local.minute not in self.minutes:
                moment += timedelta(seconds=60 - local.second)
            elif local.second not in self.seconds:
                moment += timedelta(seconds=1)
            else:
                return int((moment - _EPOCH).total_seconds()) * SECOND

    def _is_day(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday

    def _midnight(self, year: int, month: int, day: int) -> datetime:
        return datetime(year, month, day, tzinfo=self.zone).astimezone(UTC)


Pattern = Once | Every | Calendar


@lru_cache(maxsize=PATTERNS_KEPT)  # a schedule is read again each time that it is due
def read_pattern(text: str, zone: tzinfo | None) -> Pattern:
    """What a `Nats-Schedule` header says; `zone` is only for calendars. Raises ValueError."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ValueError(f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
    if text.startswith("@at "):
        if zone is not None:
            raise ValueError("a point in time has no time zone")
        return Once(text_ns(text[4:]) or 1)  # 0 would be never
    if text.startswith("@every "):
        interval = parse_duration(text[7:])
        if zone is not None or interval is None or interval < SECOND:
            raise ValueError("an interval has at least a second, and no time zone")
        return Every(interval)
    return _read_calendar(_PREDEFINED.get(text, text), zone or UTC)


def read_zone(name: str) -> tzinfo:
    """The time zone of that name in the IANA's database. Raises ValueError."""
    from zoneinfo import ZoneInfo  # few schedules name a zone, and each start would pay for it

    try:
        return ZoneInfo(name)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error


def _read_calendar(text: str, zone: tzinfo) -> Calendar:
    fields = text.split()
    if len(fields) != len(_RANGES):
        raise ValueError("a calendar has six fields")
    sets = [_read_field(field, *bounds) for field, bounds in zip(fields, _RANGES, strict=True)]
    seconds, minutes, hours, days, months, weekdays = (numbers for numbers, _ in sets)
    either = not (sets[3][1] or sets[5][1])
    return Calendar(seconds, minutes, hours, days, months, weekdays, either, zone)


def _read_field(
    text: str, lowest: int, highest: int, names: dict[str, int]
) -> tuple[frozenset[int], bool]:
    """The numbers of a field, and whether it has a ``*`` for all of them."""
    numbers: set[int] = set()
    starred = False
    for part in filter(None, text.lower().split(",")):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no part of a calendar")
        star, first, last, step = found.groups()
        low = lowest if star else _read_number(first, names)
        high = highest if star else _read_number(last or first, names)
        stride = _read_number(step or "1", {})
        if step and not star and not last:
            high = highest
        if not lowest <= low <= high <= highest or not stride:
            raise ValueError(f"{part!r} is out of range")
        starred = starred or (bool(star) and stride == 1)
        numbers.update(range(low, high + 1, stride))
    if not numbers:
        raise ValueError("a field of a calendar is empty")
    return frozenset(numbers), starred


def _read_number(text: str, names: dict[str, int]) -> int:
    if text in names:
        return names[text]
    digits = text.removeprefix("+")
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        raise ValueError(f"{text!r} is no number")
    return int(digits)
