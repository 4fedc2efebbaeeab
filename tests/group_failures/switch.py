"""The switch of a `Network`, a process: packets from one TUN device to another one, late or never.

`python -m tests.group_failures.switch SEED DEVICE...` has the devices of hosts 0, 1 ... as open
descriptors. Each line of its input is JSON: all links that are not whole, as [source, target, loss,
delay, jitter]. At the end of its input it ends.
"""

import heapq
import json
import os
import select
import sys
import time
from random import Random

_MOST = 64  # packets of one device at a time
_PACKET_BYTES = 65_536
_VERSION_4 = 4
_LAST_OF_ADDRESS = 19  # the byte of an IPv4 header that names the host here


class Switch:
    """Carries packets; `late` are those that wait for their time."""

    def __init__(self, devices: list[int], seed: int) -> None:
        self._devices = devices
        self._random = Random(seed)
        self._links: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._number = 0

    def run(self) -> None:
        """Until the input ends."""
        poll = select.epoll()
        hosts = {device: host for host, device in enumerate(self._devices)}
        for fd in (*self._devices, 0):
            poll.register(fd, select.EPOLLIN)
        rest = b""
        while True:
            wait = max(self._late[0][0] - time.monotonic(), 0) if self._late else -1
            for fd, _ in poll.poll(wait):
                if fd:
                    self._carry(fd, hosts[fd])
                    continue
                data = os.read(0, _PACKET_BYTES)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._links = {
                        (source, target): (loss, delay, jitter)
                        for source, target, loss, delay, jitter in json.loads(line)
                    }
            self._send_late()

    def _carry(self, device: int, source: int) -> None:
        for _ in range(_MOST):
            try:
                packet = os.read(device, _PACKET_BYTES)
            except BlockingIOError:
                return
            if packet[0] >> 4 != _VERSION_4:
                continue
            target = packet[_LAST_OF_ADDRESS] - 1
            if not 0 <= target < len(self._devices):
                continue
            link = self._links.get((source, target))
            if link is None:
                self._send(target, packet)
                continue
            loss, delay, jitter = link
            if self._random.random() < loss:
                continue
            due = time.monotonic() + delay + jitter * self._random.random()
            self._number += 1
            heapq.heappush(self._late, (due, self._number, target, packet))

    def _send_late(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._late)
            self._send(target, packet)

    def _send(self, target: int, packet: bytes) -> None:
        try:
            os.write(self._devices[target], packet)
        except OSError:
            pass  # its queue is full: the packet is lost, as it is on a real network


if __name__ == "__main__":
    Switch([int(word) for word in sys.argv[2:]], int(sys.argv[1])).run()
