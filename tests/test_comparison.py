"""The benchmark's verdict: a goal is met only if the whole interval of the ratio meets it."""

import pytest
from bench.compare import interval, make_row
from bench.limits import Disk
from bench.loads import Beside, Load
from bench.report import load_cells
from bench.spark_kafka.lines import Line, row_of

DISK = Disk(commit_us=80.0, bytes_per_second=2e9, copy_bytes_per_second=1e10)
STEADY, NOISY = [100.0] * 7, [60.0, 150.0, 70.0, 101.0, 140.0, 65.0, 145.0]


def nothing(_: object) -> float:
    return 0.0


def test_the_interval_holds_the_ratio_and_is_wide_where_the_rounds_differ() -> None:
    assert interval(STEADY, STEADY) == (1.0, 1.0, 1.0)
    ratio, low, high = interval(NOISY, STEADY)
    assert low < ratio < high
    assert high - low > 0.3


@pytest.mark.parametrize(("ours", "is_met"), [(STEADY, True), (NOISY, False)])
def test_a_ratio_is_met_only_by_all_of_its_interval(ours: list[float], is_met: bool) -> None:
    row = make_row(Load("load", nothing, 0.9), {"ours": ours, "theirs": STEADY}, 0.0, DISK)
    assert row["met"] is is_met


@pytest.mark.parametrize(("figure", "is_met"), [(119.0, True), (121.0, False)])
def test_a_bound_is_what_the_disk_takes_and_more(figure: float, is_met: bool) -> None:
    load = Load("load", nothing, None, lower_is_better=True, bound_over_commit=40.0)
    row = make_row(load, {"ours": [figure] * 7, "theirs": STEADY}, 0.0, DISK)
    assert row["met"] is is_met
    assert "[≤ 120]" in load_cells(row)


@pytest.mark.parametrize(("beside", "is_met"), [(190.0, True), (210.0, False)])
def test_a_share_of_another_load_is_looked_at_too(beside: float, is_met: bool) -> None:
    load = Load("load", nothing, None, beside=Beside("the other", nothing, 0.5))
    row = make_row(load, {"ours": STEADY, "theirs": STEADY, "beside": [beside] * 7}, 0.0, DISK)
    assert row["met"] is is_met


def test_a_load_says_which_share_of_the_disk_it_uses() -> None:
    load = Load("load", nothing, 1.0, disk_bytes=4_000_000, states_bandwidth=True)
    row = make_row(load, {"ours": STEADY, "theirs": STEADY}, 0.0, DISK)
    assert "1.00x 20% of the disk" in load_cells(row)


@pytest.mark.parametrize(("ours", "is_met"), [(STEADY, True), (NOISY, False)])
def test_a_floor_is_met_only_by_all_of_our_interval(ours: list[float], is_met: bool) -> None:
    row = row_of(Line("load", "work", "warm", floor=95.0), {"warm": ours}, {"warm": STEADY}, {})
    assert row["met"] is is_met
    assert "[≥ 95.0]" in load_cells(row)


def test_a_line_may_stand_beside_another_figure_of_kafkas() -> None:
    line = Line("exactly once", "sink", "exact", 1.0, beside="once")
    row = row_of(line, {"exact": [200.0] * 7, "once": [400.0] * 7}, {"once": STEADY}, {})
    assert row["ratio"] == (2.0, 2.0, 2.0)
    assert row["met"]


def test_a_latency_has_to_stay_below_its_goal() -> None:
    line = Line("latency", "trickle", "p50", 0.5, lower_is_better=True)
    assert row_of(line, {"p50": [40.0] * 7}, {"p50": STEADY}, {})["met"]
    assert not row_of(line, {"p50": [60.0] * 7}, {"p50": STEADY}, {})["met"]


def test_a_line_states_what_doing_nothing_reaches() -> None:
    ready = {"once": [300.0] * 7, "held": [1.0] * 7}
    line = Line("exactly once", "sink", "exact", 1.0, beside="once")
    row = row_of(line, {"exact": [200.0] * 7}, {"once": STEADY}, ready)
    assert load_cells(row)[-1] == "300"
    line = Line("held", "batch", "held", lower_is_better=True, bound=200.0)
    assert load_cells(row_of(line, {"held": [150.0] * 7}, {"held": [0.0] * 7}, ready))[-1] == ""
