"""Small things that endpoints show: durations, parameters, health of what has failed."""

import pytest

from slipstream import Server
from slipstream.server.monitoring.monitor import uptime_text
from slipstream.server.monitoring.query import BadRequest, Query
from slipstream.server.monitoring.render import to_json
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
