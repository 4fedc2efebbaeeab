"""A real file, written directly: what it holds is what a plain one would hold."""

import contextlib
import errno
import mmap
import os
import random
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.log import direct_write, os_file
from slipstream.log.disk import OsDisk, replace_file
from tests.plain_twin import plain_twin


@pytest.mark.parametrize("seed", range(12))
def test_a_file_holds_what_was_appended_however_it_was_written(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = OsDisk()
    path = str(tmp_path / "segment")
    file = disk.open(path)
    model = bytearray()
    for _ in range(120):
        step = chance.random()
        if step < 0.55:
            data = chance.randbytes(chance.choice((1, 40, 4095, 4096, 4097, 70_000)))
            file.reserve(len(model) + len(data))
            file.append(data)
            model += data
        elif step < 0.75:
            file.sync()
        elif step < 0.9 and model:
            at = chance.randrange(len(model))
            size = chance.randrange(1, 9000)
            assert file.pread(at, size)[: len(model) - at] == model[at : at + size]
        elif step < 0.94 and len(model) > 100:
            at = chance.randrange(len(model) - 100)
            file.pwrite(at, b"\0" * 100)
            model[at : at + 100] = bytes(100)
        elif step < 0.97:
            size = chance.randrange(len(model) + 1)
            file.truncate(size)
            del model[size:]
        else:
            file.truncate(len(model))
            file.close()
            file = disk.open(path)
        assert file.size() == len(model)
    file.close()
    assert Path(path).read_bytes()[: len(model)] == model
    assert not any(Path(path).read_bytes()[len(model) :])


def test_what_waits_to_be_written_to_a_file_that_goes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    file = OsDisk().open(str(path))
    file.reserve(100_000)
    file.append(b"written")
    file.sync()
    file.append(b"waiting")
    file.drop()
    file.sync()  # of a batch that a thread was about to run
    assert path.read_bytes().rstrip(b"\0") == b"written"


@pytest.mark.parametrize("seed", range(12))
def test_behind_the_end_of_its_data_a_file_has_only_zeros(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = str(tmp_path / "segment")
    file = OsDisk().open(path)
    for _ in range(chance.randrange(1, 8)):
        data = chance.randbytes(chance.choice((1, 40, 4096, 70_000, 600_000)))
        file.reserve(file.size() + len(data) + 8_000_000)
        file.append(data)
        if chance.random() < 0.7:
            file.sync()
    file.flush()
    if chance.random() < 0.5:
        file.pwrite(chance.randrange(9_000_000), b"torn")
    again = OsDisk().open(path)
    end, size = again.data_end(), again.size()
    assert 0 < end <= size
    assert not any(Path(path).read_bytes()[end:])
    again.close()
    file.close()


def test_a_file_system_that_is_not_known_to_know_is_not_asked_where_data_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_file, "KNOW_THEIR_DATA", ())
    file = OsDisk().open(str(tmp_path / "segment"))
    file.reserve(100_000)
    file.append(b"data")
    file.sync()
    again = OsDisk().open(str(tmp_path / "segment"))
    assert again.data_end() == again.size() >= 100_000
    again.close()
    file.close()


def test_a_kernel_that_calls_data_a_hole_has_the_whole_file_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ext4 did before Linux 4.12, where reserved space was written through the page cache."""
    file = OsDisk().open(str(tmp_path / "segment"))
    file.reserve(100_000)
    file.pwrite(0, b"data")
    monkeypatch.setattr(os_file.os, "lseek", lambda fd, offset, whence: offset)
    again = OsDisk().open(str(tmp_path / "segment"))
    assert again.data_end() == again.size() >= 100_000
    again.close()
    file.close()


@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_read_from_the_device_is_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Wherever it begins and ends, also past the end, and where nothing can be read directly."""
    if refuses:

        def refuse(*args: Any) -> None:
            raise OSError(errno.EINVAL, "no")

        monkeypatch.setattr(os_file.os, "preadv", refuse)
    chance = random.Random(2)
    data = chance.randbytes(2_500_003)
    disk = OsDisk()
    file = disk.open(str(tmp_path / "segment"))
    file.append(data)
    file.sync()
    for offset, size in ((0, 70_000), (4095, 65_536), (1, 2_400_000), (2_400_000, 1_000_000)):
        assert file.pread_stored(offset, size) == data[offset : offset + size]
    assert file.pread_stored(3_000_000, 100_000) == b""
    file.close()


def test_many_megabytes_in_one_batch_arrive_whole(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(str(tmp_path / "segment"))
    data = random.Random(1).randbytes(3_333_333)
    file.reserve(len(data) + 5)
    file.append(b"first")
    file.append(data)
    file.sync()
    assert file.pread(0, 5 + len(data)) == b"first" + data
    file.close()


def test_after_a_write_that_failed_nothing_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment"
    file = OsDisk().open(str(path))
    file.reserve(100_000)
    file.append(b"first")
    file.sync()

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os_file, "write_blocks", fails)
        file.append(b"lost")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    file.append(b"behind it")
    with pytest.raises(OSError, match="earlier write"):
        file.sync()
    file.close()
    assert path.read_bytes().rstrip(b"\0") == b"first"


@pytest.mark.parametrize("module", [direct_write, plain_twin("slipstream.log.direct_write")])
@given(parts=st.lists(st.binary(max_size=60).map(lambda b: b * 200), max_size=4), tail=st.binary())
def test_both_builds_write_the_same_blocks(module: Any, parts: list[bytes], tail: bytes) -> None:
    block = module.BLOCK
    text = tail + b"".join(parts)
    with tempfile.TemporaryFile() as file, mmap.mmap(-1, 2 * block) as buffer:
        file.write(b"x" * block)
        file.flush()
        rest = module.write_blocks(file.fileno(), buffer, parts, tail, block)
        file.seek(0)
        written = file.read()
    assert rest == text[len(text) // block * block :]
    assert written == b"x" * block + text + bytes(-len(text) % block)


@pytest.mark.parametrize("module", [direct_write, plain_twin("slipstream.log.direct_write")])
@given(pieces=st.lists(st.binary(max_size=60).map(lambda b: b * 200), max_size=6))
def test_both_builds_write_many_files_as_they_write_one(module: Any, pieces: list[bytes]) -> None:
    with contextlib.ExitStack() as stack:
        buffer = stack.enter_context(mmap.mmap(-1, 2 * module.BLOCK))
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in pieces]
        closed = os.open(os.devnull, os.O_RDONLY)
        os.close(closed)
        jobs = [(file.fileno(), data, 0) for file, data in zip(files, pieces, strict=True)]
        many = module.ManyWrites()
        failed = many.write(buffer, [*jobs[:1], (closed, b"nowhere", 0), *jobs[1:]])
        assert [failed[:1], failed[2:]] == [[0] * len(jobs[:1]), [0] * len(jobs[1:])] or not jobs
        assert failed.count(errno.EBADF) == 1
        for file, data in zip(files, pieces, strict=True):
            assert file.read() == data + bytes(-len(data) % module.BLOCK)


@pytest.mark.parametrize("module", [direct_write, plain_twin("slipstream.log.direct_write")])
def test_both_builds_replace_a_small_file(module: Any, tmp_path: Path) -> None:
    path, staged = str(tmp_path / "m\u00e9ta.0"), str(tmp_path / "meta.0.new")
    for content in (b"first", b"", b"x" * 100_000, b"last"):
        module.replace(path, staged, content)
        assert Path(path).read_bytes() == content
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert not os.path.exists(staged)
    (tmp_path / "directory" / "file").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        module.replace(str(tmp_path / "directory"), staged, b"content")
    with pytest.raises(FileNotFoundError):
        module.replace(str(tmp_path / "none" / "meta"), str(tmp_path / "none" / "new"), b"content")
    with pytest.raises(ValueError, match="null"):
        module.replace(path + "\0", staged, b"content")
    assert Path(path).read_bytes() == b"last"


def test_a_file_is_replaced_in_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    disk = OsDisk()
    path = str(tmp_path / "stream" / "obs" / "c" / "meta.0")
    replace_file(disk, path, b"content")
    assert disk.read(path) == b"content"
    os.mkdir(tmp_path / "taken")
    (tmp_path / "taken" / "inside").write_bytes(b"")
    with pytest.raises(OSError, match="taken"):
        replace_file(disk, str(tmp_path / "taken"), b"content")
    assert disk.list(str(tmp_path)) == ["stream", "taken"]


@pytest.mark.parametrize("size", [1, 5_000, 20_000, 70_000])
def test_many_pieces_are_written_at_once_as_one_after_the_other(tmp_path: Path, size: int) -> None:
    many = direct_write.ManyWrites()
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_DIRECT", 0)
    fds = [os.open(tmp_path / str(number), flags) for number in range(200)]
    pieces = [(fd, bytes([number]) * size, 4096) for number, fd in enumerate(fds)]
    with mmap.mmap(-1, 16 * direct_write.BLOCK) as buffer:
        for _ in range(2):  # the second time with what the first one has made for it
            assert many.write(buffer, pieces) == [0] * len(pieces)
    for number, fd in enumerate(fds):
        os.close(fd)
        found = (tmp_path / str(number)).read_bytes()
        assert found == bytes(4096) + bytes([number]) * size + bytes(-size % direct_write.BLOCK)


def test_files_that_are_flushed_together_hold_what_each_was_given(tmp_path: Path) -> None:
    disk = OsDisk()
    paths = [tmp_path / str(number) for number in range(150)]
    files = [disk.open(str(path)) for path in paths]
    for size in (100, 5_000, 1):
        for number, file in enumerate(files):
            if number % 3:
                file.reserve(10_000)
            if number % 5:
                file.append(bytes([number]) * size)
        assert set(disk.flush_all(files)) == {None}
        files[1].append(b"")
    for number, (file, path) in enumerate(zip(files, paths, strict=True)):
        size = 5_101 if number % 5 else 0
        assert path.read_bytes()[:size] == bytes([number]) * size
        assert file.pread(0, size) == bytes([number]) * size
        file.close()


def test_of_files_that_are_flushed_together_the_one_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = [disk.open(str(tmp_path / str(number))) for number in range(3)]
    for file in files:
        file.reserve(10_000)
        file.append(b"first")
    many_writes = direct_write.ManyWrites()

    class RefusesSecond:
        def write(self, buffer: mmap.mmap, pieces: list[tuple[int, bytes, int]]) -> list[int]:
            done = many_writes.write(buffer, [pieces[0], pieces[2]])
            return [done[0], errno.EIO, done[1]]

    with monkeypatch.context() as failing:
        failing.setattr(disk._buffers, "many_writes", RefusesSecond())
        first, second, third = disk.flush_all(files)
    assert (first, third) == (None, None)
    assert isinstance(second, OSError)
    assert "earlier write" in str(second)
    with pytest.raises(OSError, match="earlier write"):
        files[1].sync()
    files[2].append(b" second")
    files[2].sync()
    assert files[2].pread(0, 12) == b"first second"


def test_files_are_flushed_together_where_there_are_descriptors_for_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = [disk.open(str(tmp_path / str(number))) for number in range(3)]
    for number, file in enumerate(files):
        file.reserve(10_000)
        file.append(b"of %d" % number)
        assert file.rest()
    open_file, close_file = os.open, os.close
    taken: set[int] = set()

    def open_one(path: str, flags: int, mode: int = 0o777) -> int:
        if len(taken) >= 2:  # one for the page cache, one past it
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        taken.add(fd := open_file(path, flags, mode))
        return fd

    def close_one(fd: int) -> None:
        taken.discard(fd)
        close_file(fd)

    with monkeypatch.context() as few:
        few.setattr(os, "open", open_one)
        few.setattr(os, "close", close_one)
        assert disk.flush_all(files) == [None, None, None]
        for number, file in enumerate(files):
            file.sync()
            assert file.pread(0, 4) == b"of %d" % number
    for file in files:
        file.close()


def test_of_files_that_are_flushed_together_one_that_cannot_be_opened_keeps_none_of_the_others(
    tmp_path: Path,
) -> None:
    disk = OsDisk()
    paths = [tmp_path / str(number) for number in range(3)]
    files = [disk.open(str(path)) for path in paths]
    for file in files:
        file.reserve(10_000)
        file.append(b"first")
        assert file.rest()
    paths[1].rename(tmp_path / "away")
    first, second, third = disk.flush_all(files)
    assert (first, third) == (None, None)
    assert isinstance(second, FileNotFoundError)
    (tmp_path / "away").rename(paths[1])
    for file in files:
        file.sync()
        assert file.pread(0, 5) == b"first"
        file.close()


def test_files_whose_system_refuses_direct_writes_are_flushed_together_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = [disk.open(str(tmp_path / str(number))) for number in range(2)]
    for file in files:
        file.reserve(10_000)
        file.append(b"first")

    class Refuses:
        def write(self, _: mmap.mmap, pieces: list[tuple[int, bytes, int]]) -> list[int]:
            return [errno.EINVAL] * len(pieces)

    with monkeypatch.context() as refusing:
        refusing.setattr(disk._buffers, "many_writes", Refuses())
        assert disk.flush_all(files) == [None, None]
    assert [file.pread(0, 5) for file in files] == [b"first"] * 2


def test_what_a_failed_flush_has_lost_no_later_sync_calls_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "segment"))
    file.reserve(10_000)
    file.append(b"kept")
    file.sync()
    file.append(b"lost")

    def refuse(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(os_file, "write_blocks", refuse)
        with pytest.raises(OSError, match="Input"):
            file.flush()
    with pytest.raises(OSError, match="has failed"):
        file.sync()
    assert file.pread(0, 4) == b"kept"
    file.close()


def test_a_file_that_is_being_closed_does_not_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "segment"))
    file.reserve(10_000)
    file.append(b"kept")
    rested = []
    end_direct = os_file.OsFile._end_direct

    def rest_meanwhile(closing: os_file.OsFile) -> None:
        rested.append(closing.rest())
        end_direct(closing)

    monkeypatch.setattr(os_file.OsFile, "_end_direct", rest_meanwhile)
    file.close()
    assert rested == [False]


