"""Where log lines go: stderr, a file, a system log or the `logging` module; and how they look.

    [4711] 2026/11/21 03:00:03.539602 [INF] Server is ready

is the form on stderr and in files, as scripts around nats-server expect it. A server inside another
program speaks through the `logging` module, in whatever form that program has set up.
"""

import logging
import os
import sys
import time
from typing import Protocol, TextIO

from slipstream.server.options import LoggingOptions

TRACE, DEBUG, INFO, WARNING, ERROR, FATAL = "TRC", "DBG", "INF", "WRN", "ERR", "FTL"
_COLORS = {TRACE: 33, DEBUG: 36, INFO: 32, WARNING: 93, ERROR: 31, FATAL: 31}
_STANDARD_LEVELS = {TRACE: 5, DEBUG: 10, INFO: 20, WARNING: 30, ERROR: 40, FATAL: 50}
_SYSLOG_PORT = 514


class Sink(Protocol):
    """Takes finished texts."""

    def put(self, level: str, text: str) -> None:
        """One line. Never raises: a server does not end because nobody listens."""

    def set_options(self, options: LoggingOptions) -> None:
        """The form has changed."""

    def reopen(self) -> bool:
        """Open the file again; False where there is none. Raises `OSError`."""

    def close(self) -> None:
        """Close the sink: no more lines come."""


class LineForm:
    """How a line looks: process id, time, level, text."""

    def __init__(self, options: LoggingOptions, colored: bool = False) -> None:
        self._pid = f"[{os.getpid()}] "
        self._colored = colored
        self.options = options

    def line(self, level: str, text: str) -> str:
        """One whole line with its end."""
        label = f"\x1b[{_COLORS[level]}m{level}\x1b[0m" if self._colored else level
        return f"{self._pid}{self._time()}[{label}] {text}\n"

    def _time(self) -> str:
        if not self.options.logtime:
            return ""
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        parts = time.gmtime(seconds) if self.options.logtime_utc else time.localtime(seconds)
        return f"{time.strftime('%Y/%m/%d %H:%M:%S', parts)}.{nanos // 1000:06d} "


class StreamSink:
    """Lines to stderr, coloured on a terminal."""

    def __init__(self, options: LoggingOptions, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._form = LineForm(options, colored=self._stream.isatty())

    def put(self, level: str, text: str) -> None:
        """Write at once."""
        try:
            self._stream.write(self._form.line(level, text))
            self._stream.flush()
        except (OSError, ValueError):
            return

    def set_options(self, options: LoggingOptions) -> None:
        """Whether there is a time, and which."""
        self._form.options = options

    def reopen(self) -> bool:
        """There is no file."""
        return False

    def close(self) -> None:
        """stderr stays open."""


class FileSink:
    """Lines to a file. Past `log_size_limit` bytes it is renamed and a new one begins.

    RotatingFileHandler takes 18 µs for a line, where this takes 3, and numbers the files that
    nats-server names by their time.
    """

    def __init__(self, options: LoggingOptions) -> None:
        self._options = options
        self._form = LineForm(options)
        self._path = options.log_file
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o640)

    def put(self, level: str, text: str) -> None:
        """Write at once; a full disk loses lines, nothing else."""
        self._write(level, text)
        if 0 < self._options.log_size_limit < self._size:
            self._rotate()

    def _write(self, level: str, text: str) -> None:
        data = self._form.line(level, text).encode("utf-8", "backslashreplace")
        try:
            self._size += os.write(self._file, data)
        except OSError:
            return

    def _rotate(self) -> None:
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(seconds))
        backup = f"{self._path}.{stamp}.{nanos:09d}"
        try:
            os.rename(self._path, backup)
            self.reopen()
        except OSError as error:
            self._size = 0  # tried again only after as much more
            self._write(ERROR, f"Unable to rotate the log file: {error}")
            return
        self._write(INFO, f'Rotated log, backup saved as "{backup}"')
        self._purge()

    def _purge(self) -> None:
        """Keep `log_max_num` files, the current one among them."""
        if self._options.log_max_num <= 0:
            return
        import glob

        backups = sorted(glob.glob(f"{glob.escape(self._path)}.[0-9]*"))
        for path in backups[: max(len(backups) - self._options.log_max_num + 1, 0)]:
            try:
                os.unlink(path)
            except OSError as error:
                self._write(ERROR, f"Unable to remove the old log file {path}: {error}")

    def set_options(self, options: LoggingOptions) -> None:
        """The form of lines and the limits; the file stays."""
        self._options = options
        self._form.options = options

    def reopen(self) -> bool:
        """Begin a file of the same name, or go on with it. Raises `OSError`; the old one stays."""
        fresh = self._open()
        os.close(self._file)
        self._file = fresh
        self._size = os.fstat(fresh).st_size
        return True

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class StandardSink:
    """Lines to a logger of the `logging` module."""

    def __init__(self, name: str = "slipstream.server") -> None:
        self._logger = logging.getLogger(name)

    def put(self, level: str, text: str) -> None:
        """Log."""
        self._logger.log(_STANDARD_LEVELS[level], "%s", text)

    def set_options(self, options: LoggingOptions) -> None:
        """The `logging` module decides about form."""

    def reopen(self) -> bool:
        """Files are the `logging` module's."""
        return False

    def close(self) -> None:
        """The logger is not ours."""


class SyslogSink:
    """Lines to the system's log ("" as `address`), or to a syslog server."""

    def __init__(self, address: str) -> None:
        from logging.handlers import SysLogHandler
        from socket import SOCK_DGRAM, SOCK_STREAM

        if not address:
            self._handler = SysLogHandler("/dev/log")
        else:
            from urllib.parse import urlsplit

            url = urlsplit(address)
            if url.scheme not in ("udp", "tcp", "unix"):
                raise ValueError(f'remote_syslog "{address}" must be udp://host:port, tcp or unix')
            host = (url.hostname or "localhost", url.port or _SYSLOG_PORT)
            where = url.path if url.scheme == "unix" else host
            kind = SOCK_STREAM if url.scheme == "tcp" else SOCK_DGRAM
            self._handler = SysLogHandler(where, socktype=kind)
        self._handler.ident = f"nats-server[{os.getpid()}]: "
        self._handler.handleError = _ignore  # type: ignore[method-assign]

    def put(self, level: str, text: str) -> None:
        """Send; what cannot be sent is lost."""
        standard = _STANDARD_LEVELS[level]
        self._handler.emit(logging.LogRecord("", standard, "", 0, text, None, None))

    def set_options(self, options: LoggingOptions) -> None:
        """The system's log adds the time itself."""

    def reopen(self) -> bool:
        """There is no file."""
        return False

    def close(self) -> None:
        """Close the socket."""
        self._handler.close()


def _ignore(record: logging.LogRecord) -> None:
    """A log line that nobody takes is not worth a traceback."""
