"""Every conversation of the scripts goes with Slipstream as it goes with nats-server."""

import re
import socket
from pathlib import Path

import pytest

from slipstream.server import Server
from slipstream.server.config import load_options
from tests.compatibility.session_scripts import PING, Script, scripts_by_configuration
from tests.fix_nats_server import start_nats_server, stop_nats_server

TIMEOUT_S = 10.0
MESSAGE = re.compile(rb"H?MSG [^\r]*\r\n.*?\r\n(?=H?MSG |\+OK|-ERR|PONG|INFO|$)", re.S)


class Line:
    """A connection that keeps all it hears."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.heard = b""
        self.ended = False
        self._pongs = 0
        while b"\r\n" not in self.heard and not self.ended:
            self._read()

    def say(self, data: bytes, wait: bool) -> None:
        """Send; with `wait`, hear everything up to the answers to all PINGs, or the end."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.ended = True
        self._pongs += data.upper().count(b"PING")
        while wait and not self.ended and self.heard.count(b"PONG\r\n") < self._pongs:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.heard += data
        self.ended = not data

    def close(self) -> None:
        """Close."""
        self._socket.close()


def hear(port: int, script: Script) -> dict[str, tuple[bytes, list[bytes], bool]]:
    """What each connection of `script` heard: lines, messages (sorted), and whether it ended.

    Among subscriptions of one connection the order of messages is free.
    """
    lines: dict[str, Line] = {}
    for who, data in script[1]:
        line = lines.get(who) or lines.setdefault(who, Line(port))
        line.say(data, data.endswith(PING))
    outcome = {}
    for who, line in lines.items():
        line.say(PING, wait=True)
        line.close()
        text = re.sub(rb"INFO \{[^\r]*\r\n", b"INFO\r\n", line.heard)
        text = text.replace(b"\r\nPING\r\n", b"\r\n")  # a server's own, where two seconds passed
        messages = sorted(MESSAGE.findall(text))
        outcome[who] = (re.sub(rb"~+", b"~", MESSAGE.sub(b"~", text)), messages, line.ended)
    return outcome


@pytest.mark.parametrize("configuration", scripts_by_configuration())
def test_every_conversation_goes_as_with_nats_server(configuration: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(configuration)
    theirs = start_nats_server(tmp_path / "nats-server", "-c", str(file))
    options = load_options(str(file))
    options.host = "127.0.0.1"
    options.jetstream.enabled = True
    different = []
    try:
        with Server(config=options, store_dir=str(tmp_path / "store")) as ours:
            for script in scripts_by_configuration()[configuration]:
                us, them = hear(ours.port, script), hear(theirs.port, script)
                if us != them:
                    different.append(f"{script[0]}\n  ours   {us}\n  theirs {them}")
    finally:
        stop_nats_server(theirs)
    assert not different, "\n".join(different)
