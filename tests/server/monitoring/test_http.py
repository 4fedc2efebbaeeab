"""The HTTP port answers well-formed requests, and survives all others."""

import asyncio
import socket
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream import Server
from slipstream.server.monitoring.http.connection import (
    LONG_ANSWERS_MAX,
    TEXT,
    Handler,
    HttpConnection,
    Request,
    Response,
)
from slipstream.server.options import JetStreamOptions, MonitoringOptions
from tests.server.monitoring.http_client import get


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(monitoring_port=0, jetstream=JetStreamOptions()) as server:
        yield server


def talk(server: Server, data: bytes, *, end: bool = True) -> bytes:
    """Send `data`, and return all that comes until the server hangs up."""
    host, port = server.monitoring_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def test_a_connection_is_kept_for_the_next_request(server: Server) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    received = talk(server, one + one + last, end=False)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.count(b'{"status":"ok"}') == 3
    assert received.count(b"Connection: close\r\n") == 1


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    received = talk(server, b"GET /healthz HTTP/1.0\r\n\r\n", end=False)
    assert received.endswith(b'\r\n\r\n{"status":"ok"}')


def test_a_request_may_come_in_pieces(server: Server) -> None:
    host, port = server.monitoring_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        for byte in b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_that_does_not_end_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{HttpConnection.__module__}.HEAD_SECONDS_MAX", 0.05)
    with suppress(ConnectionResetError):
        assert talk(server, b"GET /varz HTTP/1.1\r\n", end=False) == b""


def test_head_has_no_body(server: Server) -> None:
    received = talk(server, b"HEAD /varz HTTP/1.1\r\nConnection: close\r\n\r\n", end=False)
    assert received.endswith(b"\r\n\r\n")
    assert b"Content-Length: 0" not in received


def test_the_method_does_not_matter_and_a_body_is_not_read(server: Server) -> None:
    head = b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
    received = talk(server, head + b"hello", end=False)
    assert received.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /varz\r\n\r\n", b"400"),
        (b"GET /varz HTTP/2.0\r\n\r\n", b"505"),
        (b"GET /varz HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET /varz HTTP/1.1\r\n folded: x\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /%00 HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /" + b"x" * 20_000, b"431"),
        (b"GET /connz?" + b"a&" * 200 + b" HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
    ],
)
def test_what_is_malformed_gets_an_error(server: Server, data: bytes, status: bytes) -> None:
    assert talk(server, data, end=False).split(b" ")[1] == status


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_bytes_harm_the_server(server: Server, data: bytes) -> None:
    talk(server, data + b"\r\n\r\n")
    assert get(server.monitoring_url, "/healthz").status == 200


def test_callback_wraps_the_answer_for_scripts(server: Server) -> None:
    found = get(server.monitoring_url, "/varz?callback=jQuery_1.load")
    assert found.headers["Content-Type"] == "application/javascript"
    assert found.body.startswith(b"jQuery_1.load({")
    assert found.body.endswith(b"})")
    assert get(server.monitoring_url, "/varz?callback=alert(1)//").status == 400


def test_the_page_links_to_every_endpoint(server: Server) -> None:
    found = get(server.monitoring_url, "/")
    assert found.headers["Content-Type"] == "text/html; charset=utf-8"
    for path in ("varz", "connz", "subsz", "accountz", "accstatz", "jsz", "healthz", "metrics"):
        assert f'href="/{path}"'.encode() in found.body


def test_the_page_says_how_the_server_is() -> None:
    with Server(monitoring_port=0, server_name="<b>one</b>") as server:
        well = get(server.monitoring_url, "/").body.decode()
        assert server.runtime is not None
        jetstream = server.runtime.engine.default_account.jetstream
        assert jetstream is not None
        jetstream.problem("stream 'S': <script>")
        ill = get(server.monitoring_url, "/").body.decode()
    for text in ("Healthy", "&lt;b&gt;one&lt;/b&gt;", "Up for", "Connections", "Streams", "free"):
        assert text in well
    assert "Not healthy" in ill
    assert "stream &#x27;S&#x27;: &lt;script&gt;" in ill


def test_requests_are_counted_by_path() -> None:
    with Server(monitoring_port=0) as server:
        for path in ("/varz", "/healthz", "/healthz", "/nope"):
            get(server.monitoring_url, path)
        found = get(server.monitoring_url, "/varz").json["http_req_stats"]
    assert found == {"/varz": 2, "/healthz": 2}


def test_a_base_path_stands_before_every_endpoint() -> None:
    options = MonitoringOptions(http_port=-1, http_base_path="/nats")
    with Server(monitoring=options) as server:
        assert get(server.monitoring_url, "/nats/healthz").status == 200
        assert b'href="/nats/varz"' in get(server.monitoring_url, "/nats").body
        assert get(server.monitoring_url, "/healthz").status == 404


