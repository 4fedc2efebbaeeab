"""A writer gives each message of a stream one place, goes on where the table ends, and says why
it cannot when it cannot."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client import ClientError
from slipstream.client.arrow.scan import Scan
from slipstream.client.jetstream.errors import ApiError
from slipstream.tables import (
    OtherWriterError,
    PositionLostError,
    Progress,
    StreamReplacedError,
    TableError,
    TableOptions,
    TableWriter,
    stream_table,
)
from slipstream.tables.iceberg import compact, expire, open_catalog
from slipstream.tables.parts import Part, Wanted
from slipstream.tables.positions import Position
from slipstream.tables.rows import RowMaker
from slipstream.tables.writer import identity_of
from tests.tables.conftest import ON_ICEBERG, STREAM, Place

SMALL = TableOptions(commit_rows=10)


async def test_messages_become_rows_and_the_table_says_how_far_it_goes(place: Place) -> None:
    await place.publish({"number": 1, "price": 2.5}, {"number": 2})
    progress = await place.write()
    assert (progress.rows, progress.sequence, progress.commits) == (2, 2, 1)
    assert place.rows("_stream", "_subject", "_sequence", "number", "price") == [
        {"_stream": STREAM, "_subject": "orders.new", "_sequence": 1, "number": 1, "price": 2.5},
        {"_stream": STREAM, "_subject": "orders.new", "_sequence": 2, "number": 2, "price": None},
    ]
    stored = (await (await place.js.stream(STREAM)).get_message(1)).time
    assert place.rows("_time")[0]["_time"] == stored.replace(microsecond=stored.microsecond)
    rows, rejected = place.tables().read()
    position = rows.position(STREAM)
    assert position is not None
    assert (position.sequence, position.lost) == (2, 0)
    assert position.created == identity_of(await place.js.stream_info(STREAM))
    assert rejected.position(STREAM) is not None


async def test_a_later_writer_goes_on_where_the_table_ends(place: Place) -> None:
    for number in range(3):
        await place.publish({"n": number}, {"n": number})
        assert (await place.write()).rows == 2
    assert (await place.write()).commits == 0
    assert place.sequences() == ([1, 2, 3, 4, 5, 6], [])


async def test_what_does_not_fit_is_in_a_table_of_its_own_with_the_reason(place: Place) -> None:
    await place.publish({"n": 1}, b"text", {"n": "one"}, {"n": 2})
    progress = await place.write()
    assert (progress.rows, progress.rejected) == (2, 2)
    assert place.sequences() == ([1, 4], [2, 3])
    first, second = place.rejected("_subject", "reason", "data")
    assert first["data"] == b"text"
    assert second["reason"] == "Expected `int`, got `str` - at `$.n`"


async def test_columns_are_added_as_fields_are_met(place: Place) -> None:
    await place.publish({"a": 1})
    await place.write()
    await place.publish({"a": 2, "b": {"c": [1]}}, {"d.e": "x"})
    await place.write()
    assert place.rows("a", "b", "d.e") == [
        {"a": 1, "b": None, "d.e": None},
        {"a": 2, "b": '{"c": [1]}', "d.e": None},
        {"a": None, "b": None, "d.e": "x"},
    ]
    await place.publish({"b": [2]})  # that b is JSON is known to the table
    await place.write()
    assert place.rows("b")[-1] == {"b": "[2]"}


async def test_fields_may_have_any_name_but_those_that_are_taken(place: Place) -> None:
    names = ["day", "hour", "_created", "reason", "data", "select", "a b", "é", "f0", "n0"]
    await place.publish(dict.fromkeys(names, 1), {"_partition": 1})
    await place.write()
    assert place.rows(*names) == [dict.fromkeys(names, 1)]
    assert "_partition" in place.rejected("reason")[0]["reason"]


async def test_bodies_and_headers_are_kept_as_they_are_if_asked(place: Place) -> None:
    await place.js.publish("orders.new", b"\xff\x00", headers={"K": "v"})
    await place.write(TableOptions(body="bytes", headers=True))
    assert place.rows("data", "_headers") == [{"data": b"\xff\x00", "_headers": [("K", ["v"])]}]


async def test_late_rows_are_rejected_and_others_lie_in_the_partition_of_their_time(
    place: Place,
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    times = [now, now - timedelta(hours=5), now - timedelta(hours=50)]
    await place.publish(*({"at": time.isoformat()} for time in times), {"at": None})
    options = TableOptions(time="at", late_seconds=24 * 3600, partition="hour")
    await place.write(options)
    assert place.sequences() == ([1, 2, 4], [3])
    assert place.rejected("reason")[0]["reason"].startswith("late: at is 18")
    rows, _ = place.tables().read()
    assert len(rows.files(Wanted(STREAM))) == 3


async def test_only_wanted_subjects_are_written(place: Place) -> None:
    await place.publish({"n": 1}, subject="orders.a")
    await place.publish({"n": 2}, subject="orders.b")
    options = TableOptions(subjects=("orders.a",))
    assert (await place.write(options)).rows == 1
    assert (await place.write(options)).rows == 0
    assert place.sequences() == ([1], [])


async def test_deleted_messages_are_holes_and_no_loss(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(30)))
    for sequence in (1, 7, 8, 30):
        await place.js.delete_message(STREAM, sequence)
    progress = await place.write(SMALL)
    assert (progress.rows, progress.lost) == (26, 0)
    assert (await place.write(SMALL)).commits == 0


async def test_messages_that_are_gone_before_they_were_read_are_counted(place: Place) -> None:
    await place.publish({"n": 1}, {"n": 2})
    await place.js.purge_stream(STREAM, sequence=2)
    assert (await place.write()).lost == 0  # they were gone before the table was begun
    await place.publish(*({"n": n} for n in range(10)))
    await place.js.purge_stream(STREAM, keep=3)
    assert (await place.write()).lost == 7
    await place.publish({"n": 3})
    assert (await place.write()).lost == 7
    assert place.sequences() == ([2, 10, 11, 12, 13], [])


async def test_an_archived_stream_keeps_what_the_table_has_not(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(25)), b"bad")
    progress = await place.write(TableOptions(archive=True, commit_rows=10))
    assert progress.archived == 26
    assert (await place.js.stream_info(STREAM)).state.messages == 0
    await place.publish({"n": 25})
    progress = await place.write(TableOptions(archive=True))
    assert (progress.archived, progress.lost) == (1, 0)
    assert place.sequences() == ([*range(1, 26), 27], [26])


async def test_a_stream_that_was_made_anew_is_refused_unless_told_to_begin_anew(
    place: Place,
) -> None:
    await place.publish({"n": 1}, b"bad", {"n": 2})
    await place.write()
    await place.js.delete_stream(STREAM)
    await place.js.create_stream(name=STREAM, subjects=["orders.>"])
    await place.publish({"n": 3}, b"worse")
    with pytest.raises(StreamReplacedError, match="was made anew"):
        await place.write()
    assert (await place.write(TableOptions(begin_anew=True))).rows == 1
    assert (await place.write(TableOptions(begin_anew=True))).rows == 0
    assert sorted(row["n"] for row in place.rows("n")) == [1, 2, 3]
    assert sorted(row["data"] for row in place.rejected("data")) == [b"bad", b"worse"]


async def test_a_stream_that_is_made_anew_while_it_is_read_is_not_mixed_with_the_old_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish(*({"n": n} for n in range(20)))

    async def replace(scan: Scan) -> None:
        await place.js.delete_stream(STREAM)
        await place.js.create_stream(name=STREAM, subjects=["orders.>"])
        await place.publish(*({"n": -n} for n in range(40)))

    seen = []
    read = Scan.__anext__

    async def read_and_replace(scan: Scan) -> object:
        batch = await read(scan)
        seen.append(batch)
        if len(seen) == 1:
            await replace(scan)
        return batch

    monkeypatch.setattr(Scan, "__anext__", read_and_replace)
    with pytest.raises(StreamReplacedError, match="made anew"):
        await place.write(SMALL)
    assert place.rows("_sequence") == []


async def test_the_earlier_of_two_writers_finds_that_the_table_has_moved_on_and_stops(
    place: Place,
) -> None:
    await place.publish({"n": 1}, b"bad")
    committed = asyncio.Event()
    earlier = place.writer(on_commit=lambda progress: committed.set())
    running = asyncio.create_task(earlier.run())
    await committed.wait()
    assert (await place.write()).commits == 0
    await place.publish({"n": 2}, b"bad, too")
    with pytest.raises(OtherWriterError, match=f"another writer has taken stream {STREAM} over"):
        await running
    await place.write()
    assert place.sequences() == ([1, 3], [2, 4])


async def test_two_writers_that_commit_at_once_write_each_message_once(place: Place) -> None:
    await place.publish(*({"n": n} if n % 3 else b"bad" for n in range(200)))
    writers = [place.writer(SMALL) for _ in range(3)]
    ended = await asyncio.gather(*(w.write_all() for w in writers), return_exceptions=True)
    assert any(isinstance(end, Progress) for end in ended), ended
    assert all(isinstance(end, Progress | OtherWriterError) for end in ended), ended
    await place.write()
    rows, rejected = place.sequences()
    assert sorted(rows + rejected) == list(range(1, 201))


@ON_ICEBERG
async def test_a_compaction_of_somebody_else_in_between_costs_a_writer_nothing(
    place: Place,
) -> None:
    tables = place.tables(SMALL)
    seen = []

    def compact_elsewhere(progress: Progress) -> None:
        found = open_catalog(str(place.folder)).load_table("streams.orders")
        seen.append(compact(found, TableOptions(compact_files=2)))

    await place.publish(*({"n": n} for n in range(40)))
    writer = TableWriter(place.js, tables, compact_elsewhere)
    assert (await writer.write_all()).commits == 4
    assert sum(seen) > 2
    assert place.sequences()[0] == list(range(1, 41))


async def test_streams_that_share_a_table_have_a_position_each(place: Place) -> None:
    await place.js.create_stream(name="OTHER", subjects=["other.>"])
    try:
        await place.publish({"n": 1}, {"n": 2})
        await place.publish({"n": 3}, subject="other.x")
        await place.write()
        for rows in (1, 0):
            other = TableWriter(place.js, place.tables(stream="OTHER"))
            assert (await other.write_all()).rows == rows
            assert (await place.write()).rows == 0
        assert sorted(row["n"] for row in place.rows("n")) == [1, 2, 3]
    finally:
        await place.js.delete_stream("OTHER")


@ON_ICEBERG
async def test_snapshots_of_other_programs_hide_no_position_until_ours_has_expired(
    place: Place,
) -> None:
    await place.publish({"n": 1}, {"n": 2})
    await place.write()
    table = open_catalog(str(place.folder)).load_table("streams.orders")
    table.delete("n = 1")
    assert (await place.write()).rows == 0
    table.refresh()
    table.delete("n = 2")
    expire(table, 1)
    with pytest.raises(PositionLostError, match="has expired"):
        await place.write()


@ON_ICEBERG
async def test_a_table_that_was_not_made_from_a_stream_is_refused(place: Place) -> None:
    catalog = open_catalog(str(place.folder))
    catalog.create_namespace_if_not_exists("mine")
    await place.publish({"n": 1})
    await place.write()
    catalog.create_table(
        "mine.own", schema=catalog.load_table("streams.orders").schema().select("n")
    )
    writer = TableWriter(place.js, stream_table(catalog, "mine.own", STREAM))
    with pytest.raises(TableError, match="was not made from a stream"):
        await writer.write_all()


async def test_a_writer_that_follows_commits_what_comes_and_ends_when_it_is_cancelled(
    place: Place,
) -> None:
    committed: asyncio.Queue[int] = asyncio.Queue()
    options = TableOptions(commit_seconds=0.05)
    writer = place.writer(options, on_commit=lambda done: committed.put_nowait(done.sequence))
    running = asyncio.create_task(writer.run())
    for sequence in range(1, 4):
        await place.publish({"n": sequence})
        assert await committed.get() == sequence
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert place.sequences() == ([1, 2, 3], [])
    assert (await place.write()).rows == 0


async def test_a_stream_that_forbids_purges_is_not_archived_and_the_table_has_the_rows(
    place: Place,
) -> None:
    await place.js.delete_stream(STREAM)
    await place.js.create_stream(name=STREAM, subjects=["orders.>"], deny_purge=True)
    await place.publish({"n": 1})
    with pytest.raises(ApiError, match="purge"):
        await place.write(TableOptions(archive=True))
    assert place.sequences() == ([1], [])


async def test_a_server_that_stays_away_ends_the_writer_with_the_clients_error(
    tmp_path: Path,
) -> None:
    server = slipstream.Server(store_dir=str(tmp_path / "store")).start()
    async with await slipstream.connect(server.url) as nc:
        js = nc.jetstream(timeout=0.2)
        await js.create_stream(name=STREAM, subjects=["orders.>"])
        place = Place(js, tmp_path / "w")
        await place.publish({"n": 1})
        committed = asyncio.Event()
        options = TableOptions(retry_seconds=0.5)
        writer = place.writer(options, on_commit=lambda progress: committed.set())
        running = asyncio.create_task(writer.run())
        await committed.wait()
        await asyncio.to_thread(server.stop)
        with pytest.raises(ClientError):
            await running
    assert place.sequences() == ([1], [])


@pytest.mark.parametrize("place", ["slipstream", "delta", "parquet"], indirect=True)
async def test_of_two_that_begin_at_once_the_last_one_in_the_table_of_rows_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish(*({"n": n} if n % 3 else b"bad" for n in range(30)))
    late, early = place.tables(SMALL), place.tables(SMALL)
    part = type(late.parts()[0])
    append = part.append
    position = None

    def append_between(self: Part, *words: Any) -> bool:
        nonlocal position
        done: bool = append(self, *words)
        if position is None:  # the early one has taken over the first table, and not the second
            position = Position()
            position = late.open() or position
        return done

    monkeypatch.setattr(part, "append", append_between)
    with pytest.raises(OtherWriterError, match="at sequence 0"):
        early.open()
    maker = RowMaker(STREAM, {}, SMALL)
    scan = (await place.js.stream(STREAM)).scan(1, columns=maker.scanned_columns())
    batches = [batch async for batch in scan]
    made = maker.make(batches, "2026-01-01T00:00:00Z", frozenset())
    to = Position("2026-01-01T00:00:00Z", 30)
    await asyncio.to_thread(late.commit, maker.columns, made.fitting, made.rejected, to)
    rows, rejected = place.sequences()
    assert (len(rows), len(rejected)) == (20, 10)
