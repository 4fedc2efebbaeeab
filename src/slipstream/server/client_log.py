"""What the log says of one client: that it came and went, what was wrong, and each frame if asked.

Lines begin with who it is (docs/server.md#logs-and-files), as far as that is known:

    127.0.0.1:38844 - cid:6 - "v1.2:py:name" - "ACCOUNT/user:name" - Client connection closed: ...
"""

from typing import TYPE_CHECKING, Any

from slipstream.server.trace import EXCERPT_BYTES_MAX, FrameTracer, excerpt

if TYPE_CHECKING:
    from slipstream.engine.session.session import ClientSession
    from slipstream.server.connection import Connection
    from slipstream.server.logger import Logger

# Closing reasons that an operator should hear of, and what is said.
_ERRORS = {
    "Protocol Violation": "Client parser ERROR: not a NATS operation, or arguments that make none"
    ": proto='{last}'",
    "Maximum Control Line Exceeded": "maximum control line exceeded",
    "Maximum Message Payload Exceeded": "maximum payload exceeded: more than {max_payload} bytes",
    "Authentication Failure": "authentication error{user}",
    "Maximum Connections Exceeded": "maximum connections exceeded",
    "Maximum Account Connections Exceeded": "maximum account active connections exceeded",
}
_DEBUG = {
    "Stale Connection": "Stale Client Connection - Closing",
    "Authentication Timeout": "Authentication Timeout",
}
_SLOW = {
    "Slow Consumer (Pending Bytes)": "MaxPending of {max_pending} Exceeded",
    "Slow Consumer (Write Deadline)": "WriteDeadline of {write_deadline:g}s exceeded",
}


class ClientLog:
    """One connection's lines."""

    __slots__ = ("_connection", "_is_closed", "_last", "_log", "_tracer", "tracing")
    number = "cid"  # what a connection's number is called

    def __init__(self, log: "Logger", connection: "Connection") -> None:
        self._log = log
        self._connection = connection
        self._tracer: FrameTracer | None = None
        self._is_closed = False
        self._last = b""
        self.tracing = False
        self.follow()

    def follow(self) -> None:
        """Trace or not, as the log's options now say."""
        self.tracing = self._log.tracing
        if self.tracing:
            self._tracer = FrameTracer(self._log, self.label)

    def label(self, known: bool = True) -> str:
        """Who it is; without `known` as before it said so."""
        facts = self._connection.facts
        ip = facts.get("ip", "")
        host = f"[{ip}]" if ":" in ip else ip
        session = self._connection.session
        parts = [f"{host}:{facts.get('port', 0)}"]
        if session is not None:
            parts.append(f"{self.number}:{session.cid}")
        if session is not None and known:
            said = session.connect
            version = f"v{said.version}" if said.version else ""
            client = ":".join(part for part in (version, said.lang, said.name) if part)
            if client:
                parts.append(f'"{client}"')
            if session.user is not None and session.user.name:
                parts.append(f'"{session.account.name}/user:{session.user.name}"')
        return " - ".join(parts)

    def created(self) -> None:
        """The client has connected."""
        if self._log.debugging:
            self._log.debug(f"{self.label()} - Client connection created")

    def speaks_for(self, before: str) -> None:
        """The client is at another address than the connection of `before`."""
        if self._log.debugging:
            self._log.debug(f"{self.label()} - Client is here by the connection of {before}")

    def error(self, text: str) -> None:
        """Something about it is wrong."""
        self._log.error(f"{self.label()} - {text}")

    def ended_by(self, data: bytes) -> None:
        """`data` made the server close the connection, or may once it has acted on it."""
        self._last = data[:EXCERPT_BYTES_MAX]

    def closed(self) -> None:
        """Its connection has ended; said once."""
        session = self._connection.session
        if session is None or self._is_closed:
            return
        self._is_closed = True
        reason = session.close_reason
        if reason in _ERRORS:
            self.error(_ERRORS[reason].format(**self._details(session)))
        elif reason in _SLOW:
            text = _SLOW[reason].format(**self._details(session))
            self._log.info(f"{self.label()} - Slow Consumer Detected: {text}")
        if self._log.debugging:
            if reason in _DEBUG:
                self._log.debug(f"{self.label()} - {_DEBUG[reason]}")
            self._log.debug(f"{self.label()} - Client connection closed: {reason}")

    def _details(self, session: "ClientSession") -> dict[str, Any]:
        user = session.connect.user
        return {
            "max_payload": session.engine.max_payload(session),
            "max_pending": session.engine.options.max_pending,
            "write_deadline": self._connection.runtime.write_deadline_seconds,
            "last": excerpt(self._last),
            "user": f' - User "{user}"' if user else "",
        }

    # -- frames --------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """`data` came in, which is shown before what it leads to."""
        if self._tracer is not None and self._is_shown():
            self._tracer.received(data)

    def show_received(self) -> None:
        """Show what came in, if that has not happened yet."""
        if self._tracer is not None:
            self._tracer.show_received()

    def sent(self, data: bytes) -> None:
        """`data` goes out."""
        if self._tracer is not None and self._is_shown():
            self._tracer.sent(data)

    def _is_shown(self) -> bool:
        """The system account is only traced when that is asked for."""
        session = self._connection.session
        if session is None or self._log.options.trace_verbose:
            return True
        return session.account is not session.engine.system_account
