"""Spellings of the `nats` tool that scripts and hands use: the same words, the same output."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

import slipstream
from slipstream.server.config.load import load_options
from slipstream.server.options import JetStreamOptions
from tests.cli.conftest import Cli
from tests.fix_nats_server import start_nats_server

SYSTEM = """
accounts {
  APP { users = [{ user: app, password: secret }], jetstream: enabled }
  SYS { users = [{ user: boss, password: secret }] }
}
system_account: SYS
"""


def _new(cli: Cli, name: str, *more: str) -> None:
    """A stream in memory that stores `<name>.>`."""
    subjects = f"{name.lower()}.>"
    cli("stream", "add", name, "--subjects", subjects, "--storage", "memory", "--defaults", *more)


def test_stream_state_is_shown_alone_and_lists_are_names(cli: Cli) -> None:
    _new(cli, "STATE")
    cli("pub", "state.a", "x", "--jetstream")
    shown = cli("stream", "info", "STATE", "--state").out
    assert "Messages: 1" in shown
    assert "Retention" not in shown
    found = json.loads(cli("stream", "info", "STATE", "--state", "--json").out)
    assert found["state"]["messages"] == 1  # the tool prints all of it here, too
    assert "STATE" in json.loads(cli("stream", "ls", "--json").out)
    cli("consumer", "add", "STATE", "c", "--pull", "--defaults")
    assert json.loads(cli("consumer", "ls", "STATE", "--json").out) == ["c"]
    assert json.loads(cli("consumer", "report", "STATE", "--json").out)[0]["name"] == "c"


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        (["--backoff", "1s,5s"], [1, 5]),
        (["--backoff", "linear", "--backoff-steps", "3", "--backoff-min", "1s",
          "--backoff-max", "9s"], [1, 5, 9]),
        (["--backoff-steps", "2", "--backoff-min", "1s", "--backoff-max", "2s"], [1, 2]),
        (["--backoff", "linear", "--backoff-steps", "1"], [60]),
    ],
)  # fmt: skip
def test_a_backoff_is_a_list_or_linear(cli: Cli, words: list[str], waits: list[int]) -> None:
    if "BACKOFF" not in cli("stream", "ls", "--names").out:
        _new(cli, "BACKOFF")
    name = f"c{len(words)}x{len(waits)}"
    cli("consumer", "add", "BACKOFF", name, "--pull", "--max-deliver", "9", "--defaults", *words)
    config = json.loads(cli("consumer", "info", "BACKOFF", name, "--json").out)["config"]
    assert config["backoff"] == [wait * 1_000_000_000 for wait in waits]


def test_a_backoff_that_can_not_be_is_refused_before_it_is_sent(offline: Cli) -> None:
    add = ("consumer", "add", "S", "c", "--pull", "--defaults")
    few = offline(*add, "--backoff", "linear", "--max-deliver", "3", status=2)
    assert "--max-deliver of 11 or more" in few.err
    assert "linear" in offline(*add, "--backoff", "1s", "--backoff-steps", "3", status=2).err


def test_a_bucket_is_listed_changed_and_taken_back(cli: Cli) -> None:
    cli("kv", "add", "SPELT", "--history", "5", "--storage", "memory")
    cli("kv", "put", "SPELT", "k", "old")
    cli("kv", "put", "SPELT", "k", "new")
    assert "SPELT" in cli("kv", "ls", "--names").out.split()
    assert "new" not in cli("kv", "ls", "SPELT", "--verbose").out
    shown = cli("kv", "ls", "SPELT", "--verbose", "--display-value").out
    assert re.search(r"│ k +│ .* │ +0 │ +2 │ new +│", shown)
    history = json.loads(cli("kv", "revert", "SPELT", "k", "1", "--force", "--json").out)
    assert [entry["value"] for entry in history] == ["old", "new", "old"]
    declined = cli.on_terminal("kv", "revert", "SPELT", "k", "2", answers="n\n")
    assert "Really revert to revision 2" in declined.out
    cli("kv", "edit", "SPELT", "--history", "2", "--description", "spelt", "--force")
    config = json.loads(cli("kv", "info", "SPELT", "--json").out)["config"]
    assert (config["max_msgs_per_subject"], config["description"]) == (2, "spelt")
    assert "nothing of SPELT" in cli("kv", "edit", "SPELT", "--force", status=2).err
    cli("kv", "rm", "SPELT", "--force")


def test_a_stream_is_read_without_a_subject_and_from_a_time_on(cli: Cli) -> None:
    _new(cli, "TOLD")
    cli("pub", "told.{{Count}}", "m", "--jetstream")
    cli("pub", "told.b", "m2", "--jetstream")
    whole = cli("sub", "--stream", "TOLD", "--count", "2", "--raw").out
    assert whole == "m\nm2\n"
    assert cli("sub", "told.b", "--since", "1h", "--count", "1", "--raw").out == "m2\n"
    assert "give a SUBJECT" in cli("sub", status=2).err


def test_messages_are_dumped_as_the_nats_tool_writes_them(cli: Cli) -> None:
    _new(cli, "DUMP")
    cli("pub", "dump.a", "body", "-H", "A: b", "--jetstream")
    cli("sub", "--stream", "DUMP", "--count", "1", "--dump", "out")
    found = json.loads((cli.home / "out" / "1.json").read_text())
    assert found["Subject"] == "dump.a"
    assert found["Header"]["A"] == ["b"]
    assert base64.b64decode(found["Data"]) == b"body"
    text = cli("sub", "--stream", "DUMP", "--count", "1", "--dump", "-").out
    assert text.endswith("\0")
    assert json.loads(text.rstrip("\0"))["Subject"] == "dump.a"


def test_subjects_are_counted(cli: Cli) -> None:
    _new(cli, "COUNT")
    for subject in ("count.a", "count.b", "count.b"):
        cli("pub", subject, "xx", "--jetstream")
    words = ("sub", "--stream", "COUNT", "--count", "3", "--report-subjects")
    assert json.loads(cli(*words, "--json").out)["count.b"] == {"messages": 2, "bytes": 4}
    assert "Top 1 of 2 active subjects" in cli(*words, "--report-top", "1").out


def test_requests_are_shown_with_their_answers(cli: Cli) -> None:
    watcher = cli.start("sub", "spelt.help", "--match-replies", "--count", "1", "--raw")
    replier = cli.start("reply", "spelt.help", "answered", "--count", "1")
    for process in (watcher, replier):
        assert process.stderr is not None
        process.stderr.readline()
    cli("request", "spelt.help", "asked")
    out, _ = watcher.communicate(timeout=60)
    replier.communicate(timeout=60)
    assert out == "asked\nanswered\n"


def test_a_consumer_is_copied_and_its_state_shown(cli: Cli) -> None:
    _new(cli, "COPIED")
    cli("pub", "copied.a", "x", "--jetstream")
    cli("consumer", "add", "COPIED", "one", "--pull", "--max-pending", "7", "--defaults")
    cli("consumer", "copy", "COPIED", "one", "two", "--filter", "copied.a")
    config = json.loads(cli("consumer", "info", "COPIED", "two", "--json").out)["config"]
    assert (config["durable_name"], config["max_ack_pending"]) == ("two", 7)
    assert config["filter_subject"] == "copied.a"
    shown = cli("consumer", "state", "COPIED", "two").out
    assert "Unprocessed Messages: 1" in shown
    assert "Ack Policy" not in shown


def test_a_consumer_is_sent_back_and_drawn(cli: Cli) -> None:
    _new(cli, "AGAIN")
    cli("pub", "again.a", "x", "--count", "3", "--jetstream")
    cli("consumer", "add", "AGAIN", "c", "--pull", "--defaults")
    cli("consumer", "next", "AGAIN", "c", "--count", "3")
    assert "Unprocessed Messages: 0" in cli("consumer", "state", "AGAIN", "c").out
    cli("consumer", "reset", "AGAIN", "c", "2", "--force")
    again = cli("consumer", "next", "AGAIN", "c", "--no-ack").out
    assert "str seq: 2" in again
    drawn = cli("consumer", "graph", "AGAIN", "c", "--count", "2", "--interval", "10ms").out
    assert re.search(r"Unprocessed: +1  [▁█]{2}$", drawn, re.M)
    assert drawn.count("Delivered a second") == 1


def test_contexts_are_copied_edited_checked_and_switched_back(offline: Cli) -> None:
    offline.env.pop("NATS_URL")
    offline("context", "add", "a", "--server", "nats://127.0.0.1:1", "--description", "first")
    offline("context", "copy", "a", "b", "--user", "me")
    copied = json.loads(offline("context", "info", "b", "--json").out)
    assert (copied["url"], copied["user"]) == ("nats://127.0.0.1:1", "me")
    assert "already" in offline("context", "copy", "a", "b", status=1).err
    offline("context", "select", "a")
    offline("context", "select", "b")
    offline("context", "previous")
    assert (offline.home / "nats" / "context.txt").read_text() == "a"
    assert "b: OK" in offline("context", "validate").out
    offline("context", "add", "b", "--creds", "missing.creds")
    assert "there is no file missing.creds" in offline("context", "validate", "b", status=1).out
    assert "127.0.0.1:1" in offline("context", "validate", "a", "--connect", status=1).out


def test_an_edited_context_that_can_not_be_read_is_put_back(offline: Cli, tmp_path: Path) -> None:
    offline("context", "add", "kept", "--server", "nats://one:4222")
    editor = tmp_path / "editor"
    for text, status in (('{"url": "nats://two:4222"}', 0), ("{", 1)):
        editor.write_text(f"#!/bin/sh\nprintf '%s' '{text}' > \"$1\"\n")
        editor.chmod(0o755)
        offline.env["EDITOR"] = str(editor)
        offline("context", "edit", "kept", status=status)
        assert json.loads(offline("context", "info", "kept", "--json").out)["url"] == (
            "nats://two:4222"
        )


def test_checks_give_values_with_units_and_bounds(cli: Cli) -> None:
    _new(cli, "PERF")
    words = ("server", "check", "stream", "--stream", "PERF", "--msgs-warn", "5")
    shown = cli(*words, "--msgs-critical", "3", status=2).out
    assert shown.rstrip().endswith("| messages=0;5;3 sources=0")
    shown = cli("server", "check", "connection").out
    bounded = r"=\d\.\d{4}s;0\.5000;1\.0000"
    names = ("connect_time", "rtt", "request_time")
    assert re.search(r"\| " + " ".join(name + bounded for name in names) + "$", shown.rstrip())


def test_a_password_is_hashed_for_a_configuration_file(offline: Cli) -> None:
    word = "correct horse battery staple"
    hashed = offline("server", "passwd", "--pass", word, "--cost", "4").out.strip()
    assert hashed.startswith("$2a$04$")
    assert bcrypt.checkpw(word.encode(), hashed.encode())
    made = json.loads(offline("server", "passwd", "--generate", "--cost", "4", "--json").out)
    assert bcrypt.checkpw(made["password"].encode(), made["hash"].encode())
    assert "22 letters" in offline("server", "passwd", "--pass", "short", status=2).err


def _serving(kind: str, configuration: str, directory: Path) -> Iterator[str]:
    """The URL of a server of a kind, while it runs with a configuration file."""
    file = directory / "server.conf"
    file.write_text(configuration)
    if kind == "slipstream":
        options = load_options(str(file))
        options.port = -1
        options.jetstream = JetStreamOptions(enabled=True, store_dir=str(directory / "store"))
        with slipstream.Server(config=options) as server:
            yield server.url
        return
    real = start_nats_server(directory / "real", "-c", str(file))
    yield real.url
    real.process.terminate()
    real.process.wait(10)


@pytest.fixture(scope="module", params=("slipstream", "nats-server"))
def with_system_account(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server with a system account, whose user is `boss`."""
    yield from _serving(request.param, SYSTEM, tmp_path_factory.mktemp("system"))


