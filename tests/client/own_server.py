"""A server of a test's own, of either kind: with a configuration, and able to stop and return."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import slipstream
from slipstream.server.config import load_file
from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server
from tests.lasting_ports import lasting_port


@dataclass(slots=True)
class OwnServer:
    """`kind` is `slipstream` or `nats-server`; both read the same configuration file."""

    kind: str
    directory: Path
    config: str = ""
    port: int = field(default_factory=lasting_port)
    _slipstream: slipstream.Server | None = None
    _real: NatsServer | None = None
    _starts: int = field(default=0)

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self.address}"

    def start(self) -> "OwnServer":
        """Start it, always on the same port."""
        self._starts += 1
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.conf"
        path.write_text(f'server_name: "own"\n{self.config}')
        if self.kind == "slipstream":
            options = load_file(str(path)).options
            options.host = "127.0.0.1"
            options.port = self.port
            options.jetstream.enabled = True
            options.jetstream.store_dir = str(self.directory / "store")
            self._slipstream = slipstream.Server(config=options).start()
        else:
            arguments = ["-c", str(path), "-p", str(self.port)]
            arguments += ["-sd", str(self.directory / "store")]  # what it stored outlives it
            directory = self.directory / str(self._starts)
            self._real = start_nats_server(directory, *arguments)
        return self

    def stop(self) -> None:
        """Stop it; clients lose their connections."""
        if self._slipstream is not None:
            self._slipstream.stop()
            self._slipstream = None
        if self._real is not None:
            stop_nats_server(self._real)
            self._real = None

    async def astart(self) -> None:
        """`start`, while the loop goes on."""
        await asyncio.to_thread(self.start)

    async def astop(self) -> None:
        """`stop`, while the loop goes on."""
        await asyncio.to_thread(self.stop)
