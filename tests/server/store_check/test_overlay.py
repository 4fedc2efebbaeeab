"""An overlay disk does what the real one does, and leaves no trace."""

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slipstream.log.disk import OsDisk
from slipstream.server.store_check.overlay import OverlayDisk
from tests.server.store_check.stores import tree

BYTES = st.binary(min_size=1, max_size=40)
PLACES = st.integers(0, 60)
CHANGES = st.one_of(
    st.tuples(st.just("append"), BYTES),
    st.tuples(st.just("pwrite"), PLACES, BYTES),
    st.tuples(st.just("truncate"), PLACES),
    st.tuples(st.just("rewind")),
)


@given(st.binary(max_size=50), st.lists(CHANGES, max_size=12), PLACES, PLACES)
def test_a_file_has_the_bytes_that_a_real_one_would_have(
    content: bytes, changes: list[tuple[object, ...]], offset: int, size: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/file"
        Path(path).write_bytes(content)
        file = OverlayDisk(directory).open(path)
        at, wanted = len(content), bytearray(content)
        for name, *arguments in changes:
            getattr(file, str(name))(*arguments)
            if name == "truncate":
                at = arguments[0]  # type: ignore[assignment]
                del wanted[at:]
                wanted += bytes(at - len(wanted))
            elif name == "rewind":
                at = 0
            else:
                data: bytes = arguments[-1]  # type: ignore[assignment]
                begin: int = at if name == "append" else arguments[0]  # type: ignore[assignment]
                wanted += bytes(max(begin - len(wanted), 0))
                wanted[begin : begin + len(data)] = data
                at = begin + len(data) if name == "append" else at
        assert file.size() == at
        assert file.pread(0, 1000) == wanted
        assert file.pread(offset, size) == wanted[offset : offset + size]
        assert Path(path).read_bytes() == content


def test_directories_change_as_real_ones_do(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "one").write_bytes(b"1")
    before = tree(tmp_path)
    over, root = OverlayDisk(str(tmp_path)), str(tmp_path)
    over.makedirs(f"{root}/c/d")
    over.rename(f"{root}/a/b", f"{root}/c/e")
    assert over.read(f"{root}/c/e/one") == b"1"
    assert not over.exists(f"{root}/a/b")
    over.open(f"{root}/c/d/new").append(b"2")
    over.remove_tree(f"{root}/c/e")
    over.remove(f"{root}/nothing")
    assert over.list(f"{root}/c") == ["d"]
    assert over.list(f"{root}/nothing") == []
    assert over.read(f"{root}/c/d/new") == b"2"
    assert tree(tmp_path) == before
    assert OsDisk().list(root) == ["a"]
    assert os.listdir(tmp_path / "a") == ["b"]
