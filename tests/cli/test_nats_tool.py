"""The `nats` tool on the same servers, where it is: `make test` builds it if there is Go."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

NO_TIME = "0001-01-01T00:00:00Z"  # how Go writes a time that there is not


def _find_nats_tool() -> str | None:
    """The executable beside this interpreter or on PATH."""
    beside = Path(sys.executable).parent / "nats"
    return str(beside) if beside.exists() else shutil.which("nats")


NATS = _find_nats_tool()

pytestmark = pytest.mark.skipif(
    NATS is None, reason="the `nats` tool is neither beside this Python nor on PATH"
)


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
        if name != "ts" and part != NO_TIME
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


def _both(cli: Cli, *words: str) -> tuple[Any, Any]:
    """The exit status and the output of the tool's command, and of ours."""
    assert NATS is not None
    line = [NATS, "--server", cli.url, *words]
    theirs = subprocess.run(line, env=cli.env, cwd=cli.home, capture_output=True, text=True)
    ours = cli.run(*words)
    return (theirs.returncode, theirs.stdout), (ours.status, ours.out)


CHECKS = (
    ("stream", "--stream", "CHECKED", "--msgs-warn", "2", "--msgs-critical", "1"),
    ("stream", "--stream", "CHECKED", "--subjects-warn", "1", "--subjects-critical", "2"),
    ("consumer", "--stream", "CHECKED", "--consumer", "c", "--unprocessed-critical", "2"),
    ("connection",),
)


def test_checks_find_what_the_nats_tool_finds(cli: Cli) -> None:
    cli("stream", "add", "CHECKED", "--subjects", "checked.>", "--defaults")
    cli("pub", "checked.{{Count}}", "x", "--count", "2", "--jetstream")
    cli("consumer", "add", "CHECKED", "c", "--pull", "--defaults")
    for words in CHECKS:
        theirs, ours = _both(cli, "server", "check", *words, "--format", "json")
        assert theirs[0] == ours[0], f"{theirs}\n{ours}"
        wanted, found = json.loads(theirs[1]), json.loads(ours[1])
        for name in ("status", "check_suite", "check_name"):
            assert found[name] == wanted[name]
        for name, bounds in _bounds(wanted).items():
            assert _bounds(found).get(name, bounds) == bounds


def _bounds(found: dict[str, Any]) -> dict[str, Any]:
    """The bounds of each value."""
    return {one["name"]: (one["warning"], one["critical"]) for one in found["perf_data"]}


def test_the_nats_tool_backs_up_a_stream_and_restores_it(cli: Cli) -> None:
    cli("stream", "add", "KEPT", "--subjects", "kept", "--defaults")
    cli("pub", "kept", "{{Random 200000 200000}}", "--count", "3", "--jetstream")
    for words in (("backup", "stream", "KEPT", "saved"), ("stream", "rm", "KEPT", "--force")):
        _run(cli, *words)
    _run(cli, "backup", "restore", "stream", "saved")
    assert json.loads(cli("stream", "info", "KEPT", "--json").out)["state"]["messages"] == 3


def _run(cli: Cli, *words: str) -> str:
    assert NATS is not None
    line = [NATS, "--server", cli.url, *words]
    done = subprocess.run(line, env=cli.env, cwd=cli.home, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def _auth(cli: Cli, *words: str) -> str:
    assert NATS is not None
    line = [NATS, "auth", *words]
    done = subprocess.run(line, env=cli.env, cwd=cli.home, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def test_both_tools_change_what_is_in_one_store(offline: Cli) -> None:
    offline("auth", "operator", "add", "acme")
    offline("auth", "account", "add", "ORDERS", "--jetstream", "--defaults", "--tags", "a")
    offline("auth", "account", "keys", "add", "ORDERS", "reader", "--sub-allow", "orders.>")
    offline("auth", "user", "add", "rita", "ORDERS", "--key", "reader", "--defaults")
    _auth(offline, "account", "edit", "ORDERS", "--connections", "7")
    _auth(offline, "user", "add", "theirs", "ORDERS", "--defaults", "--pub-allow", "x.>")
    _auth(offline, "account", "add", "THEIRS", "--defaults")
    _auth(offline, "account", "keys", "add", "THEIRS", "writer", "--pub-allow", "w.>")
    _auth(offline, "user", "add", "wanda", "THEIRS", "--key", "writer", "--defaults")
    offline("auth", "user", "edit", "theirs", "--sub-allow", "y.>")
    orders = json.loads(offline("auth", "account", "info", "ORDERS", "--json").out)["nats"]
    assert (orders["limits"]["conn"], orders["tags"]) == (7, ["a"])
    assert "w.>" in offline("auth", "user", "info", "wanda").out
    assert "orders.>" in _auth(offline, "user", "info", "rita", "ORDERS")
    shown = _auth(offline, "user", "info", "theirs", "ORDERS")
    assert "x.>" in shown
    assert "y.>" in shown


def test_each_tool_restores_the_others_backup(offline: Cli) -> None:
    offline("auth", "operator", "add", "acme")
    offline("auth", "account", "add", "ORDERS", "--defaults")
    offline("auth", "account", "keys", "add", "ORDERS", "role")
    offline("auth", "user", "add", "alice", "ORDERS", "--key", "role", "--defaults")
    before = offline("auth", "operator", "generate").out
    _auth(offline, "operator", "backup", "acme", "theirs")
    offline("auth", "operator", "backup", "acme", "ours")
    offline("auth", "operator", "rm", "acme", "--force")
    offline("auth", "operator", "restore", "acme", "theirs")
    assert offline("auth", "operator", "generate").out == before
    offline("auth", "operator", "rm", "acme", "--force")
    _auth(offline, "operator", "restore", "acme", "ours")
    assert offline("auth", "operator", "generate").out == before
    offline("auth", "user", "credential", "alice.creds", "alice")
    assert "alice" in _auth(offline, "user", "info", "alice", "ORDERS")


def test_each_tool_opens_what_the_other_has_sealed(offline: Cli) -> None:
    offline("auth", "operator", "add", "acme")
    offline("auth", "nkey", "gen", "curve", "--output", "key")
    public = offline("auth", "nkey", "show", "key").out.strip()
    (offline.home / "text").write_text("secret")
    _auth(offline, "nkey", "seal", "text", "key", public, "--output", "theirs")
    offline("auth", "nkey", "seal", "text", "key", public, "--output", "ours")
    assert offline("auth", "nkey", "unseal", "theirs", "key", public).out == "secret"
    assert _auth(offline, "nkey", "unseal", "ours", "key", public).strip() == "secret"
    _auth(offline, "operator", "backup", "acme", "theirs", "--key", "key")
    offline("auth", "operator", "rm", "acme", "--force")
    offline("auth", "operator", "restore", "acme", "theirs", "--key", "key")
    offline("auth", "operator", "backup", "acme", "ours", "--key", "key", "--force")
    offline("auth", "operator", "rm", "acme", "--force")
    _auth(offline, "operator", "restore", "acme", "ours", "--key", "key")
    assert offline("auth", "operator", "ls", "--names").out.strip() == "acme"
