"""The same objects as the `nats` tool prints, where that tool is on PATH."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.cli.conftest import Cli

NATS = shutil.which("nats")

pytestmark = pytest.mark.skipif(NATS is None, reason="the `nats` tool is not on PATH")


def _nats(cli: Cli, *words: str) -> dict[str, Any]:
    assert NATS is not None
    done = subprocess.run(
        [NATS, "--server", cli.url, *words, "--json"],
        env=cli.env,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _fields_without_time(value: dict[str, Any], pattern: dict[str, Any]) -> dict[str, Any]:
    """The fields that the tool prints; `ts` is the moment of asking."""
    return {
        name: _fields_without_time(value[name], part) if isinstance(part, dict) else value.get(name)
        for name, part in pattern.items()
        if name != "ts"
    }


@pytest.mark.parametrize("words", [("stream", "info", "SAME"), ("consumer", "info", "SAME", "c")])
def test_json_is_what_the_nats_tool_prints(cli: Cli, words: tuple[str, ...]) -> None:
    cli("stream", "add", "SAME", "--subjects", "same.>", "--defaults")
    cli("pub", "same.1", "x", "--jetstream")
    cli("consumer", "add", "SAME", "c", "--pull", "--defaults")
    theirs = _nats(cli, *words)
    ours = json.loads(cli(*words, "--json").out)
    assert _fields_without_time(ours, theirs) == _fields_without_time(theirs, theirs)
    cli("stream", "rm", "SAME", "--force")
