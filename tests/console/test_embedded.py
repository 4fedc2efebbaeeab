"""The console on a server's own monitoring port."""

import http.client
import re
import signal
import socket
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen

import pytest

import slipstream
import slipstream.sync
from slipstream import Server
from slipstream.console import embedded
from slipstream.console.embedded import is_this_machine
from slipstream.console.render import Renderer
from slipstream.errors import ConfigError
from slipstream.server.command import Program, load
from slipstream.server.config import load_text
from slipstream.server.flags import parse
from slipstream.server.options import (
    ConsoleOptions,
    MonitoringOptions,
    ServerOptions,
    TlsOptions,
)
from tests.console.conftest import Console
from tests.fix_certificates import Authority
from tests.fix_server_process import CLI, SERVER, StartProcess, run_to_end
from tests.lasting_ports import lasting_port

ADDRESSES = ("href", "src", "action", "hx-get", "hx-post", "sse-connect", "data-plot")


class Browser:
    """One connection to the port, and a cookie."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        self._cookie = ""

    def ask(
        self, path: str, method: str = "GET", body: str = "", **headers: str
    ) -> tuple[int, str]:
        """Status and text; the connection is kept. A redirection leaves where it leads to."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        names |= {"cookie": self._cookie} if self._cookie else {}
        self._connection.request(method, path, body or None, names)
        answer = self._connection.getresponse()
        cookie = answer.getheader("set-cookie", "")
        assert "Path=/console;" in cookie or not cookie
        self._cookie = cookie.partition(";")[0] or self._cookie
        text = answer.read().decode()
        return answer.status, answer.getheader("location") or answer.getheader(
            "hx-redirect"
        ) or text

    def post(self, path: str, **form: str) -> tuple[int, str]:
        """As a form of a page is sent."""
        token = re.search(r'"X-CSRF-Token": "([^"]+)"', self.ask("/console/connections")[1])
        body = "&".join(f"{name}={value}" for name, value in form.items())
        return self.ask(
            path,
            "POST",
            body,
            origin=self.url,
            x_csrf_token=token[1] if token else "",
            content_type="application/x-www-form-urlencoded",
        )


def options(text: str = "") -> ServerOptions:
    return load_text(f"host: 127.0.0.1, port: -1, http_port: -1, console: true\n{text}").options


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=options(f'jetstream {{ store_dir: "{tmp_path}" }}')) as server:
        yield server


@pytest.fixture
def browser(server: Server) -> Browser:
    return Browser(server.monitoring_url)


def test_pages_and_endpoints_share_the_port_and_a_connection(browser: Browser) -> None:
    assert browser.ask("/healthz") == (200, '{"status":"ok"}')
    assert browser.ask("/console") == (303, "/console/")
    status, text = browser.ask("/console/")
    assert status == 200
    assert "Needs attention" in text
    assert browser.ask("/healthz?details=true") == (200, '{"status":"ok"}')
    assert browser.ask("/consoles")[0] == 404
    assert browser.ask("/streams")[0] == 404
    assert 'href="/console/"' in browser.ask("/")[1]


