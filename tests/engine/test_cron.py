"""When schedules are due."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.stream.cron import Calendar, read_pattern, read_zone
from slipstream.model.durations import SECOND
from slipstream.model.times import text_ns, utc_text

BERLIN = ZoneInfo("Europe/Berlin")


def times(text: str, after: str, count: int = 1, zone: tzinfo | None = None) -> list[str]:
    """The next times of a schedule."""
    pattern = read_pattern(text, zone)
    found = []
    ts = text_ns(after)
    for _ in range(count):
        ts = pattern.next_after(ts)
        found.append(utc_text(ts) if ts else "never")
    return found


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("@at 2030-01-02T03:04:05.5+01:00", "2040-01-01T00:00:00Z", "2030-01-02T02:04:05.5Z"),
        ("@every 90s", "2024-01-01T00:00:00.4Z", "2024-01-01T00:01:30Z"),
        ("@every 90s", "2024-01-01T00:00:00.5Z", "2024-01-01T00:01:31Z"),
        ("@every 1500ms", "2024-01-01T00:00:00Z", "2024-01-01T00:00:01.5Z"),
        ("* * * * * *", "2024-01-01T00:00:00.9Z", "2024-01-01T00:00:01Z"),
        ("@hourly", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"),
        ("@daily", "2024-02-28T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("@weekly", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z"),
        ("@monthly", "2024-12-01T00:00:00Z", "2025-01-01T00:00:00Z"),
        ("@annually", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
        ("30 */20 9-17/4 * * mon-fri", "2024-01-05T17:40:30Z", "2024-01-08T09:00:30Z"),
        ("0 0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 0 30 feb *", "2024-03-01T00:00:00Z", "never"),
        ("0 0 0 13 * fri", "2024-01-01T00:00:00Z", "2024-01-05T00:00:00Z"),
        ("0 0 0 13 * */1", "2024-01-01T00:00:00Z", "2024-01-13T00:00:00Z"),
        ("0 0 0 */2 * fri", "2024-01-01T00:00:00Z", "2024-01-03T00:00:00Z"),
        ("5/20,7 0 0 1 1 ?", "2024-01-01T00:00:07Z", "2024-01-01T00:00:25Z"),
    ],
)
def test_a_schedule_is_due_when_it_says(text: str, after: str, due: str) -> None:
    assert times(text, after) == [due]


def test_a_calendar_follows_its_time_zone() -> None:
    found = times("0 30 9 * * *", "2024-03-30T00:00:00Z", 3, BERLIN)
    assert found == ["2024-03-30T08:30:00Z", "2024-03-31T07:30:00Z", "2024-04-01T07:30:00Z"]


def test_a_time_that_summer_time_leaves_out_does_not_come() -> None:
    found = times("0 30 2 * * *", "2024-03-30T12:00:00Z", 1, BERLIN)
    assert found == ["2024-04-01T00:30:00Z"]


def test_a_time_that_comes_twice_is_due_twice() -> None:
    found = times("0 30 2 * * *", "2024-10-26T12:00:00Z", 3, BERLIN)
    assert found == ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", "2024-10-28T01:30:00Z"]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "@at", "@at x", "@every", "@every 0.5s", "@every x", "@reboot", "* * * * *",
        "* * * * * * *", "60 * * * * *", "* * 24 * * *", "* * * 0 * *", "* * * * 13 *",
        "* * * * * 7", "5-1 * * * * *", "*/0 * * * * *", ", * * * * *", "1-2-3 * * * * *",
        "99999999999 * * * * *", "* * * * foo *",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_pattern(text, None)


@pytest.mark.parametrize("name", ["", " ", "Nowhere/City", "../etc/passwd", "/etc/passwd", "\0"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        read_zone(name)


@given(
    st.sampled_from(["*/7 */11 */5 * * *", "0 0 0 */3 * mon", "0 15 1,2,3 1-10 */2 sun-tue/2"]),
    st.datetimes(datetime(2000, 1, 1), datetime(2035, 1, 1)),
    st.sampled_from([UTC, BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Asia/Kathmandu")]),
)
def test_the_next_time_is_the_first_that_fits(text: str, begin: datetime, zone: tzinfo) -> None:
    pattern = read_pattern(text, None if zone is UTC else zone)
    assert isinstance(pattern, Calendar)
    start = int((begin.replace(tzinfo=UTC)).timestamp()) * SECOND
    due = pattern.next_after(start)
    local = datetime.fromtimestamp(due // SECOND, zone)
    assert due > start
    assert (local.second in pattern.seconds, local.minute in pattern.minutes) == (True, True)
    assert (local.hour in pattern.hours, local.month in pattern.months) == (True, True)
    for seconds in range(1, min((due - start) // SECOND, 500)):
        moment = begin.replace(tzinfo=UTC) + timedelta(seconds=seconds)
        at = moment.astimezone(zone)
        day, weekday = at.day in pattern.days, at.isoweekday() % 7 in pattern.weekdays
        fits = (
            at.second in pattern.seconds
            and at.minute in pattern.minutes
            and at.hour in pattern.hours
            and at.month in pattern.months
            and (day or weekday if pattern.either_day else day and weekday)
        )
        assert not fits, at
