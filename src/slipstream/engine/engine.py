"""The engine: accounts, sessions and timers. No sockets, no clock, no threads.

Its driver sets `clock.now`, calls `session.receive` with what was read (or `tick` when a
timer is due, or `stream.synced` when a disk is done) and then ``rounds.finish_turn``.
"""

import base64
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import msgspec

from slipstream.engine.api.dispatch import ApiService
from slipstream.engine.api.operations import serve
from slipstream.engine.api.system import SystemApi
from slipstream.engine.commit.commit import Commit, Runner
from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.consumer.life import SAVE_EVERY_NS
from slipstream.engine.jetstream.elected import announce_leader
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.jetstream.scrub import Scrub
from slipstream.engine.leaf.leaves import Leaves
from slipstream.engine.loop.clock import Clock
from slipstream.engine.loop.meter import Meter
from slipstream.engine.loop.timers import Delay, Timers
from slipstream.engine.loop.turn import Turn
from slipstream.engine.message_trace import trace
from slipstream.engine.protocol.group import Group
from slipstream.engine.protocol.options import API_LEVEL, VERSION, AccountLimits, EngineOptions
from slipstream.engine.rounds import Rounds
from slipstream.engine.session.account import Account
from slipstream.engine.session.connect import accept
from slipstream.engine.session.facts import (
    SUBSCRIPTIONS_REMEMBERED_MAX,
    SessionFacts,
    Traffic,
    session_facts,
)
from slipstream.engine.session.host import OpenBatches
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.output import Output
from slipstream.engine.session.permissions import Permissions
from slipstream.engine.session.routing import Route
from slipstream.engine.session.session import LOGIN, ClientSession, Transport
from slipstream.engine.session.watch import MessageWatch
from slipstream.errors import StorageError
from slipstream.log.stream_store import Store
from slipstream.wire.nuid import Nuid

DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


@dataclass(slots=True)
class User:
    """Who a client is."""

    name: str
    account: str = DEFAULT_ACCOUNT
    permissions: Permissions | None = None


class Authenticator(Protocol):
    """Decides who a client is."""

    def authenticate(self, session: ClientSession, done: Callable[[User | None], None]) -> None:
        """Look at ``session.connect`` and call `done`, now or later, with the user or None."""

    def anonymous(self) -> User | None:
        """Who a client is that never says CONNECT; None where it has to."""


class Observer(Protocol):
    """What is told of clients that come and go, and of new accounts."""

    def account_added(self, account: Account) -> None:
        """There is one more account."""

    def admitted(self, session: ClientSession) -> None:
        """A client has said who it is, or need not."""

    def ended(self, facts: SessionFacts) -> None:
        """A connection is over."""


class Everyone:
    """No authentication: everyone is the same user of the default account."""

    def authenticate(self, session: ClientSession, done: Callable[[User | None], None]) -> None:
        done(User(""))

    def anonymous(self) -> User | None:
        return User("")


