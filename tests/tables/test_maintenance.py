"""Tables stay small in files and snapshots, and nothing that counts is ever deleted."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slipstream.errors import ConfigError
from slipstream.tables import TableOptions, TableWriter, stream_table
from slipstream.tables.iceberg import (
    compact,
    delete_unused,
    expire,
    open_catalog,
    position_of,
)
from slipstream.tables.iceberg.synced_files import SyncedFileIO
from tests.tables.conftest import ON_ICEBERG, STREAM, Place

if TYPE_CHECKING:
    from pyiceberg.table import Table

SMALL = TableOptions(commit_rows=10)


def table_of(place: Place, name: str = "orders") -> "Table":
    """A table as another process sees it."""
    return open_catalog(str(place.folder)).load_table(f"streams.{name}")


def files_of(table: "Table") -> list[str]:
    """The files of a table's current snapshot."""
    return [task.file.file_path for task in table.scan().plan_files()]


def set_times(folder: Path, moment: float) -> None:
    """Have all files in a folder look as if they were written then."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (moment, moment))


def left_in(folder: Path) -> list[Path]:
    """What is in a folder."""
    return list(folder.rglob("*"))


@ON_ICEBERG
async def test_many_small_files_become_one_and_the_position_stays(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(60)))
    await place.write(SMALL)
    table = table_of(place)
    assert len(files_of(table)) == 6
    assert compact(table, TableOptions(compact_files=7)) == 0
    assert compact(table, TableOptions(compact_files=6)) == 6
    table = table_of(place)
    assert len(files_of(table)) == 1
    assert table.scan().to_arrow()["_sequence"].to_pylist() == list(range(1, 61))
    assert (await place.write()).rows == 0


@ON_ICEBERG
async def test_a_writer_merges_and_expires_by_itself(place: Place) -> None:
    await place.publish(*({"n": n} if n % 5 else b"bad" for n in range(320)))
    options = TableOptions(commit_rows=10, compact_files=4, snapshots_kept=5)
    assert (await place.write(options)).commits == 32
    for name in ("orders", "orders_rejected"):
        table = table_of(place, name)
        assert len(files_of(table)) < 10
        assert len(table.metadata.snapshots) < 5 + 17 + 2
    rows, rejected = place.sequences()
    assert len(rows) == 256
    assert len(rejected) == 64


@ON_ICEBERG
async def test_unused_files_go_when_they_are_old_and_used_ones_never(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(40)))
    await place.write(SMALL)
    table = table_of(place)
    merged = files_of(table)
    compact(table, TableOptions(compact_files=2))
    folder = Path(table.location().removeprefix("file://"))
    left = folder / "data" / "of-a-killed-writer.parquet"
    left.write_bytes(b"")
    kept = folder / "data" / "of-somebody-else.txt"
    kept.write_bytes(b"")
    assert delete_unused(table, 3600) == 0
    assert expire(table, 1) > 3
    long_ago = time.time() - 7200
    set_times(folder, long_ago)
    assert delete_unused(table, 3600) > len(merged)
    assert not {path.removeprefix("file://") for path in merged} & set(map(str, left_in(folder)))
    assert not left.exists()
    assert kept.exists()
    assert place.sequences()[0] == list(range(1, 41))
    await place.publish({"n": 40})
    assert (await place.write()).rows == 1
    assert delete_unused(table_of(place), 3600) == 0


@ON_ICEBERG
async def test_snapshots_with_a_name_do_not_expire(place: Place) -> None:
    await place.publish(*({"n": n} for n in range(30)))
    await place.write(SMALL)
    table = table_of(place)
    first = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().create_tag(first, "before").commit()
    expire(table, 1)
    assert {s.snapshot_id for s in table_of(place).metadata.snapshots} == {
        first,
        table.metadata.current_snapshot_id,
    }


@ON_ICEBERG
async def test_a_folder_that_is_moved_away_and_back_is_the_same_table(place: Place) -> None:
    await place.publish({"n": 1})
    await place.write()
    aside = place.folder.with_name("aside")
    place.folder.rename(aside)
    aside.rename(place.folder)
    assert (await place.write()).rows == 0
    position = position_of(table_of(place), STREAM)
    assert position is not None
    assert position.sequence == 1


def test_files_are_synced_when_they_are_closed_and_folders_when_files_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note_and_sync(number: int) -> None:
        path = os.readlink(f"/proc/self/fd/{number}")
        if path.startswith(str(tmp_path)):  # a server in this process syncs its own
            synced.append(path)
        sync(number)

    monkeypatch.setattr(os, "fsync", note_and_sync)
    path = tmp_path / "a" / "b" / "file.parquet"
    output = SyncedFileIO().new_output(path.as_uri())
    with output.create() as stream:
        stream.write(b"rows")
        assert str(path) not in synced
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(path), str(path.parent)]
    assert path.read_bytes() == b"rows"
    with pytest.raises(FileExistsError):
        output.create()


@ON_ICEBERG
async def test_every_file_of_a_table_in_a_folder_is_synced_before_the_table_names_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: (synced.add(os.readlink(f"/proc/self/fd/{number}")), sync(number)),
    )
    await place.publish({"n": 1}, b"bad")
    await place.write()
    made = {
        str(path)
        for path in place.folder.rglob("*.*")
        if path.suffix in (".parquet", ".avro", ".json")
    }
    assert len(made) > 10
    assert made <= synced


@pytest.mark.parametrize("where", ["", "s3://bucket/warehouse"])
def test_a_place_that_has_no_catalog_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="table catalog"):
        open_catalog(where)


@ON_ICEBERG
async def test_a_catalog_may_be_elsewhere_than_the_files(place: Place, tmp_path: Path) -> None:
    """As with a catalog in a database and files in an object store: by properties alone."""
    properties = {
        "uri": f"sqlite:///{tmp_path}/elsewhere.db",
        "warehouse": (tmp_path / "files").as_uri(),
    }

    await place.publish({"n": 1})
    catalog = open_catalog(str(place.folder), properties)
    await TableWriter(place.js, stream_table(catalog, "a.b", STREAM)).write_all()
    assert list((tmp_path / "files").rglob("*.parquet"))
    assert not list(place.folder.rglob("*.parquet"))
