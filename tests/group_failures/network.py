"""A network of namespaces: each host has one, with an address and a device that a switch reads.

The namespaces have no names: each lasts as long as somebody holds it, which is this process and the
servers in it. So nothing is left over, however a run ends, and runs side by side do not meet. The
devices are TUN devices, and the switch (`switch`) is a process that carries their packets. What
a link does, loses or delays, it is told for each direction. That asks nothing of the kernel but
namespaces and TUN devices; many kernels have no `netem`.
"""

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

_NEW_NETWORK = 0x40000000
_NEW_MOUNTS = 0x00020000
_SET_DEVICE = 0x400454CA  # TUNSETIFF
_TUN_WITHOUT_HEADER = 0x1001
_MTU = 16_000
ROOT = Path(__file__).parent.parent.parent  # where `tests` can be imported

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Link:
    """What happens to packets in one direction."""

    loss: float = 0.0  # the share that is lost; 1 cuts the link
    delay: float = 0.0  # seconds ...
    jitter: float = 0.0  # ... and up to so many more, so that packets overtake each other


CUT = Link(loss=1.0)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def on_thread(action: Callable[[], Result]) -> Result:
    """What `action` gives on a thread of its own, which may leave the process's namespaces."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="apart")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def have_own_mounts() -> None:
    """What this thread and its children mount from now on is theirs alone, and goes with them."""
    _unshare(_NEW_MOUNTS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def why_not() -> str:
    """Why there can be no such network here; "" if there can."""
    try:
        on_thread(lambda: os.close(_enter_new("10.77.0.1")))
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces with TUN devices can be made here (root can): {error}"
    return ""


def _enter_new(address: str) -> int:
    """Have this thread in a new namespace; the descriptor of its device."""
    _unshare(_NEW_NETWORK)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _SET_DEVICE, struct.pack("16sH22x", b"lan", _TUN_WITHOUT_HEADER))
        for words in (
            ["link", "set", "lo", "up"],
            ["address", "add", f"{address}/24", "dev", "lan"],
            ["link", "set", "lan", "mtu", str(_MTU), "up"],
        ):
            subprocess.run(["ip", *words], check=True, capture_output=True)
    except BaseException:
        os.close(device)
        raise
    return device


class Network:
    """Hosts 0, 1 ... of servers, and the last one, of clients, whose namespace the thread is in
    that makes the network."""

    def __init__(self, servers: int, seed: int) -> None:
        self.servers = servers
        self.clients = servers
        self._namespaces: list[int] = []
        devices: list[int] = []
        try:
            for host in range(servers):
                device, namespace = on_thread(partial(self._made, host))
                devices.append(device)
                self._namespaces.append(namespace)
            devices.append(_enter_new(self.address(servers)))
            self._switch = subprocess.Popen(
                [sys.executable, "-m", "tests.group_failures.switch", str(seed),
                 *map(str, devices)],
                stdin=subprocess.PIPE, pass_fds=devices, cwd=ROOT,
            )  # fmt: skip
        except BaseException:
            for namespace in self._namespaces:
                os.close(namespace)
            raise
        finally:
            for device in devices:
                os.close(device)
        self._links: dict[tuple[int, int], Link] = {}

    def _made(self, host: int) -> tuple[int, int]:
        device = _enter_new(self.address(host))
        return device, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @staticmethod
    def address(host: int) -> str:
        """Of a host."""
        return f"10.77.0.{host + 1}"

    def start(
        self, host: int, words: list[str], log: Path, environment: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start a process on a host. It ends with the thread that has started it."""
        namespace = self._namespaces[host]
        apart = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/self/fd/{namespace}"]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*apart, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT,
                env=environment, pass_fds=[namespace],
            )  # fmt: skip

    # -- links -------------------------------------------------------------------------------------

    def set(self, source: int, target: int, link: Link) -> None:
        """What happens to packets from `source` to `target`."""
        self._links[source, target] = link
        self._tell()

    def cut(self, ones: list[int], others: list[int], both_ways: bool = True) -> None:
        """Nothing gets from `ones` to `others`, and, `both_ways`, back."""
        for one in ones:
            for other in others:
                self._links[one, other] = CUT
                if both_ways:
                    self._links[other, one] = CUT
        self._tell()

    def mend(self) -> None:
        """All links are whole."""
        self._links.clear()
        self._tell()

    def _tell(self) -> None:
        assert self._switch.stdin is not None
        links = [
            [source, target, link.loss, link.delay, link.jitter]
            for (source, target), link in self._links.items()
        ]
        self._switch.stdin.write(json.dumps(links).encode() + b"\n")
        self._switch.stdin.flush()

    def close(self) -> None:
        """The switch ends, and with the processes on the hosts the namespaces go."""
        assert self._switch.stdin is not None
        self._switch.stdin.close()
        self._switch.wait()
        for namespace in self._namespaces:
            os.close(namespace)