def test_servers_are_listed_reported_and_asked(with_system_account: str, tmp_path: Path) -> None:
    cli = Cli(with_system_account, tmp_path)
    boss = ("--user", "boss", "--password", "secret")
    (named,) = json.loads(cli("server", "ls", "--json", *boss).out)
    name = named["server"]["name"]
    assert name in cli("server", "list", *boss).out
    assert "APP" in cli("server", "report", "accounts", *boss).out
    assert re.search(r"│ ok +│", cli("server", "report", "health", *boss).out)
    assert name in cli("server", "report", "jetstream", *boss).out
    asked = json.loads(cli("server", "request", "variables", "--name", name, *boss).out)
    assert asked["data"]["server_name"] == name
    assert name in cli("server", "watch", "jetstream", "--count", "1", *boss).out
    assert name in cli("server", "watch", "--count", "1", *boss).out
    assert "did you mean connections" in cli("server", "request", "connexions", status=2).err
    refused = cli("server", "ls", "--user", "app", "--password", "secret", status=1).err
    assert "system account" in refused


def test_servers_are_reported_and_asked_with_the_flags_of_the_nats_tool(
    with_system_account: str, tmp_path: Path
) -> None:
    cli = Cli(with_system_account, tmp_path)
    boss = ("--user", "boss", "--password", "secret")
    (named,) = json.loads(cli("server", "ls", "1", "--json", *boss).out)
    name, identity = named["server"]["name"], named["server"]["id"]
    assert name in cli("server", "ls", "--sort", "cpu", "-R", "--no-compact", *boss).out
    assert "not 2" in cli("server", "ls", "2", "--timeout", "1s", *boss, status=1).err
    pinged = cli("sys", "ping", "1", "--id", "--graph", *boss).out
    assert pinged.startswith(identity)
    assert "█" in pinged
    for server in (name, identity):
        assert identity in cli("server", "info", server, *boss).out
    assert "APP" in cli("server", "rep", "acct", "APP", "--sort", "conns", "--top", "3", *boss).out
    assert name in cli("server", "report", "cpu", "--json", *boss).out
    assert name in cli("server", "report", "mem", "--watch", "1", "--count", "1", *boss).out
    assert "Leafnode" in cli("server", "report", "leafnodes", *boss).out
    assert "ok" in cli("server", "report", "health", "-J", "-S", *boss).out
    assert (
        name in cli("server", "report", "jsz", "1", "--account", "APP", "--sort", "api", *boss).out
    )
    assert "Nothing needs more" in cli("server", "report", "downgrade", "99", *boss).out
    listed = json.loads(cli("server", "report", "conn", "--account", "SYS", "--username", "boss",
                            "--json", *boss).out)  # fmt: skip
    assert listed[0]["account"] == "SYS"
    refused = cli("server", "report", "cpu", "--subject", "a", *boss, status=2).err
    assert "--subject is about connections" in refused


