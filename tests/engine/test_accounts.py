"""Accounts: subject spaces of their own, with their own JetStream and limits."""

from typing import Any

import pytest

from slipstream.engine.protocol.options import API_LEVEL, AccountJetStreamLimits, AccountLimits
from slipstream.testing.driver import Client, Driver
from tests.engine.raw import Listed, Raw, connect_as, user

NOT_ENABLED = {
    "code": 503,
    "err_code": 10039,
    "description": "JetStream not enabled for account",
}


def jetstream_limits(**bounds: Any) -> AccountLimits:
    """Limits of an account whose streams are bounded."""
    return AccountLimits(jetstream=AccountJetStreamLimits(**bounds))


def driver_with(**limits: AccountLimits) -> Driver:
    """An engine with an account, and a user of the same name, for each keyword."""
    driver = Driver(authenticator=Listed([user("g"), *(user(name, name) for name in limits)]))
    for name, limit in limits.items():
        driver.engine.add_account(name, limit)
    return driver.start()


def client_of(driver: Driver, name: str) -> Client:
    """A client of that account."""
    credentials: dict[str, Any] = {"user": name, "pass": name}
    return driver.client(**credentials)


def test_accounts_do_not_hear_each_other() -> None:
    driver = driver_with(A=AccountLimits(), B=AccountLimits())
    a = Raw(driver, connect_as("A") + b"SUB > 1\r\n")
    b = Raw(driver, connect_as("B") + b"SUB > 1\r\n")
    assert a.say(b"PUB x 1\r\na\r\n") == b"MSG x 1 1\r\na\r\n"
    assert b.take() == b""


def test_accounts_have_streams_of_their_own() -> None:
    driver = driver_with(A=AccountLimits(), B=AccountLimits())
    a = client_of(driver, "A")
    b = client_of(driver, "B")
    for client in (a, b):
        created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert "error" not in created
    assert a.store("s")["seq"] == 1
    assert a.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert b.api("STREAM.INFO.S")["state"]["messages"] == 0
    a.api("STREAM.DELETE.S")
    assert b.api("INFO")["streams"] == 1


def test_an_account_without_jetstream_is_told_so() -> None:
    driver = driver_with(N=AccountLimits(jetstream=None))
    client = client_of(driver, "N")
    assert client.api("INFO") == {
        "type": "io.nats.jetstream.api.v1.account_info_response",
        "error": NOT_ENABLED,
    }
    assert client.api("STREAM.NAMES") == {
        "type": "io.nats.jetstream.api.v1.stream_names_response",
        "error": NOT_ENABLED,
        "total": 0,
        "offset": 0,
        "limit": 0,
        "streams": None,
    }
    assert client.api("STREAM.CREATE.S", {"name": "S"})["error"] == NOT_ENABLED
    assert client.request("$JS.API.CONSUMER.MSG.NEXT.S.C").status == "503"
    assert client.request("$JS.API.DIRECT.GET.S").status == "503"
    assert client.ask("$JS.API.NOTHING") == []


def test_the_system_account_has_no_jetstream() -> None:
    driver = Driver().start()
    client = driver.client(driver.engine.system_account)
    assert client.api("INFO") == {
        "type": "io.nats.jetstream.api.v1.account_info_response",
        "error": NOT_ENABLED,
    }
    assert client.api("STREAM.INFO.S") == {
        "type": "io.nats.jetstream.api.v1.system_response",
        "error": NOT_ENABLED,
    }
    assert client.ask("$JS.API.META.LEADER.STEPDOWN") == []


def test_a_reconnecting_client_changes_its_account() -> None:
    driver = driver_with(A=AccountLimits(), B=AccountLimits())
    raw = Raw(driver, connect_as("A") + b"SUB x 1\r\n")
    raw.say(connect_as("B") + b"SUB y 1\r\n")
    Raw(driver, connect_as("A") + b"PUB x 1\r\n1\r\nPUB y 1\r\n2\r\n")
    assert raw.take() == b""
    Raw(driver, connect_as("B") + b"PUB x 1\r\n3\r\nPUB y 1\r\n4\r\n")
    assert raw.take() == b"MSG y 1 1\r\n4\r\n"
    assert raw.session.cid not in driver.engine.accounts["A"].sessions


def test_an_account_has_a_number_of_connections() -> None:
    driver = driver_with(A=AccountLimits(max_connections=2))
    kept = [Raw(driver, connect_as("A")) for _ in range(2)]
    raw = Raw(driver)
    assert raw.say(connect_as("A")) == b"-ERR 'maximum account active connections exceeded'\r\n"
    assert raw.reason == "Maximum Account Connections Exceeded"
    kept[0].session.gone("Client Closed")
    assert Raw(driver).say(connect_as("A") + b"PING\r\n") == b"PONG\r\n"


