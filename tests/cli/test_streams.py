"""Streams and consumers on the command line, with the lines that users of `nats` know."""

import json

import pytest

from slipstream.cli.advice import one_line
from slipstream.client.jetstream.errors import ApiError
from tests.cli.conftest import Cli


def test_the_orders_story_works_as_the_pages_tell_it(cli: Cli) -> None:
    line = "stream add ORDERS --subjects orders.> --storage file --retention limits --defaults"
    assert "Stream ORDERS was created" in cli(*line.split()).out
    assert 'Published 11 bytes to "orders.new"' in cli("pub", "orders.new", "Order #1001").err
    cli("pub", "orders.new", "Order #{{Count}}", "--count", "2")
    line = "consumer add ORDERS order-processor --pull --deliver all --ack explicit --defaults"
    added = cli(*line.split()).out
    assert "Information for Consumer ORDERS > order-processor" in added
    assert "Unprocessed Messages: 3" in added
    shown = cli(*["consumer", "next", "ORDERS", "order-processor", "--count", "3", "--ack"])
    assert [line for line in shown.out.splitlines() if line.startswith("Order")] == [
        "Order #1001",
        "Order #1",
        "Order #2",
    ]
    assert "subj: orders.new / tries: 1 / cons seq: 1 / str seq: 1 / pending: 2" in shown.out
    assert shown.err.count("Acknowledged message") == 3
    listed = cli("stream", "ls").out
    for column in ("Name", "Description", "Created", "Messages", "Size", "Last Message"):
        assert column in listed
    report = cli("consumer", "report", "ORDERS").out
    for column in (
        "Consumer",
        "Mode",
        "Ack Policy",
        "Ack Wait",
        "Ack Pending",
        "Redelivered",
        "Unprocessed",
        "Ack Floor",
        "Cluster",
    ):
        assert column in report
    cli("stream", "rm", "ORDERS", "--force")


def test_json_has_every_field_under_its_name_on_the_wire(cli: Cli) -> None:
    cli("stream", "add", "J", "--subjects", "j.>", "--defaults")
    cli("pub", "j.1", "one", "--jetstream")
    cli("consumer", "add", "J", "c", "--pull", "--defaults")
    stream = json.loads(cli("stream", "info", "J", "--json").out)
    assert stream["config"]["name"] == "J"
    assert stream["state"]["messages"] == 1
    assert stream["state"]["num_deleted"] == 0
    consumer = json.loads(cli("--json", "consumer", "info", "J", "c").out)
    assert consumer["num_pending"] == 1
    assert consumer["num_ack_pending"] == 0
    assert consumer["config"]["ack_wait"] == 30_000_000_000


def test_a_stream_is_looked_into_and_changed(cli: Cli) -> None:
    cli("stream", "add", "LOOK", "--subjects", "look.>", "--defaults")
    cli("pub", "look.a", "m{{Count}}", "--count", "5")
    assert cli("stream", "view", "LOOK", "--raw").out.split() == ["m1", "m2", "m3", "m4", "m5"]
    assert "m2" in cli("stream", "get", "LOOK", "2").out
    cli("stream", "rmm", "LOOK", "2", "--force")
    assert json.loads(cli("stream", "gaps", "LOOK", "--json").out) == [[2, 2]]
    assert "look.a" in cli("stream", "subjects", "LOOK").out
    changed = cli("stream", "edit", "LOOK", "--max-msgs", "2", "--force").out
    assert "+ max_msgs: 2" in changed
    assert "Maximum Messages: 2" in changed
    assert json.loads(cli("stream", "state", "LOOK", "--json").out)["state"]["messages"] == 2
    cli("stream", "copy", "LOOK", "LOOK2", "--subjects", "look2.>")
    assert cli("stream", "find", "--empty", "--names").out.split() == ["LOOK2"]
    cli("stream", "purge", "LOOK", "--force")
    assert json.loads(cli("stream", "state", "LOOK", "--json").out)["state"]["messages"] == 0