class Addresses(HTMLParser):
    """Every address of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name in ADDRESSES and value}


def test_every_address_of_every_page_is_the_consoles_own(server: Server, browser: Browser) -> None:
    with slipstream.sync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s.>"])
        for i in range(5):
            js.publish(f"s.{i}.x", b'{"a": 1}')
        js.create_consumer("S", durable_name="C")
        js.create_key_value("B").put("k", b"v")
        js.create_object_store("O").put("o", b"data")
    seen: set[str] = set()
    waiting = ["/console/", "/console/login"]
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        status, text = browser.ask(address)
        assert status in (200, 303), (address, status, text)
        if address.startswith("/console/static"):
            continue
        page = Addresses()
        page.feed(text)
        for found in page.found:
            if found.startswith(("#", "?")):
                continue
            assert found.startswith("/console/"), (address, found)
            path = found.partition("?")[0]
            is_page = not path.endswith(("/tail", "/overview", "/watch", "/logout"))
            is_change = re.search(
                r"/(delete|purge|pause|resume|reset|put|update|review|again)\b", found
            )
            if is_page and not is_change:
                waiting.append(found.partition("#")[0])
    for wanted in ("/streams/S/consumers/C", "/kv/B", "/objects/O", "/streams/S/messages/3"):
        assert f"/console{wanted}" in seen


def test_what_was_done_leads_back_to_a_page_of_the_console(
    server: Server, browser: Browser
) -> None:
    with slipstream.sync.connect(server.url) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"])
    assert browser.post("/console/streams/S/delete", confirm="S") == (204, "/console/streams")
    assert browser.ask("/jsz")[1].count('"streams": 0') == 1


def test_a_server_with_users_asks_who_you_are() -> None:
    users = "authorization { users: [{user: ann, password: secret}] }\njetstream: true"
    with Server(config=options(users)) as server:
        browser = Browser(server.monitoring_url)
        assert browser.ask("/console/streams") == (303, "/console/login")
        assert browser.post("/console/login", user="ann", password="wrong")[0] == 401
        assert browser.post("/console/login", user="ann", password="secret") == (303, "/console/")
        assert "as <b>ann</b>" in browser.ask("/console/streams")[1]


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_this_machine_has_several_addresses(peer: str) -> None:
    assert is_this_machine((peer, 9))


@pytest.mark.parametrize("peer", ["192.168.1.5", "::ffff:192.168.1.5", "fe80::1%eth0", "8.8.8.8"])
def test_others_are_not_this_machine(peer: str) -> None:
    assert not is_this_machine((peer, 9))
    assert not is_this_machine(None)


def test_others_than_this_machine_are_refused(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "is_this_machine", lambda peer: False)
    status, text = browser.ask("/console/", x_forwarded_for="127.0.0.1")
    assert status == 403
    assert "own machine alone" in text
    assert browser.ask("/healthz")[0] == 200


def test_a_proxy_on_this_machine_may_ask_for_others(browser: Browser) -> None:
    assert browser.ask("/console/", x_forwarded_for="192.168.1.5")[0] == 200


def test_another_pages_requests_are_refused(browser: Browser) -> None:
    assert browser.ask("/console/", host="evil.example")[0] == 421


def test_options_of_the_configuration_hold() -> None:
    text = (
        'console { read_only: true, hosts: "proxy.example", mask_fields: [ssn] }\njetstream: true'
    )
    config = load_text(
        f"host: 127.0.0.1, port: -1, http_port: -1, http_base_path: ops\n{text}"
    ).options
    assert config.console == ConsoleOptions(
        enabled=True, read_only=True, hosts=["proxy.example"], mask_fields=["ssn"]
    )
    with Server(config=config) as server:
        browser = Browser(server.monitoring_url)
        browser._connection.request("GET", "/ops/console/", headers={"host": "proxy.example"})
        text = browser._connection.getresponse().read().decode()
    assert "read-only" in text
    assert 'src="/ops/console/static/console.js"' in text


def test_it_has_tls_where_the_port_and_the_server_have_it(
    authority: Authority, server_files: tuple[str, str]
) -> None:
    tls = TlsOptions(cert_file=server_files[0], key_file=server_files[1])
    monitoring = MonitoringOptions(https_port=-1)
    wanted = ConsoleOptions(enabled=True)
    with Server(tls=tls, monitoring=monitoring, console=wanted) as server:
        address = server.monitoring_url.replace("127.0.0.1", "localhost") + "/console/streams"
        with urlopen(address, context=authority.client_context(), timeout=30) as answer:
            assert "Secure" in answer.headers["set-cookie"]
            text = answer.read().decode()
    assert "tls://127.0.0.1" in text


def test_a_server_that_the_console_cannot_connect_to_says_so(
    authority: Authority, server_files: tuple[str, str]
) -> None:
    tls = TlsOptions(
        cert_file=server_files[0], key_file=server_files[1], ca_file=authority.ca_file, verify=True
    )
    wanted = ConsoleOptions(enabled=True)
    with Server(tls=tls, console=wanted, monitoring_port=0) as server:
        status, text = Browser(server.monitoring_url).ask("/console/")
        assert status == 503
        assert "cannot connect to its server" in text
        assert Browser(server.monitoring_url).ask("/healthz")[0] == 200


def test_it_is_off_unless_asked_for() -> None:
    with Server(monitoring_port=0) as server:
        assert Browser(server.monitoring_url).ask("/console/")[0] == 404


def test_without_a_port_it_says_what_is_missing() -> None:
    config = ServerOptions(console=ConsoleOptions(enabled=True))
    with pytest.raises(ConfigError, match="needs the monitoring port"):
        config.validate()
    config.monitoring = MonitoringOptions(http_port=-1)
    config.validate()


def test_a_server_that_stops_ends_the_pages_that_are_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server(config=options("jetstream: true")) as server:
        address = server.monitoring_url.removeprefix("http://").split(":")
        page = socket.create_connection((address[0], int(address[1])), timeout=30)
        page.sendall(b"GET /console/connections HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = page.recv(65_536).decode()
        cookie = re.search(r"set-cookie: ([^;]+)", head)
        assert cookie
        live = socket.create_connection((address[0], int(address[1])), timeout=30)
        asked = (
            f"GET /console/live/overview HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie[1]}\r\n\r\n"
        )
        live.sendall(asked.encode())
        assert live.recv(65_536).startswith(b"HTTP/1.1 200")
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    for connection in (page, live):
        with connection:
            try:
                while connection.recv(65_536):
                    pass
            except ConnectionResetError:
                pass
    assert "Internal error" not in caplog.text


def test_a_body_that_comes_with_the_head_is_not_lost(browser: Browser) -> None:
    """The first request of a connection, which is handed over, brings a form."""
    status, text = browser.ask("/console/login", "POST", "user=&token=", origin=browser.url)
    assert status in (400, 403)
    assert text


def test_mistakes_of_the_console_are_in_the_servers_log_and_those_of_browsers_are_not(
    server: Server,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address = server.monitoring_url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=30) as connection:
        connection.sendall(b"GET /console/ HTTP/1.1\r\nContent-Length: many\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    browser.ask("/console/")
    monkeypatch.setattr(Renderer, "page", broken)
    assert browser.ask("/console/")[0] == 500
    Browser(server.monitoring_url).ask("/healthz")  # whose turn is after that
    texts = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "Internal error: showing the console: RuntimeError('broken')" in texts[0]
    assert capfd.readouterr().err == ""


def test_the_flag_alone_opens_a_port_of_this_machine() -> None:
    program = Program("slipstream serve", ServerOptions)
    loaded, _ = load(program, parse(["--console"]))
    assert (loaded.monitoring.host, loaded.monitoring.http_port) == ("127.0.0.1", 8222)
    loaded, _ = load(program, parse(["--console", "-m", "9000"]))
    assert (loaded.monitoring.host, loaded.monitoring.http_port) == ("", 9000)


def test_the_flag_has_the_console_served(start_server: StartProcess, tmp_path: Path) -> None:
    port = lasting_port()
    server = start_server("-js", "-sd", str(tmp_path / "store"), "--console", "-m", str(port))
    assert Browser(f"http://127.0.0.1:{port}").ask("/console/")[0] == 200
    server.send(signal.SIGTERM)
    assert server.wait_for_end() == 0
    assert f"Starting console on http://localhost:{port}/console/" in server.log
    assert "Traceback" not in server.log


def test_both_commands_know_the_flag() -> None:
    for words in ((*CLI, "serve", "--help"), (*SERVER, "--help")):
        assert "--console" in run_to_end(*words).stdout


def test_the_console_of_the_tests_is_the_same(console: Console) -> None:
    """Without a base path every address begins as it did."""
    assert 'href="/streams"' in console.get("/")
