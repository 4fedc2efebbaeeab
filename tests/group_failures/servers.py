"""The servers of a round: `slipstream serve` or nats-server, each on a host of the network."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.fix_nats_server import find_nats_server
from tests.fix_server_process import environment
from tests.group_failures.disks import ImageDisk, RecordedDisk, ServerDisk
from tests.group_failures.network import Network

PORT, CLUSTER_PORT = 4222, 6222
READY_SECONDS_MAX = 60.0
SOURCE = Path(__file__).parent


def build_clock(directory: Path) -> Path:
    """Compile the library that shifts clocks. Raises `subprocess.CalledProcessError`."""
    library = directory / "clock.so"
    words = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*words, "-o", library, SOURCE / "clock.c", "-ldl"], check=True)
    return library


class Served:
    """One server. `is_paused` and `is_running` are what was done to its process."""

    ready = ""  # what it logs when it takes clients

    def __init__(self, network: Network, number: int, disk: ServerDisk, size: int) -> None:
        self.number = number
        self.name = f"n{number + 1}"
        self.disk = disk
        self.size = size
        self.is_paused = False
        self.started_at = 0  # where the log of this process begins
        self.address = network.address(number)
        self.url = f"nats://{self.address}:{PORT}"
        self._network = network
        self._log = disk.path.with_name(f"{disk.path.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_out(self) -> bool:
        """Whether it says that it takes no part any more, since it was started last."""
        return False

    def words(self) -> list[str]:
        """Its command line."""
        raise NotImplementedError

    def more_environment(self) -> dict[str, str]:
        """Besides that of its disk."""
        return {}

    async def start(self) -> None:
        """Start the process; returns when it takes clients. Raises `ServerEndedError`."""
        self.started_at = len(self.log)
        variables = {**environment(), **self.disk.environment(), **self.more_environment()}
        self._process = self._network.start(self.number, self.words(), self._log, variables)
        self.is_paused = False
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self.ready not in self.log[self.started_at :]:
            if not self.is_running:
                raise ServerEndedError(f"{self.name} does not start: {self.log[-1000:]}")
            if time.monotonic() > deadline:
                raise ServerEndedError(f"{self.name} was not ready in {READY_SECONDS_MAX:.0f} s")
            await asyncio.sleep(0.02)

    def pause(self) -> None:
        """Its process is stopped."""
        self._send(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Its process goes on."""
        self._send(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        """Its process ends without a word."""
        self._send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self.is_paused = False

    def _send(self, number: signal.Signals) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(number)

    def cut_power(self, random: Random) -> str:
        """The machine loses its power; says how its disk came out."""
        self.pause()
        self.disk.freeze()
        self.kill()
        return self.disk.cut(random)

    def set_clock(self, seconds: float) -> bool:
        """Put the time of day off; whether that can be done."""
        return False

    def files(self, what: str) -> list[Path]:
        """Its files that are of a kind: `messages`, `log` or `snapshots`."""
        raise NotImplementedError


class ServerEndedError(Exception):
    """A server's process has ended by itself, or does not get ready."""


class SlipstreamServer(Served):
    """`slipstream serve`; `is_small` has it turn and trim its files often."""

    ready = "Server is ready, in the group"

    def __init__(
        self, network: Network, number: int, disk: ServerDisk, size: int, clock: Path | None,
        is_small: bool,
    ) -> None:  # fmt: skip
        super().__init__(network, number, disk, size)
        self._clock = clock
        self._is_small = is_small
        self._offset = disk.path.with_name(f"{disk.path.name}.clock")
        self._offset.write_bytes(bytes(8))

    @property
    def is_out(self) -> bool:
        """See `Served`."""
        return "takes no part in the group" in self.log[self.started_at :]

    def words(self) -> list[str]:
        """Its command line."""
        hosts = [self._network.address(host) for host in range(self.size)]
        start = ["tests.group_failures.small_server"] if self._is_small else ["slipstream", "serve"]
        return [
            sys.executable, "-m", *start, "-a", self.address, "-p", str(PORT), "-n", self.name,
            "-sd", str(self.disk.path), "--cluster_name", "C",
            "--cluster", f"nats://u:secret@{self.address}:{CLUSTER_PORT}",
            "--routes", ",".join(f"nats://{host}:{CLUSTER_PORT}" for host in hosts),
        ]  # fmt: skip

    def more_environment(self) -> dict[str, str]:
        """The clock that can be put off."""
        if self._clock is None:
            return {}
        libraries = [str(self._clock), self.disk.environment().get("LD_PRELOAD", "")]
        preload = ":".join(one for one in libraries if one)
        return {"LD_PRELOAD": preload, "CLOCK_OFFSET_FILE": str(self._offset)}

    def set_clock(self, seconds: float) -> bool:
        """Put the time of day off."""
        if self._clock is None:
            return False
        with self._offset.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))
        return True

    def files(self, what: str) -> list[Path]:
        """See `Served.files`."""
        root = self.disk.path
        patterns = {
            "messages": ["store/files/**/*.seg"],
            "log": ["group/log/*"],
            "snapshots": ["group/state.?", "store/applied.?", "store/files/**/meta.?",
                          "store/files/commit-log/*"],
        }[what]  # fmt: skip
        return sorted(path for one in patterns for path in root.glob(one) if path.is_file())


