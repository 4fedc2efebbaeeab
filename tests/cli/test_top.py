"""`slipstream top` on a terminal: keys sort, filter, pause and explain themselves."""

from typing import Any, cast

import pytest
from rich.text import Text
from textual.widgets import DataTable, Static

from slipstream.cli.top.command import Look
from slipstream.cli.top.screen import Top, magnitude

NEVER = 3600.0  # seconds until it looks again
LARGE, SMALL = (100, 40), (60, 16)


class FixedLook(Look):
    """What somebody sees who looks at two streams and no server."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None))
        self.headline = "nats://here\nstreams 2"
        self.streams = [
            ("INVOICES", "90", "2.0 MiB", "0", "1", "1m2s"),
            ("ORDERS", "1,200", "40 B", "0", "1", "6.43s"),
        ]
        self.consumers = [("ORDERS", "billing", "7", "0", "0", "0", "1", "never")]


def table(top: Top, name: str) -> "DataTable[Text]":
    return top.screen_stack[0].query_one(f"#{name}", DataTable)


def names(top: Top, name: str = "streams") -> list[str]:
    one = table(top, name)
    return [one.get_row_at(row)[0].plain for row in range(one.row_count)]


def headline(top: Top) -> str:
    return str(top.screen_stack[0].query_one("#headline", Static).content)


def shown(top: Top) -> list[str]:
    return [one.id or "" for one in top.screen_stack[0].query(DataTable) if one.display]


async def test_a_table_is_sorted_by_one_column_after_the_other_and_the_other_way() -> None:
    top = Top(FixedLook(), NEVER)
    async with top.run_test(size=LARGE) as pilot:
        await pilot.press("tab", "tab")
        assert table(top, "streams").has_focus
        await pilot.press("s", "s")
        assert names(top) == ["ORDERS", "INVOICES"]
        assert str(table(top, "streams").border_title) == "Streams: sorted by Messages"
        await pilot.press("s")
        assert names(top) == ["INVOICES", "ORDERS"]
        await pilot.press("r")
        assert names(top) == ["ORDERS", "INVOICES"]
        await pilot.press("s", "s", "s", "s")
        assert str(table(top, "streams").border_title) == "Streams"
        assert names(top) == ["INVOICES", "ORDERS"]


async def test_a_filter_leaves_the_rows_that_have_its_text() -> None:
    top = Top(FixedLook(), NEVER)
    async with top.run_test(size=LARGE) as pilot:
        await pilot.press("slash", *"voic", "enter")
        assert names(top) == ["INVOICES"]
        assert str(table(top, "streams").border_title) == 'Streams: 1 of 2 with "voic"'
        assert names(top, "consumers") == []
        await pilot.press("escape")
        assert names(top) == ["INVOICES", "ORDERS"]
        assert table(top, "consumers").has_focus


async def test_a_pause_shows_as_long_as_it_lasts() -> None:
    top = Top(FixedLook(), NEVER)
    async with top.run_test(size=LARGE) as pilot:
        await pilot.press("p")
        assert headline(top).startswith("PAUSED, p goes on")
        await pilot.press("s")
        assert headline(top).startswith("PAUSED, p goes on")
        await pilot.press("p")
        assert headline(top).startswith("nats://here")


async def test_help_says_what_each_key_does() -> None:
    top = Top(FixedLook(), NEVER)
    async with top.run_test(size=LARGE) as pilot:
        await pilot.press("question_mark")
        said = str(top.screen.query_one(Static).content)
        for key in ("tab ", "s ", "r ", "/ ", "w ", "p ", "q "):
            assert f"\n{key}" in f"\n{said}"
        await pilot.press("escape")
        assert len(top.screen_stack) == 1


async def test_a_small_terminal_shows_one_table_and_tab_the_next() -> None:
    top = Top(FixedLook(), NEVER)
    async with top.run_test(size=SMALL) as pilot:
        assert shown(top) == ["consumers"]
        await pilot.press("tab")
        assert shown(top) == ["connections"]
        await pilot.press("tab")
        assert shown(top) == ["streams"]
        await pilot.resize_terminal(*LARGE)
        assert shown(top) == ["streams", "consumers", "connections"]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1,200", 1200), ("2.0 MiB", 2 << 20), ("1m2s", 62), ("never", None), ("10.0.0.1:4", None)],
)
def test_what_a_cell_amounts_to_decides_where_it_stands(text: str, amount: float | None) -> None:
    assert magnitude(text) == amount
