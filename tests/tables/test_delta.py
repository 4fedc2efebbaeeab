"""Delta tables: what keeps them quick and whole, and who else reads them."""

import asyncio
import json
import os
from pathlib import Path
from typing import Literal

import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from slipstream.errors import ConfigError
from slipstream.tables import TableError, TableOptions, stream_table
from slipstream.tables.delta import DeltaPart
from slipstream.tables.disk import sync_file
from slipstream.tables.parts import Wanted
from slipstream.tables.positions import Position
from tests.tables.conftest import STREAM, KilledError, Place

SYNC = "slipstream.tables.delta.log.sync_file"
SMALL = TableOptions(commit_rows=10, compact_files=2)

pytestmark = pytest.mark.parametrize("place", ["delta"], indirect=True)


def part_of(place: Place, name: str = "orders") -> DeltaPart:
    """A table, opened by itself."""
    part = DeltaPart(str(place.folder), ("streams", name), {})
    part.load()
    return part


def log_of(place: Place) -> list[Path]:
    """The entries of the log."""
    return sorted((place.folder / "streams" / "orders" / "_delta_log").glob("*.json"))


def entry_with(file: Path) -> Path:
    """The entry of the log that has added a file."""
    log = file.parents[1] / "_delta_log"
    (found,) = (path for path in log.glob("*.json") if file.name in path.read_text())
    return found


async def test_polars_reads_the_same_sums(place: Place) -> None:
    await place.publish(*({"n": n, "x": n / 4} for n in range(1000)), b"bad")
    await place.write(TableOptions(commit_rows=250))
    frame = polars.scan_delta(str(place.folder / "streams" / "orders"))
    found = frame.select(polars.len(), polars.sum("n"), polars.sum("x")).collect()
    assert found.row(0) == (1000, sum(range(1000)), sum(range(1000)) / 4)


async def test_a_writer_merges_files_and_the_position_stays(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(400)))
    await place.write(SMALL)
    part = part_of(place)
    assert len(part.files(Wanted(STREAM))) < 20
    before = part.position(STREAM)
    assert part.compact(SMALL) >= 0
    assert part_of(place).position(STREAM) == before
    assert place.sequences()[0] == list(range(1, 401))
    assert (await place.write(SMALL)).rows == 0


async def test_entries_that_a_checkpoint_replaces_go_when_they_are_old(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(30)))
    await place.write(SMALL)
    for path in log_of(place):
        os.utime(path, (1, 1))
    part_of(place).tend(SMALL, deletes_unused=True)
    assert len(log_of(place)) < 6
    assert place.sequences()[0] == list(range(1, 31))
    assert (await place.write(SMALL)).rows == 0


async def test_unused_files_go_when_they_are_old_and_used_ones_never(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(30)))
    await place.write(SMALL)
    folder = place.folder / "streams" / "orders"
    left = folder / "by_time=2001-02-03" / "left.parquet"
    left.parent.mkdir()
    left.write_bytes(b"of a killed writer")
    for path in folder.glob("by_time=*/*.parquet"):
        os.utime(path, (1, 1))
    part_of(place).tend(SMALL, deletes_unused=True)
    assert not left.exists()
    assert place.sequences()[0] == list(range(1, 31))


@pytest.mark.parametrize("text", [b"", b'{"commitInfo":{"timest', b"\0" * 100])
async def test_an_entry_that_a_power_failure_has_torn_is_taken_away(
    place: Place, text: bytes
) -> None:
    await place.publish({"n": 1}, {"n": 2})
    await place.write()
    last = log_of(place)[-1]
    last.with_name(f"{int(last.stem) + 1:020d}.json").write_bytes(text)
    await place.publish({"n": 3})
    assert (await place.write()).rows == 1
    assert place.sequences()[0] == [1, 2, 3]


async def test_commits_of_other_programs_are_no_conflict(place: Place) -> None:
    folder = place.folder / "streams" / "orders"

    def change_elsewhere(progress: object) -> None:
        rows = place.table("orders").slice(0, 0)
        write_deltalake(folder, rows, mode="append")

    await place.publish(*({"n": n} for n in range(30)))
    progress = await place.writer(SMALL, on_commit=change_elsewhere).write_all()
    assert progress.commits == 3
    assert place.sequences()[0] == list(range(1, 31))


async def test_every_file_and_entry_is_synced_before_a_commit_counts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def seen(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        sync(number)

    monkeypatch.setattr(os, "fsync", seen)
    await place.publish({"n": 1})
    await place.write()
    paths = {str(path) for path in place.folder.glob("streams/*/**/*.parquet")}
    entries = {str(path) for path in place.folder.glob("streams/*/_delta_log/*.json")}
    assert paths
    assert paths | entries <= set(synced)
    data = next(iter(paths))
    assert synced.index(data) < synced.index(str(entry_with(Path(data))))


async def test_a_table_with_features_that_we_do_not_know_is_written_but_not_read(
    place: Place,
) -> None:
    await place.publish({"n": 1})
    await place.write()
    entry = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                          "readerFeatures": ["deletionVectors"],
                          "writerFeatures": ["deletionVectors", "appendOnly"]}}  # fmt: skip
    last = log_of(place)[-1]
    last.with_name(f"{int(last.stem) + 1:020d}.json").write_text(json.dumps(entry) + "\n")
    with pytest.raises(TableError, match="features of Delta"):
        list(part_of(place).batches(Wanted(STREAM), ["n"]))


@pytest.mark.parametrize("where", ["", "https://catalog.example/", "catalog:prod", "file:///w"])
async def test_a_place_that_has_no_delta_tables_is_refused(place: Place, where: str) -> None:
    with pytest.raises(ConfigError, match="in a folder, or at the URL of an object store"):
        stream_table(where, "orders", STREAM, TableOptions(format="delta")).parts()


