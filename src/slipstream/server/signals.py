"""Signals: what each means to a running server, and `--signal`, which sends them.

| --signal | signal  | effect                                                                    |
|----------|---------|---------------------------------------------------------------------------|
| stop     | SIGKILL | ends at once                                                              |
| quit     | SIGINT  | ends cleanly                                                              |
| term     | SIGTERM | ends cleanly; ignored while the server is in lame duck mode               |
| reopen   | SIGUSR1 | opens the log file again, after it was moved away                         |
| reload   | SIGHUP  | reads the configuration again                                             |
| ldm      | SIGUSR2 | lame duck mode: clients are sent away bit by bit, then the server ends     |
"""

import os
import signal
from collections.abc import Iterator

from slipstream.errors import ConfigError, Error

COMMANDS: dict[str, signal.Signals] = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
# How the log names them, in the words of nats-server.
NAMES: dict[signal.Signals, str] = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}
_PROGRAMS = ("slipstream-server", "slipstream")


def send_signal(command: str) -> None:
    """``CMD`` or ``CMD=PID``, where PID is a number, the path of a pid file, or a prefix of pids
    followed by ``*``. Without it there must be one running server. Raises `ConfigError` if the
    command or the pid makes no sense and `Error` if a signal cannot be sent."""
    name, has_pid, expression = command.partition("=")
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise ConfigError(f'unknown signal "{name}": choose from {known}')
    failed = []
    for pid in _processes(expression if has_pid else ""):
        try:
            os.kill(pid, COMMANDS[name])
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            failed.append(f'signal "{name}" {pid}: {reason}')
    if failed:
        raise Error("\n" + "\n".join(failed))


def _processes(expression: str) -> list[int]:
    if expression and not expression.endswith("*"):
        return [_pid(expression)]
    prefix = expression.removesuffix("*")
    if prefix and not prefix.isdigit():
        raise ConfigError(f"invalid pid: {expression}")
    found = [pid for pid in _running_servers() if str(pid).startswith(prefix)]
    if not found:
        raise Error("no slipstream-server processes running")
    if len(found) > 1 and not expression:
        listed = "\n".join(str(pid) for pid in found)
        raise Error(f"multiple slipstream-server processes running:\n{listed}")
    return found


def _pid(expression: str) -> int:
    """A number, or the number in a file."""
    text = expression
    if not expression.isdigit():
        try:
            with open(expression) as file:
                text = file.read().strip()
        except OSError:
            text = ""
    if not text.isdigit():
        raise ConfigError(f"invalid pid: {expression}")
    return int(text)


def _running_servers() -> Iterator[int]:
    """Other processes that are servers, from what the system lists under /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        pid = int(name)
        if pid != os.getpid() and _is_server(words):
            yield pid


def _is_server(words: list[str]) -> bool:
    """``[python] slipstream-server ...`` or ``[python] slipstream serve ...``."""
    for position, word in enumerate(words[:3]):
        program = os.path.basename(word)
        if program == _PROGRAMS[0]:
            return True
        if program == _PROGRAMS[1] and words[position + 1 : position + 2] == ["serve"]:
            return True
    return False
