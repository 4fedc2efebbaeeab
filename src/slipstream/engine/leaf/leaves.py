"""The links of a server: who is let in, and what becomes of an account's interest then."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.leaf.compression import LinkCompression
from slipstream.engine.leaf.handshake import Remote, SubjectLists, send_info
from slipstream.engine.leaf.rights import (
    LOOP_PREFIX,
    LinkRights,
    SubjectRights,
    jetstream_denied,
    own_domain,
    user_rights,
)
from slipstream.engine.leaf.session import LeafSession, Watcher
from slipstream.engine.session.permissions import Permissions
from slipstream.engine.session.session import LOGIN, Transport
from slipstream.model.durations import SECOND

if TYPE_CHECKING:
    from slipstream.engine.session.account import Account

CONNECT_NS_MAX = 2 * SECOND  # for INFO of a server that was dialled, and for its answer to CONNECT
DUPLICATE = "Duplicate Remote LeafNode Connection"


class Listener(msgspec.Struct, kw_only=True):
    """What the port of leaf nodes says of itself in INFO, and how long a login may take (ns)."""

    host: str = ""
    port: int = 0
    urls: list[str] = msgspec.field(default_factory=list)  # host:port of this and other hubs
    tls_required: bool = False
    tls_verify: bool = False
    auth_timeout: int = 2 * SECOND
    compression: LinkCompression = msgspec.field(default_factory=LinkCompression)


class Leaves:
    """All links of one server, as `engine.leaves`."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.sessions: dict[int, LeafSession] = {}
        self.listener = Listener()
        self.authenticator: Any = None  # of servers that dial in

    def open(
        self, transport: Transport, remote: Remote | None, watcher: Watcher, **facts: Any
    ) -> LeafSession:
        """A connection is there: begin with INFO, or wait for the other's."""
        engine = self._engine
        engine.total_sessions += 1
        facts["kind"] = "Leafnode"
        session = LeafSession(engine, transport, engine.total_sessions, facts, remote, watcher)
        self.sessions[session.cid] = session
        if remote is not None:
            session.account = engine.accounts[remote.account]
            wait, text = CONNECT_NS_MAX, b""
        else:
            send_info(session)
            if 0 <= engine.options.max_connections < len(self.sessions):
                session.fail(b"maximum connections exceeded", "Maximum Connections Exceeded")
                return session
            wait, text = self.listener.auth_timeout, b"Authentication Timeout"
        session.timer = engine.timers.after(wait, lambda: self._too_late(session, text))
        return session

    def expect_connect(self, session: LeafSession) -> None:
        """TLS is up: only now does the time to log in begin."""
        if session.closed or session.ready:
            return
        session.timer.cancel()
        session.timer = self._engine.timers.after(
            self.listener.auth_timeout,
            lambda: self._too_late(session, b"Authentication Timeout"),
        )

    def _too_late(self, session: LeafSession, text: bytes) -> None:
        if session.ready or session.closed:
            return
        if session.remote is not None:
            what = "CONNECT" if session.has_info else "the connection, with INFO"
            session.watcher.complained(session, f"no answer to {what} within 2s", True)
        session.fail(text, "Authentication Timeout")

    def count(self) -> int:
        """How many links are up."""
        return sum(session.ready for session in self.sessions.values())

    def drop(self, account: "Account | None" = None) -> None:
        """End all links, or those of one account: servers that may still be linked come back under
        the rules that hold now."""
        for session in list(self.sessions.values()):
            if account is None or session.account is account:
                session.close("Client Closed")

    # -- the end that accepts ----------------------------------------------------------------

    def authenticate(self, session: LeafSession) -> None:
        """A server has said CONNECT: find out who it is."""
        decided = False

        def done(user: Any) -> None:
            nonlocal decided
            decided = True
            if session.closed:
                return
            if user is None:
                session.fail(b"Authorization Violation", "Authentication Failure")
                return
            session.user = user
            self._admit(session, self._engine.accounts[user.account], user.permissions)
            if session.stopped_by & LOGIN:
                session.release(LOGIN)

        self.authenticator.authenticate(session, done)
        if not decided:
            session.hold(LOGIN)

    def _admit(
        self, session: LeafSession, account: "Account", permissions: Permissions | None
    ) -> None:
        said: Any = session.connect
        most = account.limits.max_leafnodes
        self._replace(session, account)
        if 0 <= most <= len(account.links):
            session.fail(
                b"maximum account leafnode connections exceeded",
                "Maximum Account Connections Exceeded",
            )
            return
        session.account = account
        about: dict[str, Any] = {"connect_info": True, "remote_account": account.name}
        send, take = SubjectRights(), SubjectRights()
        if permissions is not None:
            send, take = user_rights(permissions)
            about["import"] = _lists(send)
            about["export"] = _lists(take)
        denied = self._denied(session)
        send_deny = send.deny + denied + self._own(session) + _bytes(said.deny_pub)
        session.rights = LinkRights(
            SubjectRights(send.allow, send_deny), SubjectRights(take.allow, take.deny + denied)
        )
        send_info(session, **about)
        self._join(session, self._engine.max_payload(session))
        if self._engine.observer is not None:
            self._engine.observer.admitted(session)

    def _replace(self, session: LeafSession, account: "Account") -> None:
        """End an older connection of the same server: it has come back before this server noticed
        that it was gone."""
        said: Any = session.connect
        if not said.name or not said.remote_account:
            return
        for other in list(account.links.values()):
            if (
                other.remote is None
                and (other.server, other.cluster) == (said.name, said.cluster)
                and other.remote_account == said.remote_account
            ):
                other.watcher.complained(session, "Replacing connection from same server", True)
                other.fail(DUPLICATE.encode(), DUPLICATE)

    # -- the end that dials ------------------------------------------------------------------

    def accepted(
        self,
        session: LeafSession,
        imports: SubjectLists | None,
        exports: SubjectLists | None,
    ) -> None:
        """The hub has let this server in, and says what may be asked for and sent."""
        remote: Any = session.remote
        denied = self._denied(session)
        imports, exports = imports or SubjectLists(), exports or SubjectLists()
        send_deny = [*exports.deny, *remote.deny_exports]
        take_deny = [*imports.deny, *remote.deny_imports]
        session.rights = LinkRights(
            SubjectRights(_bytes(exports.allow), _bytes(send_deny) + denied + self._own(session)),
            SubjectRights(_bytes(imports.allow), _bytes(take_deny) + denied),
        )
        self._join(session, session.peer_payload_limit)

    # -- both --------------------------------------------------------------------------------

    def _denied(self, session: LeafSession) -> tuple[bytes, ...]:
        return jetstream_denied(session.account is self._engine.system_account)

    def _own(self, session: LeafSession) -> tuple[bytes, ...]:
        options = self._engine.options
        return own_domain(options.domain, session.domain) if options.jetstream else ()

    def _join(self, session: LeafSession, max_payload: int) -> None:
        """Messages flow from now on."""
        engine = self._engine
        account = session.account
        session.ready = True
        session.limit_payload(max_payload)
        if not account.loop_subject:
            account.loop_subject = LOOP_PREFIX + engine.new_id().encode()
        account.links[session.cid] = session
        session.interest.begin()
        if session.timer is not None:
            session.timer.cancel()
        engine.ping_later(session, engine.options.first_ping)
        session.watcher.linked(session)

    def ended(self, session: LeafSession) -> None:
        """A link is over."""
        self.sessions.pop(session.cid, None)
        session.account.links.pop(session.cid, None)


def _bytes(subjects: list[str]) -> tuple[bytes, ...]:
    return tuple(subject.encode("utf-8", "replace") for subject in subjects)


def _lists(rights: SubjectRights) -> dict[str, list[str]]:
    """How INFO has them."""
    lists = {"allow": rights.allow, "deny": rights.deny}
    return {
        name: [subject.decode("utf-8", "replace") for subject in subjects]
        for name, subjects in lists.items()
        if subjects
    }
