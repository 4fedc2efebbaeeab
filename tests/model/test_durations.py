"""Lengths of time are read and written as Go does."""

import pytest

from slipstream.model.durations import SECOND, duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("1h2m3.5s", 3723 * SECOND + SECOND // 2),
        ("100ms", SECOND // 10),
        ("1.5µs", 1500),
        ("-.5s", -SECOND // 2),
        ("+2m", 120 * SECOND),
    ],
)
def test_what_go_reads_is_read(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1 s", "1hm", "1d", "1..5s", "-", "1s-", "300000000h"]
)
def test_what_go_refuses_is_none(text: str) -> None:
    assert parse_duration(text) is None


def test_other_units_may_be_given() -> None:
    assert parse_duration("2d12h", {"d": 86_400 * SECOND, "h": 3600 * SECOND}) == 216_000 * SECOND


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0s"), (1, "1ns"), (1500, "1.5µs"), (2_000_000, "2ms"), (-SECOND, "-1s"),
     (90 * SECOND, "1m30s"), (3600 * SECOND, "1h0m0s")],
)  # fmt: skip
def test_a_duration_is_written_as_go_writes_it(ns: int, text: str) -> None:
    assert duration_text(ns) == text
