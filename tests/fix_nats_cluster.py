"""Real nats-servers that are one cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server
from tests.lasting_ports import lasting_port

ACCOUNTS = """
accounts {
  APP { users = [{ user: app, password: secret }], jetstream: enabled }
  SYS { users = [{ user: boss, password: secret }] }
}
system_account: SYS
no_auth_user: app
"""


@contextmanager
def nats_cluster(directory: Path, size: int = 3) -> Iterator[list[NatsServer]]:
    """A cluster C of the servers n0, n1 ... with the tags az:0, az:1 ..., in whose account APP
    everybody is who does not say who it is. JetStream may not be ready yet."""
    ports = [lasting_port() for _ in range(size)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers: list[NatsServer] = []
    try:
        for number, port in enumerate(ports):
            config = directory / f"{number}.conf"
            config.write_text(
                f'server_name: n{number}\nserver_tags: ["az:{number}"]\n{ACCOUNTS}'
                f'cluster {{ name: C, listen: "127.0.0.1:{port}", routes: [ {routes} ] }}\n'
            )
            servers.append(start_nats_server(directory / f"n{number}", "-c", str(config)))
        yield servers
    finally:
        for server in servers:
            stop_nats_server(server)
