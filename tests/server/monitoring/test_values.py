"""Small things that endpoints show: durations, parameters, health of what has failed."""

from pathlib import Path

import pytest

from slipstream import Server
from slipstream.server.config import load_text
from slipstream.server.monitoring.monitor import uptime_text
from slipstream.server.monitoring.values import BadRequest, Query, to_json
from tests.server.monitoring.http_client import get

SECOND = 1_000_000_000
DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (3600, "1h0m0s"),
        (DAY + 2, "1d0h0m2s"),
        (366 * DAY + 3661, "1y1d1h1m1s"),
        (-5, "0s"),
    ],
)
def test_uptime_begins_with_the_largest_unit(seconds: int, text: str) -> None:
    assert uptime_text(seconds * SECOND) == text


def test_parameters_are_read_as_go_reads_them() -> None:
    query = Query("a=TRUE&b=0&c=&limit=%2B5&cid=7&a=0")
    assert (query.boolean("a"), query.boolean("b"), query.boolean("c")) == (True, False, False)
    assert query.boolean("missing") is False
    assert (query.integer("limit"), query.identifier("cid"), query.integer("none")) == (5, 7, 0)
    with pytest.raises(BadRequest, match="value out of range"):
        Query("limit=99999999999999999999").integer("limit")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("debug: false", False),
        ("authorization { user: a, password: a }", True),
        ("authorization { users: [{user: a, password: a}] }\nno_auth_user: a", True),
        ("accounts { $SYS { users: [{user: s, password: s}] } }", True),
    ],
)
def test_varz_says_whether_anybody_has_credentials(text: str, shown: bool) -> None:
    text += "\nport: -1, http_port: -1, host: 127.0.0.1"
    with Server(config=load_text(text).options) as server:
        assert get(server.monitoring_url, "/varz").json.get("auth_required", False) is shown


def test_the_stacks_of_all_threads_are_text() -> None:
    with Server(monitoring_port=0) as server:
        found = get(server.monitoring_url, "/stacksz")
    assert found.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert b"[slipstream-server]:\n" in found.body


def test_json_is_safe_inside_html() -> None:
    assert to_json({"a": "<b>&"}, 0) == b'{"a":"\\u003cb\\u003e\\u0026"}'


def test_what_the_disk_has_failed_is_not_healthy() -> None:
    with Server(monitoring_port=0) as server:
        assert server.runtime is not None
        js = server.runtime.engine.default_account.jetstream
        js.problem("JetStream stream '$G > S' could not be recovered: no such file")
        found = get(server.monitoring_url, "/healthz")
        assert found.status == 503
        assert found.json == {"status": "unavailable", "error": js.problems[0]}
        detailed = get(server.monitoring_url, "/healthz?details=1").json
        assert detailed["errors"] == [{"type": "STREAM", "account": "$G", "error": js.problems[0]}]
        assert get(server.monitoring_url, "/healthz?js-server-only=1").status == 200


def test_who_asks_without_login_sees_no_directories(tmp_path: Path) -> None:
    store = tmp_path / "the store"
    with Server(monitoring_port=0, store_dir=str(store)) as server:
        assert server.runtime is not None
        js = server.runtime.engine.default_account.jetstream
        js.problem(f"stream 'S': [Errno 5] I/O error: '{store}/jetstream/$G/streams/S/1.blk'")
        js.problem(f"not in {store}; see /etc/slipstream/server.conf and docs/storage.md")
        found = get(server.monitoring_url, "/healthz?details=1").json["errors"]
        assert [one["error"] for one in found] == [
            "stream 'S': [Errno 5] I/O error: '$G/streams/S/1.blk'",
            "not in the store; see server.conf and docs/storage.md",
        ]
        for path in ("/varz", "/jsz?accounts=1&streams=1&config=1", "/healthz", "/metrics", "/"):
            assert str(tmp_path).encode() not in get(server.monitoring_url, path).body, path