async def test_a_folder_of_another_format_is_refused(place: Place) -> None:
    await place.publish({"n": 1})
    await place.write()
    other = TableOptions(format="parquet")
    table = stream_table(str(place.folder), "orders", STREAM, other)
    with pytest.raises(TableError, match="is no table of this format"):
        await asyncio.to_thread(table.open)
    assert DeltaTable(place.folder / "streams" / "orders").version() >= 1


@pytest.mark.parametrize("name", ["orders%20new", "orders\\new"])
async def test_a_name_that_delta_rs_takes_for_another_one_is_refused(
    place: Place, name: str
) -> None:
    with pytest.raises(ConfigError, match="would take it for another path"):
        stream_table(str(place.folder), name, STREAM, TableOptions(format="delta")).parts()


async def test_a_store_that_nobody_knows_is_refused_in_a_line(place: Place) -> None:
    table = stream_table("unknown://x", "orders", STREAM, TableOptions(format="delta"))
    with pytest.raises(TableError, match=r"opening it failed: .*Unknown scheme"):
        await asyncio.to_thread(table.open)
    with pytest.raises(TableError, match=r"opening it failed: .*Unknown scheme"):
        await asyncio.to_thread(table.read)


@pytest.mark.parametrize("folder", ["with space", "100%", "a#b", "ü"])
async def test_files_are_named_as_the_disk_has_them(place: Place, folder: str) -> None:
    place.folder = place.folder / folder
    await place.publish({"n": 1})
    await place.write()
    (file,) = part_of(place).files(Wanted(STREAM))
    assert pq.read_table(file).num_rows == 1


async def rejected_by_two_streams(place: Place) -> tuple[DeltaPart, DeltaPart, Path]:
    """A writer's table of rejected messages as it was read before five commits of another stream;
    that other writer's; and the folder. All files and entries are old."""
    await place.publish(*(b"bad" for _ in range(5)))
    table = place.tables(stream="OTHER")
    await asyncio.to_thread(table.open)
    early = part_of(place, "orders_rejected")
    await place.write(TableOptions(commit_rows=1))
    folder = place.folder / "streams" / "orders_rejected"
    for path in folder.glob("*/*.*"):
        os.utime(path, (1, 1))
    return early, part_of(place, "orders_rejected"), folder


async def test_what_others_have_committed_since_is_not_taken_for_unused(place: Place) -> None:
    early, _, _ = await rejected_by_two_streams(place)
    early.tend(SMALL, deletes_unused=True)
    assert place.sequences() == ([], [1, 2, 3, 4, 5])


async def test_a_writer_goes_on_whose_entries_others_have_cleaned(place: Place) -> None:
    early, other, folder = await rejected_by_two_streams(place)
    other.tend(TableOptions(compact_files=0), deletes_unused=False)
    assert len(list((folder / "_delta_log").glob("*.json"))) == 1
    to = Position(writer="again")
    assert not early.append(None, "OTHER", to)  # others have committed
    assert early.append(None, "OTHER", to)
    assert place.sequences() == ([], [1, 2, 3, 4, 5])


async def test_a_position_is_read_though_others_have_cleaned_the_log(place: Place) -> None:
    await place.publish({"n": 1})
    await place.write()
    early = part_of(place)
    await place.publish({"n": 2})
    await place.write()
    other = part_of(place)
    for path in log_of(place):
        os.utime(path, (1, 1))
    other.tend(TableOptions(compact_files=0), deletes_unused=False)
    assert early.position(STREAM) == other.position(STREAM)


async def test_what_a_killed_writer_has_not_synced_is_synced_before_the_next_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(SYNC, kill)
        with pytest.raises(KilledError):
            await place.write()
    synced: list[str] = []

    def seen(path: Path) -> None:
        synced.append(str(path))
        sync_file(path)

    monkeypatch.setattr(SYNC, seen)
    await place.write()
    entries = {str(path) for path in place.folder.glob("streams/*/_delta_log/*.json")}
    assert entries <= set(synced)


def kill(path: Path) -> None:
    """Instead of a sync."""
    raise KilledError


async def test_a_checkpoint_that_a_power_failure_has_torn_is_taken_away(place: Place) -> None:
    await place.publish({"n": 1}, {"n": 2})
    await place.write()
    part_of(place).table.create_checkpoint()
    (checkpoint,) = log_of(place)[0].parent.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    await place.publish({"n": 3})
    assert (await place.write()).rows == 1
    assert place.sequences()[0] == [1, 2, 3]


async def test_several_entries_that_a_power_failure_has_torn_are_taken_away(place: Place) -> None:
    await place.publish({"n": 1}, {"n": 2})
    await place.write()
    last = log_of(place)[-1]
    for after in (1, 2):
        last.with_name(f"{int(last.stem) + after:020d}.json").write_bytes(b"\0" * 100)
    await place.publish({"n": 3})
    assert (await place.write()).rows == 1
    assert place.sequences()[0] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
async def test_a_table_inside_of_another_one_is_refused(
    place: Place, kind: Literal["delta", "parquet"]
) -> None:
    await place.publish({"n": 1})
    await place.write()
    for where, name in (("", "streams.orders.new"), ("streams/orders", "more")):
        options = TableOptions(format=kind)
        table = stream_table(str(place.folder / where), name, STREAM, options)
        with pytest.raises(TableError, match="is inside of the table in"):
            await asyncio.to_thread(table.open)


async def test_properties_of_a_store_are_refused_for_a_folder(place: Place) -> None:
    with pytest.raises(ConfigError, match="it takes no properties"):
        stream_table("w", "orders", STREAM, TableOptions(format="delta"), {"a": "b"}).parts()
