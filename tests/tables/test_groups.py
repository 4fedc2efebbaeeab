"""A table is written from a group of three servers whose leaders are killed or step down."""

import asyncio
from pathlib import Path

import pytest

import slipstream
from slipstream.tables import (
    Progress,
    TableOptions,
    TableWriter,
    stream_table,
)
from slipstream.tables.iceberg import open_catalog
from tests.spark.mortal_groups import HOW, MortalGroup

COUNT = 2000


@pytest.mark.parametrize("how", HOW)
async def test_each_message_is_in_the_table_once_when_leaders_change(
    tmp_path: Path, how: str
) -> None:
    group = await asyncio.to_thread(MortalGroup, tmp_path)
    changes = 0

    def change(progress: Progress) -> None:
        """In the middle of the write, and again before its end."""
        nonlocal changes
        if progress.sequence > (changes + 1) * 700:
            changes += 1
            group.change_leader(how)

    try:
        async with slipstream.connect(group.urls) as nc:
            js = nc.jetstream()
            await js.create_stream(name="N", subjects=["n"], num_replicas=3, allow_direct=True)
            for number in range(COUNT):
                await js.publish_async("n", b'{"n":%d}' % number)
            await js.publish_async_complete()
            options = TableOptions(commit_rows=100)
            table = stream_table(str(tmp_path), "numbers", "N", options)
            await TableWriter(js, table, change).write_all()
    finally:
        await asyncio.to_thread(group.end)
    assert changes == 2
    rows = open_catalog(str(tmp_path)).load_table("streams.numbers").scan().to_arrow()
    assert sorted(rows["n"].to_pylist()) == list(range(COUNT))
