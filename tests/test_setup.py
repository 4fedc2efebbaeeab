"""The build: on all cores, and without a compiler one line that says what to do."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="setup.py is not beside the tests"
)


def _build(tmp_path: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "empty").mkdir()
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext",
         "--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")],
        cwd=ROOT,
        env={"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
    )  # fmt: skip


def test_without_a_compiler_one_line_says_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    done = _build(tmp_path)
    assert done.returncode == 1
    assert done.stdout + done.stderr == done.stderr
    (line,) = done.stderr.splitlines()
    assert "need a C compiler, and there is no 'gcc' on PATH" in line
    assert "apt install gcc" in line
    assert "SLIPSTREAM_PURE=1" in line
    assert not list(tmp_path.rglob("*.so"))


def test_the_compiler_that_is_asked_for_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert "there is no 'no-such-cc' on PATH" in _build(tmp_path, CC="no-such-cc -O2").stderr


def test_the_plain_build_needs_no_compiler(tmp_path: Path) -> None:
    done = _build(tmp_path, SLIPSTREAM_PURE="1")
    assert (done.returncode, done.stderr) == (0, "")


def test_all_cores_compile_unless_a_number_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    from setuptools import Distribution

    made: dict[str, Any] = runpy.run_path("setup.py", run_name="setup")
    distribution = Distribution({"ext_modules": made["extensions"]()})
    for given, used in ((None, made["cores"]()), (3, 3)):
        command = made["BuildModules"](distribution)
        command.parallel = given
        command.finalize_options()
        assert command.parallel == used
