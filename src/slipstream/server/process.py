"""A server that is a whole process: its log, its files, its signals, its exit status."""

import asyncio
import ctypes
import os
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError, Error
from slipstream.server.event_loop import new_loop
from slipstream.server.lame_duck import LameDuck
from slipstream.server.logger import Logger, open_logger
from slipstream.server.options import ServerOptions
from slipstream.server.process_files import PortsFile, write_pid_file
from slipstream.server.server import Server
from slipstream.server.service_manager import READY, STOPPING, ServiceManager
from slipstream.server.signals import COMMANDS, NAMES

if TYPE_CHECKING:
    from slipstream.server.replica.group_server import GroupServer

# Memory of this size is the system's own again as soon as it is free.
MAPPED_BYTES_MIN = 8 * 1024 * 1024
# Of what is smaller, this much is kept at the end of the heap.
FREED_BYTES_MAX = 16 * 1024 * 1024
_M_TRIM_THRESHOLD = -1  # malloc.h
_M_MMAP_THRESHOLD = -3

Loader = Callable[[], tuple[ServerOptions, list[str]]]


def run_process(program: str, options: ServerOptions, loader: Loader) -> int:
    """Run a server until a signal ends it; the exit status. `loader` reads the options again."""
    try:
        log = open_logger(options.logging)
    except Error as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    raise_file_limit()
    keep_freed_memory()
    loop = new_loop()
    loop.set_exception_handler(lambda _, context: log_fault(log, context))
    try:
        return loop.run_until_complete(ServerProcess(program, options, loader, log).run())
    finally:
        loop.close()
        log.sink.close()


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: each client needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Have the C library keep the memory of large messages for the next ones.

    Else it gives that back to the system with each message, which brings it anew, page by page.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's; others have their own ways
    if tune is not None:
        tune(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        tune(_M_TRIM_THRESHOLD, FREED_BYTES_MAX)


def log_fault(log: Logger, context: dict[str, Any]) -> None:
    """What the event loop could not hand to anybody."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.fault(str(context.get("message", "on the event loop")), error)
    else:
        log.error(f"Internal error: {context.get('message')}")


def _make_server(options: ServerOptions, log: Logger) -> "Server | GroupServer":
    if not options.cluster.is_configured:
        return Server(config=options, log=log)
    from slipstream.server.replica.group_server import GroupServer  # few have it

    return GroupServer(options, log)


class ServerProcess:
    """One run, from the first log line to the last."""

    def __init__(self, program: str, options: ServerOptions, loader: Loader, log: Logger) -> None:
        self._program = program
        self._loader = loader
        self._log = log
        self._server = _make_server(options, log)
        self._end = asyncio.Event()
        self._lame_duck: LameDuck | None = None
        self._ports_file: PortsFile | None = None
        self._service = ServiceManager(os.environ)

    async def run(self) -> int:
        """Start, wait for a signal, stop."""
        loop = asyncio.get_running_loop()
        for command in ("quit", "term", "reopen", "reload", "ldm"):
            loop.add_signal_handler(COMMANDS[command], self._trapped, command)
        try:
            if self._server.options.pid_file:
                write_pid_file(self._server.options.pid_file)
            await self._server.start_here()
        except Error as error:
            self._log.fatal(str(error))
            return 1
        self._server.reload_when_asked(self._reload_and_tell)
        self._write_ports_file()
        self._server.have_process_alone()
        self._service.begin(loop)
        await self._end.wait()
        self._service.tell(STOPPING)
        if self._lame_duck is not None:
            await self._lame_duck.cancel()
        await self._server.stop_here()
        self._remove_ports_file()
        self._log.info("Server Exiting..")
        return 0

    # -- signals -------------------------------------------------------------------------------

    def _trapped(self, command: str) -> None:
        self._log.info(f'Trapped "{NAMES[COMMANDS[command]]}" signal')
        if command == "reopen":
            self._log.reopen()
        elif command == "reload":
            self._reload()
        elif command == "ldm":
            self._start_lame_duck()
        elif command == "quit" or self._lame_duck is None:
            self._end.set()

    def _reload(self) -> str:
        """Read the configuration again; what is wrong with it, "" for nothing."""
        self._service.tell_reloading()
        try:
            if not self._server.options.config_file:
                raise ConfigError(
                    "can only reload config when a file is provided using -c or --config"
                )
            options, warnings = self._loader()
            for warning in warnings:
                self._log.warn(warning)
            self._server.reload_here(options)
        except Error as error:
            self._log.error(f"Failed to reload server configuration: {error}")
            return str(error)
        finally:
            self._service.tell(READY)
        return ""

    def _reload_and_tell(self, done: Callable[[str], None]) -> None:
        """For the system account, whose request is still being handled."""

        def act() -> None:
            outcome = self._reload()
            if self._server.runtime is not None:
                self._server.runtime.turn(lambda: done(outcome))

        asyncio.get_running_loop().call_soon(act)

    def _start_lame_duck(self) -> None:
        if not isinstance(self._server, Server):
            self._end.set()  # a leader hands over before it ends, and relayed clients look anew
        elif self._lame_duck is None and self._server.runtime is not None:
            self._log.info("Entering lame duck mode, stop accepting new clients")
            self._lame_duck = LameDuck(self._server.runtime, self._server.options.limits)
            self._lame_duck.start(self._end.set)

    # -- files ---------------------------------------------------------------------------------

    def _write_ports_file(self) -> None:
        directory = self._server.options.ports_file_dir
        if not directory:
            return
        self._ports_file = PortsFile(directory, self._program)
        try:
            self._ports_file.write(self._server.ports())
        except OSError as error:
            self._log.error(f"Error writing ports file ({self._ports_file.path}): {error}")

    def _remove_ports_file(self) -> None:
        if self._ports_file is None:
            return
        try:
            self._ports_file.remove()
        except OSError as error:
            self._log.error(f"Error cleaning up ports file {self._ports_file.path}: {error}")
