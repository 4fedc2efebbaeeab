"""Durations, sizes and moments as people write them, and back."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import typer

from slipstream.model.durations import GO_UNITS, SECOND, parse_duration, shown_duration
from slipstream.model.times import datetime_text

_DAY = 86_400 * SECOND
_UNITS = {
    **GO_UNITS,
    "d": _DAY,
    "w": 7 * _DAY,
    "M": 30 * _DAY,
    "y": 365 * _DAY,
    "Y": 365 * _DAY,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)


def duration(text: str) -> float:
    """Seconds of "1h30m", "500ms", "2d", "1y"; a bare number counts seconds."""
    text = text.strip()
    if text in ("", "-1", "0", "never", "unlimited"):
        return 0.0
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    ns = parse_duration(text, _UNITS)
    if ns is None or text[0] in "+-":
        raise typer.BadParameter(f'"{text}" is no duration; write it like 500ms, 30s, 1h30m, 2d')
    return ns / SECOND


Word = TypeVar("Word", bound=str)


def one_of(*choices: Word, **others: Word) -> Callable[[str], Word]:
    """Reads one of `choices`, in any case; `others` are other words for some of them."""

    def read(text: str) -> Word:
        said = text.strip().lower()
        said = others.get(said.replace(" ", "_"), said)
        for word in choices:
            if word == said:
                return word
        raise typer.BadParameter(f'"{text}" is none of {", ".join(choices)}')

    return read


def size(text: str) -> int:
    """Bytes of "1024", "10KB", "5MiB", "1G"; units are powers of 1024, -1 is no bound."""
    text = text.strip()
    if text in ("", "-1", "unlimited"):
        return -1
    match = _SIZE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is no size; write it like 1024, 10KiB, 5MB, 1G')
    power = " KMGTP".index(match[2].upper() or " ")
    return int(float(match[1]) * 1024**power)


def moment(text: str) -> datetime:
    """A point in time: RFC 3339, "2026-01-31 12:00", or how long ago ("1h")."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=duration(text))
    except typer.BadParameter:
        raise typer.BadParameter(
            f'"{text}" is no time; write 2026-01-31T12:00:00Z, or how long ago: 1h30m'
        ) from None


def later(text: str) -> datetime:
    """A point in time to come: RFC 3339, or how long from now ("1h")."""
    try:
        return (
            moment(text) if "-" in text else datetime.now(UTC) + timedelta(seconds=duration(text))
        )
    except typer.BadParameter:
        raise typer.BadParameter(
            f'"{text}" is no time; write 2026-01-31T12:00:00Z, or how long from now: 1h30m'
        ) from None


def show_duration(length: "float | timedelta") -> str:
    """Seconds, or a `timedelta`, as `shown_duration` writes them."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    return shown_duration(seconds)


def show_size(count: float) -> str:
    """As the `nats` tool writes sizes: 512 B, 1.2 KiB, 5.0 MiB."""
    if count < 1024:
        return f"{count:.0f} B"
    power = min(int(math.log(count, 1024)), 4)
    scaled = count / 1024**power
    unit = " KMGT"[power] + "iB"
    return f"{scaled:.1f} {unit}" if scaled < 10 else f"{scaled:.0f} {unit}"


def show_time(when: datetime | None) -> str:
    """Local time to the second; "never" for none."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S") if when else "never"


def show_stamp(when: datetime | None) -> str:
    """RFC 3339 in UTC; "" for none."""
    return datetime_text(when) if when else ""


def show_since(when: datetime | None) -> str:
    """How long ago; "never" for none."""
    if when is None or when.year < 1970:
        return "never"
    return show_duration(max((datetime.now(UTC) - when).total_seconds(), 0.0))


def show_limit(count: int) -> str:
    """A bound, or "unlimited"."""
    return f"{count:,}" if count > 0 else "unlimited"
