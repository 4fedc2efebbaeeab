"""Folders of Parquet files: whoever looks at the folder alone sees each row once."""

import os
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.dataset as ds
import pytest

from slipstream.errors import ConfigError
from slipstream.tables import TableError, TableOptions, stream_table
from slipstream.tables.layout import rows_layout
from slipstream.tables.parquet import ParquetPart
from slipstream.tables.parquet.state import State, StateFolder
from slipstream.tables.parts import Wanted
from tests.tables.conftest import STREAM, KilledError, Place

SMALL = TableOptions(commit_rows=10)

pytestmark = pytest.mark.parametrize("place", ["parquet"], indirect=True)


def part_of(place: Place) -> ParquetPart:
    """The table of the rows, opened by itself."""
    part = ParquetPart(place.folder, ("streams", "orders"))
    part.load()
    return part


async def test_duckdb_and_polars_read_the_folder(place: Place) -> None:
    await place.publish(*({"n": n, "x": n / 4} for n in range(1000)), b"bad")
    await place.write(TableOptions(commit_rows=250))
    files = str(place.folder / "streams" / "orders" / "**" / "*.parquet")
    wanted = (1000, sum(range(1000)), sum(range(1000)) / 4)
    frame = polars.scan_parquet(files).select(polars.len(), polars.sum("n"), polars.sum("x"))
    assert frame.collect().row(0) == wanted
    found = duckdb.read_parquet(files, hive_partitioning=True).aggregate("count(*), sum(n), sum(x)")
    assert found.fetchall() == [wanted]


async def test_a_commit_that_was_not_moved_into_place_is_read_and_then_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish(*({"n": n} for n in range(10)))
    await place.write(SMALL)
    await place.publish({"n": 10})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", only_state(Path.replace))
        with pytest.raises(KilledError):
            await place.write(SMALL)
    assert place.sequences()[0] == list(range(1, 11))
    part = part_of(place)
    rows = [n for b in part.batches(Wanted(STREAM), ["n"]) for n in b.column(0).to_pylist()]
    assert sorted(rows) == list(range(11))
    assert (await place.write(SMALL)).rows == 0
    assert place.sequences()[0] == list(range(1, 12))


async def test_a_file_that_is_moved_into_place_while_it_is_read_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish({"n": 0})
    await place.write()
    await place.publish({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", only_state(Path.replace))
        with pytest.raises(KilledError):
            await place.write()
    part, dataset = part_of(place), ds.dataset

    def moved_meanwhile(*words: Any, **more: Any) -> ds.Dataset:
        ParquetPart(place.folder, ("streams", "orders")).make(rows_layout(SMALL))
        return dataset(*words, **more)

    monkeypatch.setattr(ds, "dataset", moved_meanwhile)
    rows = [n for b in part.batches(Wanted(STREAM), ["n"]) for n in b.column(0).to_pylist()]
    assert sorted(rows) == [0, 1]


def only_state(replace: object) -> object:
    """Renames `state.json` as `replace` does, and kills the writer before another file."""

    def call(path: Path, target: Path) -> object:
        if path.name != "state.new":
            raise KilledError
        return replace(path, target)  # type: ignore[operator]

    return call


async def test_what_killed_writers_have_staged_goes_when_it_is_old(place: Place) -> None:
    await place.publish({"n": 1})
    await place.write()
    staged = place.folder / "streams" / "orders" / "_slipstream" / "staged"
    for name in ("old", "new"):
        (staged / name).write_bytes(b"x")
    os.utime(staged / "old", (1, 1))
    part_of(place).tend(SMALL, deletes_unused=True)
    assert [path.name for path in staged.iterdir()] == ["new"]


async def test_every_file_is_synced_before_the_state_names_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def seen(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}").rpartition("/streams/")[2])
        sync(number)

    monkeypatch.setattr(os, "fsync", seen)
    await place.publish({"n": 1})
    await place.write()
    (data,) = (name for name in synced if name.startswith("orders/_slipstream/staged/"))
    state = len(synced) - 1 - synced[::-1].index("orders/_slipstream/state.new")
    folder = next(at for at, name in enumerate(synced) if name.startswith("orders/by_time="))
    assert synced.index(data) < state < folder


@pytest.mark.parametrize("where", ["", "s3://bucket/path", "catalog:prod"])
async def test_a_place_that_is_no_folder_is_refused(place: Place, where: str) -> None:
    with pytest.raises(ConfigError, match="they are in a folder"):
        stream_table(where, "orders", STREAM, TableOptions(format="parquet"))
    with pytest.raises(ConfigError, match="take no properties: a"):
        stream_table("w", "orders", STREAM, TableOptions(format="parquet"), {"a": "b"})


def part_of_rejected(place: Place) -> ParquetPart:
    """The table of the rejected messages, opened by itself."""
    part = ParquetPart(place.folder, ("streams", "orders_rejected"))
    part.load()
    return part


async def test_what_a_killed_writer_has_committed_is_not_deleted_by_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish(b"bad")
    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "move", only_nothing(StateFolder.move))
        with pytest.raises(KilledError):
            await place.write(SMALL)
    part = part_of_rejected(place)
    make_old(place)
    part.tend(SMALL, deletes_unused=True)
    await place.write(SMALL)
    assert place.sequences() == ([], [1])


def only_nothing(move: object) -> object:
    """Moves as `move` does, and kills the writer if there is a file to be moved."""

    def call(kept: StateFolder, state: State) -> object:
        if state.moves:
            raise KilledError
        return move(kept, state)  # type: ignore[operator]

    return call


async def test_a_writer_that_has_slept_commits_no_file_that_was_deleted_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.publish({"n": 1}, b"bad")
    await place.write(SMALL)
    await place.publish(b"bad")
    other = part_of_rejected(place)
    commit = ParquetPart._commit

    def late(part: ParquetPart, state: State) -> bool:
        if state.moves:
            make_old(place)
            other.tend(SMALL, deletes_unused=True)
        return commit(part, state)

    with monkeypatch.context() as patch:
        patch.setattr(ParquetPart, "_commit", late)
        with pytest.raises(TableError, match="was deleted before it was committed"):
            await place.write(SMALL)
    await place.write(SMALL)
    assert place.sequences() == ([1], [2, 3])


def make_old(place: Place) -> None:
    """Have all staged files staged long ago."""
    for path in place.folder.glob("streams/*/_slipstream/staged/*"):
        os.utime(path, (1, 1))
