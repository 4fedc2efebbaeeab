"""Flags and arguments of the `nats` tool, command by command: what they do here."""

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.cheat import EXAMPLES
from tests.cli.conftest import Cli


def _config(cli: Cli, *words: str) -> Any:
    """The configuration in an info."""
    return json.loads(cli(*words, "--json").out)["config"]


def _new(cli: Cli, name: str, *more: str) -> None:
    """A stream in memory that stores `<name>.>`."""
    subjects = f"{name.lower()}.>"
    cli("stream", "add", name, "--subjects", subjects, "--storage", "memory", "--defaults", *more)


def _editor(cli: Cli, directory: Path, change: str) -> None:
    """Let `change`, an expression of `sed`, be what the person does in the editor."""
    editor = directory / "editor"
    editor.write_text(f"#!/bin/sh\nexec sed -i '{change}' \"$1\"\n")
    editor.chmod(0o755)
    cli.env["EDITOR"] = str(editor)
    cli.env.pop("VISUAL", None)


# -- the connection --------------------------------------------------------------------------------


def test_requests_and_answers_are_traced(cli: Cli) -> None:
    traced = cli("account", "info", "--trace").err
    assert ">>> $JS.API.INFO" in traced
    assert '<<< {"type":"io.nats.jetstream.api.v1.account_info_response"' in traced
    assert ">>>" not in cli("account", "info").err


def test_a_domain_a_token_and_no_are_understood(offline: Cli) -> None:
    words = ("--token", "secret", "--domain", "hub", "--tls-first", "--js-event-prefix", "far")
    offline("context", "add", "far", *words)
    saved = json.loads((offline.home / "nats" / "context" / "far.json").read_text())
    assert (saved["token"], saved["jetstream_domain"], saved["tls_first"]) == (
        "secret",
        "hub",
        True,
    )
    assert saved["jetstream_event_prefix"] == "far"
    offline("context", "add", "far", "--no-tlsfirst")
    saved = json.loads((offline.home / "nats" / "context" / "far.json").read_text())
    assert saved["tls_first"] is False


def test_a_proxy_that_the_environment_asks_for_is_not_passed_by_in_silence(offline: Cli) -> None:
    offline.env["NATS_SOCKS_PROXY"] = "socks5://proxy:1080"
    assert "there is no SOCKS5" in offline("stream", "ls", status=2).err


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--allow-fast"], "allow_batched", True),
        (["--persist-mode", "async"], "persist_mode", "async"),
        (["--retention", "workq"], "retention", "workqueue"),
        (["--no-allow-direct"], "allow_direct", False),
        (["--no-ack"], "no_ack", True),
    ],
)
def test_an_option_sets_a_field_of_the_stream(
    cli: Cli, tmp_path: Path, words: list[str], field: str, value: object
) -> None:
    file = tmp_path / "made.json"
    _new(cli, "WRITTEN", *words, "--output", str(file))
    assert json.loads(file.read_text())[field] == value
    assert "WRITTEN" not in cli("stream", "ls", "--names").out


def test_a_configuration_that_was_saved_makes_a_stream(cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "made.json")
    _new(cli, "SAVED", "--max-age", "1h", "--output", file)
    cli("stream", "add", "--config", file)
    assert _config(cli, "stream", "info", "SAVED")["max_age"] == 3_600_000_000_000


def test_an_edit_that_changes_nothing_succeeds_and_a_dry_run_says_whether_it_would(
    cli: Cli,
) -> None:
    _new(cli, "DRY")
    assert "No difference" in cli("stream", "edit", "DRY", "--force").out
    would = cli("stream", "edit", "DRY", "--max-msgs", "5", "--dry-run", status=1)
    assert "max_msgs" in would.out
    assert _config(cli, "stream", "info", "DRY")["max_msgs"] == -1
    cli("consumer", "add", "DRY", "c", "--pull", "--defaults")
    assert "No difference" in cli("consumer", "edit", "DRY", "c", "--force").out
    cli("consumer", "edit", "DRY", "c", "--max-deliver", "5", "--dry-run", status=1)


def test_a_stream_loses_what_an_edit_takes_away(cli: Cli) -> None:
    again = ("--republish-source", ">", "--republish-destination", "again.>")
    _new(cli, "LESS", *again, "--tags", "x,y", "--validate")
    _new(cli, "LESS", *again)
    assert _config(cli, "stream", "info", "LESS")["republish"]["dest"] == "again.>"
    cli("stream", "edit", "LESS", "--no-republish", "--force")
    assert "republish" not in _config(cli, "stream", "info", "LESS")


