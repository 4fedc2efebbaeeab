"""Taking over a changed configuration while the server runs (docs/configuration.md#reload).

All or nothing: what can go wrong (a bad file, an option that needs a restart, a certificate that
cannot be read) goes wrong before anything is changed. Clients are then held to the new rules: who
is no longer let in is cut off, and subscriptions that are no longer allowed end.
"""

import random
from typing import TYPE_CHECKING

from slipstream.engine.engine import Engine, User
from slipstream.engine.session.permissions import quoted
from slipstream.engine.session.session import ClientSession
from slipstream.errors import ConfigError, StorageError
from slipstream.model.durations import SECOND
from slipstream.server.auth import make_authenticator, make_leaf_authenticator
from slipstream.server.banner import warn_about
from slipstream.server.config import Change, plan_reload
from slipstream.server.engine_options import engine_options, prepare_accounts
from slipstream.server.log_sinks import Sink
from slipstream.server.logger import Logger, open_sink
from slipstream.server.monitoring.start import limits_of_jetstream
from slipstream.server.options import ServerOptions
from slipstream.server.process_files import write_pid_file
from slipstream.server.runtime import Runtime
from slipstream.server.tls import Tls

if TYPE_CHECKING:
    from slipstream.server.server import Server

_WHERE_LOGS_GO = {"logging.log_file", "logging.syslog", "logging.remote_syslog"}
_WHO_IS_LET_IN = ("authorization", "accounts", "no_auth_user", "system_account", "tls")


def reload_server(server: "Server", options: ServerOptions) -> None:
    """Go on with `options`. Raises `ConfigError`, and nothing has changed then."""
    runtime = server.runtime
    if runtime is None:
        return
    plan = plan_reload(server.options, options)
    changed = {change.option for change in plan}
    tls = Tls(options.tls) if options.tls is not None else None
    sink = open_sink(options.logging) if changed & _WHERE_LOGS_GO else None
    if "pid_file" in changed and options.pid_file:
        write_pid_file(options.pid_file)
    if "jetstream.enabled" in changed and options.jetstream.enabled:
        _open_store(runtime, options)
    server.options = options
    if server.monitoring is not None:
        server.monitoring.monitor.follow(options, *limits_of_jetstream(options))
    _follow_log(runtime.log, options, sink)
    for connection in runtime.connections:
        connection.log.follow()
    runtime.tls = tls
    runtime.write_deadline_seconds = options.limits.write_deadline / SECOND
    runtime.turn(lambda: _Reload(runtime, options, server.port).apply(changed))
    _say(runtime.log, options, plan)


def _open_store(runtime: Runtime, options: ServerOptions) -> None:
    try:
        runtime.open_store(options.jetstream.store_dir, options.jetstream.log_dir)
    except (OSError, StorageError) as error:
        raise ConfigError(f"JetStream cannot be turned on: {error}") from error


def _follow_log(log: Logger, options: ServerOptions, sink: Sink | None) -> None:
    if sink is not None:
        log.sink.close()
        log.sink = sink
    log.set_options(options.logging)


def reload_follower(log: Logger, before: ServerOptions, options: ServerOptions) -> None:
    """Go on with `options` on a server of a group that follows: the log's at once, and what is
    about clients and streams once it leads. Raises `ConfigError`, and nothing has changed then."""
    plan = plan_reload(before, options)
    changed = {change.option for change in plan}
    if options.tls is not None:
        Tls(options.tls)  # what cannot be read is reported now, and not by a server that is to lead
    sink = open_sink(options.logging) if changed & _WHERE_LOGS_GO else None
    if "pid_file" in changed and options.pid_file:
        write_pid_file(options.pid_file)
    _follow_log(log, options, sink)
    here = [change for change in plan if change.option.startswith(("logging.", "pid_file"))]
    _say(log, options, here)
    if later := sorted(changed - {change.option for change in here}):
        log.info(f"Takes effect when this server leads: {', '.join(later)}")


def _say(log: Logger, options: ServerOptions, plan: list[Change]) -> None:
    warn_about(log, options)
    for line in dict.fromkeys(change.applied for change in plan):
        log.info(line)
    digest = f" ({options.config_digest})" if options.config_digest else ""
    log.info(f"Reloaded server configuration{digest}")


