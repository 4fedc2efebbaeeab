"""A server listens on IPv4 and IPv6 unless it was given one address."""

import errno
import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from slipstream import Server
from slipstream.errors import Error
from slipstream.server import listeners
from slipstream.server.listeners import has_ipv6, open_listeners
from tests.fix_server_process import StartProcess

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
EVERYWHERE = ["0.0.0.0", "::", ""]


def greeting(host: str, port: int) -> dict[str, Any]:
    with socket.create_connection((host, port), 30) as client, client.makefile("rb") as lines:
        found: dict[str, Any] = json.loads(lines.readline().removeprefix(b"INFO "))
        return found


@needs_ipv6
@pytest.mark.parametrize("host", EVERYWHERE)
def test_a_wildcard_takes_clients_of_both_families_and_shows_their_own_address(host: str) -> None:
    with Server(host=host) as server:
        assert greeting("127.0.0.1", server.port)["client_ip"] == "127.0.0.1"
        assert greeting("::1", server.port)["client_ip"] == "::1"
        assert greeting("::1", server.port)["port"] == server.port


@needs_ipv6
@pytest.mark.parametrize("host", EVERYWHERE)
def test_monitoring_answers_both_families(host: str) -> None:
    with Server(host=host, monitoring_port=0) as server:
        port = server.monitoring_url.rpartition(":")[2]
        for name in ("127.0.0.1", "[::1]"):
            with urllib.request.urlopen(f"http://{name}:{port}/healthz") as answer:
                assert answer.status == 200


def test_one_address_is_one_address() -> None:
    with Server(host="127.0.0.1") as server, pytest.raises(OSError):
        socket.create_connection(("::1", server.port), 30).close()


@needs_ipv6
async def test_a_name_has_the_same_port_on_all_its_addresses() -> None:
    found = await open_listeners("localhost", 0)
    assert len({listener.getsockname()[1] for listener in found}) == 1
    for listener in found:
        listener.close()


@needs_ipv6
def test_the_ports_file_lists_both_families(start_server: StartProcess) -> None:
    server = start_server("-a", "0.0.0.0")
    assert "Listening for client connections on 0.0.0.0:" in server.log
    found = json.loads(server.ports_file.read_text())["nats"]
    assert found[:2] == [f"nats://127.0.0.1:{server.port}", f"nats://[::1]:{server.port}"]


@contextmanager
def taken_on_ipv6() -> Iterator[int]:
    with closing(socket.socket(socket.AF_INET6)) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", 0))
        other.listen()
        yield other.getsockname()[1]


@needs_ipv6
def test_a_port_that_another_program_has_on_ipv6_is_refused() -> None:
    with taken_on_ipv6() as port, pytest.raises(Error, match="address already in use"):
        Server(port, host="0.0.0.0").start()


@needs_ipv6
async def test_a_port_of_the_systems_choice_is_free_for_both_families(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with taken_on_ipv6() as taken:
        bound = listeners._bound
        calls = 0

        def unlucky(family: int, address: tuple[Any, ...]) -> socket.socket:
            nonlocal calls
            calls += 1
            return bound(family, (address[0], taken if calls == 1 else address[1], *address[2:]))

        monkeypatch.setattr(listeners, "_bound", unlucky)
        found = await open_listeners("0.0.0.0", 0)
    assert calls == 4  # IPv4, IPv6 in vain, and both again
    assert {listener.family for listener in found} == {socket.AF_INET, socket.AF_INET6}
    for listener in found:
        listener.close()


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("absent", [socket.AF_INET6, socket.AF_INET])
async def test_a_family_that_the_machine_does_not_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch, code: int, absent: int
) -> None:
    bound = listeners._bound

    def without(family: int, address: tuple[Any, ...]) -> socket.socket:
        if family == absent:
            raise OSError(code, "no such family")
        return bound(family, address)

    if absent == socket.AF_INET and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(listeners, "_bound", without)
    (only,) = await open_listeners("0.0.0.0", 0)
    assert only.family != absent
    only.close()