def test_requests_have_the_options_of_what_they_ask_for(
    with_system_account: str, tmp_path: Path
) -> None:
    cli = Cli(with_system_account, tmp_path)
    boss = ("--user", "boss", "--password", "secret")
    ask = ("server", "req")
    detail = json.loads(cli(*ask, "jsz", "--all", "--consumer", *boss).out)["data"]
    assert "account_details" in detail
    health = json.loads(cli(*ask, "jetstream-health", "-J", "--no-details", *boss).out)
    assert health["data"]["status"] == "ok"
    found = json.loads(cli(*ask, "connz", "1", "--filter-account", "SYS", "--subscriptions",
                           "--sort", "cid", "--limit", "1", *boss).out)["data"]  # fmt: skip
    assert found["connections"][0]["account"] == "SYS"
    for what in ("subsz", "leafz", "varz", "acct", "raftz", "ipq", "routez"):
        cli(*ask, what, *boss)
    assert "--streams is about jetstream" in cli(*ask, "varz", "--streams", *boss, status=2).err
    server = found["server_id"]
    assert "refuses" in cli(*ask, "kick", "999999", server, *boss, status=1).err
    assert "CLIENT" in cli(*ask, "kick", *boss, status=2).err


def test_a_server_is_managed_over_the_system_account(
    with_system_account: str, tmp_path: Path
) -> None:
    cli = Cli(with_system_account, tmp_path)
    boss = ("--user", "boss", "--password", "secret")
    (named,) = json.loads(cli("server", "ls", "--json", *boss).out)
    name = named["server"]["name"]
    shown = json.loads(cli("server", "account", "info", "APP", "--json", *boss).out)
    assert shown["account_name"] == "APP"
    check = ("server", "check", "server", "--name", name, *boss)
    bounds = ("--conn-warn", "100", "--conn-critical", "200")
    assert cli(*check, "--js-required", "--auth-required", *bounds).out.startswith("NATS Server OK")
    assert "without TLS" in cli(*check, "--tls-required", status=2).out
    assert "no action" in cli("server", "config", "reset", name, *boss, status=2).err
    unasked = cli("server", "config", "reload", name, *boss, status=2).err
    assert f"Really reload the configuration of {name}" in unasked