class _Reload:
    """One reload, from when nothing can go wrong any more."""

    def __init__(self, runtime: Runtime, options: ServerOptions, port: int) -> None:
        self._runtime = runtime
        self._engine: Engine = runtime.engine
        self._log = runtime.log
        self._options = options
        self._port = port

    def apply(self, changed: set[str]) -> None:
        """Bring the engine and its clients to the new options."""
        engine = self._engine
        fresh = engine_options(self._options)
        fresh.port = self._port
        for name in fresh.__struct_fields__:
            setattr(engine.options, name, getattr(fresh, name))
        if "jetstream.enabled" in changed and not self._options.jetstream.enabled:
            self._stop_jetstream()
        self._apply_accounts()
        if "jetstream.enabled" in changed and self._options.jetstream.enabled:
            engine.start_jetstream(self._runtime.store)
        elif "jetstream.scrub" in changed and engine.state is not None:
            engine.set_scrub_rate(engine.options.scrub_rate)
        engine.authenticator = make_authenticator(self._options, self._runtime.turn)
        for session in list(engine.sessions.values()):
            session.limit_line(engine.options.max_control_line)
            session.limit_payload(engine.max_payload(session))
        if any(option.startswith(_WHO_IS_LET_IN) for option in changed):
            for session in list(engine.sessions.values()):
                if session.ready:
                    self._authenticate_again(session)
        if any(option.startswith((*_WHO_IS_LET_IN, "mappings")) for option in changed):
            leaves = engine.leaves
            leaves.authenticator = make_leaf_authenticator(self._options, self._runtime.turn)
            leaves.drop()
        if "limits.max_connections" in changed:
            self._close_excess()

    def _stop_jetstream(self) -> None:
        self._runtime.disk_thread.wait()
        self._engine.stop_jetstream()

    def _apply_accounts(self) -> None:
        """Accounts that are new, changed or gone, and JetStream in each."""
        engine = self._engine
        prepare_accounts(engine, self._options)
        kept = {engine.default_account.name, engine.system_account.name, *self._options.accounts}
        for name in [name for name in engine.accounts if name not in kept]:
            account = engine.accounts.pop(name)
            for session in list(account.sessions.values()):
                session.fail(b"Authorization Violation", "Authentication Failure")
            engine.leaves.drop(account)
            self._runtime.disk_thread.wait()
            engine.stop_account(account)
        if not engine.options.jetstream or self._runtime.store is None:
            return
        for account in engine.accounts.values():
            if account is not engine.system_account and (
                (account.limits.jetstream is not None) != (account.jetstream is not None)
            ):
                self._runtime.disk_thread.wait()
                engine.stop_account(account)
                engine.start_account(account, self._runtime.store)

    # -- clients -------------------------------------------------------------------------------

    def _authenticate_again(self, session: ClientSession) -> None:
        def done(user: User | None) -> None:
            if session.closed:
                return
            if user is None:
                session.fail(b"Authorization Violation", "Authentication Failure")
            elif self._engine.accounts.get(user.account) is not session.account:
                session.close("Client Closed")  # it belongs elsewhere now: let it connect again
            elif (excess := self._excess_of(session)) is not None:
                session.fail(*excess)
            else:
                self._hold_to(session, user)

        self._engine.authenticator.authenticate(session, done)

    def _excess_of(self, session: ClientSession) -> tuple[bytes, str] | None:
        """Why a session has no room in its account any more: the error and the reason; else None.

        Sessions are looked at from the oldest on, so the newest are those that stay.
        """
        most = session.account.limits.max_connections
        if 0 <= most < len(session.account.sessions):
            text = b"maximum account active connections exceeded"
            return text, "Maximum Account Connections Exceeded"
        most = self._engine.max_subscriptions(session)
        if 0 < most < len(session.subscriptions):
            return b"maximum subscriptions exceeded", "Maximum Subscriptions Exceeded"
        return None

    def _hold_to(self, session: ClientSession, user: User) -> None:
        """Hold a session to its user's permissions, which may have changed."""
        session.user = user
        session.permissions = user.permissions
        session.filters = False
        if user.permissions is None:
            return
        for subscription in list(session.subscriptions.values()):
            if user.permissions.may_subscribe(subscription.subject, subscription.queue):
                session.filters |= user.permissions.must_filter(subscription.subject)
                continue
            del session.subscriptions[subscription.sid]
            session.account.unsubscribe(subscription)
            text = quoted(subscription.subject)
            if subscription.queue:
                text += b" using queue " + quoted(subscription.queue)
            text += b' (sid "%b")' % subscription.sid
            session.put_error(b"Permissions Violation for Subscription to " + text)
            shown = text.decode("utf-8", "backslashreplace")
            self._log.info(f'Removed sub {shown} for User "{user.name}" - not authorized')

    def _close_excess(self) -> None:
        most = self._options.limits.max_connections
        sessions = list(self._engine.sessions.values())
        excess = len(sessions) - most
        if most < 0 or excess <= 0:
            return
        for session in random.sample(sessions, excess):
            session.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")
        self._log.info(f"Closed {excess} connections to fall within max_connections")
