"""What is in the page cache is read without a wait; both builds say the same of what is not."""

import os
from pathlib import Path
from types import ModuleType

import pytest

from slipstream.log import cached_read
from tests.plain_twin import plain_twin

BUILDS = [cached_read, plain_twin("slipstream.log.cached_read")]
DATA = bytes(range(256)) * 1024

pytestmark = pytest.mark.skipif(not cached_read.KNOWS, reason="the system cannot be asked")


@pytest.mark.parametrize("module", BUILDS)
@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 10), (3, 100_000), (len(DATA) - 5, 5), (len(DATA) - 5, 99), (len(DATA), 7), (1 << 40, 7)],
)
def test_what_was_just_written_is_read_as_far_as_the_file_goes(
    tmp_path: Path, module: ModuleType, offset: int, size: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert module.read_cached(fd, offset, size) == DATA[offset : offset + size]
    finally:
        os.close(fd)


@pytest.mark.parametrize("module", BUILDS)
def test_what_cannot_be_read_is_an_error(tmp_path: Path, module: ModuleType) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            module.read_cached(fd, 0, 10)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        module.read_cached(fd, 0, 10)


@pytest.mark.parametrize("module", BUILDS)
def test_fewer_bytes_than_none_are_refused(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="negative count"):
        module.read_cached(0, 0, -1)
