"""`slipstream.Server`: a server inside a program, in a thread or on the caller's loop."""

import asyncio
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import nats
import pytest

from slipstream import Server
from slipstream.errors import ConfigError, Error, StorageError
from slipstream.server.options import JetStreamOptions, LimitsOptions, ServerOptions
from tests.server.plain_client import plain_client


async def test_it_runs_on_the_callers_loop(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # some of other tests may end meanwhile
    async with Server(store_dir=str(tmp_path)) as server:
        assert set(threading.enumerate()) <= before
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await reader.readline()).startswith(b"INFO ")
        assert server.client_count == 1
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_client_that_resets_its_connection_does_not_disturb_the_stop() -> None:
    async with Server() as server:
        client = socket.create_connection(("127.0.0.1", server.port))
        client.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(client, 5) == b"INFO "
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset, of which the server has heard nothing when it stops


def server_threads() -> set[threading.Thread]:
    """Those of this process; other tests may have servers that stay, or are about to end."""
    return {thread for thread in threading.enumerate() if thread.name == "slipstream-server"}


def test_in_a_thread_it_is_ready_when_start_returns_and_gone_after_stop() -> None:
    before = server_threads()
    server = Server().start()
    assert len(server_threads() - before) == 1
    with plain_client(server.port) as client:
        assert client.info()["jetstream"]
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    assert server_threads() <= before


def test_a_temporary_store_is_removed_and_a_named_one_stays(tmp_path: Path) -> None:
    with Server() as server:
        temporary = Path(server.options.jetstream.store_dir)
        assert temporary.is_dir()
    assert not temporary.exists()
    with Server(store_dir=str(tmp_path / "named")):
        pass
    assert (tmp_path / "named").is_dir()


def test_a_named_store_among_temporary_files_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server():
        pass
    assert "Temporary storage directory used" not in caplog.text
    with tempfile.TemporaryDirectory() as directory, Server(store_dir=directory):
        pass
    assert "Temporary storage directory used, data could be lost" in caplog.text


async def test_what_was_stored_is_there_for_the_next_one(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with Server(store_dir=str(tmp_path)) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            assert (await js.publish("s", b"")).seq == expected
            await nc.close()


def test_servers_do_not_know_of_each_other() -> None:
    with Server() as one, Server() as other:
        assert one.port != other.port
        with plain_client(one.port) as a, plain_client(other.port) as b:
            assert a.info()["server_id"] != b.info()["server_id"]


def test_a_store_is_not_shared(tmp_path: Path) -> None:
    with (
        Server(store_dir=str(tmp_path)),
        pytest.raises(StorageError, match="another server uses the store directory"),
    ):
        Server(store_dir=str(tmp_path)).start()
    with Server(store_dir=str(tmp_path)):
        pass  # the first one has let go of it


def test_a_start_that_fails_says_why_and_leaves_nothing() -> None:
    before = server_threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(port)
        with pytest.raises(Error, match=f'127.0.0.1:{port}, "address already in use"'):
            server.start()
    assert not Path(server.options.jetstream.store_dir).exists()
    assert server_threads() <= before


async def test_a_start_that_fails_on_the_callers_loop_leaves_the_loop_usable() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Error, match="address already in use"),
    ):
        await Server(taken.getsockname()[1]).start_here()
    async with Server() as server:
        assert server.port


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nonsense": 1}, "Server has no option nonsense; it has accounts, "),
        ({"no_auth_user": "nobody"}, 'no_auth_user "nobody" is not a configured user'),
        ({"limits": LimitsOptions(ping_interval=0)}, "ping_interval must be above 0"),
        ({"config": ServerOptions(), "port": 4222, "tls": None}, "a config, and port, tls beside"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        Server(**options)


def test_a_whole_configuration_can_be_given() -> None:
    config = ServerOptions(host="0.0.0.0", port=-1, server_name="alpha")
    with Server(config=config) as server:
        assert server.url == f"nats://127.0.0.1:{server.port}"
        with plain_client(server.port) as client:
            info = client.info()
    assert (info["server_name"], info["host"]) == ("alpha", "0.0.0.0")
    assert "jetstream" not in info


@pytest.mark.parametrize("kind", [str, Path])
def test_a_configuration_file_can_be_given(kind: type, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(f'port: -1, server_name: beta, jetstream {{ store_dir: "{tmp_path}" }}')
    with Server(config=kind(path)) as server, plain_client(server.port) as client:
        assert client.info()["server_name"] == "beta"
    assert (tmp_path / "jetstream").is_dir()
    path.write_text("prot: 4222")
    with pytest.raises(ConfigError, match='unknown field "prot", did you mean "port"'):
        Server(config=kind(path))


def test_a_given_store_directory_counts_before_that_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(f'port: -1, jetstream {{ store_dir: "{tmp_path / "production"}" }}')
    with Server(config=path, store_dir=str(tmp_path / "test")):
        pass
    assert (tmp_path / "test" / "jetstream").is_dir()
    assert not (tmp_path / "production").exists()


def test_jetstream_can_be_off() -> None:
    with Server(jetstream=JetStreamOptions(enabled=False)) as server:
        assert server.options.jetstream.store_dir == ""
        with plain_client(server.port) as client:
            assert "jetstream" not in client.info()


def test_there_is_nothing_to_reload_before_the_start() -> None:
    server = Server()
    with pytest.raises(Error, match="not running"):
        server.reload(server.options)
