"""Times in requests: read as Go reads them, kept to the nanosecond."""

import pytest

from slipstream.model.times import LATEST, read_time, text_ns, time_text, utc_text

from .conftest import Bench, sequences

NEW_YEAR = 1_704_067_200_000_000_000  # 2024-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "ns", "shown"),
    [
        ("2024-01-01T00:00:00Z", NEW_YEAR, "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00.000000001Z", NEW_YEAR + 1, "2024-01-01T00:00:00.000000001Z"),
        ("2024-01-01T00:00:00.1234567899Z", NEW_YEAR + 123_456_789,
         "2024-01-01T00:00:00.123456789Z"),
        ("2024-01-01T00:00:00,50Z", NEW_YEAR + 500_000_000, "2024-01-01T00:00:00.5Z"),
        ("2024-01-01T2:30:00+02:30", NEW_YEAR, "2024-01-01T02:30:00+02:30"),
        ("2023-12-31T23:00:00-00:60", NEW_YEAR, "2023-12-31T23:00:00-01:00"),
        ("0000-02-29T00:00:00Z", -62_162_121_600_000_000_000, "0000-02-29T00:00:00Z"),
    ],
)  # fmt: skip
def test_a_time_is_read_to_the_nanosecond_and_shown_as_go_shows_it(
    text: str, ns: int, shown: str
) -> None:
    assert read_time(text) == (ns, shown)
    assert read_time(utc_text(ns)).ns == ns


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-02:00", "0000-01-01T00:00:00+01:00"])
def test_a_time_that_no_year_has_in_utc_is_read_and_is_not_shown(text: str) -> None:
    assert abs(text_ns(text)) >= LATEST
    with pytest.raises(ValueError, match="year outside of range"):
        utc_text(read_time(text).ns)


def test_no_time_is_the_beginning_of_the_year_1() -> None:
    assert time_text(0) == "0001-01-01T00:00:00Z"
    assert utc_text(0) == "1970-01-01T00:00:00Z"


def test_a_consumer_begins_at_the_nanosecond_that_was_asked_for(bench: Bench) -> None:
    for _ in range(3):
        bench.publish("s.a")
        bench.driver.clock.now += 1
    second = bench.driver.clock.now - 2
    for name, ns, first in (("at", second, 2), ("after", second + 1, 3), ("before", second - 1, 1)):
        text = utc_text(ns)
        made = bench.consumer(name, deliver_policy="by_start_time", opt_start_time=text)
        assert made["config"]["opt_start_time"] == text
        assert sequences(bench.pull(name)) == [first]


def test_a_pause_ends_at_the_nanosecond_that_was_asked_for(bench: Bench) -> None:
    until = bench.driver.clock.now + 1_000_000_001
    bench.consumer(pause_until=utc_text(until))
    bench.publish("s.a")
    assert bench.pull(expires=60_000_000_000) == []
    assert bench.advance(1_000_000_000) == []
    assert sequences(bench.advance(1)) == [1]


def test_a_pause_until_go_s_zero_time_is_no_pause(bench: Bench) -> None:
    made = bench.consumer(pause_until="0001-01-01T00:00:00Z")
    assert made["config"]["metadata"]["_nats.req.level"] == "0"
    assert "paused" not in made