def test_an_account_bounds_subscriptions_and_payloads_of_each_connection() -> None:
    driver = driver_with(A=AccountLimits(max_subscriptions=1, max_payload=4))
    raw = Raw(driver, connect_as("A", protocol=1))
    assert b'"max_payload":4' in raw.say(b"PING\r\n")
    assert raw.say(b"SUB a 1\r\nSUB b 2\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert raw.say(b"PUB a 4\r\nfour\r\n") == b"MSG a 1 4\r\nfour\r\n"
    assert raw.say(b"PUB a 5\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


# -- JetStream limits --------------------------------------------------------------------------


def error_of(answer: dict[str, object]) -> tuple[int, int, str]:
    """Code, err_code and description."""
    error = answer["error"]
    assert isinstance(error, dict)
    return error["code"], error["err_code"], error["description"]


def test_the_account_tells_its_limits_and_what_is_used() -> None:
    driver = Driver().start(max_streams=3, max_memory=10_000)
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory", "max_bytes": 4000})
    client.store("S", b"x" * 100)
    assert client.api("INFO") == {
        "type": "io.nats.jetstream.api.v1.account_info_response",
        "memory": 117,
        "storage": 0,
        "reserved_memory": 4000,
        "reserved_storage": 0,
        "streams": 1,
        "consumers": 0,
        "limits": {
            "max_memory": 10_000,
            "max_storage": -1,
            "max_streams": 3,
            "max_consumers": -1,
            "max_ack_pending": -1,
            "memory_max_stream_bytes": -1,
            "storage_max_stream_bytes": -1,
            "max_bytes_required": False,
        },
        "api": {"level": API_LEVEL, "total": 1, "errors": 0},
    }


def test_an_account_has_a_number_of_streams() -> None:
    client = Driver().start(max_streams=1).client()
    client.api("STREAM.CREATE.A", {"name": "A"})
    assert error_of(client.api("STREAM.CREATE.B", {"name": "B"})) == (
        400, 10027, "maximum number of streams reached",
    )  # fmt: skip
    assert "error" not in client.api("STREAM.CREATE.A", {"name": "A"})


@pytest.mark.parametrize(
    ("limits", "config", "error"),
    [
        (
            {"max_bytes_required": True}, {},
            (400, 10113, "account requires a stream config to have max bytes set"),
        ),
        (
            {"storage_max_stream_bytes": 100}, {"max_bytes": 101},
            (400, 10122, "stream max bytes exceeds account limit max stream bytes"),
        ),
        (
            {"memory_max_stream_bytes": 100}, {"max_bytes": 101, "storage": "memory"},
            (400, 10122, "stream max bytes exceeds account limit max stream bytes"),
        ),
        (
            {"max_storage": 100}, {"max_bytes": 101},
            (500, 10047, "insufficient storage resources available"),
        ),
        (
            {"max_memory": 100}, {"max_bytes": 101, "storage": "memory"},
            (500, 10028, "insufficient memory resources available"),
        ),
    ],
)  # fmt: skip
def test_a_stream_that_asks_for_too_much_is_refused(
    limits: dict[str, int], config: dict[str, object], error: tuple[int, int, str]
) -> None:
    client = Driver().start(**limits).client()
    assert error_of(client.api("STREAM.CREATE.S", {"name": "S", **config})) == error


def test_a_full_account_refuses_messages_until_there_is_room() -> None:
    client = Driver().start(max_memory=300).client()
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    assert client.store("S", b"x" * 100)["seq"] == 1
    assert client.store("S", b"x" * 100)["seq"] == 2
    assert error_of(client.store("S", b"x" * 100)) == (
        400, 10002, "resource limits exceeded for account",
    )  # fmt: skip
    client.api("STREAM.PURGE.S")
    assert client.store("S", b"x" * 100)["seq"] == 3


def test_what_another_account_stores_does_not_count() -> None:
    driver = driver_with(A=jetstream_limits(max_memory=300), B=jetstream_limits(max_memory=300))
    for name in ("A", "B"):
        client = client_of(driver, name)
        client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
        assert client.store("S", b"x" * 200)["seq"] == 1


@pytest.mark.parametrize(("bound", "server", "given"), [(50, 0, 50), (50, 30, 30), (-1, 30, 30),
                                                         (5000, 0, 1000)])  # fmt: skip
def test_the_default_of_max_ack_pending_is_the_least_of_all_bounds(
    bound: int, server: int, given: int
) -> None:
    driver = driver_with(A=jetstream_limits(max_ack_pending=bound))
    driver.engine.options.jetstream_limits.max_ack_pending = server
    client = client_of(driver, "A")
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    config = {"durable_name": "c", "ack_policy": "explicit"}
    made = client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert made["config"]["max_ack_pending"] == given


def test_the_servers_bound_of_a_batch_is_the_default_of_a_consumer() -> None:
    driver = driver_with(A=AccountLimits())
    driver.engine.options.jetstream_limits.max_request_batch = 7
    client = client_of(driver, "A")
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    asked = {"stream_name": "S", "config": {"durable_name": "c"}}
    assert client.api("CONSUMER.CREATE.S.c", asked)["config"]["max_batch"] == 7
    refused = client.api(
        "CONSUMER.CREATE.S.d", {**asked, "config": {"name": "d"}, "pedantic": True}
    )
    assert refused["error"]["err_code"] == 10157
