"""`slipstream.Group`: a group of servers inside a Python process, for tests and notebooks.

with Group(3) as group:
    print(group.urls, group.leader)
    group.hand_over()

Each server has a thread with a loop of its own. They listen on 127.0.0.1, and share a secret that
is made at random for this one use.
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from types import TracebackType

from slipstream.errors import ConfigError, Error
from slipstream.server.cluster_options import (
    ClusterAuthorizationOptions,
    ClusterOptions,
    RouteOptions,
)
from slipstream.server.log_sinks import StandardSink
from slipstream.server.logger import Logger
from slipstream.server.options import JetStreamOptions, ServerOptions
from slipstream.server.replica.free_ports import free_ports
from slipstream.server.replica.group_server import GroupServer
from slipstream.server.replica.local_register import LOCAL_SIZES, local_register
from slipstream.server.server_thread import START_SECONDS_MAX, ServerThread

HOST = "127.0.0.1"
LOOK_SECONDS = 0.005  # between two looks at who leads


class Group:
    """A group of `size` servers: 1, 2, 3 or 5, whose names are `n1`, `n2` and so on.

    `directory` keeps the streams, each server's in a directory of its name; the next group of that
    size on it has them, also with other ports. Two servers have their register there, too, in a
    file below `register`. Without a directory all is in a temporary one that `stop` removes. What
    the servers have to say goes to the `logging` module's ``slipstream.server.n1`` and so on, or
    to `log`.

    The servers are threads of one process: they end together and in good order, and none of them
    can be killed. `slipstream group up` starts processes.

    Raises `ConfigError` for a size that no group has and `Error` if it cannot start.
    """

    def __init__(
        self,
        size: int = 3,
        directory: "str | os.PathLike[str] | None" = None,
        *,
        name: str = "group",
        log: Logger | None = None,
    ) -> None:
        if size not in LOCAL_SIZES:
            raise ConfigError(
                f"Group was asked for {size} servers, and a group has 1, 2, 3 or 5: four survive "
                "no more failures than three, and more than five make answers slower"
            )
        self.names = [f"n{number + 1}" for number in range(size)]
        self.urls: list[str] = []  # where clients connect, in the order of `names`; any will do
        self._name = name
        self._directory = os.fspath(directory) if directory is not None else ""
        self._temporary = ""
        self._log = log
        self._members: list[_Member] = []

    @property
    def leader(self) -> str:
        """The name of the server that answers clients; "" while none does."""
        found = self._found_leader()
        return found.name if found is not None else ""

    def start(self) -> "Group":
        """Start the servers; returns once one of them leads and all bring clients to it."""
        if self._members:
            raise Error("the group runs already: stop it first")
        directory = self._directory
        if not directory:
            directory = self._temporary = tempfile.mkdtemp(prefix="slipstream-group-")
        try:
            self._members = self._make_members(directory)
            self.urls = [f"nats://{HOST}:{one.options.port}" for one in self._members]
            for member in self._members:
                member.thread.start()
            for member in self._members:
                member.thread.wait_until_started()
            self._wait(self._answers, "the group has no leader")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers; returns once their threads have ended."""
        leader = self._found_leader()
        members, self._members = self._members, []
        self.urls = []
        if leader is not None:  # first, while a majority takes what it saves
            leader.thread.ask_to_stop()
            leader.thread.join()
        for member in members:
            member.thread.ask_to_stop()
        for member in members:
            member.thread.join()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = ""

    def hand_over(self, name: str = "") -> None:
        """Have the server of that name lead, or any other; returns once it answers clients. Those
        who are connected lose their connection, and come back by themselves. Of two, one that is
        away is waited for. Raises `Error`."""
        before = self._found_leader()
        if before is None:
            raise Error("the group has no leader that could hand over: start it, or wait for one")
        if len(self.names) == 1:
            raise Error("a group of one server has nobody to hand over to: make it with 2, 3 or 5")
        self._wait(lambda: bool(before.server.successors), "no other server has everything")
        before.thread.call(lambda: before.server.hand_over(name))

        def is_done() -> bool:
            return self.leader != before.name and self._answers()

        self._wait(is_done, f"{before.name} was asked to hand over, and no other server leads")
        if name and self.leader != name:
            raise Error(
                f"{name} was to lead, and {self.leader} was the first to: hand over once more"
            )

    def __enter__(self) -> "Group":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _make_members(self, directory: str) -> "list[_Member]":
        size = len(self.names)
        ports = free_ports(2 * size, HOST)
        routes = [RouteOptions(host=HOST, port=port) for port in ports[size:]]
        password = secrets.token_urlsafe(32)
        register = local_register(directory, size)
        members = []
        for name, port, route in zip(self.names, ports, routes, strict=False):
            options = ServerOptions(
                host=HOST,
                port=port,
                server_name=name,
                jetstream=JetStreamOptions(enabled=True, store_dir=os.path.join(directory, name)),
                cluster=ClusterOptions(
                    name=self._name,
                    host=HOST,
                    port=route.port,
                    routes=routes,
                    authorization=ClusterAuthorizationOptions(user="group", password=password),
                    register=register,
                ),
            )
            options.validate()
            log = self._log or Logger(StandardSink(f"slipstream.server.{name}"), options.logging)
            members.append(_Member(options, log))
        return members

    def _found_leader(self) -> "_Member | None":
        return next((member for member in self._members if member.server.leads), None)

    def _answers(self) -> bool:
        """Whether a client is answered to whichever server it comes."""
        leader = self._found_leader()
        if leader is None:
            return False
        address = f"{HOST}:{leader.options.port}"
        return all(member.server.leader_address == address for member in self._members)

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while not is_so():
            for member in self._members:
                if member.server.failed:
                    raise Error(f"{member.name} takes no part in the group: {member.server.failed}")
            if time.monotonic() > end:
                raise Error(f"{otherwise} after {START_SECONDS_MAX} s: its log says why")
            time.sleep(LOOK_SECONDS)


class _Member:
    """One server, in a thread."""

    def __init__(self, options: ServerOptions, log: Logger) -> None:
        self.options = options
        self.name = options.server_name
        self.server = GroupServer(options, log)
        self.thread = ServerThread(self.server, f"slipstream-{self.name}")
