"""Servers that say what no server says: an error and another connection, never a hang."""

import pytest

import slipstream
from slipstream.client.errors import ConnectError
from slipstream.client.events import Disconnected, ErrorEvent, Event
from slipstream.errors import ProtocolError
from tests.client.fake_server import FakeServer, info
from tests.client.scripted_server import ScriptedServer, frame
from tests.client.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_reaches_the_loop")

# Nothing that follows one of these can be understood.
BROKEN = {
    "no size": b"MSG here 1\r\n\r\n",
    "too few words": b"MSG here\r\n",
    "too many words": b"MSG here 1 back 2 3 4\r\nabc\r\n",
    "a negative size": b"MSG here 1 -5\r\nhello\r\n",
    "a size that is no number": b"MSG here 1 five\r\nhello\r\n",
    "a size with a sign": b"MSG here 1 +5\r\nhello\r\n",
    "a size beyond all bounds": b"MSG here 1 99999999999999999999\r\nhello\r\n",
    "a size too small": b"MSG here 1 3\r\nhello\r\n",
    "a size too large": b"MSG here 1 7\r\nhello\r\nMSG here 1 5\r\nhello\r\n",
    "no line end behind the payload": b"MSG here 1 5\r\nhello, world\r\n",
    "LF alone behind the payload": b"MSG here 1 5\r\nhello\nMSG",
    "a subscription id that is no number": b"MSG here one 5\r\nhello\r\n",
    "a negative subscription id": b"MSG here -1 5\r\nhello\r\n",
    "a subscription id beyond all bounds": b"MSG here 9999999999999999999999 5\r\nhello\r\n",
    "a header larger than all": b"HMSG here 1 20 10\r\nNATS/1.0\r\n\r\n\r\n",
    "a negative header size": b"HMSG here 1 -1 10\r\n0123456789\r\n",
    "HMSG with one size": b"HMSG here 1 12\r\nNATS/1.0\r\n\r\n\r\n",
    "an unknown verb": b"HELLO world\r\n",
    "a verb that begins well": b"MSH here 1 5\r\nhello\r\n",
    "a verb of clients": b"PUB here 5\r\nhello\r\n",
    "a verb without a blank": b"MSGhere 1 5\r\nhello\r\n",
    "a verb of other servers": b"RS+ $G here\r\n",
    "an empty line": b"\r\n",
    "nothing but LF": b"\n",
    "binary junk": bytes(range(256)),
    "zeroes": bytes(64),
    "TLS": b"\x15\x03\x01\x00\x02\x02\x28",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "a line without end": b"MSG " + b"x" * 1_100_000,
    "an INFO without end": b"INFO {" + b" " * 1_100_000,
}

# The connection stands these, as other clients do.
HARMLESS = {
    "a subscription id that nobody has": b"MSG here 999 5\r\nhello\r\n",
    "a subject of someone else": frame("elsewhere", 2, b""),
    "an answer that nobody awaits": frame("_INBOX.nobody.99999999999999999999999", 2, b"x"),
    "a PONG that nobody awaits": b"PONG\r\nPONG\r\n",
    "a PING with more": b"PING and more\r\n",
    "+OK": b"+OK\r\n+OK\r\n",
    "lower case": b"ping\r\n",
    "LF alone": b"PING\n",
    "an INFO that is no JSON": b"INFO {nonsense\r\n",
    "an INFO of another shape": b'INFO {"max_payload":"much","connect_urls":7}\r\n',
    "an INFO that is no object": b"INFO [1,2]\r\n",
    "an INFO of nothing": b"INFO \r\n",
    "an INFO with servers that are invalid": b'INFO {"connect_urls":["::::","","a b"]}\r\n',
    "-ERR without text": b"-ERR\r\n",
    "-ERR that is no text": b"-ERR '\xff\xfe'\r\n",
    "an empty header block": b"HMSG elsewhere 2 0 0\r\n\r\n",
    "a header block that is invalid": frame("elsewhere", 2, b"", block=b"junk\r\n"),
    "a status that is invalid": frame("elsewhere", 2, b"", block=b"NATS/1.0 many words\r\n\r\n"),
    "a status beyond all bounds": frame(
        "elsewhere", 2, b"", block=b"NATS/1.0 " + b"9" * 5000 + b"\r\n\r\n"
    ),
    "a subject that is no text": b"MSG else\xffwhere 2 \xfe 0\r\n\r\n",
}


async def hears(nc: slipstream.Connection, server: ScriptedServer, subject: str) -> None:
    """A message that the server sends to `subject` arrives."""
    subscription = await nc.subscribe(subject)
    await until(lambda: bool(server.sid(subject)))
    server.say(frame(subject, server.sid(subject), b"whole"))
    assert (await subscription.next(5)).data == b"whole"


@pytest.mark.parametrize("name", BROKEN)
async def test_what_cannot_be_read_ends_the_connection_and_another_one_is_made(name: str) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(lambda _: None) as server,
        await slipstream.connect(server.url, on_event=events.append, reconnect_wait=0.01) as nc,
    ):
        subscription = await nc.subscribe("here")
        await nc.flush()
        server.say(BROKEN[name])
        await until(lambda: nc.stats.reconnects > 0)
        lost = next(event for event in events if isinstance(event, Disconnected))
        assert isinstance(lost.error, ProtocolError)
        assert server.url in str(lost.error)
        while subscription.pending:  # what could still be read
            await subscription.next()
        server.say(frame("here", 1, b"whole"))
        assert (await subscription.next(5)).data == b"whole"


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_can_be_passed_over_is(name: str) -> None:
    events: list[Event] = []
    async with (
        ScriptedServer(lambda _: None) as server,
        await slipstream.connect(server.url, on_event=events.append) as nc,
    ):
        first = await nc.subscribe("here")
        second = await nc.subscribe("elsewhere")
        await nc.flush()
        server.say(HARMLESS[name])
        await hears(nc, server, "again")
        assert server.accepted == 1
        assert not first.pending
        while second.pending:
            message = await second.next()
            assert repr(message)
            assert message.status == 0
            assert isinstance(message.description, str)
    assert not [event for event in events if isinstance(event, Disconnected)]
    if name.startswith("an INFO"):
        assert [event for event in events if isinstance(event, ErrorEvent)]


@pytest.mark.parametrize("name", [*BROKEN, "an INFO that is no JSON", "an INFO of another shape"])
async def test_a_greeting_that_is_invalid_is_an_error_at_once(name: str) -> None:
    greeting = {**BROKEN, **HARMLESS}[name]
    async with FakeServer(greeting) as server:
        with pytest.raises(ConnectError):
            await slipstream.connect(server.url, connect_timeout=30)


async def test_an_answer_to_connect_that_is_invalid_is_an_error_at_once() -> None:
    async with FakeServer(info(), b"MSG x\r\n") as server:
        with pytest.raises(ConnectError, match="does not answer as a NATS server"):
            await slipstream.connect(server.url)
