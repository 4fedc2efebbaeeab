"""Broken runs, damaged objects, stores that fail, and what is dropped on purpose."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipstream.backups import DirectoryStore, Place, Point, open_place
from slipstream.backups import manifest as manifests
from slipstream.backups import place as places
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import BackupError
from slipstream.errors import ConfigError, CorruptionError
from tests.backups.test_runs import publish, stored

MakeStream = Callable[..., Awaitable[Stream]]


class FailingStore(DirectoryStore):
    """A directory where the write of a number `fails_at` fails."""

    def __init__(self, root: Path, fails_at: int) -> None:
        super().__init__(root)
        self._writes_left = fails_at

    async def put_new(self, name: str, data: bytes) -> bool:
        """Write, or fail."""
        self._writes_left -= 1
        if self._writes_left == 0:
            raise BackupError("the store is away")
        return await super().put_new(name, data)


async def backed_up(
    js: JetStream, make_stream: MakeStream, place: Place, messages: int = 20, runs: int = 1
) -> str:
    """The name of a stream of which a place has so many runs, each of so many messages."""
    name = (await make_stream()).cached_info.config.name
    for _ in range(runs):
        await publish(js, name, messages)
        await place.back_up(js, name)
    return name


async def test_a_broken_run_leaves_the_place_as_it_was(
    js: JetStream, make_stream: MakeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PART_BYTES", 2000)
    monkeypatch.setattr("slipstream.backups.reading.BATCH_MESSAGES", 10)
    place = Place(DirectoryStore(tmp_path))
    name = await backed_up(js, make_stream, place)
    await publish(js, name, 100)
    before = await place.check()
    for fails_at in range(1, 6):
        with pytest.raises(BackupError, match="the store is away"):
            await Place(FailingStore(tmp_path, fails_at)).back_up(js, name)
        assert msgspec.to_builtins(await place.check()) == msgspec.to_builtins(before)
    await place.back_up(js, name)
    found = await place.check()
    assert sum(part.messages for part in found.generations[0].parts) == 120
    before_it = await place.store.names("")
    await place.prune()  # what the broken ones have left goes
    left = await place.store.names("")
    assert len(left) < len(before_it)
    kept = {one for one in left if not one.startswith("manifests/")}
    assert kept == (await place.check()).objects


async def test_a_run_that_is_cancelled_leaves_nothing_behind_but_objects(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = await backed_up(js, make_stream, place)
    await publish(js, name, 20)
    task = asyncio.create_task(place.back_up(js, name))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len((await place.check()).generations[0].runs) == 1


async def test_every_damaged_byte_is_found(
    js: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    place = open_place(tmp_path)
    await backed_up(js, make_stream, place)
    await place.check()
    objects = [tmp_path / name for name in await place.store.names("")]
    assert len(objects) == 3
    for path in objects:
        whole = path.read_bytes()
        for at in range(0, len(whole), max(len(whole) // 50, 1)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises((CorruptionError, BackupError)):
                await place.check()
        for wrong in (b"", whole[:-1], whole + b"x"):
            path.write_bytes(wrong)
            with pytest.raises(CorruptionError):
                await place.check()
        path.unlink()
        with pytest.raises(BackupError):
            await place.check()
        path.write_bytes(whole)
    await place.check()


async def test_no_part_of_a_damaged_backup_becomes_a_stream(
    js: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    place = open_place(tmp_path)
    name = await backed_up(js, make_stream, place)
    [part] = (tmp_path / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    await js.delete_stream(name)
    with pytest.raises(CorruptionError, match="is damaged: its checksum does not match"):
        await place.restore(js)
    assert name not in [one async for one in js.stream_names()]


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    sealed = {"format": 2, "sha256": "", "manifest": {}}
    (tmp_path / "manifests" / "000000000001.json").write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(BackupError, match="use a newer one"):
        await open_place(tmp_path).check()


async def test_a_manifest_that_names_other_files_is_refused(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = (await make_stream()).cached_info.config.name
    await place.back_up(js, name)
    found = await place.manifest()
    run = found.generations[0].runs[0]
    found.generations[0].runs[0] = msgspec.structs.replace(run, name="runs/../../secret")
    with pytest.raises(CorruptionError, match="names an object that cannot be"):
        await manifests.commit(place.store, found)
    with pytest.raises(CorruptionError, match="names an object that cannot be"):
        await place.check()


async def test_what_is_no_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="is no backup"):
        await open_place(tmp_path / "none").check()
    for url in ("foo://x/y", "s3://"):
        with pytest.raises(ConfigError, match="write a directory, or s3://"):
            open_place(url)
    assert str(open_place(f"file://{tmp_path}").store) == str(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BackupError, match="cannot be made"):
        await open_place(tmp_path / "file").store.put_new("parts/x", b"")


async def test_runs_are_dropped_and_parts_with_them(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = (await make_stream(storage="file")).cached_info.config.name
    for _ in range(12):
        await publish(js, name, 10)
        await place.back_up(js, name)
    await js.delete_message(name, 65)
    await js.purge_stream(name, sequence=31)
    done = await place.back_up(js, name)
    assert done.run.messages == 89
    await place.prune(before=datetime.now(UTC) - timedelta(days=1))
    found = await place.check()
    assert len(found.generations[0].runs) == 13
    assert len(found.generations[0].parts) == 1  # small ones are one now
    assert await place.prune(keep=3) >= 10
    found = await place.check()
    assert [run.last_seq for run in found.generations[0].runs] == [110, 120, 120]
    assert await place.prune(before=datetime.now(UTC) + timedelta(days=1)) > 0
    found = await place.check()
    assert len(found.generations[0].runs) == 1  # the last one stays
    messages = await stored(js, name)
    await js.delete_stream(name)
    await place.restore(js)
    assert await stored(js, name) == messages
    await js.delete_stream(name)
    await place.restore(js, Point(sequence=100))
    assert list(await stored(js, name)) == [one for one in messages if one <= 100]


async def test_parts_without_a_message_that_is_needed_go(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = await backed_up(js, make_stream, place, messages=10, runs=3)
    await js.purge_stream(name, sequence=21)
    await place.back_up(js, name)
    assert await place.prune(keep=1) == 5  # two parts, three runs
    found = await place.check()
    assert [part.first_seq for part in found.generations[0].parts] == [21]
    await js.delete_stream(name)
    await make_stream(name=name, subjects=[f"{name}.>"])
    await place.back_up(js, name)
    await place.prune(keep=1)
    found = await place.check()
    assert (len(found.generations), found.generations[0].parts) == (1, [])


async def test_a_prune_beside_a_run_costs_one_of_them(
    js: JetStream, make_stream: MakeStream, place: Place
) -> None:
    name = await backed_up(js, make_stream, place, messages=10, runs=3)
    await publish(js, name, 10)
    both: list[Awaitable[Any]] = [place.back_up(js, name), place.prune(keep=1)]
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(one, BackupError) for one in ended) <= 1
    await place.check()
    await place.back_up(js, name)
    await place.check()
