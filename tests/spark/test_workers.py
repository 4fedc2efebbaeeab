"""What a worker is spared between tasks, and that it imports as before."""

import gc
import importlib
import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from slipstream.spark import workers
from slipstream.spark.session import WORKER_PYTHON, local_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow
    from pyspark.sql import SparkSession

SAY_PATH = "import sys; print(sys.executable); print(*sys.path, sep='\\n')"


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


def test_what_a_task_has_loaded_is_out_of_the_collectors_sight_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(sys.modules)))
    (tmp_path / "loaded_by_a_task.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    workers.spare()
    before = len(frozen)
    workers.spare()
    assert len(frozen) == before
    importlib.import_module("loaded_by_a_task")
    workers.spare()
    assert len(frozen) == before + 1
    monkeypatch.delitem(sys.modules, "loaded_by_a_task")


def test_workers_import_pyspark_from_where_it_is_installed(spark: "SparkSession") -> None:
    def where(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow as pa
        import pyspark

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"at": [pyspark.__file__] * batch.num_rows})

    found = spark.range(1).mapInArrow(where, "at string").collect()
    assert [row.at for row in found] == [pyspark.__file__]


def test_a_worker_has_the_sessions_python_and_the_path_without_sparks_archives() -> None:
    kept = ["/somewhere/my own.zip", "/somewhere/source"]
    sparks = ("python/lib/pyspark.zip", "python/lib/py4j-src.zip", "jars/spark-core.jar")
    archives = [f"/somewhere/pyspark/{name}" for name in sparks]
    path = os.pathsep.join([*archives, *kept])
    own = {"PYTHONPATH": path, "SLIPSTREAM_WORKER_PYTHON": sys.executable}
    said = subprocess.run(
        [WORKER_PYTHON, "-c", SAY_PATH],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[0] == sys.executable
    assert [entry for entry in said if entry.startswith("/somewhere")] == kept


def test_pyspark_that_is_not_installed_beside_this_python_is_left_to_sparks_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert local_workers() == str(WORKER_PYTHON)
    monkeypatch.setattr(site, "getsitepackages", lambda: ["/somewhere"])
    assert local_workers() == sys.executable
