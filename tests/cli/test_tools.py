"""Messages, buckets, objects, contexts and the rest of the command line."""

import contextlib
import hashlib
import json
import signal
import threading
import time
from pathlib import Path

import pytest

import slipstream
from tests.cli.conftest import WAIT_SECONDS, Cli


def test_help_names_every_command_and_imports_nothing_heavy(offline: Cli) -> None:
    shown = offline("--help").out
    for name in ("serve", "pub", "stream", "consumer", "kv", "object", "why", "top", "bench"):
        assert f"\n  {name} " in shown
    assert offline("--version").out.startswith("slipstream ")


@pytest.mark.parametrize("group", ["stream", "consumer", "kv", "object", "server", "bench"])
def test_every_group_explains_itself(offline: Cli, group: str) -> None:
    assert "Commands" in offline(group, "--help").out


def test_a_request_is_answered(cli: Cli) -> None:
    replier = cli.start("reply", "cli.help", "you said {{Request}}", "--count", "1")
    assert replier.stderr is not None
    assert "Listening" in replier.stderr.readline()
    assert "you said please" in cli("request", "cli.help", "please").out
    replier.communicate(timeout=20)
    assert "nobody is subscribed" in cli("request", "cli.nobody", "x", status=1).err


def test_what_is_sent_and_answered_is_told_as_json(cli: Cli) -> None:
    sent = json.loads(cli("pub", "cli.nobody", "four", "--count", "2", "--json").out)
    assert sent == {"subject": "cli.nobody", "messages": 2, "bytes": 8}
    replier = cli.start("reply", "cli.json", "yes", "--count", "1")
    assert replier.stderr is not None
    assert "Listening" in replier.stderr.readline()
    answer = json.loads(cli("request", "cli.json", "please", "--json").out)
    assert answer["data"] == "yes"
    assert answer["rtt_ns"] > 0
    replier.communicate(timeout=20)


def test_sub_shows_messages_and_stops_cleanly_on_ctrl_c(cli: Cli) -> None:
    watcher = cli.start("sub", "cli.sub.>")
    assert watcher.stderr is not None
    assert watcher.stdout is not None
    assert "Subscribing" in watcher.stderr.readline()
    cli("pub", "cli.sub.x", "hello", "-H", "A: b")
    assert 'Received on "cli.sub.x"' in watcher.stdout.readline()
    assert watcher.stdout.readline() == "A: b\n"
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=20)
    assert watcher.returncode == 130


def test_sub_says_that_its_server_is_gone_and_that_it_is_back(offline: Cli, tmp_path: Path) -> None:
    with slipstream.Server(store_dir=str(tmp_path / "data")) as server:
        offline.env["NATS_URL"] = server.url
        port = server.port
        watcher = offline.start("sub", "cli.back")
        late = threading.Timer(WAIT_SECONDS, watcher.kill)  # which ends each wait for a line
        late.start()
        assert watcher.stderr is not None
        assert watcher.stdout is not None
        assert "Subscribing" in watcher.stderr.readline()
        offline("rtt")
    assert f"Lost the connection to {server.url}" in watcher.stderr.readline()
    with slipstream.Server(store_dir=str(tmp_path / "data"), port=port):
        assert f"Connected again, to {server.url}" in watcher.stderr.readline()
        offline("pub", "cli.back", "hello")
        assert 'Received on "cli.back"' in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=20)
        late.cancel()
        assert watcher.returncode == 130


def test_an_account_is_backed_up_and_restored(cli: Cli, tmp_path: Path) -> None:
    for name in ("ONE", "TWO"):
        cli("stream", "add", name, "--subjects", name.lower(), "--defaults")
        cli("pub", name.lower(), "x", "--count", "20", "--jetstream")
    kept = str(tmp_path / "kept")
    found = json.loads(cli("account", "backup", kept, "--json").out)
    assert {one["config"]["name"]: one["state"]["messages"] for one in found}.items() >= {
        "ONE": 20, "TWO": 20,
    }.items()  # fmt: skip
    cli("stream", "rm", "ONE", "--force")
    said = cli("account", "restore", kept, status=1)
    assert "Restored stream ONE: 20 messages" in said.err
    assert "TWO: STREAM.RESTORE.TWO: stream name already in use" in said.err
    one = str(tmp_path / "kept" / "ONE")
    again = cli("stream", "restore", one, "--name", "THREE", "--subjects", "three", "--json").out
    assert json.loads(again)["config"]["subjects"] == ["three"]
    assert "holds a backup already" in cli("stream", "backup", "ONE", one, status=1).err
    assert "no backup" in cli("account", "restore", one, status=1).err
    for name in ("ONE", "TWO", "THREE"):
        cli("stream", "rm", name, "--force")


def test_a_bucket_keeps_values_and_their_history(cli: Cli) -> None:
    cli("kv", "add", "CONFIG", "--history", "5")
    cli("kv", "put", "CONFIG", "rate", "10")
    cli("kv", "put", "CONFIG", "rate", stdin="11")
    assert cli("kv", "get", "CONFIG", "rate", "--raw").out == "11\n"
    history = json.loads(cli("kv", "history", "CONFIG", "rate", "--json").out)
    assert [entry["value"] for entry in history] == ["10", "11"]
    assert "has a value" in cli("kv", "create", "CONFIG", "rate", "1", status=1).err
    cli("kv", "del", "CONFIG", "rate", "--force")
    assert "deleted" in cli("kv", "get", "CONFIG", "rate", status=1).err
    assert "CONFIG" in cli("kv", "ls").out
    cli("kv", "rm", "CONFIG", "--force")


