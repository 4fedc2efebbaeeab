"""Each thing that goes wrong has an error of its own, and the connection's options about it."""

from collections.abc import Callable

import pytest

import slipstream
from slipstream.client import (
    AuthenticationExpiredError,
    AuthenticationRevokedError,
    AuthorizationError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLimitError,
    CredentialsError,
    HeadersNotSupportedError,
    Identity,
    InvalidSubjectError,
    MaxPayloadError,
    Message,
    NoReplySubjectError,
    NoRespondersError,
    ServerError,
    ServerInfo,
    SubscriptionLimitError,
    TimeoutError,
)
from slipstream.client.errors import authorization_error, server_error
from slipstream.client.events import ConnectFailed, ErrorEvent, Reconnected
from slipstream.errors import ConfigError
from tests.client.fake_server import FakeServer, info
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy
from tests.client.waiting import LoopClock

MakeServer = Callable[[str], OwnServer]
LOCKED = "authorization { user: ada, password: secret }"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Authorization Violation", AuthorizationError),
        ("Authentication Timeout", AuthorizationError),
        ("User Authentication Expired", AuthenticationExpiredError),
        ("Account Authentication Expired", AuthenticationExpiredError),
        ("User Authentication Revoked", AuthenticationRevokedError),
        ("Unknown Protocol Operation", None),
    ],
)
def test_refusals_are_told_apart(text: str, kind: type[Exception] | None) -> None:
    assert authorization_error(text) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("maximum connections exceeded", ConnectionLimitError),
        ("maximum account active connections exceeded", ConnectionLimitError),
        ("maximum subscriptions exceeded", SubscriptionLimitError),
        ("Unknown Protocol Operation", ServerError),
    ],
)
def test_limits_are_told_apart(text: str, kind: type[Exception]) -> None:
    assert type(server_error(text, "nats://a")) is kind


async def test_each_kind_of_failed_request_has_its_error(
    nc: slipstream.Connection, clock: LoopClock
) -> None:
    with pytest.raises(NoRespondersError):
        await nc.request("nobody." + nc.new_id())
    subscription = await nc.subscribe(nc.new_inbox())
    with pytest.raises(TimeoutError):
        await clock.time_out(nc.request(subscription.subject, timeout=30), 31)
    for wrong in ("", "a..b", "a b", ".a"):
        with pytest.raises(InvalidSubjectError):
            await nc.request(wrong)
    with pytest.raises(MaxPayloadError):
        await nc.request(subscription.subject, bytes(nc.max_payload + 1))
    with pytest.raises(InvalidSubjectError):
        await nc.subscribe("a", queue="b c")
    with pytest.raises(NoReplySubjectError):
        await Message("a").respond(b"")
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.request(subscription.subject)


async def test_a_server_without_headers_gets_none() -> None:
    async with (
        FakeServer(info(headers=False)) as server,
        await slipstream.connect(server.url) as nc,
    ):
        with pytest.raises(HeadersNotSupportedError):
            await nc.publish("a", headers={"A": "b"})


async def test_limits_of_a_server_are_errors_of_their_own(make_server: MakeServer) -> None:
    server = make_server("max_connections: 1\nmax_subscriptions: 1\n")
    # A test that looked whether the server is there may still count.
    async with await slipstream.connect(
        server.url, wait_for_server=True, reconnect_wait=0.01
    ) as nc:
        with pytest.raises(ConnectError) as raised:
            await slipstream.connect(server.url)
        ((_, error),) = raised.value.failures
        assert isinstance(error, ConnectionLimitError)
        events = nc.events()
        await nc.subscribe("a")
        await nc.subscribe("b")
        async for event in events:
            if isinstance(event, ErrorEvent):
                assert isinstance(event.error, SubscriptionLimitError)
                break


# -- who we are --------------------------------------------------------------------------------


async def test_a_function_may_say_who_we_are_at_each_connect(make_server: MakeServer) -> None:
    server = make_server(LOCKED)
    asked: list[bytes] = []

    async def vault(nonce: bytes) -> Identity:
        asked.append(nonce)
        return Identity(user="ada", password="secret")

    async with await slipstream.connect(server.url, authenticate=vault) as nc:
        await nc.reconnect()
        await nc.flush()
    assert asked == [b"", b""]
    async with await slipstream.connect(
        server.url, authenticate=lambda nonce: Identity(user="ada", password="secret")
    ) as nc:
        await nc.flush()
    with pytest.raises(AuthorizationError):
        await slipstream.connect(server.url, authenticate=lambda nonce: Identity(token="wrong"))


async def test_a_function_that_fails_to_say_is_named(make_server: MakeServer) -> None:
    def vault(nonce: bytes) -> Identity:
        raise ZeroDivisionError("sealed")

    server = make_server(LOCKED)
    with pytest.raises(CredentialsError, match=r"authenticate raised: .*sealed"):
        await slipstream.connect(server.url, authenticate=vault)
    with pytest.raises(ConfigError, match="user and authenticate exclude each other"):
        await slipstream.connect(server.url, authenticate=vault, user="ada")


async def test_refusals_may_be_outlasted() -> None:
    async with (
        FakeServer(info()) as server,
        await slipstream.connect(
            server.url, reconnect_wait=0.001, ignore_authorization_errors=True
        ) as nc,
    ):
        events = nc.events()
        server.answer = b"-ERR 'Authorization Violation'\r\n"
        server.close_clients()
        refused = 0
        async for event in events:
            refused += isinstance(event, ConnectFailed)
            if refused == 4:
                server.answer = b"PONG\r\n"
            if isinstance(event, Reconnected):
                break
        assert refused >= 4


# -- which server ------------------------------------------------------------------------------


async def test_the_next_server_may_be_chosen(server_url: str) -> None:
    async with Proxy(server_url) as second, Proxy(server_url) as third:
        told: list[str] = []

        def choose(urls: list[str], last: ServerInfo) -> str | None:
            told.append(last.server_id)
            assert set(urls) == {server_url, second.url, third.url}
            return third.url

        async with await slipstream.connect(
            [server_url, second.url, third.url], choose_server=choose, randomize_servers=False
        ) as nc:
            assert nc.server_url == server_url
            first = nc.server_info.server_id
            await nc.reconnect()
            assert nc.server_url == third.url
            assert told == [first]


async def test_a_choice_that_is_invalid_of_the_servers_is_told_and_passed_over(
    server_url: str,
) -> None:
    async with await slipstream.connect(
        server_url, choose_server=lambda urls, last: "nats://elsewhere.example:4222"
    ) as nc:
        await nc.reconnect()
        assert nc.server_url == server_url
        assert "elsewhere.example" in str(nc.last_error)
