"""The same files, good and bad, go to `nats-server -t`: both accept them, or both refuse."""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.server.config import check_file
from tests.fix_nats_server import find_nats_server

BCRYPT = "11$W2zko751KUvVy59mUTWmpOdWjpEm5qhcCZRd05GjI/sSOT.xtiHyG"

GOOD = [
    "# only a comment\nport: 4222 // another",
    "PORT: 4222\nDebug: YES, Trace off; logtime = on",
    '{"port": 4222, "jetstream": {"store_dir": "/tmp/x"}}',
    "port: 4222\nport: 4333",
    "foo: 4333\nport: $foo",
    "max_payload: 1mb",
    "max_payload: 1Mi",
    'jetstream { max_mem: "1G", max_file: 10M }',
    "jetstream: enabled",
    "jetstream {}",
    "ping_interval: 1h30m\nwrite_deadline: 10s",
    'lame_duck_duration: "30s"',
    "authorization { user: a, password: 3secret }",
    "authorization { user: a, password: p@ss#w }",
    'authorization { user: a, password: "$X" }',
    f"authorization {{ user: a, password: $2a${BCRYPT} }}",
    "authorization { users: [{user: a}] }",
    'authorization { user: a, password: b, timeout: "3s" }',
    """authorization { users: [{user: a, password: b, permissions: {
        publish: {allow: ["a.>", "b"], deny: c}
        subscribe: "x y"
        allow_responses: {max: 5, expires: "1m"} }}] }""",
    "authorization { users: [{user: a, allowed_connection_types: [standard, WEBSOCKET]}] }",
    "authorization { users: [{user: a, password: b}] }\nno_auth_user: a",
    "authorization { include users.conf }",
    "include inc.conf\nmax_payload: 2KB",
    "include './inc.conf'",
    "accounts { A { users: [{user: a, password: b}] }, B {} }",
    "accounts: [A, B]",
    'accounts { "$SYS" { users: [{user: a, password: b}] } }',
    "accounts { A { jetstream: enabled, limits { max_conn: 3, max_subs: 5, max_payload: 1MB } } }",
    "accounts { A { jetstream { max_mem: 1M, max_store: 1G, streams: 2, consumers: 3 } } }",
    'accounts { A { mappings { foo: bar, "x.*": "y.$1" } } }',
    "accounts { SYS {} }\nsystem_account: SYS",
    'mappings { foo: [{dest: a, weight: 60%}, {dest: b, weight: "40%"}] }',
    "P: { publish: 'a.>' }\naccounts { A { users: [{user: a, permissions: $P}] } }",
    "accounts { P: { publish: 'a.>' }\nA { users: [{user: a, permissions: $P}] } }",
    "authorization { SECRET: abc\nuser: a\npassword: $SECRET }",
    "listen: 127.0.0.1:4333\nhttp: 8222",
    'listen: "[::1]:4333"',
    "listen: 0.0.0.0:-1\nhttp: 127.0.0.1:-1",
    "listen: :4333\nhttp: localhost:-1",
    "host: ::1\nserver_name: 1.2.3.4-5",
    "leafnodes {}\nwebsocket {}\ncluster {}\ngateway {}\nmqtt {}",
    "leafnodes { no_advertise: true, remotes: [] }",
    'websocket { no_tls: true, port: 0 }\nmqtt { ack_wait: "1m" }',
    "proxies { trusted: [] }",
    "http_base_path: /nats\nmonitor_port: 8222",
    "server_name: a\nserver_tags: [a, b]\nserver_metadata { a: b }",
    "max_connections: 0\nmax_subs: -1\nmax_sub_tokens: 16\nping_max: 3",
    "jetstream { sync_interval: always, domain: hub, strict: false }",
    "jetstream { limits { max_ack_pending: 3, batch { max_msgs: 3 } }, max_buffered_msgs: 10 }",
    "feature_flags { js_ack_fc_v2: true, other: false }",
    "tags: [a,\n b\n # c\n // d\n]\nserver_tags: $tags",
    r'server_name: "a\tb\x41"',
    "server_name: (\nabc\n)\n",
    "server_name: a#b\nserver_tags: a//b",
]

# Each stands on a line of its own, because nats-server counts columns of line 1 from 0.
BAD = [
    "foo: 1",
    "port: $foo",
    'port: "4222"',
    'debug: "true"',
    "max_payload: 1.5M",
    'max_payload: "1MB"',
    "max_payload: 1P",
    "max_payload: 99999999999999999999",
    'jetstream { max_mem: "1GB" }',
    "jetstream: maybe",
    "jetstream { limits { nope: 60 } }",
    'ping_interval: "10"',
    "ping_interval: true",
    "ping_interval: 10",
    "lame_duck_duration: 2m",
    'lame_duck_duration: "10s"',
    'lame_duck_grace_period: "-1s"',
    "authorization { user: a, password: 12345 }",
    "authorization { user: a, password: $NOWHERE }",
    f"authorization {{ user: a, password: $2b${BCRYPT} }}",
    "authorization { user: a, password: b, token: c }",
    "authorization { token: c, users: [{user: a, password: b}] }",
    "authorization { users: [{user: a}, {user: a}] }",
    "authorization { users: [{password: b}] }",
    "authorization { users: [{user: a, nope: 1}] }",
    "authorization { users: {user: a} }",
    "authorization { user: a, password: b, timeout: 100 }",
    'authorization { users: [{user: a, permissions: {publish: "foo..bar"}}] }',
    'authorization { users: [{user: a, permissions: {publish: {nope: "a"}}}] }',
    'authorization { users: [{user: a, permissions: {subscribe: "x y z"}}] }',
    "authorization { users: [{user: a, allowed_connection_types: [wrong]}] }",
    "include nope.conf",
    "include bad.conf",
    "accounts: [A, A]",
    "accounts { $G { users: [{user: a, password: b}] } }",
    "accounts { A { users: [{user: a}] }, B { users: [{user: a}] } }",
    "accounts { A { nope: 1 } }",
    "accounts { A: 3 }",
    'accounts { A { jetstream { max_mem: "1M" } } }',
    'accounts { A { mappings { "x.*": "y.$2" } } }',
    "accounts { A { mappings { foo: [{dest: a, weight: 60%}, {dest: b, weight: 60%}] } } }",
    'mappings = { "a..b": c }',
    "listen: localhost",
    'listen: "a:b"',
    'server_name: "a b"',
    "server_tags: 3",
    "server_tags: [a b]",
    "server_metadata { a: 3 }",
    'tls { cert_file: "nope.pem", key_file: "nope.pem" }',
    "tls { nope: 1 }",
    "max_sub_tokens: 300",
    'write_deadline: "x"',
    'store_dir: "/tmp/x"\njetstream { store_dir: "/tmp/y" }',
    r'server_name: "a\qb"',
    'server_name: "a',
    "port: 1.5",
    "port 4222 debug true",
    "port: {",
    "port: [",
    ": 4",
    'leafnodes { remotes: [{url: "nats://127.0.0.1:4999"}, {url: "nats://127.0.0.1:4999"}] }',
    "port: /* x */ 4222",
]

