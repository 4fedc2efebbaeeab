"""Two servers in the same state, ours and nats-server's, to compare what they say of it."""

import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from slipstream import Server
from slipstream.server.config import load_text
from tests.fix_nats_server import start_nats_server, stop_nats_server
from tests.server.monitoring.http_client import Answer, get

CONFIG = """
host: 127.0.0.1
port: -1
http_port: -1
server_name: twin
server_tags: [Blue]
server_metadata { place: here }
jetstream { max_mem: 1GB, max_file: 1GB, domain: hub
  limits { max_ack_pending: 9, default_max_consumers: 1000 } }
accounts {
  A { users: [{user: a, password: a}], jetstream: enabled, mappings { old: new } }
  B { users: [{user: b, password: b}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""


@dataclass(slots=True)
class Twins:
    """Both servers after the same program."""

    theirs: str  # where monitoring is
    ours: str
    their_clients: str  # where clients connect
    our_clients: str

    def ask(self, path: str) -> tuple[Answer, Answer]:
        """Both answers, theirs first."""
        return get(self.theirs, path), get(self.ours, path)


async def run_program(url: str) -> list[Client]:
    a = await nats.connect(url, user="a", password="a", name="first")
    js = a.jetstream(domain="hub")
    await js.add_stream(name="S", subjects=["s.>"], max_bytes=1_000_000)
    for i in range(5):
        await js.publish(f"s.{i}", b"hello")
    subscription = await js.pull_subscribe("s.>", "C", stream="S")
    messages = await subscription.fetch(2)
    await messages[0].ack_sync()
    await a.subscribe("jobs.*", queue="workers")
    await a.flush()
    b = await nats.connect(url, user="b", password="b")
    gone = await nats.connect(url, user="b", password="b", name="gone")
    await gone.subscribe("x")
    await gone.close()
    return [a, b]


def wait_until_gone(monitor: str, count: int) -> None:
    """A server sees a moment later than its clients that they have gone."""
    deadline = time.monotonic() + 30
    while get(monitor, "/connz?state=closed").json["total"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Twins]:
    directory = tmp_path_factory.mktemp("twins")
    path = directory / "nats.conf"
    path.write_text(CONFIG)
    theirs = start_nats_server(directory, "-c", str(path))
    options = load_text(f'store_dir: "{directory / "ours"}"\n{CONFIG}').options
    with Server(config=options) as ours:
        # Who starts nats-server waits until it accepts a connection, which counts.
        socket.create_connection(("127.0.0.1", ours.port)).close()
        clients = [*await run_program(theirs.url), *await run_program(ours.url)]
        monitor = f"http://127.0.0.1:{theirs.monitor_port}"
        for url in (monitor, ours.monitoring_url):
            wait_until_gone(url, 2)
        yield Twins(monitor, ours.monitoring_url, theirs.url, ours.url)
        for client in clients:
            await client.close()
    stop_nats_server(theirs)
