"""Times as text on the wire are those that the model writes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.model.times import time_text
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.timestamps import put_timestamp
from tests.plain_twin import plain_twin

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


put_by_twin = plain_twin("slipstream.wire.timestamps").put_timestamp


def text_of(ns: int) -> str:
    """What both builds write behind something else."""
    out, other = OutBuffer(), OutBuffer()
    for buffer, put in ((out, put_timestamp), (other, put_by_twin)):
        buffer.put(b"at ")
        put(buffer, ns)
    text = out.take()
    assert text == other.take()
    return text.removeprefix(b"at ").decode()


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(1)
@example(-1)
@example(-(2**63))
@example(2**63 - 1)
@example(10 * SECOND + 500_000_000)
def test_every_time_is_written_as_the_model_writes_it(ns: int) -> None:
    assert text_of(ns) == time_text(ns)


@pytest.mark.parametrize("year", [1700, 1800, 1896, 1900, 1996, 2000, 2024, 2100, 2200])
def test_leap_days_come_where_they_belong(year: int) -> None:
    """All days around the end of February, and those around the new year."""
    begin = ((year - 1970) * 365 + (year - 1969) // 4 - (year - 1901) // 100) * DAY
    begin += (year - 1601) // 400 * DAY
    assert text_of(begin) == f"{year}-01-01T00:00:00Z"
    for day in [*range(-2, 3), *range(57, 63), *range(363, 368)]:
        assert text_of(begin + day * DAY + 1) == time_text(begin + day * DAY + 1)
