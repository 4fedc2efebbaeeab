"""The command line of both servers: same statuses, same words, the program's name aside."""

import re
from pathlib import Path

import pytest

from slipstream.server.command import Program, run
from slipstream.server.options import ServerOptions
from tests.fix_nats_server import find_nats_server
from tests.fix_server_process import run_to_end

SAME = [
    ["-foo"],
    ["--foo=1"],
    ["---p"],
    ["-p"],
    ["-p", "abc"],
    ["-port=99999999999999999999"],
    ["-js=zz"],
    ["--signal"],
    ["extra"],
    ["-D", "extra", "-V"],
    ["-t"],
    ["--signal", "quit=99999999"],
    ["--signal", "quit=/nonexistent"],
    ["-t", "-c", "empty.conf"],
    ["-t", "-c", "good.conf"],
    ["-t", "-c", "unknown.conf"],
]
FILES = {"empty.conf": "", "good.conf": "port: 4333\n", "unknown.conf": "port: 1\nnonsense: 2\n"}


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_what_is_wrong_with_a_command_line_is_said_alike(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    status = run(Program("nats-server", ServerOptions), words)
    said = capsys.readouterr()
    theirs = run_to_end(find_nats_server(), *words, directory=tmp_path)
    assert status == theirs.returncode
    assert bool(said.out) == bool(theirs.stdout)
    assert _first_line(said.err) == _first_line(theirs.stderr)


def _first_line(text: str) -> str:
    """What is said, up to what to do about it."""
    lines = [line for line in text.splitlines() if line.strip()]
    line = "".join(lines[:2] if lines and lines[0].strip() == "nats-server:" else lines[:1])
    return re.sub(r"\(sha256:\w+\)", "(digest)", line).split(": write ")[0].rstrip()
