"""Servers of each kind that a test kills and brings back on the same port with the same store."""

from pathlib import Path

from tests.fix_nats_server import start_nats_server
from tests.fix_server_process import start_process
from tests.lasting_ports import lasting_port


class MortalServer:
    """A server process; `url` stays when it comes back."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self._lives = 0
        self._port = str(lasting_port())
        self.revive()

    def revive(self) -> None:
        """Start it, with the port and the store that it had before."""
        self._lives += 1
        if self._kind == "slipstream":
            flags = ("-js", "-sd", str(self._directory / "store"), "-p", self._port)
            server = start_process(self._directory / f"life-{self._lives}", *flags)
            self._process, self.url = server.process, server.url
        else:
            (self._directory / "nats").mkdir(exist_ok=True)
            for old in (self._directory / "nats/ports").glob("*.ports"):
                old.unlink()
            made = start_nats_server(self._directory / "nats", "-p", self._port)
            self._process, self.url = made.process, made.url

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()
