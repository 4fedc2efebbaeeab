"""Filters that reach the server: on subject, sequence and timestamp.

Spark applies every filter again, so what is pushed may let through more than the filter does, and
never less. Sequences become bounds of the range, times the same through the stream's own clock,
subjects the filter of the read.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.wire import subjects as wire_subjects

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_MICROSECOND = timedelta(microseconds=1)


class Bounds(msgspec.Struct):
    """What filters have left of a read. `subjects` None: not restricted by them."""

    first: int = 0
    last: int | None = None
    not_before: datetime | None = None
    before: datetime | None = None
    subjects: list[str] | None = None

    def at_least(self, sequence: int) -> None:
        """Only sequences from here on."""
        self.first = max(self.first, sequence)

    def at_most(self, sequence: int) -> None:
        """Only sequences up to here."""
        self.last = sequence if self.last is None else min(self.last, sequence)

    def from_time(self, moment: datetime) -> None:
        """Only messages stored at or after this."""
        self.not_before = moment if self.not_before is None else max(self.not_before, moment)

    def until_time(self, moment: datetime) -> None:
        """Only messages stored before this."""
        self.before = moment if self.before is None else min(self.before, moment)

    def only(self, subjects: Iterable[str]) -> None:
        """Only these subjects, which are all literal or all alone."""
        found = list(dict.fromkeys(subjects))
        if self.subjects is not None:
            found = [s for s in found if any(_matches(p, s) for p in self.subjects)]
        self.subjects = found


def bounds_of(filters: "list[Filter]") -> Bounds:
    """What these filters leave."""
    bounds = Bounds()
    for wanted in filters:
        column = getattr(wanted, "attribute", ())
        if column == ("sequence",):
            _bound_sequence(bounds, type(wanted).__name__, getattr(wanted, "value", None))
        elif column == ("timestamp",):
            _bound_time(bounds, type(wanted).__name__, getattr(wanted, "value", None))
        elif column == ("subject",):
            _bound_subject(bounds, type(wanted).__name__, getattr(wanted, "value", None))
    return bounds


def _bound_sequence(bounds: Bounds, kind: str, value: Any) -> None:
    if kind == "In":
        known = [v for v in value if isinstance(v, int)]
        if known:
            bounds.at_least(min(known))
            bounds.at_most(max(known))
    elif isinstance(value, int):
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
            bounds.at_least(value)
        if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
            bounds.at_most(value)
        if kind == "GreaterThan":
            bounds.at_least(value + 1)
        if kind == "LessThan":
            bounds.at_most(value - 1)


def _bound_time(bounds: Bounds, kind: str, value: Any) -> None:
    if not isinstance(value, datetime):
        return
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual", "GreaterThan"):
        bounds.from_time(moment)
    if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
        bounds.until_time(moment + _MICROSECOND)  # Spark has cut the nanoseconds off
    if kind == "LessThan":
        bounds.until_time(moment)


def _bound_subject(bounds: Bounds, kind: str, value: Any) -> None:
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        bounds.only([value] if _is_literal(value) else [])
    elif kind == "In":
        bounds.only([v for v in value if isinstance(v, str) and _is_literal(v)])
    elif kind == "StringStartsWith" and bounds.subjects is None and isinstance(value, str):
        tokens, dot, _ = value.rpartition(".")
        if dot and _is_literal(tokens):
            bounds.subjects = [f"{tokens}.>"]


def _is_literal(subject: str) -> bool:
    tokens = subject.split(".")
    return all(t and t not in ("*", ">") and not any(c in " \t\r\n" for c in t) for t in tokens)


def _matches(pattern: str, subject: str) -> bool:
    return wire_subjects.matches(pattern.encode(), subject.encode())


def intersect(filters: list[str], bounds: Bounds) -> list[str] | None:
    """The filters to read by, of the options' and of the query; None if nothing can match."""
    if bounds.subjects is None:
        return filters
    if not filters:
        return bounds.subjects or None
    if bounds.subjects and bounds.subjects[0].endswith(".>"):
        return filters
    return [s for s in bounds.subjects if any(_matches(p, s) for p in filters)] or None
