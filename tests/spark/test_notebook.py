"""The notebook in `examples/`, run in a kernel as Jupyter runs it."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import slipstream

NOTEBOOK = Path(__file__).parents[2] / "examples" / "orders_on_spark.ipynb"


def test_the_notebook_runs_from_top_to_bottom_and_draws_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(slipstream.__file__)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    results = [output["data"]["text/plain"] for output in shown if "execution_count" in output]
    assert results[1:] == ["3001", "3000"]  # orders, and what was sold of them
    assert any("image/png" in output.get("data", {}) for output in shown)


def test_the_notebook_is_stored_without_what_it_printed() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