class Engine:
    """One server's state; see the module's text."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        options: EngineOptions,
        runner: Runner,
        authenticator: Authenticator | None = None,
        group: Group | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.options = options
        self.authenticator = authenticator or Everyone()
        self.group = group  # the servers that follow this one; None: it is by itself
        # Where clients have been told that they may connect.
        self._told_urls = list(group.client_urls) if group is not None else []
        self.timers = Timers(clock)
        self.saves = Delay(self.timers, SAVE_EVERY_NS)  # of consumers' positions
        self.commit = Commit(runner, self.timers, options.sync_interval)
        self.turn = Turn()
        self.output = Output(self, self.turn)
        self.rounds = Rounds(self, self.turn, self.commit, self.output)
        self.meter = Meter()  # how long requests take, where the driver measures it
        self.state: StateCommit | None = None  # keeps configurations and positions
        self.scrub: Scrub | None = None  # reads again what is stored
        self.nuid = Nuid(random)
        self.started = clock.now
        key = base64.b32encode(bytes(random.randrange(256) for _ in range(35))).decode()
        self.server_id = "N" + key[:55]
        self.server_name = options.server_name or self.server_id
        self.observer: Observer | None = None
        # Is told of messages that are traced; to be set before there are streams.
        self.message_watch: MessageWatch | None = None
        self.accounts: dict[str, Account] = {}
        self.default_account = self.add_account(DEFAULT_ACCOUNT)
        self.system_account = self.add_account(SYSTEM_ACCOUNT, AccountLimits(jetstream=None))
        self.sessions: dict[int, ClientSession] = {}
        self.leaves = Leaves(self)  # links to other servers
        self.closed_sessions: deque[SessionFacts] = deque(maxlen=options.max_closed_clients)
        self.total_sessions = 0
        self.slow_consumers = 0
        self.stale_connections = 0
        self.ended_traffic: dict[str, Traffic] = {}  # of sessions that are gone, by account
        self.lame_duck = False
        self.on_problem: Callable[[str], None] = lambda text: None  # what an operator has to know
        self.describe = self._describe  # which server this is, as events show it
        self._apis: dict[str, ApiService | SystemApi] = {}
        self.stored = {"file": 0, "memory": 0}  # bytes in streams of accounts that are limited
        self.staged = OpenBatches()
        # What those ask for that are hosted (`Host`), by whom it is done.
        self.flush = self.output.flush
        self.must_wait = self.rounds.must_wait
        self.queue_request = self.rounds.queue_request
        self.fetch = self.rounds.fetch
        self.wait = self.rounds.wait
        self.drop_later = self.rounds.drop_later

    def _describe(self) -> dict[str, Any]:
        return {"name": self.server_name, "id": self.server_id, "ver": VERSION}

    def add_account(self, name: str, limits: AccountLimits | None = None) -> Account:
        """A new, empty account."""
        account = Account(name, self, self.random, limits or AccountLimits())
        self.accounts[name] = account
        if self.observer is not None:
            self.observer.account_added(account)
        return account

    def rename_system_account(self, name: str) -> None:
        """The system account has another name here."""
        del self.accounts[self.system_account.name]
        self.system_account.name = name
        self.accounts[name] = self.system_account

    def start_jetstream(self, store: Store | None) -> None:
        """Give every account that may have it JetStream, with what the store has. Blocks."""
        if store is not None and self.state is None:
            self.state = StateCommit(store.commit_log, self.commit, self.timers, self.turn, self)
            self.commit.shared = self.state
        for account in self.accounts.values():
            self.start_account(account, store)
        if store is not None and store.lost:
            self.problem(
                f"{len(store.lost)} entries of the commit log are damaged, and what they held is "
                "lost: configurations and positions that had changed last may be older ones, see "
                "docs/storage.md"
            )
        self.set_scrub_rate(self.options.scrub_rate if store is not None else 0)
        if self.group is not None:
            announce_leader(self, self.group)

    def set_scrub_rate(self, rate: int) -> None:
        """Read again so many bytes a second of what is stored; 0 stops that."""
        if self.scrub is not None and rate:
            self.scrub.set_rate(rate)
        elif self.scrub is not None:
            self.scrub.stop()
            self.scrub = None
        elif rate:
            self.scrub = Scrub(self, rate)
            self.scrub.start()

    def start_account(self, account: Account, store: Store | None) -> None:
        """JetStream of one account; where it has none, somebody who says so. Blocks."""
        if account.limits.jetstream:
            account.jetstream = JetStream(account, self, store)
            self._apis[account.name] = serve(account.jetstream)
            account.jetstream.load()
        elif account is self.system_account:
            self._apis[account.name] = SystemApi(account, store)
        else:  # its clients are told so
            self._apis[account.name] = serve(JetStream(account, self, None))

    def stop_account(self, account: Account) -> None:
        """No JetStream in this account any more; its files stay. Blocks."""
        api = self._apis.pop(account.name, None)
        if api is not None:
            api.stop()
            self.rounds.drop_requests_to(api)
        if account.jetstream is not None:
            self._settle()
            account.jetstream.close()
            account.jetstream = None

    def _settle(self) -> None:
        """Have the files of streams and consumers hold all that was kept, as far as the disk lets
        them."""
        try:
            if self.state is not None:
                self._keep_positions()
                self.state.apply_all()
        except StorageError as error:
            self.problem(str(error))

    def _keep_positions(self) -> None:
        """Have the log hold where all consumers are, also those whose files the disk refuses."""
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.keep_positions()

    def stop_jetstream(self) -> None:
        """No JetStream in any account any more; the store may be opened by others. Blocks."""
        self.set_scrub_rate(0)
        for account in self.accounts.values():
            self.stop_account(account)
        if self.state is not None:
            self.commit.shared = None
            self.state.close()
            self.state = None

    def problem(self, text: str) -> None:
        """Report what an operator has to know about the store of all accounts, once."""
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.problem(text)
                return
        self.on_problem(text)

    def resolve(self, text: str) -> None:
        """A problem that was reported is over."""
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.resolve(text)

    def dismiss(self) -> None:
        """Answer all pull requests that wait, while the sessions are there to take the answers."""
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.dismiss()

    def close(self) -> None:
        """End everything: streams are synced and closed. Blocks."""
        self.set_scrub_rate(0)
        if self.state is not None:
            self._keep_positions()
            self.state.close()
        for account in self.accounts.values():
            if account.jetstream is not None:
                account.jetstream.close()

    # -- sessions ------------------------------------------------------------------------------

    def open_session(self, transport: Transport, **facts: Any) -> ClientSession | None:
        """A client has connected: greet it. None if it was turned away."""
        self.total_sessions += 1
        session = ClientSession(self, transport, self.total_sessions, facts)
        self.sessions[session.cid] = session
        self.default_account.sessions[session.cid] = session
        self.send_info(session)
        if 0 <= self.options.max_connections < len(self.sessions):
            session.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")
            return None
        self.expect_connect(session)
        return session

    def all_sessions(self) -> list[ClientSession]:
        """Clients and links to other servers."""
        return [*self.sessions.values(), *self.leaves.sessions.values()]

    def expect_connect(self, session: ClientSession) -> None:
        """From now on the client has its time to authenticate. Where TLS comes first, that is when
        it is up."""
        if session.closed or session.ready:
            return
        if session.timer is not None:
            session.timer.cancel()
        options = self.options
        first_ping = min(options.first_ping, options.ping_interval)
        session.timer = self.timers.after(
            options.auth_timeout if options.auth_required else first_ping,
            lambda: self._first_timer(session),
        )

    def send_info(self, session: ClientSession, connected: bool = False) -> None:
        """Send INFO; `connected` adds what is known once the account is."""
        options = self.options
        host, port = options.host, options.port
        if options.client_advertise:
            advertised, _, number = options.client_advertise.rpartition(":")
            known = bool(advertised) and number.isdigit()
            host, port = (advertised, int(number)) if known else (options.client_advertise, port)
        info: dict[str, Any] = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": VERSION,
            "proto": 1,
            "go": "slipstream",
            "host": host,
            "port": port,
            "headers": not options.no_header_support,
            "max_payload": self.max_payload(session),
            "client_id": session.cid,
            "client_ip": session.facts.get("ip", ""),
            "api_lvl": API_LEVEL,
        }
        if options.auth_required:
            info["auth_required"] = True
        for name in ("tls_required", "tls_verify", "tls_available", "jetstream"):
            if getattr(options, name):
                info[name] = True
        if options.domain:
            info["domain"] = options.domain
        if self.group is not None:
            info["cluster"] = self.group.name
            urls = list(self.group.client_urls)[1 if self.lame_duck else 0 :]
            if urls:
                info["connect_urls"] = urls
        if self.lame_duck:
            info["ldm"] = True
        if connected:
            info["connect_info"] = True
            info["remote_account"] = session.account.name
            if session.account is self.system_account:
                info["acc_is_sys"] = True
        session.put_line(b"INFO " + msgspec.json.encode(info) + b" \r\n")

    def max_payload(self, session: ClientSession) -> int:
        """The bound on a session's messages: the server's or its account's, whichever is less."""
        limit = session.account.limits.max_payload
        return min(limit, self.options.max_payload) if limit >= 0 else self.options.max_payload

    def max_subscriptions(self, session: ClientSession) -> int:
        """The bound on a session's subscriptions; 0 is none."""
        bounds = [self.options.max_subscriptions, session.account.limits.max_subscriptions]
        return min((bound for bound in bounds if bound > 0), default=0)

    def admit_without_connect(self, session: ClientSession) -> bool:
        """Whether a client that has not said CONNECT may go on; it is somebody then."""
        user = self.authenticator.anonymous()
        if user is None:
            return False
        self._admit(session, user)
        return session.ready

    def authenticate(self, session: ClientSession) -> None:
        """CONNECT was received: find out who it is."""
        decided = False

        def done(user: User | None) -> None:
            nonlocal decided
            decided = True
            if session.closed:
                return
            if user is None:
                session.fail(b"Authorization Violation", "Authentication Failure")
                return
            self._admit(session, user)
            if not session.closed:
                accept(session)
            if session.stopped_by & LOGIN:
                session.release(LOGIN)

        self.authenticator.authenticate(session, done)
        if not decided:
            session.hold(LOGIN)

    def _admit(self, session: ClientSession, user: User) -> None:
        account = self.accounts[user.account]
        session.account.sessions.pop(session.cid, None)
        most = account.limits.max_connections
        if 0 <= most <= len(account.sessions):
            session.fail(
                b"maximum account active connections exceeded",
                "Maximum Account Connections Exceeded",
            )
            return
        account.sessions[session.cid] = session
        session.account = account
        session.user = user
        session.permissions = user.permissions
        session.filters = False
        session.limit_payload(self.max_payload(session))
        first = not session.ready
        session.ready = True
        if first and self.options.auth_required and session.timer is not None:
            session.timer.cancel()
            self.ping_later(session, self.options.first_ping)
        if first and self.observer is not None:
            self.observer.admitted(session)

    def trace(
        self, session: ClientSession, published: bytes, message: Inbound, route: Route
    ) -> int:
        """Dispatch a message with `Nats-Trace-Dest`; -1 if it is to be dispatched like others."""
        return trace(session, published, message, route)

    def session_closed(self, session: ClientSession) -> None:
        """A session is over: remember it, with what it was subscribed to, for monitoring."""
        self.sessions.pop(session.cid, None)
        session.account.sessions.pop(session.cid, None)
        facts = session_facts(session, SUBSCRIPTIONS_REMEMBERED_MAX, self.clock.now)
        self.ended_traffic.setdefault(facts.account, Traffic()).add(facts)
        self.closed_sessions.append(facts)
        if self.observer is not None:
            self.observer.ended(facts)

    # -- timers of sessions --------------------------------------------------------------------

    def _first_timer(self, session: ClientSession) -> None:
        if self.options.auth_required and not session.ready:
            session.fail(b"Authentication Timeout", "Authentication Timeout")
            return
        self._ping(session)

    def ping_later(self, session: ClientSession, delay: int) -> None:
        """See in `delay` ns whether the other side is alive."""
        jitter = self.random.randrange(max(delay // 5, 1))
        wanted = min(delay, self.options.ping_interval) + jitter
        session.timer = self.timers.after(wanted, lambda: self._ping(session))

    def _ping(self, session: ClientSession) -> None:
        """See whether the client is alive, unless it has shown so."""
        if session.closed:
            return
        interval = self.options.ping_interval
        quiet = self.clock.now - session.last_activity
        if session.rtt and quiet < interval and not session.pings_out:
            wait = interval - quiet
            session.timer = self.timers.after(wait, lambda: self._ping(session))
            return
        if session.pings_out + 1 > self.options.ping_max:
            self.stale_connections += 1
            session.fail(b"Stale Connection", "Stale Connection")
            return
        session.pings_out += 1
        session.ping_sent = self.clock.now
        session.put_line(b"PING\r\n")
        session.timer = self.timers.after(interval, lambda: self._ping(session))

    def send_lame_duck(self, session: ClientSession) -> None:
        """Tell one client to look for another server, if it knows the word."""
        if session.protocol >= 1:
            before, self.lame_duck = self.lame_duck, True
            self.send_info(session)
            self.lame_duck = before

    def group_changed(self) -> None:
        """Tell clients that know the word where they may connect, if that has changed."""
        urls = list(self.group.client_urls) if self.group is not None else []
        if urls == self._told_urls:
            return
        self._told_urls = urls
        for session in list(self.sessions.values()):
            if session.protocol >= 1 and session.pinged:
                self.send_info(session)

    def ask_for_room_again(self) -> None:
        """There is no space any more: messages have no room in streams that was not asked for since
        then."""
        for account in self.accounts.values():
            for stream in account.jetstream.streams.values() if account.jetstream else ():
                stream.log.ask_for_room_again()

    def start_lame_duck(self) -> None:
        """Tell every client that knows the word to look for another server."""
        self.lame_duck = True
        for session in list(self.sessions.values()):
            if session.protocol >= 1:
                self.send_info(session)

    # -- turns ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Run the timers that are due."""
        self.timers.run_due()

    @property
    def is_crowded(self) -> bool:
        """Clients have more than half of what they may have pending."""
        return self.output.is_crowded

    def cut_off(self, session: ClientSession, reason: str) -> None:
        """Be rid of a client that does not keep up, at once: nobody else waits for it."""
        self.slow_consumers += 1
        self.ended_traffic.setdefault(session.account.name, Traffic()).slow += 1
        session.gone(reason)
        session.transport.abort()

    def new_id(self) -> str:
        """A 22-character id that does not repeat."""
        return self.nuid.next()
