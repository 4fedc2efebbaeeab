"""Delta tables: what keeps them quick and whole, and who else reads them."""

import asyncio
import json
import os
from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable, write_deltalake

from slipstream.errors import ConfigError
from slipstream.tables import TableError, TableOptions, stream_table
from slipstream.tables.delta import DeltaPart
from slipstream.tables.parts import Wanted
from tests.tables.conftest import STREAM, Place

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


@pytest.mark.parametrize("where", ["", "https://catalog.example/", "catalog:prod"])
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