def test_what_a_thread_is_still_writing_is_not_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "segment"))
    file.reserve(3 * direct_write.BLOCK)
    body = b"x" * direct_write.BLOCK
    file.append(body)
    begun, goes_on = threading.Event(), threading.Event()
    write_blocks = direct_write.write_blocks

    def slowly(*args: Any) -> bytes:
        begun.set()
        goes_on.wait(10)
        return write_blocks(*args)

    monkeypatch.setattr(os_file, "write_blocks", slowly)
    thread = threading.Thread(target=file.flush)
    thread.start()
    begun.wait()
    while_written = file.pread_near(0, len(body))
    goes_on.set()
    thread.join()
    assert while_written is None
    assert file.pread(0, len(body)) == body
    file.close()


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EINTR, errno.EOPNOTSUPP, errno.ENOSPC])
def test_room_that_a_thread_is_refused_changes_nothing_for_those_who_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    file = OsDisk().open(str(tmp_path / "segment"))
    room = file.reserve(100_000)
    file.append(b"first")
    monkeypatch.setattr(os_file.OsFile, "_allocate", lambda *_: refusal)
    direct = file._direct
    assert file.reserve_ahead(2 * room) == 0
    assert file._direct == direct
    file.append(b", second")
    file.sync()
    assert file.pread(0, 13) == b"first, second"
    monkeypatch.undo()
    assert file.reserve_ahead(2 * room) >= 2 * room
    file.close()
