"""A server that follows reads its files again, and has those of another one where its disk has
changed what they hold."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream
import slipstream.sync
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.recovery import open_log
from slipstream.log.stream_store import TwinFile
from slipstream.model.durations import SECOND
from slipstream.server.replica import follower_scrub
from slipstream.server.replica.follower_scrub import FollowerScrub, open_segment
from slipstream.server.replica.store_directory import StoreDirectory
from tests.log.storing import commit, fill, readable
from tests.server.group.waiting import until

FAST = 1 << 40


class Scrubbed:
    """The files of a follower with a log of several segments, and what a pass has found."""

    def __init__(self, path: Path) -> None:
        self.disk = OsDisk()
        self.directory: StoreDirectory | None = StoreDirectory(self.disk, str(path), 0)
        self.root = f"{self.directory.root}/S/msgs"
        self.disk.makedirs(self.root)
        self.log = self.open()
        fill(self.log, 60)
        commit(self.log)
        commit(self.log)
        self.found: list[tuple[str, str]] = []

    def open(self) -> FileLog:
        end = TwinFile(self.disk, f"{self.root}/end")
        return open_log(self.disk, self.root, None, 1, 2_000, end)

    @property
    def segments(self) -> list[Path]:
        return sorted(Path(self.root).glob("*.seg"))

    async def note(self, path: str, fault: str) -> None:
        self.found.append((path, fault))

    async def run_pass(self, rate: int = FAST) -> list[tuple[str, str]]:
        """What it finds."""
        self.found.clear()
        scrub = FollowerScrub(self.disk, lambda: self.directory, lambda: rate, self.note)
        await scrub.run_pass()
        return self.found


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Scrubbed]:
    files = Scrubbed(tmp_path / "store")
    yield files
    files.log.close()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


async def test_whole_files_are_found_whole(files: Scrubbed) -> None:
    assert len(files.segments) > 3
    assert await files.run_pass() == []


@pytest.mark.parametrize(
    ("offset", "said"), [(600, "where message"), (10, "the header of a segment file is damaged")]
)
async def test_a_bit_that_has_turned_over_is_found(files: Scrubbed, offset: int, said: str) -> None:
    damaged = files.segments[1]
    flip(damaged, offset)
    ((path, fault),) = await files.run_pass()
    assert path == str(damaged)
    assert said in fault


async def test_the_segment_that_is_written_to_and_what_goes_meanwhile_are_left_alone(
    files: Scrubbed,
) -> None:
    flip(files.segments[-1], 100)
    assert await files.run_pass() == []
    assert files.directory is not None
    gone = files.segments[0]
    gone.unlink()
    assert open_segment(files.disk, files.directory, str(gone)) is None
    assert not gone.exists()


async def test_what_is_known_to_be_lost_is_not_found_again(files: Scrubbed) -> None:
    flip(files.segments[1], 600)
    files.log.close()
    files.log = files.open()
    readable(files.log)
    commit(files.log)
    assert files.log.lost.count
    assert await files.run_pass() == []


async def test_files_that_could_not_be_replaced_are_found_again(files: Scrubbed) -> None:
    """Also where a later entry has removed what was damaged: they are no source for others."""
    assert files.directory is not None
    files.directory.distrust()
    ((path, fault),) = await files.run_pass()
    assert (path, fault) == (files.directory.root, "it was found before")


async def test_a_pass_ends_when_this_server_begins_to_lead(files: Scrubbed) -> None:
    flip(files.segments[1], 600)
    directory, files.directory = files.directory, None
    assert await files.run_pass() == []
    files.directory = directory
    assert len(await files.run_pass()) == 1


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[slipstream.Group]:
    """Three servers that scrub all the time, and have a closed segment each."""
    monkeypatch.setattr(follower_scrub, "FIRST_AFTER", SECOND // 20)
    monkeypatch.setattr(follower_scrub, "PASS_EVERY", SECOND // 20)
    with slipstream.Group(3, tmp_path / "group") as group:
        with slipstream.sync.connect(group.urls[0]) as nc:
            js = nc.jetstream()
            js.create_stream(name="S", subjects=["s"])
            for number in range(50):
                js.publish("s", b"message %d" % number)
            js.backup_stream("S", tmp_path / "backup")  # the segment is closed for it
            js.publish("s", b"one more")
        yield group


async def closed_segment(tmp_path: Path, name: str) -> Path:
    """Of a server, once it has it."""

    def found() -> Path | None:
        there = sorted((tmp_path / "group" / name).glob("store/files/jetstream/*/S/msgs/*.seg"))
        return there[0] if len(there) > 1 else None

    return await until(found, f"{name} has a closed segment")


async def test_a_follower_gets_whole_files_for_those_that_its_disk_has_changed(
    group: slipstream.Group, tmp_path: Path
) -> None:
    whole = await closed_segment(tmp_path, group.leader)
    damaged = await closed_segment(
        tmp_path, next(one for one in group.names if one != group.leader)
    )
    await until(lambda: damaged.read_bytes() == whole.read_bytes(), "it has all of it")
    flip(damaged, 300)
    await until(
        lambda: damaged.exists() and damaged.read_bytes() == whole.read_bytes(),
        "it has the leader's files",
    )


async def test_while_a_server_is_away_no_other_one_gives_its_files_up(
    group: slipstream.Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It could not lead before it has those of the leader, which may go meanwhile."""
    follower, away = (one for one in group.names if one != group.leader)
    whole = await closed_segment(tmp_path, group.leader)
    damaged = await closed_segment(tmp_path, follower)
    await until(lambda: damaged.read_bytes() == whole.read_bytes(), "it has all of it")
    member = next(one for one in group._members if one.name == away)
    member.thread.ask_to_stop()
    await asyncio.to_thread(member.thread.join)
    flip(damaged, 300)
    await until(lambda: f"they are fetched once {away} is there" in caplog.text, "it is found")
    assert damaged.read_bytes() != whole.read_bytes()


async def test_files_that_could_not_be_fetched_are_so_the_next_time(
    group: slipstream.Group, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as by a server that begins to lead just then. Nobody else's were found damaged."""
    leader = next(one for one in group._members if one.name == group.leader)
    loop = leader.thread._loop
    assert loop is not None
    for _ in range(2):
        found = leader.server._found_damage("a segment", "a bit has turned over")
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(found, loop))
    assert caplog.text.count("No other server leads, which could send its files") == 2
    assert "those of another server had it, too" not in caplog.text
