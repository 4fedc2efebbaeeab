"""What a person sees on a terminal, and what a program reads where there is none."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SOURCE, Cli

LONG = "a-rather-long-name-that-people-do-use-in-practice"
HEAVY = ("typer", "rich", "textual", "asyncio", "slipstream.client", "slipstream.server")


@pytest.fixture
def reported(cli: Cli) -> Cli:
    """With a stream and a consumer of a long name."""
    cli("stream", "add", "WIDE", "--subjects", "wide.>", "--defaults", "--storage", "memory")
    cli("consumer", "add", "WIDE", LONG, "--pull", "--defaults")
    return cli


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_table_cuts_nothing_off_on_any_terminal(reported: Cli) -> None:
    for columns in (120, 80, 40):
        shown = _without_colours(
            reported.on_terminal("consumer", "report", "WIDE", columns=columns).out
        )
        assert "…" not in shown
        assert all(len(line) <= columns for line in shown.splitlines()[1:] if "─" in line)
        letters = re.sub(r"[^a-z-]", "", shown)
        assert "arather" in letters.replace("-", "")
    blocks = _without_colours(reported.on_terminal("consumer", "report", "WIDE", columns=40).out)
    assert "  Ack Pending: 0" in blocks
    reported("stream", "rm", "WIDE", "--force")


def test_which_stream_is_meant_is_asked_on_a_terminal_only(cli: Cli) -> None:
    cli("stream", "add", "PICKED", "--subjects", "picked", "--defaults", "--storage", "memory")
    shown = cli.on_terminal("stream", "state", answers="PICKED\n")
    assert "Select a Stream" in shown.out
    assert "State for Stream PICKED" in shown.out
    assert "STREAM is missing" in cli("stream", "state", status=2).err
    assert "CONSUMER is missing" in cli("consumer", "info", "PICKED", status=2).err
    cli("stream", "rm", "PICKED", "--force")


def test_a_stream_is_paged_through_on_a_terminal_only(cli: Cli) -> None:
    cli("stream", "add", "PAGED", "--subjects", "paged", "--defaults", "--storage", "memory")
    cli("pub", "paged", "message {{Count}}", "--count", "5")
    shown = cli.on_terminal("stream", "view", "PAGED", "2", answers="y\nn\n").out
    assert shown.count("Next Page?") == 2
    assert "message 4" in shown
    assert "message 5" not in shown
    assert "message 5" in cli("stream", "view", "PAGED", "2").out
    cli("consumer", "add", "PAGED", "c", "--pull", "--defaults")
    read = cli.on_terminal("consumer", "sub", "PAGED", "c", "--page", "2", answers="n\n").out
    assert read.count("Acknowledged message") == 2
    after = json.loads(cli("consumer", "info", "PAGED", "c", "--json").out)
    assert (after["ack_floor"]["stream_seq"], after["num_ack_pending"]) == (2, 0)
    cli("stream", "rm", "PAGED", "--force")


def test_colours_are_for_terminals_that_want_them(offline: Cli) -> None:
    red = "\x1b[31mslipstream:"
    assert red in offline.on_terminal("errors", "lookup", "1").out
    assert "\x1b" not in offline("errors", "lookup", "1", status=2).err
    offline.env["NO_COLOR"] = "1"
    assert "\x1b" not in offline.on_terminal("errors", "lookup", "1").out


def test_long_work_shows_how_far_it_is(cli: Cli) -> None:
    cli("stream", "add", "BIG", "--subjects", "big", "--defaults", "--storage", "memory")
    bench = cli.on_terminal("bench", "js", "big", "--stream", "BIG", "--msgs", "2000").out
    assert "2000/2000" in bench
    assert "worker 1" in bench
    assert "Purging BIG" in cli.on_terminal("stream", "purge", "BIG", "--force").out
    cli("stream", "rm", "BIG", "--force")


def test_a_stream_is_copied_backed_up_and_restored_before_ones_eyes(
    cli: Cli, tmp_path: Path
) -> None:
    cli("stream", "add", "KEPT", "--subjects", "kept", "--defaults")
    cli("pub", "kept", "{{Count}}", "--count", "2000")
    directory = str(tmp_path / "backup")
    assert "Backing up" in cli.on_terminal("stream", "backup", "KEPT", directory).out
    copied = cli.on_terminal("stream", "copy", "KEPT", "COPY", "--messages").out
    assert "2000/2000" in copied
    cli("stream", "rm", "KEPT", "--force")
    assert "Restoring" in cli.on_terminal("stream", "restore", directory).out
    for name in ("KEPT", "COPY"):
        found = json.loads(cli("stream", "info", name, "--json").out)
        assert found["state"]["messages"] == 2000
        assert not found["config"]["sources"]
        cli("stream", "rm", name, "--force")


def test_top_is_drawn_and_left_with_q(cli: Cli) -> None:
    cli("stream", "add", "DRAWN", "--subjects", "drawn", "--defaults", "--storage", "memory")
    cli("consumer", "add", "DRAWN", "c", "--pull", "--defaults")
    shown = cli.on_terminal("top", answers="q")
    assert shown.status == 0
    drawn = _without_colours(shown.out)
    assert "Consumers" in drawn
    assert "DRAWN" in drawn
    assert "--once" in cli("top", status=2).err
    whole = json.loads(cli("top", "--once", "--json").out)
    assert "DRAWN" in [one["config"]["name"] for one in whole["streams"]]
    assert whole["connections"][0]["name"] == "slipstream CLI"
    cli("stream", "rm", "DRAWN", "--force")


def test_ctrl_c_ends_top_as_it_ends_other_commands(cli: Cli) -> None:
    assert cli.interrupted("top", at="Consumers").status == 130


def test_help_imports_nothing_heavy() -> None:
    asked = (
        "import sys; from slipstream.cli.main import main; main(['--help']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(HEAVY) & set(done.stdout.splitlines()[-1].split())


def test_bash_completes_with_the_printed_script(offline: Cli, tmp_path: Path) -> None:
    program = tmp_path / "slipstream"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m slipstream.cli.main "$@"\n')
    program.chmod(0o755)
    asked = """
        export PATH=%s:$PATH
        source <(slipstream completion bash)
        COMP_WORDS=(slipstream stream pu); COMP_CWORD=2; _slipstream
        echo "${COMPREPLY[@]}"
    """
    words = ["bash", "-c", asked % tmp_path]
    done = subprocess.run(words, env=offline.env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["purge"]
    assert done.stderr == ""


def test_other_names_of_commands_are_those_of_the_nats_tool(cli: Cli) -> None:
    cli("str", "create", "ALIAS", "--subjects", "alias", "--defaults", "--storage", "memory")
    assert "ALIAS" in cli("s", "list", "--names").out.split()
    assert json.loads(cli("stream", "delete", "ALIAS", "-f", "--json").out) == {"success": True}