def test_a_file_goes_into_a_store_and_comes_out_again(cli: Cli, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    (tmp_path / "data.bin").write_bytes(content)
    cli("object", "add", "FILES")
    digest = hashlib.sha256(content).hexdigest()
    assert f"Digest: SHA-256 {digest}" in cli("object", "put", "FILES", "data.bin").out
    cli("object", "get", "FILES", "data.bin", "--output", "copy.bin")
    assert (tmp_path / "copy.bin").read_bytes() == content
    assert cli("object", "ls", "FILES", "--names").out == "data.bin\n"
    cli("object", "rm", "FILES", "data.bin", "--force")
    cli("object", "rm", "FILES", "--force")


def test_contexts_are_the_files_of_the_nats_tool(cli: Cli) -> None:
    cli.env.pop("NATS_URL")
    cli("context", "add", "here", "--server", cli.url, "--select", "--description", "mine")
    saved = json.loads((cli.home / "nats" / "context" / "here.json").read_text())
    assert saved == {"url": cli.url, "description": "mine"}
    assert (cli.home / "nats" / "context.txt").read_text() == "here"
    assert "RTT" in cli("server", "info").out
    listed = json.loads(cli("context", "ls", "--json").out)
    assert listed[0]["selected"] is True
    cli("context", "rm", "here", "--force")
    assert cli("context", "ls", "--names").out.startswith("No known contexts")


def test_checks_tell_monitoring_how_a_stream_is(cli: Cli) -> None:
    cli("stream", "add", "CHECK", "--subjects", "check", "--defaults")
    cli("pub", "check", "x", "--count", "3")
    words = ("server", "check", "stream", "--stream", "CHECK")
    assert "OK" in cli(*words).out
    assert "messages 3 <= 4" in cli(*words, "--msgs-critical", "4", status=2).out
    assert "WARNING" in cli(*words, "--msgs-warn", "3", status=1).out


@pytest.mark.parametrize(
    ("flags", "status", "text"),
    [
        (("-a", "127.0.0.1"), 0, "NATS Exposure OK: all fine"),
        (("-a", "0.0.0.0"), 2, "NATS Exposure CRITICAL: the server listens on all interfaces"),
        (("-a", "0.0.0.0", "--user", "u", "--pass", "p"), 0, "NATS Exposure OK: all fine"),
    ],
)
def test_a_check_says_whether_strangers_can_use_the_server(
    offline: Cli, tmp_path: Path, flags: tuple[str, ...], status: int, text: str
) -> None:
    (tmp_path / "ports").mkdir()
    server = offline.start(
        "serve", "-p", "-1", "-sd", str(tmp_path), "--ports_file_dir", str(tmp_path / "ports"),
        *flags,
    )  # fmt: skip
    try:
        offline.env["NATS_URL"] = f"nats://u:p@127.0.0.1:{client_port(tmp_path / 'ports')}"
        assert text in offline("server", "check", "exposure", status=status).out
    finally:
        server.terminate()
        server.wait(60)


def client_port(directory: Path) -> int:
    """The port that a server's ports file names, once it is there."""
    deadline = time.monotonic() + 60
    while True:
        for path in directory.glob("*.ports"):
            with contextlib.suppress(ValueError):
                return int(json.loads(path.read_text())["nats"][0].rsplit(":", 1)[1])
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_terminal_is_asked_and_answers_are_ready(cli: Cli) -> None:
    asked = cli.on_terminal("stream", "add", "ASKED", answers="asked.>\n" + "\n" * 9)
    assert "Subjects" in asked.out
    assert "Storage (file, memory) [file]" in asked.out
    assert asked.status == 0
    assert "Stream ASKED was created" in asked.out
    declined = cli.on_terminal("stream", "rm", "ASKED", answers="n\n")
    assert declined.status == 130
    assert "ASKED" in cli("stream", "ls", "--names").out
    assert cli.on_terminal("stream", "rm", "ASKED", answers="y\n").status == 0


def test_colours_stay_away_where_no_color_is_set(cli: Cli) -> None:
    cli.env["NO_COLOR"] = "1"
    assert "\x1b[3" not in cli.on_terminal("errors", "lookup", "10059").out
    assert "\x1b[" not in cli("errors", "ls", "wrong").out


def test_errors_are_looked_up(offline: Cli) -> None:
    assert "stream not found" in offline("errors", "lookup", "10059").out
    assert json.loads(offline("errors", "lookup", "10059", "--json").out)["code"] == 404


def test_a_shell_can_complete_commands_and_options(offline: Cli) -> None:
    assert "stream" in offline("__complete").out.split()
    assert "info" in offline("__complete", "stream").out.split()
    assert "--subjects" in offline("__complete", "stream", "add").out.split()
    for shell in ("bash", "zsh", "fish"):
        assert "slipstream __complete" in offline("completion", shell).out


def test_bench_measures_every_load(cli: Cli) -> None:
    for words in (
        ("pub",),
        ("core",),
        ("js", "--clients", "2"),
        ("fetch",),
        ("consume",),
        ("kv",),
        ("object", "--size", "64KiB"),
    ):
        count = "4" if words[0] == "object" else "1000"
        found = json.loads(cli("bench", *words, "--msgs", count, "--json").out)
        assert found["total"]["per_second"] > 0
        assert sum(worker["messages"] for worker in found["workers"]) == int(count)


def test_top_shows_streams_and_consumers(cli: Cli) -> None:
    cli("stream", "add", "TOP", "--subjects", "top", "--defaults")
    cli("consumer", "add", "TOP", "c", "--pull", "--defaults")
    shown = cli("top", "--once").out
    assert "TOP" in shown
    assert "Ack Pending" in shown