def test_a_mistake_is_one_line_that_says_what_to_do(cli: Cli, offline: Cli) -> None:
    missing = cli("stream", "info", "NOPE", status=1)
    assert missing.out == ""
    assert missing.err.count("\n") == 1
    assert "stream not found" in missing.err
    cli("stream", "add", "KEEP", "--subjects", "keep", "--defaults")
    unasked = cli("stream", "rm", "KEEP", status=2)
    assert "--force" in unasked.err
    assert unasked.err.count("\n") == 1
    assert "no command" in cli("strem", "ls", status=2).err
    alone = offline("stream", "ls", status=1)
    assert alone.err.count("\n") == 1
    assert "127.0.0.1:1" in alone.err


def test_advice_names_what_the_line_names(cli: Cli) -> None:
    cli("stream", "add", "NAMED", "--subjects", "named", "--defaults", "--storage", "memory")
    missing = cli("consumer", "info", "NAMED", "nobody", status=1).err
    assert "`slipstream consumer ls NAMED`" in missing
    assert "`slipstream stream state NAMED`" in cli("stream", "get", "NAMED", "9", status=1).err
    cli("stream", "rm", "NAMED", "--force")
    cli("kv", "add", "PLACE")
    assert "`slipstream kv ls PLACE`" in cli("kv", "get", "PLACE", "nothing", status=1).err
    cli("kv", "rm", "PLACE", "--force")


def test_stream_get_shows_each_header_as_it_was_sent(cli: Cli) -> None:
    cli("stream", "add", "HEADS", "--subjects", "heads", "--defaults", "--storage", "memory")
    cli("pub", "heads", "x", "-H", "A: b", "--jetstream")
    assert "\n  A: b\n" in cli("stream", "get", "HEADS", "1").out
    cli("stream", "rm", "HEADS", "--force")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("invalid subject", "words between dots"),
        ("snapshots not supported by this server yet", "docs/compatibility.md"),
        ("maximum messages can not be negative", ""),
    ],
)
def test_advice_about_a_configuration_is_for_what_is_wrong_with_it(text: str, advice: str) -> None:
    said = one_line(ApiError(500, 10052, text))
    assert advice in said
    assert advice or said == f"{text} (500/10052)"


def test_why_says_what_holds_a_consumer_up(cli: Cli) -> None:
    cli("stream", "add", "WHY", "--subjects", "why.>", "--defaults")
    cli("consumer", "add", "WHY", "c", "--pull", "--filter", "why.b", "--max-pending", "1",
        "--defaults")  # fmt: skip

    def codes() -> list[str]:
        reasons = json.loads(cli("why", "WHY", "c", "--json").out)["reasons"]
        return [reason["code"] for reason in reasons if reason["blocks"]]

    assert codes() == ["nothing_pending", "nobody_asks"]
    cli("pub", "why.a", "x", "--jetstream")
    assert "filter_matches_nothing" in codes()
    cli("pub", "why.b", "x", "--jetstream")
    assert codes() == ["nobody_asks"]
    cli("consumer", "next", "WHY", "c", "--no-ack")
    cli("pub", "why.b", "y", "--jetstream")
    assert codes() == ["max_ack_pending", "nobody_asks"]
    assert "2 (why.b" in " ".join(cli("why", "WHY", "c").out.split())
    cli("consumer", "pause", "WHY", "c", "1h", "--force")
    assert codes()[0] == "paused"


def test_why_names_the_messages_that_used_up_their_deliveries(cli: Cli) -> None:
    cli("stream", "add", "SPENT", "--subjects", "spent", "--defaults")
    cli("consumer", "add", "SPENT", "c", "--pull", "--max-deliver", "1", "--wait", "100ms",
        "--defaults")  # fmt: skip
    cli("pub", "spent", "x", "--jetstream")
    cli("consumer", "next", "SPENT", "c", "--no-ack")
    cli("consumer", "next", "SPENT", "c", "--no-ack", "--wait", "1s", status=1)
    assert cli("why", "SPENT", "c").out.startswith("Consumer SPENT > c gets no messages now.")