@pytest.mark.parametrize(
    ("words", "mapped"),
    [
        (["orders.*", "o.{{wildcard(1)}}", "orders.x"], "o.x"),
        (["orders.*.*", "o.$2.$1", "orders.a.b"], "o.b.a"),
    ],
)
def test_a_mapping_is_tried(offline: Cli, words: list[str], mapped: str) -> None:
    assert offline("server", "mappings", *words).out == f"{mapped}\n"


FORBIDDING = """
authorization { users = [
  { user: guest, password: secret
    permissions: { publish: { deny: "no.>" }, subscribe: { deny: "no.>" } } }
] }
"""


@pytest.mark.parametrize(
    "words",
    [
        ["pub", "no.way", "x"],
        ["pub", "no.way", "x", "--count", "3"],
        ["pub", "no.way", "x", "--jetstream"],
        ["request", "no.way", "x"],
        ["sub", "no.way"],
        ["reply", "no.way", "x"],
    ],
)
def test_what_the_server_forbids_is_said_once_and_fails(
    forbidding: str, tmp_path: Path, words: list[str]
) -> None:
    cli = Cli(forbidding, tmp_path)
    refused = cli(*words, "--user", "guest", "--password", "secret", status=1)
    assert refused.out == ""
    assert refused.err.count("forbids it") == 1
    assert "Published" not in refused.err


@pytest.fixture(scope="module", params=("slipstream", "nats-server"))
def forbidding(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server on which `guest` may not use `no.>`."""
    yield from _serving(request.param, FORBIDDING, tmp_path_factory.mktemp("forbidding"))
