"""`make demo` on some days of the year, with the kill and all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream

ROOT = Path(__file__).parents[2]


def said_by(program: str, directory: Path) -> str:
    """What a demo of six days says, which has to succeed."""
    source = Path(slipstream.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", program, "--days", "6", "--directory", str(directory)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=390,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_the_demo_of_a_group_loses_two_leaders_and_ends_with_what_pandas_computes(
    tmp_path: Path,
) -> None:
    said = said_by("examples.flights.group", tmp_path)
    assert said.count("✗ SIGKILL for n") == 2
    assert "subjects: each of them once" in said
    assert said.count("equal\n") == 3
    assert said.count("have all of") == 2
    assert "everything agrees, after two killed leaders" in said


@pytest.mark.timeout(400)
def test_the_demo_is_killed_and_ends_with_what_pandas_computes(tmp_path: Path) -> None:
    said = said_by("examples.flights", tmp_path)
    assert "all counts equal the source table" in said
    assert "✗ SIGKILL while batch" in said
    assert said.count("equal\n") == 5
    assert "DIFFERENT" not in said
    assert "too late for the watermark: 0 flights" in said
    assert (tmp_path / "delay_by_hour.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_java_is_said_in_one_line_before_anything_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "--directory", str(tmp_path / "out")],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(Path(slipstream.__file__).parents[1]), "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Spark needs Java" in done.stderr
    assert not (tmp_path / "out").exists()
