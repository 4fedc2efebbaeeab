"""What the server says, by level: TRC, DBG, INF, WRN, ERR and FTL (docs/server.md#logs-and-files).

A `Logger` decides whether a line is wanted; a sink (`slipstream.server.log_sinks`) brings it
somewhere. `debugging` and `tracing` tell whether such lines are worth making at all.
"""

import traceback

from slipstream.errors import ConfigError
from slipstream.server.log_sinks import (
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    TRACE,
    WARNING,
    FileSink,
    Sink,
    StandardSink,
    StreamSink,
    SyslogSink,
)
from slipstream.server.options import LoggingOptions


class Logger:
    """Says what is wanted."""

    def __init__(self, sink: Sink, options: LoggingOptions) -> None:
        self.sink = sink
        self.set_options(options)

    def set_options(self, options: LoggingOptions) -> None:
        """From now on as `options` say; where the lines go stays."""
        self.options = options
        self.debugging = options.debug
        self.tracing = options.trace or options.trace_verbose or options.trace_headers
        self.sink.set_options(options)

    def trace(self, text: str) -> None:
        """A protocol line."""
        if self.tracing:
            self.sink.put(TRACE, text)

    def debug(self, text: str) -> None:
        """For who looks into the server."""
        if self.debugging:
            self.sink.put(DEBUG, text)

    def info(self, text: str) -> None:
        """What an operator wants to know."""
        self.sink.put(INFO, text)

    def warn(self, text: str) -> None:
        """What an operator should put right."""
        self.sink.put(WARNING, text)

    def error(self, text: str) -> None:
        """Something went wrong; the server goes on."""
        self.sink.put(ERROR, text)

    def fatal(self, text: str) -> None:
        """Why the server ends."""
        self.sink.put(FATAL, text)

    def fault(self, doing: str, error: BaseException) -> None:
        """The server itself has failed at something: say where in the program."""
        self.error(f"Internal error: {doing}: {error!r}; please report this")
        for line in "".join(traceback.format_exception(error)).splitlines():
            self.error(f"    {line}")

    def reopen(self) -> None:
        """Write to a new file of the same name, after somebody has moved the old one."""
        try:
            reopened = self.sink.reopen()
        except OSError as error:
            self.error(f"Unable to re-open the log file: {error}")
            return
        self.info(
            "File log re-opened" if reopened else "File log re-open ignored, not a file logger"
        )


def open_sink(options: LoggingOptions) -> Sink:
    """Where `options` want the lines. Raises `ConfigError` if that cannot be opened."""
    try:
        if options.log_file:
            return FileSink(options)
        if options.syslog or options.remote_syslog:
            return SyslogSink(options.remote_syslog)
    except (OSError, ValueError) as error:
        raise ConfigError(f"error opening the log: {error}") from error
    return StreamSink(options)


def open_logger(options: LoggingOptions) -> Logger:
    """The logger of a server process. Raises `ConfigError` if its file cannot be opened."""
    return Logger(open_sink(options), options)


def standard_logger(options: LoggingOptions) -> Logger:
    """The logger of a server inside another program: the `logging` module's `slipstream.server`."""
    return Logger(StandardSink(), options)