def test_jetstream_off_is_shown_as_such(server: Server) -> None:
    found = get(server.monitoring_url, "/jsz").json
    assert found["disabled"] is True
    assert (found["streams"], found["total"]) == (0, 0)
    assert get(server.monitoring_url, "/varz").json["jetstream"] == {}
    assert get(server.monitoring_url, "/healthz?js-enabled-only=1").status == 200


def test_without_a_port_there_is_no_monitoring() -> None:
    with Server() as server:
        assert server.monitoring_url == ""
        assert "monitoring" not in server.ports()


def test_the_port_is_free_again_after_the_end() -> None:
    with Server(monitoring_port=0) as server:
        url = server.monitoring_url
    with pytest.raises(OSError, match="refused"):
        get(url, "/healthz")


def steps(path: str, begun: list[str]) -> Generator[None, None, bytes]:
    """An answer in a hundred steps; `begun` notes each of them."""
    for _ in range(100):
        begun.append(path)
        yield
    return path.encode()


async def asked(handler: Handler, *requests: bytes) -> tuple[bytes, HttpConnection]:
    """What a connection answers to requests that come at once, and the connection."""
    made: list[HttpConnection] = []

    def accept() -> HttpConnection:
        made.append(HttpConnection(handler, set()))
        return made[0]

    listener = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    async with listener:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.writelines(requests)
        received = await reader.read()
        writer.close()
        return received, made[0]


async def test_others_have_their_turn_while_a_long_answer_is_made() -> None:
    begun: list[str] = []
    turns: list[int] = []

    def look() -> None:
        turns.append(len(begun))
        if len(begun) < 200:
            asyncio.get_running_loop().call_soon(look)

    def handler(request: Request) -> Response:
        if not turns:
            look()
        return Response(200, TEXT, steps(request.path, begun))

    first = b"GET /a HTTP/1.1\r\n\r\n"
    last = b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n"
    received, _ = await asked(handler, first, last)
    assert len(set(turns)) > 100  # a step or two in each round
    assert begun == ["/a"] * 100 + ["/b"] * 100  # one after the other
    assert [line for line in received.split(b"\r\n") if line in (b"/a", b"/b")] == [b"/b"]
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert b"\r\n\r\n/aHTTP/1.1 200 OK" in received


class LongAnswers:
    """A listener whose answers take until `end`."""

    def __init__(self) -> None:
        self.connections: set[HttpConnection] = set()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self._going = True

    def end(self) -> None:
        self._going = False

    def _steps(self) -> Generator[None, None, bytes]:
        self.begun.put_nowait(None)
        while self._going:
            yield
        return b"done"

    def _accept(self) -> HttpConnection:
        return HttpConnection(lambda _: Response(200, TEXT, self._steps()), self.connections)

    async def listen(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)


ASK = b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n"


async def test_who_sends_while_a_long_answer_is_made_waits() -> None:
    """Else a client could fill the server's memory with what nobody looks at yet."""
    answers = LongAnswers()
    async with await answers.listen() as listener:
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(ASK)
        await answers.begun.get()
        writer.write(bytes(64 * 1024 * 1024))
        for _ in range(1000):
            await asyncio.sleep(0)
        [connection] = answers.connections
        assert len(connection._received) < 1024 * 1024
        answers.end()
        assert (await reader.read(4096)).endswith(b"done")
        writer.transport.abort()


async def test_so_many_long_answers_are_made_at_a_time_and_no_more() -> None:
    answers = LongAnswers()
    async with await answers.listen() as listener:
        address = listener.sockets[0].getsockname()
        clients = [await asyncio.open_connection(*address) for _ in range(LONG_ANSWERS_MAX)]
        for _, writer in clients:
            writer.write(ASK)
            await answers.begun.get()
        late, late_writer = await asyncio.open_connection(*address)
        late_writer.write(ASK)
        assert (await late.read()).startswith(b"HTTP/1.1 503 ")
        answers.end()
        for reader, writer in clients:
            assert (await reader.read()).endswith(b"done")
            writer.close()
        late_writer.close()


async def test_a_long_answer_that_fails_is_an_error() -> None:
    def failing() -> Generator[None, None, bytes]:
        yield
        raise ValueError("broken")

    problems: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context["message"]))
    request = b"GET /a HTTP/1.1\r\n\r\n"
    received, _ = await asked(lambda _: Response(200, TEXT, failing()), request)
    assert received.startswith(b"HTTP/1.1 500 ")
    assert problems == ["monitoring failed to answer /a"]
