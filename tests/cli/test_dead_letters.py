"""Dead letters on the command line: configured, shown, listed, explained, sent again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.client import sync
from tests.cli.conftest import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line, with a Slipstream server of the test's own."""
    with slipstream.Server(store_dir=str(tmp_path / "store")) as server:
        yield Cli(server.url, tmp_path)


def poisoned(cli: Cli) -> None:
    """Consumer `c` of stream S has terminated two messages."""
    cli("stream", "add", "S", "--subjects", "s.>", "--defaults")
    cli("stream", "add", "D", "--subjects", "dead.>", "--defaults")
    cli("consumer", "add", "S", "c", "--pull", "--dead-letter", "dead.s", "--defaults")
    with sync.connect(cli.url) as nc:
        js = nc.jetstream()
        consumer = js.consumer("S", "c")
        for number in (1, 2):
            js.publish("s.a", f"order {number}")
            consumer.next(timeout=20).term_sync(f"bad {number}")


def test_the_field_is_set_shown_and_changed(cli: Cli) -> None:
    poisoned(cli)
    assert "Dead Letters: dead.s" in cli("consumer", "info", "S", "c").out
    cli("consumer", "edit", "S", "c", "--dead-letter", "dead.other", "--force")
    config = json.loads(cli("consumer", "info", "S", "c", "--json").out)["config"]
    assert config["dead_letter"] == "dead.other"
    refused = cli("consumer", "edit", "S", "c", "--dead-letter", "nowhere", "--force", status=1)
    assert "no stream stores the subject nowhere" in refused.err


def test_dead_letters_are_listed_and_counted(cli: Cli) -> None:
    poisoned(cli)
    shown = cli("consumer", "dead-letters", "ls", "S", "c").out
    assert "Dead letters of S > c in stream D" in shown
    assert "bad 1" in shown
    found = json.loads(cli("consumer", "dead-letters", "ls", "S", "c", "--json").out)
    assert [(one["sequence"], one["reason"], one["data"]) for one in found] == [
        (1, "bad 1", "order 1"),
        (2, "bad 2", "order 2"),
    ]
    assert (
        len(json.loads(cli("con", "dead-letters", "ls", "S", "c", "--count=1", "--json").out)) == 1
    )
    report = cli("consumer", "report", "S").out
    assert "Dead Letters" in report
    told = cli("why", "S", "c").out
    assert "2 dead letters are stored under dead.s in stream D" in " ".join(told.split())


def test_dead_letters_are_sent_again(cli: Cli) -> None:
    poisoned(cli)
    out = cli("consumer", "dead-letters", "resend", "S", "c", "1", "--force").out
    assert out == "Dead letter 1 is message 3 of S\n"
    missing = cli("consumer", "dead-letters", "resend", "S", "c", "1", "--force", status=1)
    assert "no message found" in missing.err
    assert cli("consumer", "dead-letters", "resend", "S", "c", "--force", status=1).err
    sent = json.loads(
        cli("consumer", "dead-letters", "resend", "S", "c", "--all", "--force", "--json").out
    )
    assert sent == [{"dead_letter": 2, "stream": "S", "seq": 4}]
    assert cli("consumer", "dead-letters", "ls", "S", "c").out == "No Dead Letters found\n"


def test_what_waits_for_a_stream_is_explained(cli: Cli) -> None:
    poisoned(cli)
    cli("stream", "rm", "D", "--force")
    with sync.connect(cli.url) as nc:
        js = nc.jetstream()
        js.publish("s.a", b"")
        js.consumer("S", "c").next(timeout=20).term()
        nc.flush()
    told = json.loads(cli("why", "S", "c", "--json").out)["reasons"]
    (reason,) = [one for one in told if one["code"] == "dead_letters_wait"]
    assert "no stream of the account stores the subject dead.s" in reason["text"]
    assert "1 wait" in cli("consumer", "report", "S").out