class NatsServer(Served):
    """nats-server, by default or with `sync_interval: always`."""

    ready = "Server is ready"

    def __init__(
        self, network: Network, number: int, disk: ServerDisk, size: int, always: bool
    ) -> None:
        super().__init__(network, number, disk, size)
        hosts = [network.address(host) for host in range(size)]
        routes = ", ".join(f'"nats://{host}:{CLUSTER_PORT}"' for host in hosts)
        sync = ", sync_interval: always" if always else ""
        self._config = disk.path.with_name(f"{disk.path.name}.conf")
        self._config.write_text(
            f"server_name: {self.name}\nlisten: '{self.address}:{PORT}'\n"
            f"jetstream {{ store_dir: '{disk.path}', max_mem: 64MB, max_file: 128MB{sync} }}\n"
            f"cluster {{ name: C, listen: '{self.address}:{CLUSTER_PORT}', routes: [{routes}] }}\n"
        )

    def words(self) -> list[str]:
        """Its command line."""
        return [find_nats_server(), "-c", str(self._config)]

    def files(self, what: str) -> list[Path]:
        """See `Served.files`."""
        root = self.disk.path / "jetstream"
        patterns = {
            "messages": ["[!$]*/streams/**/*.blk", "$G/streams/**/*.blk"],
            "log": ["$SYS/_js_/**/*.blk"],
            "snapshots": ["$SYS/_js_/**/snapshots/*", "$SYS/_js_/**/*.idx"],
        }[what]
        return sorted(path for one in patterns for path in root.glob(one) if path.is_file())


def make_servers(
    network: Network, size: int, directory: Path, kind: str, libraries: Path, *,
    recorded: bool, clocks: bool, is_small: bool,
) -> list[Served]:  # fmt: skip
    """Servers that are not started; `libraries` has what is preloaded. `kind` is `slipstream`,
    `nats-server` or `nats-server-always`."""
    servers: list[Served] = []
    for number in range(size):
        path = directory / f"n{number + 1}"
        disk: ServerDisk
        if kind == "slipstream":
            library = libraries / "recorder.so"
            disk = RecordedDisk(path, library) if recorded else PlainDisk(path)
            clock = libraries / "clock.so" if clocks else None
            servers.append(SlipstreamServer(network, number, disk, size, clock, is_small))
        else:
            disk = ImageDisk(path) if recorded else PlainDisk(path)
            always = kind == "nats-server-always"
            servers.append(NatsServer(network, number, disk, size, always))
    return servers


class PlainDisk:
    """A directory whose server is never without power."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def settle(self) -> None:
        """Nothing happens."""

    def freeze(self) -> None:
        """Nothing happens."""

    def cut(self, random: Random) -> str:
        """Nothing is lost."""
        raise RuntimeError(f"nothing records what is written to {self.path}")

    def changed(self) -> None:
        """Nobody asks."""

    def close(self) -> None:
        """Nothing is held."""


def empty(disk: ServerDisk) -> None:
    """The disk is replaced by an empty one."""
    for path in sorted(disk.path.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            os.rmdir(path)
        elif path.name != "lost+found":
            path.unlink()
    disk.changed()