# nats-server's -t lets these pass, and its start refuses them (or does not do what they say).
REFUSED_ONLY_HERE = [
    "max_payload: 100MB",
    'lame_duck_grace_period: "3m"',
    "no_auth_user: x",
    "system_account: X",
    "https_port: 8222",
    "port: 70000",
    'jetstream { domain: "a.b" }',
    "max_control_line: 0",
]


BREAKS_THE_GRAMMAR = [
    'server_name: "a',
    "port: 1.5M",
    "port: -",
    "port: 12345-1",
    "port: [",
    "port: (\nno end",
    "port 4222 debug true",
    "server_tags: [a,,b]",
    "server_metadata {a: b c: d}",
    "server_metadata {: b}",
    r'server_name: "a\qb"',
    ": 4",
    "include",
    "port:",
]

SWITCHES_ON_WHAT_IS_NOT_THERE = [
    "websocket { port: -1, no_tls: true }",
    "gateway { name: x, port: 7222 }",
    "mqtt { port: 1883 }",
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "inc.conf").write_text("debug: true\nmax_payload: 1KB\n")
    (tmp_path / "bad.conf").write_text("debug: true\n\nnope: 1\n")
    (tmp_path / "users.conf").write_text("users: [{user: a, password: b}]\n")
    return tmp_path


def ask_both(directory: Path, texts: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Of each text: the text, its file, and what nats-server and we say ("" is all right)."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(directory / f"{number}.conf")
        paths[-1].write_text(text)

    def ask(path: Path) -> subprocess.CompletedProcess[str]:
        arguments = [find_nats_server(), "-t", "-c", str(path)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(2) as threads:
        for text, path, theirs in zip(texts, paths, threads.map(ask, paths), strict=True):
            try:
                ours = "valid " + check_file(str(path)).options.config_digest
            except ConfigError as error:
                ours = str(error)
            yield text, str(path), theirs.stderr, ours


def test_good_files_are_good_for_both_and_have_the_same_digest(directory: Path) -> None:
    for text, path, theirs, ours in ask_both(directory, GOOD):
        found = re.search(
            rf"configuration file {re.escape(path)} is valid \((sha256:\w+)\)", theirs
        )
        assert found, (text, theirs)
        assert ours == f"valid {found[1]}", text


def test_bad_files_are_bad_for_both_at_the_same_line(directory: Path) -> None:
    for text, _, theirs, ours in ask_both(directory, [f"debug: true\n{bad}" for bad in BAD]):
        assert "is valid" not in theirs, text
        assert not ours.startswith("valid"), text
        place = re.compile(rf"{re.escape(str(directory))}/\w+\.conf:(\d+):\d+")
        assert place.search(ours), (text, ours)
        if expected := place.search(theirs):
            assert expected[1] in place.findall(ours), (text, theirs, ours)


def test_unknown_fields_are_shown_in_nats_servers_words_and_column(directory: Path) -> None:
    unknown = ["foo: 1", "accounts { A { nope: 1 } }", "jetstream { limits { nope: 60 } }"]
    for text, path, theirs, ours in ask_both(directory, [f"debug: true\n  {u}" for u in unknown]):
        assert ours.split(", did you mean")[0] in theirs, (text, path)


def test_contradictions_are_found_before_the_start(directory: Path) -> None:
    for text, _, theirs, ours in ask_both(directory, REFUSED_ONLY_HERE):
        assert "is valid" in theirs, text
        assert not ours.startswith("valid"), text


def test_what_breaks_the_grammar_begins_with_the_words_that_harnesses_look_for(
    directory: Path,
) -> None:
    texts = [f"debug: true\n{bad}\n" for bad in BREAKS_THE_GRAMMAR]
    for text, _, theirs, ours in ask_both(directory, texts):
        assert re.match(r"nats-server: Parse error on line \d+: ", theirs), (text, theirs)
        assert re.match(r"Parse error on line \d+: \S+:\d+:\d+: ", ours), (text, ours)


def test_a_block_that_switches_something_on_that_is_not_there_is_refused(directory: Path) -> None:
    for text, path, theirs, ours in ask_both(directory, SWITCHES_ON_WHAT_IS_NOT_THERE):
        assert "is valid" in theirs, text
        block = text.partition(" ")[0]
        assert ours == f'{path}:1:1: "{block}" is not supported yet: remove it'