def test_a_configuration_is_changed_in_an_editor(cli: Cli, tmp_path: Path) -> None:
    _new(cli, "TYPED")
    _editor(cli, tmp_path, 's/"max_msgs": -1/"max_msgs": 7/')
    cli("stream", "edit", "TYPED", "-i", "--force")
    assert _config(cli, "stream", "info", "TYPED")["max_msgs"] == 7
    cli("consumer", "add", "TYPED", "c", "--pull", "--defaults", "--max-deliver", "3")
    _editor(cli, tmp_path, 's/"max_deliver": 3/"max_deliver": 4/')
    cli("consumer", "edit", "TYPED", "c", "-i", "--force")
    assert _config(cli, "consumer", "info", "TYPED", "c")["max_deliver"] == 4
    cli.env["EDITOR"] = "false"
    assert "has failed" in cli("stream", "edit", "TYPED", "-i", "--force", status=1).err


def test_streams_are_found_by_what_they_copy_and_need(cli: Cli, tmp_path: Path) -> None:
    _new(cli, "ORIGIN", "--allow-msg-ttl")
    cli("stream", "add", "COPY", "--mirror", "ORIGIN", "--storage", "memory", "--defaults")
    cli("stream", "add", "MERGED", "--source", "ORIGIN", "--storage", "memory", "--defaults",
        "--subjects", "merged")  # fmt: skip
    found = ("stream", "find", "--names")
    assert cli(*found, "--mirrored").out.split() == ["COPY"]
    assert cli(*found, "--sourced").out.split() == ["MERGED"]
    assert "ORIGIN" in cli(*found, "--api-level", "1").out.split()
    assert "COPY" not in cli(*found, "--api-level", "1").out.split()
    assert "COPY" in cli(*found, "--replicas", "1").out.split()
    assert "COPY" not in cli(*found, "--leader", "nobody").out.split()
    file = tmp_path / "graph.dot"
    cli("stream", "report", "--dot", str(file))
    assert '"ORIGIN" -> "COPY" [label="mirror"];' in file.read_text()
    assert '"ORIGIN" -> "MERGED" [label="source"];' in file.read_text()
    for name in ("COPY", "MERGED", "ORIGIN"):
        cli("stream", "rm", name, "--force")


def test_a_message_is_asked_for_on_a_terminal_only(cli: Cli) -> None:
    _new(cli, "ONE")
    cli("pub", "one.a", "hello", "--jetstream")
    assert "hello" in cli.on_terminal("stream", "get", "ONE", answers="1\n").out
    assert "SEQUENCE" in cli("stream", "get", "ONE", status=2).err
    assert "SEQUENCE" in cli("stream", "rmm", "ONE", status=2).err
    assert "STREAM is missing" in cli("stream", "get", status=2).err


def test_a_stream_comes_back_with_another_configuration(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "BACK", "--subjects", "back", "--defaults")
    cli("stream", "backup", "BACK", str(tmp_path / "backup"), "--no-progress")
    config = _config(cli, "stream", "info", "BACK") | {"description": "from a file"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    cli("stream", "rm", "BACK", "--no-force", "-f")
    cli("stream", "restore", str(tmp_path / "backup"), "--config", str(tmp_path / "config.json"))
    assert _config(cli, "stream", "info", "BACK")["description"] == "from a file"


# -- consumers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--max-outstanding", "7"], "max_ack_pending", 7),
        (["--sample", "50"], "sample_freq", "50"),
        (["--pinned-groups", "g", "--pinned-ttl", "1m"], "priority_policy", "pinned_client"),
        (["--headers-only"], "headers_only", True),
    ],
)
def test_an_option_sets_a_field_of_the_consumer(
    cli: Cli, words: list[str], field: str, value: object
) -> None:
    made = cli("consumer", "add", "S", "c", "--pull", "--defaults", "--validate", *words)
    assert json.loads(made.out)[field] == value


def test_a_consumer_is_saved_made_and_changed_by_files(cli: Cli, tmp_path: Path) -> None:
    _new(cli, "FILED")
    file = str(tmp_path / "consumer.json")
    cli("consumer", "add", "FILED", "c", "--pull", "--max-deliver", "3", "--defaults",
        "--output", file)  # fmt: skip
    cli("consumer", "add", "FILED", "--config", file)
    assert _config(cli, "consumer", "info", "FILED", "c")["max_deliver"] == 3
    cli("consumer", "edit", "FILED", "c", "--config", file, "--description", "filed", "-f")
    assert _config(cli, "consumer", "info", "FILED", "c")["description"] == "filed"
    cli("consumer", "copy", "FILED", "c", "short", "--ephemeral")
    assert _config(cli, "consumer", "info", "FILED", "short")["durable_name"] == ""


