"""What is imported when: a start loads what it needs, and the rest comes with its first use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream

# Each takes milliseconds to load, or seconds; a server without TLS, files or readers needs none.
NOT_TO_START = frozenset(
    {
        "bcrypt",
        "cryptography",
        "difflib",
        "email",
        "gzip",
        "html",
        "http",
        "pathlib",
        "pyarrow",
        "rich",
        "shutil",
        "tempfile",
        "textual",
        "typer",
        "zoneinfo",
        "slipstream.cli.main",
        "slipstream.client",
        "slipstream.engine.consumer.explain",
        "slipstream.server.config",
        "slipstream.server.monitoring.endpoints",
        "slipstream.server.monitoring.http.paths",
        "slipstream.server.monitoring.metrics",
        "slipstream.server.monitoring.system.requests",
        "slipstream.server.tls",
        "slipstream.server.tls_connection",
    }
)
# What every server needs of other projects, with what that loads in its turn.
LIBRARIES = "import asyncio, ssl, isal.isal_zlib, msgspec, uvloop"
# What the server loads of the standard library beyond that. An entry is a decision: it costs every
# start.
OF_THE_STANDARD_LIBRARY = frozenset(
    {
        "bisect",  # loaded by random
        "calendar",  # times of Go's years
        "copy",
        "ctypes",  # the allocator's options, fallocate
        "dataclasses",
        "fnmatch",
        "hashlib",  # names of the consumers that a stream has on its sources
        "hmac",  # passwords
        "ipaddress",  # loaded by urllib
        "json",  # JSON as Go reads it
        "mmap",
        "random",  # seeds that no one can guess, jitter
        "resource",
        "urllib",  # names of files
        "zlib",
    }
)
# The folders of the package that a server is made of.
OF_THE_PACKAGE = frozenset({"build", "engine", "errors", "log", "model", "server", "wire"})


def loaded_by(code: str, *flags: str) -> set[str]:
    """The modules that a new interpreter has after `code`, and had not before it."""
    script = f"import sys; had = set(sys.modules)\n{code}\nprint(*set(sys.modules) - had)"
    done = subprocess.run(
        [sys.executable, *flags, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(slipstream.__file__).parents[1])},
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_but_its_errors() -> None:
    assert loaded_by("import slipstream", "-S") == {"slipstream", "slipstream.errors"}


def test_a_server_that_starts_loads_nothing_that_it_does_not_need_yet(tmp_path: Path) -> None:
    loaded = loaded_by(
        f"""
import socket
import slipstream.server.command, slipstream.server.process
from slipstream.server import Server
server = Server(store_dir={str(tmp_path)!r}, monitoring_port=0).start()
with socket.create_connection((b"127.0.0.1", server.port)) as client:  # a text loads IDNA
    assert client.recv(5) == b"INFO "
server.stop()
"""
    )
    assert "slipstream.engine.engine" in loaded
    assert not loaded & NOT_TO_START
    folders = {name.split(".")[1] for name in loaded if name.startswith("slipstream.")}
    assert folders == OF_THE_PACKAGE
    others = {name.split(".")[0] for name in loaded - loaded_by(LIBRARIES)} - {"slipstream"}
    plain = {name for name in others if not name.startswith("_")}  # the rest is for these
    assert plain <= OF_THE_STANDARD_LIBRARY


@pytest.mark.parametrize("words", [["-v"], ["-h"], ["-sl", "nonsense"]])
def test_a_command_that_runs_no_server_loads_none(words: list[str]) -> None:
    loaded = loaded_by(
        f"""
from contextlib import redirect_stdout
import slipstream.server.command
with redirect_stdout(sys.stderr):
    slipstream.server.command.main({words})
"""
    )
    assert not loaded & {"asyncio", "slipstream.engine.engine", "slipstream.server.server"}


def test_the_commands_dispatcher_loads_no_command() -> None:
    loaded = loaded_by("import slipstream.cli.main")
    assert not loaded & {"asyncio", "msgspec", "rich", "typer", "slipstream.server.server"}
