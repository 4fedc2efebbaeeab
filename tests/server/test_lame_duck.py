"""A server in lame duck mode accepts nobody, tells everybody, and ends when the last has gone."""

import signal
import socket
from pathlib import Path

import pytest

from tests.fix_server_process import StartProcess
from tests.server.plain_client import PlainClient, plain_client

LONG = 'lame_duck_duration: "1h"\nlame_duck_grace_period: "30m"\n'
NO_GRACE = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "0s"\n'


def connect(port: int, protocol: int) -> PlainClient:
    client = PlainClient(port)
    client.info()
    client.send(f'CONNECT {{"verbose":false,"protocol":{protocol}}}\r\nSUB a 1\r\n')
    client.ping()
    return client


def settle(client: PlainClient) -> None:
    """Read the INFO that follows the first PONG."""
    assert client.info()["connect_info"]


def test_without_clients_it_ends_at_once(start_server: StartProcess) -> None:
    server = start_server()
    server.send(signal.SIGUSR2)
    assert server.wait_for_end() == 0
    wanted = ['Trapped "user defined signal 2" signal', "Entering lame duck mode, stop accepting"]
    positions = [server.log.index(text) for text in [*wanted, "Initiating Shutdown", "Exiting.."]]
    assert positions == sorted(positions)


def test_clients_are_told_then_sent_away_and_it_ends(
    start_server: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(NO_GRACE)
    server = start_server("-c", str(path), "-D")
    port = server.port
    new, old = connect(port, 1), connect(port, 0)
    settle(new)
    server.send(signal.SIGUSR2)
    assert new.info()["ldm"]
    assert new.line() == ""
    assert old.line() == ""
    assert server.wait_for_end() == 0
    assert server.log.count("Client connection closed: Server Shutdown") == 2
    assert "Closing existing clients" in server.log


def test_meanwhile_it_serves_who_is_there_and_accepts_nobody(
    start_server: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(LONG)
    server = start_server("-c", str(path))
    client = connect(server.port, 1)
    settle(client)
    server.send(signal.SIGUSR2)
    assert client.info()["ldm"]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), 1).recv(1)
    client.send("PUB a 2\r\nhi\r\n")
    assert client.ping() == ["MSG a 1 2", "hi"]
    server.send(signal.SIGTERM)  # ignored meanwhile
    server.wait_for('Trapped "terminated" signal')
    assert client.ping() == []
    server.send(signal.SIGINT)
    assert server.wait_for_end() == 0


def test_it_ends_early_when_the_clients_leave_by_themselves(
    start_server: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(LONG)
    server = start_server("-c", str(path))
    with plain_client(server.port) as client:
        client.info()
        client.ping()
        server.send(signal.SIGUSR2)
        server.wait_for("Entering lame duck mode")
    assert server.wait_for_end() == 0
