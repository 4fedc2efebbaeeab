"""`slipstream stream|account backup --incremental`, and what restores from it."""

import json
import shutil
from pathlib import Path

from tests.cli.conftest import Cli


def test_a_stream_is_backed_up_by_and_by(cli: Cli, tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    cli("stream", "add", "KEPT", "--subjects", "kept", "--defaults")
    for run in range(3):
        cli("pub", "kept", f"run {run}", "--count", "10", "--jetstream")
        said = cli("stream", "backup", "KEPT", place, "--incremental", "--keep", "2", "--check").err
        assert f"Added 10 messages of stream KEPT to {place}" in said
    done = json.loads(cli("stream", "backup", "KEPT", place, "--incremental", "--json").out)
    assert (done["run"]["added"], done["run"]["messages"]) == (0, 30)
    assert "Backing up" in cli.on_terminal("stream", "backup", "KEPT", place, "--incremental").out
    cli("stream", "rm", "KEPT", "--force")
    shown = cli("stream", "restore", place, "--check")
    assert "Last sequence" in shown.out
    assert f"{place} is whole: 4 runs of stream KEPT" in shown.err
    found = json.loads(cli("stream", "restore", place, "--check", "--json").out)
    assert found["stream"] == "KEPT"
    words = ("--name", "COPY", "--subjects", "copy", "--max-age", "1h", "--to-sequence", "25")
    assert "Restored stream COPY: 25 messages" in cli("stream", "restore", place, *words).err
    config = json.loads(cli("stream", "info", "COPY", "--json").out)["config"]
    assert (config["subjects"], config["max_age"]) == (["copy"], 3600 * 10**9)
    early = cli("stream", "restore", place, "--to-time", "1d", status=1).err
    assert "the stream was created later" in early
    assert (
        "ends at sequence 30"
        in cli("stream", "restore", place, "--to-sequence", "31", status=1).err
    )
    cli("stream", "rm", "COPY", "--force")


def test_an_account_is_backed_up_by_and_by(cli: Cli, tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    for name in ("FIRST", "SECOND"):
        cli("stream", "add", name, "--subjects", name.lower(), "--defaults")
    for count in (10, 20):
        for name in ("FIRST", "SECOND"):
            cli("pub", name.lower(), "x", "--count", "10", "--jetstream")
        found = json.loads(cli("account", "backup", place, "--incremental", "--json").out)
        mine = [one["run"]["messages"] for one in found if one["run"]["messages"]]
        assert mine.count(count) >= 2
    cli("stream", "rm", "FIRST", "--force")
    said = cli("account", "restore", place, status=1).err
    assert "Restored stream FIRST: 20 messages" in said
    assert "SECOND: STREAM.RESTORE.SECOND: stream name already in use" in said
    for name in ("FIRST", "SECOND"):
        cli("stream", "rm", name, "--force")


def test_what_cannot_be_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "ODD", "--subjects", "odd", "--defaults")
    place, whole = str(tmp_path / "place"), str(tmp_path / "whole")
    cli("stream", "backup", "ODD", place, "--incremental")
    cli("stream", "backup", "ODD", whole)
    assert "add --incremental" in cli("stream", "backup", "ODD", place, status=1).err
    refused = cli("stream", "backup", "ODD", whole, "--keep", "2", status=1).err
    assert "--keep and --expire are for --incremental" in refused
    for words in (("--check",), ("--to-sequence", "1")):
        assert "no incremental backup" in cli("stream", "restore", whole, *words, status=1).err
    [part] = (tmp_path / "place" / "runs").iterdir()
    shutil.copy(tmp_path / "whole" / "backup.json", part)
    damaged = cli("stream", "restore", place, "--check", status=1).err
    assert "is damaged: its checksum does not match" in damaged
    assert "write a directory, or s3://" in cli("stream", "backup", "ODD", "foo://x", status=1).err
    cli("stream", "rm", "ODD", "--force")