def test_consumers_are_found_by_bounds_that_they_are_below(cli: Cli) -> None:
    _new(cli, "FOUND")
    for name in ("idle", "busy"):
        cli("consumer", "add", "FOUND", name, "--pull", "--defaults")
    cli("pub", "found.a", "x", "--count", "3", "--jetstream")
    cli("consumer", "next", "FOUND", "busy", "--count", "2", "--no-ack")
    find = ("consumer", "find", "FOUND")
    assert cli(*find, "--ack-pending", "1").out.split() == ["idle"]
    assert cli(*find, "--pending", "2").out.split() == ["busy"]
    assert cli(*find, "--pending", "2", "--invert").out.split() == ["idle"]
    assert cli(*find, "--waiting", "1").out.split() == ["busy", "idle"]
    assert cli(*find, "--created", "1h", "--json").out.strip() == "[]"
    assert cli(*find, "--replicas", "1").out.split() == ["busy", "idle"]
    assert cli(*find, "--pinned").out.strip() == "No Consumers found"
    report = cli("consumer", "report", "FOUND", "--raw").out
    assert "│ busy" in report


def test_consumers_are_picked_where_the_line_does_not_name_them(cli: Cli) -> None:
    _new(cli, "PICKED")
    cli("consumer", "add", "PICKED", "c", "--pull", "--defaults")
    assert "CONSUMER is missing" in cli("consumer", "pause", "PICKED", status=2).err
    assert "UNTIL" in cli("consumer", "pause", "PICKED", "c", status=2).err
    paused = cli.on_terminal("consumer", "pause", "PICKED", "--force", answers="c\n1h\n")
    assert "Paused PICKED > c" in paused.out
    resumed = cli.on_terminal("consumer", "resume", "PICKED", "-f", answers="1\n")
    assert "PICKED > c was resumed" in resumed.out


def test_a_deliver_group_has_to_be_the_consumers_own(cli: Cli) -> None:
    _new(cli, "GROUP")
    cli("consumer", "add", "GROUP", "c", "--target", "to.group", "--deliver-group", "g",
        "--ack", "none", "--defaults")  # fmt: skip
    cli("pub", "group.a", "for one", "--jetstream")
    sub = ("consumer", "sub", "GROUP", "c", "--deliver-group")
    assert 'the group "g", not to "other"' in cli(*sub, "other", status=2).err
    assert cli(*sub, "g", "--count", "1", "--raw").out == "for one\n"


# -- buckets and stores ----------------------------------------------------------------------------


def test_a_bucket_is_made_and_changed_with_all_that_it_may_have(cli: Cli) -> None:
    cli("kv", "add", "FULL", "--storage", "m", "--metadata", "team=a", "--marker-ttl", "1m",
        "--republish-source", ">", "--republish-destination", "kv.>",
        "--republish-headers")  # fmt: skip
    config = _config(cli, "kv", "info", "FULL")
    assert (config["storage"], config["metadata"]["team"]) == ("memory", "a")
    assert config["republish"] == {"src": ">", "dest": "kv.>", "headers_only": True}
    cli("kv", "edit", "FULL", "--metadata", "team=b", "--marker-ttl", "2m", "--history", "3")
    config = _config(cli, "kv", "info", "FULL")
    assert (config["metadata"]["team"], config["max_msgs_per_subject"]) == ("b", 3)
    assert config["subject_delete_marker_ttl"] == 120_000_000_000
    assert "BUCKET is missing" in cli("kv", "info", status=2).err


def test_a_bucket_copies_others(cli: Cli) -> None:
    cli("kv", "add", "FIRST", "--storage", "memory")
    cli("kv", "put", "FIRST", "k", "v")
    cli("kv", "add", "SECOND", "--storage", "memory", "--mirror", "FIRST")
    cli("kv", "add", "THIRD", "--storage", "memory", "--source", "FIRST")
    assert _config(cli, "kv", "info", "SECOND")["mirror"]["name"] == "KV_FIRST"
    cli("kv", "watch", "THIRD", "k", "--count", "1")
    assert cli("kv", "get", "THIRD", "k", "--raw").out == "v\n"


def test_keys_are_removed_by_rm_and_watched_without_deletes(cli: Cli) -> None:
    cli("kv", "add", "WATCHED", "--storage", "memory", "--history", "5", "--marker-ttl", "1m")
    for key, value in (("a", "1"), ("b", "2"), ("c", "3")):
        cli("kv", "put", "WATCHED", key, value)
    cli("kv", "rm", "WATCHED", "a", "--force")
    cli("kv", "purge", "WATCHED", "b", "--force", "--ttl", "1m")
    assert cli("kv", "ls", "WATCHED").out.split() == ["c"]
    watch = ("kv", "watch", "WATCHED", "--history", "--json")
    shown = _objects(cli(*watch, "--no-deletes", "--count", "2").out)
    assert [(one["key"], one["operation"]) for one in shown] == [("a", "PUT"), ("c", "PUT")]
    assert _objects(cli(*watch, "--count", "3").out)[2]["operation"] == "DELETE"
    later = _objects(cli("kv", "watch", "WATCHED", "--revision", "4", "--count", "2", "--json").out)
    assert [one["revision"] for one in later] == [4, 5]


