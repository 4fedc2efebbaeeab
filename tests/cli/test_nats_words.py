"""Commands of the `nats` tool for services, traces and reports, and its other spellings."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

import slipstream
from slipstream.cli.account.report import ranked
from slipstream.cli.completion import complete
from slipstream.cli.main import COMMANDS, MISUSED, main
from slipstream.cli.refusals import OPTIONS as REFUSED_OPTIONS
from slipstream.cli.refusals import reason_against
from slipstream.cli.service import stats_rows
from slipstream.cli.spellings import SPELLINGS, respelt
from slipstream.client.services import EndpointStats, ServiceStats
from slipstream.server.config.load import load_options
from tests.cli.conftest import Cli
from tests.fix_certificates import make_authority


@pytest.mark.parametrize(
    ("line", "here"),
    [
        ("bench js pub async b --msgs 9", "bench js b --msgs 9"),
        ("bench js pub sync b", "bench js --batch 1 b"),
        ("bench js pub fast b", "bench js --mode fast b"),
        ("bench js get sync --msgs 9", "bench get --batch 1 --msgs 9"),
        ("bench service serve b", "bench serve b"),
        ("bench js b", "bench js b"),
        ("backup restore stream DIR", "stream restore DIR"),
        ("kv view B", "kv info B"),
        ("kv get B view", "kv get B view"),
        ("errors l 10059", "errors lookup 10059"),
        ("server rep conn", "server report conn"),
        ("stream c step-down S", "stream cluster step-down S"),
        ("stream --all ls", "stream ls --all"),
        ("stream -a info", "stream info"),
        ("consumer -a ls S", "consumer ls S"),
        ("server check --format json stream", "server check stream --format json"),
        (
            "server check --format=text --outfile f kv",
            "server check kv --format=text --outfile f",
        ),
    ],
)
def test_the_longest_spelling_of_the_nats_tool_that_fits_is_ours(line: str, here: str) -> None:
    assert respelt(line.split()) == here.split()


def test_each_spelling_leads_to_a_command_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for here in SPELLINGS.values():
        words = [word for word in here.split() if word.isalpha()]
        assert words[0] in COMMANDS
        complete(words[:1])
        assert words[1] in capsys.readouterr().out.split(), here


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("stream query --expression 'state.messages > 1'", "stream find --expression: there is no"),
        ("s report -l", "stream report -l: that is about clusters"),
        ("server run", "server run: `slipstream serve`"),
        ("schema search", "schema search: schemas here are"),
        ("audit gather", "audit: it compares"),
        ("pub a b --socks-proxy=x", "--socks-proxy: there is no SOCKS5"),
        ("errors ls --errors errors.json", "errors --errors: the list of errors"),
    ],
)
def test_what_is_refused_is_said_with_the_reason(
    capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    assert main(line.split()) == MISUSED
    assert capsys.readouterr().err.startswith(f"slipstream: {reason}")


def test_a_body_may_look_like_what_is_refused() -> None:
    assert reason_against(["pub", "a", "--", "--colors"]) == ""


def test_nothing_is_refused_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for path, options in REFUSED_OPTIONS.items():
        words = path.split()
        complete(words)
        known = capsys.readouterr().out.split()
        assert not options.keys() & set(known), path


def test_a_latency_test_lasts_as_long_as_it_is_told(cli: Cli) -> None:
    said = cli("lat", "--duration", "100ms", "--rate", "100").out
    assert said.startswith("10 messages of 8 bytes at 100 a second")


def test_gaps_are_pairs_and_nothing_is_asked(cli: Cli) -> None:
    cli("stream", "add", "GAPS", "--subjects", "gaps", "--storage", "memory", "--defaults")
    for _ in range(4):
        cli("pub", "gaps", "x", "--jetstream")
    for seq in ("2", "3"):
        cli("stream", "rmm", "GAPS", seq, "--force")
    assert json.loads(cli("stream", "gaps", "GAPS", "-f", "--no-progress", "--json").out) == [
        [2, 3]
    ]
    drawn = cli("stream", "graph", "GAPS", "--count", "2", "--interval", "10ms").out
    assert re.search(r"Messages: +2  [▁█]{2}$", drawn, re.M)
    assert re.search(r"Removed a second: +0  ▁$", drawn, re.M)


def test_subjects_and_streams_come_in_the_order_that_is_asked_for(cli: Cli) -> None:
    for name, subjects in (("MANY", ("many.b", "many.b", "many.a")), ("FEW", ("few.a",))):
        subject = f"{name.lower()}.>"
        cli("stream", "add", name, "--subjects", subject, "--storage", "memory", "--defaults")
        for one in subjects:
            cli("pub", one, "x", "--jetstream")
    names = ("stream", "subjects", "MANY", "--names")
    assert cli(*names).out.split() == ["many.a", "many.b"]
    assert cli(*names, "--sort", "messages").out.split() == ["many.b", "many.a"]
    assert cli(*names, "--sort", "name", "--reverse").out.split() == ["many.b", "many.a"]
    assert "none of name, messages" in cli(*names, "--sort", "size", status=2).err
    report = json.loads(cli("stream", "report", "--name", "--json").out)
    assert [one["config"]["name"] for one in report] == sorted(
        one["config"]["name"] for one in report
    )
    counts = json.loads(cli("stream", "report", "-m", "--json").out)
    assert counts[0]["state"]["messages"] == max(one["state"]["messages"] for one in counts)


def test_connections_come_in_the_order_that_is_asked_for(cli: Cli) -> None:
    found = [{"cid": 1, "in_bytes": 5, "start": "2"}, {"cid": 2, "in_bytes": 9, "start": "1"}]
    assert [one["cid"] for one in ranked(found, "in-bytes", False)] == [2, 1]
    assert [one["cid"] for one in ranked(found, "uptime", False)] == [2, 1]
    assert [one["cid"] for one in ranked(found, "uptime", True)] == [1, 2]
    assert [one["cid"] for one in ranked(found, "cid", False)] == [1, 2]
    shown = json.loads(cli("account", "report", "conn", "--top", "1", "--json").out)
    assert len(shown) == 1
    assert "did you mean" not in cli("account", "report", "nonsense", status=2).err
    assert "system account" in cli("account", "report", "stats", status=1).err


def test_a_trace_says_where_a_message_would_go_and_stores_nothing(cli: Cli) -> None:
    cli("stream", "add", "TRACED", "--subjects", "traced.>", "--storage", "memory", "--defaults")
    listener = cli.start("sub", "traced.*", "--queue", "group")
    assert listener.stderr is not None
    listener.stderr.readline()
    try:
        said = cli("trace", "traced.a", "body").out
        assert "→ stream TRACED" in said
        assert 'listens to "traced.*" in queue group "group"' in said
        assert "✗ nobody listens" in cli("trace", "nowhere").out
        (event,) = json.loads(cli("trace", "traced.a", "--json").out)
        assert {step["type"] for step in event["events"]} == {"in", "js", "eg"}
        state = ("stream", "state", "TRACED", "--json")
        assert json.loads(cli(*state).out)["state"]["messages"] == 0
        cli("trace", "traced.a", "body", "--deliver")
        assert json.loads(cli(*state).out)["state"]["messages"] == 1
    finally:
        listener.kill()
        listener.communicate()


@pytest.fixture
def calculator(cli: Cli) -> Iterator[str]:
    """The id of a service `calculator`, whose endpoint `double` says everything twice."""
    ready, ended = threading.Event(), asyncio.Event()
    ids: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with slipstream.connect(cli.url) as nc:
            service = await nc.add_service("calculator", "1.0.0", description="Counts")
            await service.add_endpoint("double", lambda request: request.data * 2)
            await nc.flush()
            ids.append(service.id)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    yield ids[0]
    loops[0].call_soon_threadsafe(ended.set)
    thread.join(30)


def test_services_are_found_measured_and_asked(cli: Cli, calculator: str) -> None:
    assert re.search(rf"calculator │ +1.0.0 │ {calculator} │ Counts", cli("service", "ls").out)
    assert "Subject: double" in cli("micro", "info", "calculator", calculator).out
    assert cli("service", "request", "calculator", "double", "ab", "--raw").out == "abab\n"
    stats = json.loads(cli("service", "stats", "calculator", "--json").out)
    assert stats[0]["endpoints"][0]["num_requests"] == 1
    assert f"calculator                     {calculator} rtt=" in cli("service", "ping").out
    wrong = cli("service", "request", "calculator", "triple", "x", status=1).err
    assert 'no endpoint "triple"; it has double' in wrong
    assert 'no instance of "none" answered' in cli("service", "info", "none", status=1).err


def test_the_times_of_endpoints_are_shown_in_their_unit() -> None:
    endpoint = EndpointStats(name="double", subject="double", processing_time_ns=3_000_000_000,
                             average_processing_time_ns=1_500_000)  # fmt: skip
    (row,) = stats_rows(ServiceStats(name="s", id="i", version="1.0.0", endpoints=[endpoint]))
    assert row[5:7] == ("3.00s", "1.5ms")


def test_the_certificate_of_a_server_is_shown_and_its_end_told(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.issue("local", x509.IPAddress(ip_address("127.0.0.1")))
    file = tmp_path / "server.conf"
    file.write_text(f'port: -1\ntls {{ cert_file: "{certificate}", key_file: "{key}" }}\n')
    with slipstream.Server(config=load_options(str(file))) as server:
        cli = Cli(server.url, tmp_path)
        words = ("account", "tls", "--tlsca", authority.ca_file)
        shown = cli(*words, "--expire-warn", "0")
        assert "Subject: CN=local" in shown.out
        assert "-----BEGIN CERTIFICATE-----" in shown.out
        facts = json.loads(cli(*words, "--expire-warn", "0", "--no-pem", "--json").out)
        assert facts["version"].startswith("TLSv1")
        assert "certificate ends" in cli(*words, "--expire-warn", "99y", status=1).err


def test_a_connection_without_tls_has_no_certificate(cli: Cli) -> None:
    assert "not encrypted" in cli("account", "tls", status=1).err


def test_loads_follow_the_words_of_the_nats_tool(cli: Cli) -> None:
    few = ("--msgs", "20", "--storage", "memory", "--stream", "LOADS", "--no-progress", "--json")
    for words in (
        ("js", "pub", "async", "loads", "--create"),
        ("js", "consume"),
        ("js", "ordered"),
    ):
        assert json.loads(cli("bench", *words, *few).out)["total"]["messages"] == 20
    cli("bench", "js", "pub", "sync", "loads", "--purge", *few)
    state = json.loads(cli("stream", "state", "LOADS", "--json").out)["state"]
    assert state["messages"] == 20
    cli("stream", "add", "FULL", "--subjects", "full", "--max-msgs", "1", "--discard", "new",
        "--defaults")  # fmt: skip
    full = ("bench", "js", "pub", "async", "full", "--stream", "FULL", *few)
    assert "maximum messages exceeded" in cli(*full, status=1).err
    for words in (("kv", "put"), ("kv", "get")):
        done = cli("bench", *words, "--msgs", "3", "--bucket", "loads", "--no-progress", "--json")
        assert json.loads(done.out)["load"] == " ".join(words)


def test_what_is_not_named_is_not_asked_for_on_a_terminal_either(cli: Cli) -> None:
    for words in (("stream", "state"), ("consumer", "ls"), ("consumer", "info")):
        assert "STREAM is missing" in cli.on_terminal(*words, "--no-select").out
