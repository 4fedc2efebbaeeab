"""What a worker is spared between tasks, and that it imports as before."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from slipstream.spark import workers


def test_an_archive_on_the_path_is_not_read_again_for_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("zipped_first.py", "")
        made.writestr("zipped_second.py", "")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("zipped_first")
    assert str(archive) in sys.path_importer_cache
    workers.spare()
    assert str(archive) not in sys.path_importer_cache
    importlib.import_module("zipped_second")
    for name in ("zipped_first", "zipped_second"):
        monkeypatch.delitem(sys.modules, name)