def _objects(text: str) -> list[Any]:
    """JSON objects, one after the other."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        one, at = decoder.raw_decode(text, at)
        found.append(one)
        at += 1
    return found


def test_a_store_is_changed_and_filled_from_standard_input(cli: Cli) -> None:
    cli("object", "add", "STORE", "--storage", "m")
    cli("object", "edit", "STORE", "--description", "changed", "--metadata", "a=b", "--ttl", "1h")
    config = _config(cli, "object", "info", "STORE")
    assert (config["description"], config["metadata"]["a"]) == ("changed", "b")
    assert config["max_age"] == 3_600_000_000_000
    cli("object", "put", "STORE", "--name", "piped", stdin="from a pipe")
    assert cli("object", "get", "STORE", "piped", "--output", "-").out == "from a pipe"
    assert "nothing of STORE" in cli("object", "edit", "STORE", status=2).err


# -- messages --------------------------------------------------------------------------------------


def test_subjects_are_filled_in_like_bodies(cli: Cli) -> None:
    _new(cli, "FILLED")
    cli("pub", "filled.{{Count}}", "{{UUID}}", "--count", "2", "--jetstream")
    found = json.loads(cli("stream", "subjects", "FILLED", "--json").out)
    assert found == {"filled.1": 1, "filled.2": 1}
    cli("pub", "filled.{{Count}}", "x", "--no-templates", "--jetstream")
    assert "filled.{{Count}}" in cli("stream", "subjects", "FILLED", "--names").out


def test_a_message_is_published_later(cli: Cli) -> None:
    _new(cli, "LATER", "--allow-schedules", "--allow-msg-ttl")
    to = ("--schedule-dest", "later.out")
    cli("pub", "later.plan", "x", "--schedule-after", "1h", *to)
    cli("pub", "later.plan2", "x", "--schedule-every", "5m", *to, "--schedule-ttl", "1h")
    shown = cli("stream", "get", "LATER", "2").out
    assert "Nats-Schedule: @every 300s" in shown
    assert "Nats-Schedule-Target: later.out" in shown
    assert "@at 2" in cli("stream", "get", "LATER", "1").out
    refused = cli("pub", "later.plan", "x", "--schedule-cron", "@daily", status=2).err
    assert "--schedule-dest" in refused
    assert "six fields" in cli("pub", "later.a", "x", "--schedule-cron", "1 2", *to, status=2).err


def test_each_line_is_a_request_and_a_command_reads_each_answer(cli: Cli) -> None:
    replier = cli.start("reply", "lines.ask", "--count", "2")
    assert replier.stderr is not None
    while "Listening" not in replier.stderr.readline():
        pass
    asked = cli("req", "lines.ask", "--send-on", "newline", "--raw", "--translate", "tr a-z A-Z",
                "-w", "-H", "A: b", stdin="one\ntwo\n")  # fmt: skip
    assert asked.out == "ONE\nTWO\n"
    replier.communicate(timeout=60)
    assert "slipstream pub" in cli("request", "lines.ask", "x", "--no-wait", status=2).err


def test_a_request_sent_back_has_its_headers(cli: Cli) -> None:
    replier = cli.start("reply", "back.ask", "--count", "1", "-q", "mine", "-H", "More: yes")
    assert replier.stderr is not None
    while "Listening" not in replier.stderr.readline():
        pass
    answer = json.loads(cli("request", "back.ask", "x", "-H", "Mine: 1", "--json").out)
    replier.communicate(timeout=60)
    assert (answer["data"], answer["headers"]) == ("x", {"Mine": ["1"], "More": ["yes"]})


def test_a_command_gets_parts_of_the_request_as_words_and_no_shell_reads_them(cli: Cli) -> None:
    lines = ["printf %s-%s {{1}} '{{ .Request }}'", 'echo "$NATS_REQUEST_BODY"']
    expected = ["london;id-$(id)", "$(id)\n"]
    for line, said in zip(lines, expected, strict=True):
        replier = cli.start("reply", "weather.*", "--command", line, "--count", "1")
        assert replier.stderr is not None
        while "Listening" not in replier.stderr.readline():
            pass
        asked = cli("request", "weather.london;id", "$(id)", "--raw")
        replier.communicate(timeout=60)
        assert asked.out == said + "\n"


def test_answers_are_taken_up_to_an_empty_one(cli: Cli) -> None:
    replier = cli.start("reply", "empty.ask", "--command", "true", "--count", "1")
    assert replier.stderr is not None
    while "Listening" not in replier.stderr.readline():
        pass
    words = ("request", "empty.ask", "x", "--wait-for-empty", "--json", "--timeout", "1h")
    assert cli(*words).out == ""
    replier.communicate(timeout=60)


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        (["-T"], ["1", "2", "3"]),
        (["--all", "--terminate-at-end", "-I", "read.b"], ["1", "3"]),
        (["-T", "--direct"], ["1", "2", "3"]),
        (["-T", "--direct", "--last"], ["3"]),
        (["-T", "--direct", "--last-per-subject"], ["2", "3"]),
        (["-T", "--direct", "--start-sequence", "2"], ["2", "3"]),
        (["-T", "--start-sequence", "4"], []),
        (["-T", "--new"], []),
    ],
)
def test_a_stream_is_read_to_its_end(cli: Cli, words: list[str], bodies: list[str]) -> None:
    if "READ" not in cli("stream", "ls", "--names").out.split():
        _new(cli, "READ")
        for subject, body in (("a", "1"), ("b", "2"), ("a", "3")):
            cli("pub", f"read.{subject}", body, "--jetstream")
    assert cli("sub", "--stream", "READ", "--raw", *words).out.split() == bodies


def test_a_durable_consumer_goes_on_where_it_was(cli: Cli) -> None:
    _new(cli, "GOING")
    cli("consumer", "add", "GOING", "d", "--pull", "--defaults")
    for body in ("1", "2", "3"):
        cli("pub", "going.a", body, "--jetstream")
    sub = ("sub", "--stream", "GOING", "--durable", "d", "--ack", "--raw")
    assert cli(*sub, "--count", "1").out == "1\n"
    assert cli(*sub, "-T").out == "2\n3\n"
    assert cli(*sub, "-T").out == ""
    assert "--stream STREAM" in cli("sub", "a", "--durable", "d", status=2).err


def test_messages_are_shown_with_the_time_and_counted_by_what_was_asked_for(cli: Cli) -> None:
    _new(cli, "TIMED")
    cli("pub", "timed.a", "x", "--jetstream")
    stream = ("sub", "--stream", "TIMED", "-T")
    assert "[#1] @ " in cli(*stream, "-t").out
    assert "[#1] @ " in cli(*stream, "--delta-time").out
    assert "give one" in cli(*stream, "-t", "-d", status=2).err
    counter = cli.start("sub", "counted.*", "--report-subscriptions", "--count", "2", "--json")
    drawer = cli.start("sub", "counted.>", "--graph", "--count", "2")
    boxed = cli.start("sub", "--inbox", "--count", "1", "--raw")
    assert drawer.stderr is not None
    assert boxed.stderr is not None
    drawer.stderr.readline()
    inbox = boxed.stderr.readline().split()[-1]
    # A message that comes before the subscription is not counted.
    while counter.poll() is None:
        cli("pub", "counted.a", "x")
        cli("pub", "counted.b", "x")
    assert json.loads(counter.communicate(timeout=60)[0])["counted.*"]["messages"] == 2
    assert "counted.> a second" in drawer.communicate(timeout=60)[0]
    cli("pub", inbox, "for me")
    assert boxed.communicate(timeout=60)[0] == "for me\n"


# -- counters --------------------------------------------------------------------------------------


def test_counters_are_added_to_shown_and_listed(cli: Cli) -> None:
    _new(cli, "TOTALS", "--allow-counter")
    assert cli("counter", "increment", "totals.a", "5").out == "5\n"
    assert cli("ctr", "incr", "totals.a").out == "6\n"
    assert cli("counter", "decrement", "totals.a", "2").out == "4\n"
    assert cli("counter", "incr", "totals.a", "2").out == "6\n"
    assert cli("counter", "i", "totals.a", "--", "-2").out == "4\n"
    assert cli("counter", "get", "totals.a").out == "4\n"
    assert cli("counter", "g", "totals.a", "--stream", "TOTALS").out == "4\n"
    viewed = json.loads(cli("counter", "view", "totals.a", "--json").out)
    assert (viewed["val"], viewed["incr"]) == ("4", "-2")
    assert "Increment: -2" in cli("counter", "v", "totals.a").out
    assert json.loads(cli("counter", "ls", "totals.>", "--json").out) == ["totals.a"]
    assert cli("counter", "list", "--stream", "TOTALS").out == "totals.a\n"
    assert "no whole number" in cli("counter", "incr", "totals.a", "much", status=2).err
    _new(cli, "PLAIN")
    assert "PLAIN does not count" in cli("counter", "get", "plain.a", status=1).err


def test_the_examples_of_counters_run_as_they_stand(cli: Cli) -> None:
    text = EXAMPLES["counter"].replace("TOTALS", "SHOWN").replace("totals.", "shown.")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    shown = [cli(*shlex.split(line)[1:]).out for line in lines]
    assert shown[1:5] == ["5\n", "3\n", "3\n", "shown.orders\n"]


# -- checks ----------------------------------------------------------------------------------------


def test_a_check_is_written_in_the_format_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    _new(cli, "FORMAT")
    cli("pub", "format.a", "x", "--jetstream")
    check = ("server", "check", "stream", "--stream", "FORMAT")
    found = json.loads(cli(*check, "--format", "json").out)
    assert (found["status"], found["check_suite"], found["check_name"]) == (
        "OK",
        "stream",
        "FORMAT",
    )
    assert found["perf_data"][0] == {"name": "messages", "value": 1, "warning": 0, "critical": 0}
    metrics = cli(*check, "--format=prometheus", "--namespace", "mine").out
    assert 'mine_stream_messages{item="FORMAT"} 1' in metrics
    assert 'mine_stream_status_code{item="FORMAT",status="OK"} 0' in metrics
    # The status is one of the metrics: another code than 0 would say that there are none.
    low = cli(*check, "--format", "prometheus", "--msgs-critical", "1").out
    assert 'nats_server_check_stream_status_code{item="FORMAT",status="CRITICAL"} 2' in low
    file = tmp_path / "found"
    assert cli("server", "check", "--format", "text", "--outfile", str(file), *check[2:]).out == ""
    assert file.read_text().startswith("JetStream Stream: OK\n")
    assert "none of nagios" in cli(*check, "--format", "xml", status=2).err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--msgs-warn", "5", "--msgs-critical", "3"], 2, "messages 2 <= 3"),
        (["--msgs-warn", "2", "--msgs-critical", "1"], 1, "messages 2 <= 2"),
        (["--msgs-warn", "2", "--msgs-critical", "9"], 2, "messages 2 <= 9"),
        (["--msgs-warn", "1"], 0, "all fine"),
        (["--subjects-warn", "1", "--subjects-critical", "9"], 1, "subjects 2 >= 1"),
        (["--subjects-critical", "2"], 2, "subjects 2 >= 2"),
        (["--subjects-warn", "2"], 1, "subjects 2 <= 2"),
        (["--subjects-warn", "3", "--subjects-critical", "1"], 1, "subjects 2 <= 3"),
        (["--min-sources", "1"], 2, "0 sources, fewer than 1"),
        (["--max-sources", "1", "--seen-critical", "1s"], 0, "all fine"),
        (["--peer-expect", "1", "--peer-lag-critical", "1", "--peer-seen-critical", "1s"], 0, "OK"),
        (["--peer-expect", "3"], 2, "1 copies, not 3"),
    ],
)
def test_a_stream_is_checked(cli: Cli, words: list[str], status: int, text: str) -> None:
    if "CHECKED" not in cli("stream", "ls", "--names").out.split():
        _new(cli, "CHECKED")
        cli("pub", "checked.{{Count}}", "x", "--count", "2", "--jetstream")
    check = ("server", "check", "stream", "--stream", "CHECKED")
    assert text in cli(*check, *words, status=status).out


def test_bounds_may_be_in_the_metadata(cli: Cli) -> None:
    _new(cli, "META", "--metadata", "io.nats.monitor.msgs-critical=1")
    check = ("server", "check", "stream", "--stream", "META")
    cli("pub", "meta.a", "x", "--jetstream")
    assert "messages 1 <= 1" in cli(*check, status=2).out
    cli("pub", "meta.a", "x", "--jetstream")
    cli(*check)
    assert "messages 2 <= 5" in cli(*check, "--msgs-critical", "5", status=2).out
    cli("consumer", "add", "META", "c", "--pull", "--defaults",
        "--metadata", "io.nats.monitor.unprocessed-critical=1")  # fmt: skip
    check = ("server", "check", "consumer", "--stream", "META", "--consumer", "c")
    assert "pending 2 >= 1" in cli(*check, status=2).out


def test_a_consumer_is_checked_for_what_it_did_last(cli: Cli) -> None:
    _new(cli, "ACTIVE")
    cli("consumer", "add", "ACTIVE", "c", "--pull", "--defaults")
    check = ("server", "check", "consumer", "--stream", "ACTIVE", "--consumer", "c")
    assert (
        "no last delivery within 1h" in cli(*check, "--last-delivery-critical", "1h", status=2).out
    )
    cli("pub", "active.a", "x", "--jetstream")
    cli("consumer", "next", "ACTIVE", "c")
    cli(*check, "--last-delivery-critical", "1h", "--last-ack-critical", "1h")
    assert "priority group" in cli(*check, "--pinned", status=2).out


def test_messages_buckets_and_services_are_checked(cli: Cli, tmp_path: Path) -> None:
    _new(cli, "LAST")
    cli("pub", "last.a", "0", "--jetstream")
    check = ("server", "check", "message", "--stream", "LAST", "--subject", "last.a")
    cli(*check, "--age-warn", "1h", "--age-critical", "2h", "--content", "^0$")
    assert "does not match" in cli(*check, "--content", "1", status=2).out
    assert ">=" in cli(*check, "--body-timestamp", "--age-critical", "1h", status=2).out
    cli("kv", "add", "CHECKED", "--storage", "memory")
    check = ("server", "check", "kv", "--bucket", "CHECKED")
    assert cli(*check, "--key", "k", status=2).out.startswith("Key-Value Bucket CRITICAL")
    cli("kv", "put", "CHECKED", "k", "v")
    cli(*check, "--key", "k", "--values-warn", "5", "--values-critical", "9")
    assert "values 1 >= 1" in cli(*check, "--values-critical", "1", status=2).out
    assert "values 1 <= 2" in cli(*check, "--values-warn", "5", "--values-critical", "2",
                                     status=2).out  # fmt: skip
    replier = cli.start("reply", "check.ask", "--count", "2")
    assert replier.stderr is not None
    while "Listening" not in replier.stderr.readline():
        pass
    check = ("server", "check", "req", "--subject", "check.ask", "--payload", "hi")
    cli(*check, "--headers", "A=b", "--match-headers", "A=^b$", "--match-payload", "hi",
        "--response-critical", "1h")  # fmt: skip
    assert "does not match" in cli(*check, "--match-payload", "no", status=2).out
    replier.communicate(timeout=60)
    assert "request_time" in cli("server", "check", "conn", "--req-warn", "1h").out
    cli("server", "check", "js", "--streams-warn", "90", "--no-replicas")


@pytest.mark.parametrize(
    ("claims", "words", "status", "text"),
    [
        ({}, [], 2, "it never ends"),
        ({}, ["--no-require-expiry"], 0, "all fine"),
        ({"exp": 1}, [], 2, "it has ended"),
        ({"exp": 4_000_000_000}, ["--validity-warn", "1h"], 0, "all fine"),
        ({"exp": 4_000_000_000}, ["--validity-critical", "200y"], 2, "validity ends in"),
    ],
)
def test_a_credentials_file_is_checked_for_its_end(
    offline: Cli, tmp_path: Path, claims: dict[str, int], words: list[str], status: int, text: str
) -> None:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    file = tmp_path / "user.creds"
    file.write_text(f"-----BEGIN NATS USER JWT-----\nhead.{body}.signature\n------END------\n")
    check = ("server", "check", "credential", "--credential", str(file), *words)
    assert text in offline(*check, status=status).out


# -- events, latency, errors, contexts, top --------------------------------------------------------


def test_events_that_a_stream_has_kept_are_read(cli: Cli) -> None:
    words = ("--subjects", "$JS.EVENT.ADVISORY.STREAM.>", "--storage", "memory", "--defaults")
    cli("stream", "add", "KEPT", *words)
    _new(cli, "DAWN")
    _new(cli, "DUSK")
    seen = cli(
        "events", "--stream", "KEPT", "--filter", '"stream":"dusk"', "--short", "--count", "1"
    )
    assert seen.out.count("\n") == 1
    assert "stream=DUSK action=create" in seen.out
    event = json.loads(
        cli("events", "--stream", "KEPT", "--since", "1h", "--filter", "DAWN", "--cloudevent",
            "--count", "1").out
    )  # fmt: skip
    assert event["specversion"] == "1.0"
    assert event["type"] == event["data"]["type"]
    assert event["data"]["stream"] == "DAWN"
    assert "goes with --stream" in cli("events", "--since", "1h", status=2).err
    assert "no regular expression" in cli("events", "--filter", "(", status=2).err


def test_the_times_of_latency_are_saved(cli: Cli, tmp_path: Path) -> None:
    url = cli.env["NATS_URL"]
    name = str(tmp_path / "times")
    cli("latency", "--server-b", url, "--rate", "100", "--duration", "0.2s", "--histogram", name)
    raw = [float(line) for line in Path(f"{name}.raw").read_text().split()]
    rows = Path(f"{name}.histogram").read_text().splitlines()
    assert rows[-1].split()[1:] == ["1.0000000", str(len(raw)), "inf"]
    assert float(rows[-1].split()[0]) == pytest.approx(max(raw), abs=0.001)


def test_error_codes_are_filtered_and_sorted(offline: Cli) -> None:
    found = json.loads(offline("errors", "ls", "stream.*not found", "--json").out)
    assert 10059 in [one["err_code"] for one in found]
    codes = [one["err_code"] for one in json.loads(offline("errors", "ls", "--json").out)]
    assert codes == sorted(codes)
    turned = json.loads(offline("errors", "ls", "", "code", "-R", "--json").out)
    assert [one["err_code"] for one in turned] == codes[::-1]
    by_text = json.loads(offline("errors", "ls", "", "description", "--json").out)
    texts = [one["description"].lower() for one in by_text]
    assert texts == sorted(texts)
    assert "none of code" in offline("errors", "ls", "", "size", status=2).err


def test_a_context_is_tried_and_picked(cli: Cli) -> None:
    url = cli.env["NATS_URL"]
    cli("context", "add", "near", "--server", url)
    cli("context", "add", "far", "--server", "nats://127.0.0.1:1")
    assert "connection: OK" in cli("context", "info", "near", "--connect").out
    assert "connection: " in cli("context", "info", "far", "--connect", status=1).out
    assert "NAME is missing" in cli("context", "select", status=2).err


def test_one_look_of_top_is_saved(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "look"
    assert cli("top", "--output", str(file), "-n", "5", "--sort", "subs").out == ""
    assert "Connections" in file.read_text()
    assert "connect to other with --server" in cli("top", "other", status=2).err
    assert "none of cid" in cli("top", "--sort", "name", status=2).err


# -- services and loads ----------------------------------------------------------------------------


def _begin(cli: Cli, *words: str) -> Any:
    """A program that goes on, once it listens."""
    process = cli.start(*words)
    assert process.stderr is not None
    while "Listening" not in process.stderr.readline():
        pass
    return process


def _end(process: Any) -> None:
    process.terminate()
    process.communicate(timeout=60)


def test_a_service_sends_requests_back(cli: Cli) -> None:
    process = _begin(cli, "service", "serve", "mirror", "-H", "From: there")
    answer = cli("service", "request", "mirror", "echo", "hello", "-H", "A: b").out
    assert "hello" in answer
    assert "From: there" in answer
    assert "A: b" in answer
    _end(process)


def test_requests_are_a_load(cli: Cli) -> None:
    process = _begin(cli, "bench", "service", "serve", "ask", "--clients", "2", "--size", "4")
    words = ("--msgs", "20", "--clients", "2", "-H", "A: b", "--json")
    assert (
        json.loads(cli("bench", "service", "request", "ask", *words).out)["total"]["messages"] == 20
    )
    _end(process)


def test_a_load_has_its_own_messages_and_pace(cli: Cli, tmp_path: Path) -> None:
    payload, csv = tmp_path / "body", tmp_path / "found.csv"
    payload.write_text("hello")
    words = ("bench", "js", "pub", "async", "paced", "--stream", "PACED", "--storage", "memory",
             "--no-progress", "--json")  # fmt: skip
    found = json.loads(
        cli(*words, "--msgs", "10", "--clients", "2", "--throughput", "50", "--multisubject",
            "--multisubjectmax", "3", "--payload", str(payload), "-H", "A: b", "--csv", str(csv),
            "--dedup", "--dedupwindow", "1h", "--maxbytes", "1MiB", "--purge").out
    )  # fmt: skip
    assert found["total"]["seconds"] > 0.15
    head, *rows = csv.read_text().splitlines()
    assert head.startswith("#RunID,ClientID,MsgCount,MsgBytes")
    assert [row.split(",")[1:4] for row in rows] == [["1", "5", "25"], ["2", "5", "25"]]
    config = _config(cli, "stream", "info", "PACED")
    assert (config["subjects"], config["max_bytes"]) == (["paced.*"], 1024**2)
    assert config["duplicate_window"] == 3600 * 10**9
    assert json.loads(cli("stream", "subjects", "PACED", "--json").out) == {
        "paced.0": 4, "paced.1": 4, "paced.2": 2,
    }  # fmt: skip
    stored = cli("stream", "get", "PACED", "1").out
    assert "hello" in stored
    assert "A: b" in stored
    assert "Nats-Msg-Id" in stored
    assert "go with --multisubject" in cli("bench", "pub", "--multisubjectmax", "3", status=2).err


@pytest.mark.parametrize(
    "words",
    [
        ("js", "pub", "atomic", "many", "--batch", "4"),
        ("js", "pub", "fast", "many", "--batch", "4"),
        ("js", "consume", "--acks", "all", "--filter", "many", "--purge", "--sleep", "1ms"),
        ("js", "fetch", "--acks", "none", "--consumer", "mine"),
        ("js", "fetch", "--doubleack", "--consumer", "yours"),
        ("js", "ordered", "--filter", "many"),
        ("js", "get", "sync"),
        ("js", "get", "batch", "--filter", "many"),
    ],
)
def test_a_stream_is_loaded_and_read_in_each_way(cli: Cli, words: tuple[str, ...]) -> None:
    if "MANY" not in cli("stream", "ls", "--names").out.split():
        cli("stream", "add", "MANY", "--subjects", "many", "--allow-direct", "--defaults")
    few = ("--stream", "MANY", "--msgs", "10", "--no-progress", "--json")
    assert json.loads(cli("bench", *words, *few).out)["total"]["messages"] == 10


def test_a_bucket_is_loaded_as_it_is_told(cli: Cli) -> None:
    words = ("--bucket", "LOADED", "--msgs", "9", "--randomize", "2", "--no-progress", "--json")
    cli("bench", "kv", "put", *words, "--history", "5", "--storage", "memory", "--purge",
        "--maxbytes", "1MiB", "--throughput", "1000")  # fmt: skip
    config = _config(cli, "stream", "info", "KV_LOADED")
    assert config["max_msgs_per_subject"] == 5
    assert (config["storage"], config["max_bytes"]) == ("memory", 1024**2)
    assert set(cli("kv", "ls", "LOADED", "--names").out.split()) <= {"key-0", "key-1"}
    found = json.loads(cli("bench", "kv", "get", *words, "--history", "5", "--storage", "memory",
                           "--maxbytes", "1MiB").out)  # fmt: skip
    assert found["load"] == "kv get"
